import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.outcomes import (
    Fact,
    FactKind,
    ForeignFact,
    Inbound,
    Kind,
    Notice,
    Parsed,
    Preference,
    followup_key,
    message_key,
)
from carteiro.domain.standing import AccountState, Standing, TemplateState
from carteiro.providers.meta.webhook import parse_webhook
from tests.providers.meta.shapes import ACCOUNT, BATCH, SENDER, WAMID, change, payload, raw_example, status

KEY = message_key(BATCH, 1)


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def fact(kind: FactKind, seconds: int, **more: Any) -> Fact:
    return Fact(BATCH, 1, kind, at(seconds), WAMID, via=SENDER, **more)


def failed(code: str, failure: Kind) -> Fact:
    return fact(FactKind.FAILED, 1796130005, code=code, failure=failure)


STATUSES: dict[str, Fact] = {
    "webhook-status-sent": fact(FactKind.SENT, 1796130000),
    "webhook-status-sent-pre-v24-with-conversation": fact(FactKind.SENT, 1796130000),
    "webhook-status-delivered": fact(FactKind.DELIVERED, 1796130003),
    "webhook-status-read": fact(FactKind.SEEN, 1796130420),
    "webhook-status-failed-130472-experiment": failed("130472", Kind.COOL_DOWN),
    "webhook-status-failed-131026-undeliverable": failed("131026", Kind.CONTACT),
    "webhook-status-failed-131047-outside-window": failed("131047", Kind.CONTACT),
    "webhook-status-failed-131048-spam-rate": replace(failed("131048", Kind.RATE), wait_s=3600.0),
    "webhook-status-failed-131049-per-user-limit": failed("131049", Kind.COOL_DOWN),
    "webhook-status-failed-131050-marketing-optout": failed("131050", Kind.CONTACT_MARKETING),
    "webhook-status-failed-131053-media-upload": failed("131053", Kind.REQUEST),
    "webhook-status-failed-132015-held-dropped": failed("132015", Kind.TEMPLATE),
}


@pytest.mark.parametrize("name", STATUSES)
def test_a_status_is_a_fact(name: str) -> None:
    assert parse_webhook(raw_example(name, KEY)) == Parsed(facts=(STATUSES[name],))


def test_ids_that_are_not_ours_are_orphans() -> None:
    batch = parse_webhook(raw_example("webhook-status-batch"))
    assert batch == Parsed(orphans=("o7:42:000001", "o7:42:000002", "o7:42:000003"))
    assert parse_webhook(raw_example("webhook-status-delivered-bsuid-only")) == Parsed(orphans=("o7:43:000002",))


def test_a_status_without_our_id_names_its_message_by_metas() -> None:
    told = status(biz_opaque_callback_data=None, word="failed", errors=[{"code": 131026}])
    fact = ForeignFact(WAMID, FactKind.FAILED, at(1796130003), "131026", Kind.CONTACT, SENDER)
    assert parse_webhook(payload([change(statuses=[told])])) == Parsed(foreign=(fact,))


def test_a_status_of_a_follow_up_says_so() -> None:
    told = fact(FactKind.DELIVERED, 1796130003, followup=True)
    body = payload([change(statuses=[status(followup_key(BATCH, 1))])])
    assert parse_webhook(body) == Parsed(facts=(told,))


WRITTEN = Inbound("553187650001", "PARAR", at(1796130500), message_id="?", sender=SENDER)
INBOUND: dict[str, Inbound] = {
    "webhook-inbound-text": WRITTEN,
    "webhook-inbound-text-reply": replace(WRITTEN, text="quero falar com alguem", context_id=WAMID),
    "webhook-inbound-template-quick-reply": replace(WRITTEN, text="Parar de receber", context_id=WAMID, is_button=True),
    "webhook-inbound-interactive-button-reply": replace(WRITTEN, text="Parar", context_id=WAMID, is_button=True),
    "webhook-inbound-interactive-list-reply": replace(WRITTEN, text="Financeiro", is_button=True),
    "webhook-inbound-image": replace(WRITTEN, text="comprovante"),
    "webhook-inbound-username-user-no-phone": replace(WRITTEN, phone=None, text="oi"),
}


@pytest.mark.parametrize("name", INBOUND)
def test_what_a_contact_writes_or_chooses_is_handed_on(name: str) -> None:
    parsed = parse_webhook(raw_example(name))
    (inbound,) = parsed.inbound
    assert inbound.message_id is not None
    assert inbound.message_id.startswith("wamid.")
    assert parsed == Parsed(inbound=(replace(INBOUND[name], message_id=inbound.message_id),))


@pytest.mark.parametrize("name", ["reaction", "unsupported", "system-number-change"])
def test_what_is_no_answer_is_counted(name: str) -> None:
    assert parse_webhook(raw_example(f"webhook-inbound-{name}")) == Parsed(ignored=1)


def notice(kind: str, word: str, seconds: int | None, *, syncs: bool) -> Notice:
    return Notice(kind, word, None if seconds is None else at(seconds), ACCOUNT, syncs)


def template(word: str, usable: bool) -> TemplateState:
    return TemplateState("aviso_fatura_v3", "pt_BR", word, usable, "900100200300", at(1796131000), ACCOUNT)


UPDATED = 1796131400
OTHERS: dict[str, Parsed] = {
    "user-preferences-stop": Parsed(preferences=(Preference("553187650001", True, at(1796130700), SENDER),)),
    "template-status-approved": Parsed(templates=(template("APPROVED", True),)),
    "template-status-paused": Parsed(templates=(template("PAUSED", False),)),
    "template-status-rejected": Parsed(templates=(template("REJECTED", False),)),
    "template-quality": Parsed(notices=(notice("message_template_quality_update", "YELLOW", 1796131100, syncs=False),)),
    "template-category": Parsed(notices=(notice("template_category_update", "MARKETING", 1796131200, syncs=False),)),
    "phone-number-quality-throughput-upgrade": Parsed(
        notices=(notice("phone_number_quality_update", "THROUGHPUT_UPGRADE", 1796131300, syncs=True),)
    ),
    "business-capability": Parsed(notices=(notice("business_capability_update", "2000", 1796131350, syncs=True),)),
    "account-update-disabled": Parsed(
        accounts=(AccountState(ACCOUNT, "ACCOUNT_DISABLED", Standing.STOPPED, at(UPDATED)),),
        notices=(notice("account_update", "DISABLED_UPDATE", UPDATED, syncs=True),),
    ),
    "account-update-restriction": Parsed(
        accounts=(AccountState(ACCOUNT, "ACCOUNT_RESTRICTED", Standing.STOPPED, at(UPDATED), at(1796390400)),),
        notices=(notice("account_update", "ACCOUNT_RESTRICTION", UPDATED, syncs=True),),
    ),
    "account-update-violation": Parsed(notices=(notice("account_update", "ACCOUNT_VIOLATION", UPDATED, syncs=True),)),
    "messages-errors": Parsed(notices=(notice("errors", "130429", None, syncs=False),)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_told_of_accounts_numbers_and_templates(name: str) -> None:
    assert parse_webhook(raw_example(f"webhook-{name}")) == OTHERS[name]


def test_one_item_never_spoils_the_next() -> None:
    good = status()
    spoilt: list[Any] = [
        None,
        5,
        {"id": WAMID},
        {"id": WAMID, "status": "sent", "timestamp": "soon"},
        {"status": "sent"},
    ]
    body = payload(
        [change(statuses=[good, *spoilt, status(word="warning")]), change(name="flows", anything=[1]), {"field": "x"}],
        [change(statuses="none"), change(messages=[{"type": "text", "id": "w"}, {"id": "w"}]), change()],
    )
    document = json.loads(body)
    document["entry"] += [None, {"id": ACCOUNT}, {"id": ACCOUNT, "changes": [7]}]
    parsed = parse_webhook(json.dumps(document).encode())
    assert parsed.facts == (fact(FactKind.DELIVERED, 1796130003),)
    assert parsed.malformed == len(spoilt) + 1 + 1 + 2 + 3
    assert parsed.ignored == 3


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"entry": {}}', b"\xff"])
def test_a_body_that_is_none_is_malformed(body: bytes) -> None:
    assert parse_webhook(body) == Parsed(malformed=1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "entry",
                    "changes",
                    "value",
                    "field",
                    "statuses",
                    "messages",
                    "id",
                    "status",
                    "timestamp",
                    "errors",
                    "code",
                    "type",
                    "text",
                    "metadata",
                    "contacts",
                    "user_preferences",
                    "restriction_info",
                    "event",
                    "ban_info",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(
    json_values, st.sampled_from(["messages", "account_update", "user_preferences", "message_template_status_update"])
)
def test_nothing_that_comes_in_raises(value: Any, name: str) -> None:
    parse_webhook(json.dumps(value).encode())
    parse_webhook(json.dumps({"entry": [{"id": "1", "changes": [{"field": name, "value": value}]}]}).encode())
    parse_webhook(payload([change(name=name, statuses=[value], messages=[value], user_preferences=[value])]))
