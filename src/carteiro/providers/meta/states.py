"""What Meta says of numbers, accounts and templates, as answers and as webhooks. Unknown words settle nothing."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from carteiro.domain.standing import AccountState, SenderState, Standing, TemplateState, Tier
from carteiro.providers import whatsapp
from carteiro.providers.foreign import decode_json, read_number, read_unix, read_word, rows_of
from carteiro.providers.whatsapp import USABLE, read_limit, read_template

QUALITIES = {"GREEN": "HIGH", "YELLOW": "MEDIUM", "RED": "LOW"}
STANDINGS = {**whatsapp.STANDINGS, "MIGRATED": Standing.STOPPED}
UNSETTLED = frozenset({"UNARCHIVED", "UNLOCKED"})
"""Events after which a template may or may not be usable: it has to be asked for."""

_RESTRICTS_SENDING = "RESTRICTED_BIZ_INITIATED_MESSAGING"


def read_sender(body: bytes) -> SenderState | None:
    """The answer of `GET /{phone_number_id}`; None when it cannot be read."""
    document = decode_json(body)
    if not isinstance(document, dict):
        return None
    sender, word = read_word(document.get("id")), read_word(document.get("status"))
    if sender is None:
        return None
    word = word or "UNKNOWN"
    return SenderState(
        sender,
        word,
        STANDINGS.get(word, Standing.UNCLEAR),
        QUALITIES.get(str(document.get("quality_rating"))),
        read_tier(document.get("whatsapp_business_manager_messaging_limit")),
    )


def read_templates(body: bytes) -> tuple[list[TemplateState], str | None] | None:
    """One page of `GET /{waba_id}/message_templates`, unreadable rows left out, and the cursor of the next; None when
    there is no list.
    """
    document = decode_json(body)
    rows = rows_of(document, "data")
    if rows is None:
        return None
    paging = document.get("paging")
    cursors = paging.get("cursors") if isinstance(paging, dict) and paging.get("next") else None
    after = read_word(cursors.get("after")) if isinstance(cursors, dict) else None
    return [state for row in rows if (state := read_template(row)) is not None], after


def read_tier(value: Any) -> Tier | None:
    """TIER_2K is 2,000 people a day, TIER_UNLIMITED any number; None: nothing is said."""
    word = read_word(value)
    if word is None or word in ("TIER_NOT_SET", "NOT_SET"):
        return None
    if word == "TIER_UNLIMITED":
        return Tier(word, None)
    return read_limit(word, "TIER_")


def read_template_event(account: str, value: dict[str, Any], at: datetime | None) -> TemplateState | None:
    """A `message_template_status_update`; None when it does not say which template or what became of it."""
    name, language = (
        read_word(value.get("message_template_name")),
        read_word(value.get("message_template_language")),
    )
    word = read_word(value.get("event"))
    if name is None or language is None or word is None or word in UNSETTLED:
        return None
    number = read_number(value.get("message_template_id"))
    template_id = str(number) if number is not None else read_word(value.get("message_template_id"))
    return TemplateState(name, language, word, word in USABLE, template_id, at, account)


def read_account_event(account: str, value: dict[str, Any], at: datetime | None) -> AccountState | None:
    """An `account_update` that says whether the account may send; None for any other."""
    at = at or datetime.now(UTC)
    match value.get("event"):
        case "ACCOUNT_DELETED" | "ACCOUNT_OFFBOARDED" as event:
            return AccountState(account, event, Standing.STOPPED, at)
        case "ACCOUNT_RECONNECTED" as event:
            return AccountState(account, event, Standing.GOOD, at)
        case "DISABLED_UPDATE":
            info = value.get("ban_info")
            state = info.get("waba_ban_state") if isinstance(info, dict) else None
            if state == "DISABLE":
                return AccountState(account, "ACCOUNT_DISABLED", Standing.STOPPED, at)
            if state == "REINSTATE":
                return AccountState(account, "ACCOUNT_REINSTATED", Standing.GOOD, at)
            return None
        case "ACCOUNT_RESTRICTION":
            told = rows_of(value, "restriction_info") or []
            ends = [
                read_unix(row.get("expiration"))
                for row in told
                if isinstance(row, dict) and row.get("restriction_type") == _RESTRICTS_SENDING
            ]
            state = AccountState(account, "ACCOUNT_RESTRICTED", Standing.STOPPED, at)
            until = max((end for end in ends if end is not None), default=None)
            return replace(state, until=until) if ends else None
        case _:
            return None
