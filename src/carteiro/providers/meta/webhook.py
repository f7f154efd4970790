"""Meta's webhooks, read item by item: what is malformed, new or somebody else's never spoils the next.

One body holds changes of any of the app's numbers and accounts: every item says under which one it was told (`via`: the
phone_number_id, or the id of the WhatsApp business account). Items are matched by `biz_opaque_callback_data`, which
holds our key, else by Meta's own id; never by phone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from carteiro.domain.outcomes import (
    Fact,
    FactKind,
    ForeignFact,
    Inbound,
    Kind,
    Notice,
    Parsed,
    Preference,
    Scope,
    parse_followup_key,
    parse_message_key,
)
from carteiro.domain.standing import AccountState, TemplateState
from carteiro.providers.foreign import decode_json, read_digits, read_number, read_unix, read_word, rows_of
from carteiro.providers.meta.codes import Meaning, meaning_of
from carteiro.providers.meta.states import read_account_event, read_template_event

_STATUSES = {
    "sent": FactKind.SENT,
    "delivered": FactKind.DELIVERED,
    "read": FactKind.SEEN,
    # A voice message was listened to.
    "played": FactKind.SEEN,
    "failed": FactKind.FAILED,
}
_WORDS: dict[str, str | None] = {
    "text": "body",
    "button": "text",
    "image": "caption",
    "video": "caption",
    "document": "caption",
    "audio": None,
    "sticker": None,
    "location": None,
    "contacts": None,
    "interactive": None,
}
"""The types of inbound messages that are an answer of the contact, and where its words are. Others are counted."""
_CHOICES = ("button_reply", "list_reply")
_SYNCS = {
    "phone_number_quality_update": "event",
    "phone_number_name_update": "decision",
    "business_capability_update": "max_daily_conversations_per_business",
    "account_update": "event",
    "account_alerts": "alert_type",
}
"""Fields after which the provider has to be asked how things stand, each with the member that says what happened."""
_NOTED = {
    "message_template_quality_update": "new_quality_score",
    "template_category_update": "new_category",
    "account_review_update": "decision",
}
"""Fields that are written down and change nothing."""


@dataclass(slots=True)
class _Found:
    facts: list[Fact] = field(default_factory=list)
    foreign: list[ForeignFact] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    malformed: int = 0
    ignored: int = 0
    inbound: list[Inbound] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)
    templates: list[TemplateState] = field(default_factory=list)
    accounts: list[AccountState] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Change:
    account: str
    """The WhatsApp business account."""
    at: datetime | None
    name: str
    value: dict[str, Any]

    @property
    def via(self) -> str | None:
        """The number's id."""
        metadata = self.value.get("metadata")
        return read_word(metadata.get("phone_number_id")) if isinstance(metadata, dict) else None


def parse_webhook(body: bytes) -> Parsed:
    """Never raises."""
    entries = rows_of(decode_json(body), "entry")
    found = _Found()
    if entries is None:
        return Parsed(malformed=1)
    for entry in entries:
        changes = rows_of(entry, "changes")
        if changes is None:
            found.malformed += 1
            continue
        account, at = read_word(entry.get("id")) or "", read_unix(entry.get("time"))
        for change in changes:
            value = change.get("value") if isinstance(change, dict) else None
            if isinstance(change, dict) and isinstance(value, dict):
                _read_change(found, _Change(account, at, str(change.get("field")), value))
            else:
                found.malformed += 1
    return Parsed(
        facts=tuple(found.facts),
        foreign=tuple(found.foreign),
        orphans=tuple(found.orphans),
        malformed=found.malformed,
        ignored=found.ignored,
        inbound=tuple(found.inbound),
        preferences=tuple(found.preferences),
        templates=tuple(found.templates),
        accounts=tuple(found.accounts),
        notices=tuple(found.notices),
    )


def _read_change(found: _Found, change: _Change) -> None:
    value = change.value
    match change.name:
        case "messages":
            read = _each(found, value, "statuses", lambda row: _read_status(found, change, row))
            read |= _each(found, value, "messages", lambda row: _read_message(found, change, row))
            read |= _each(found, value, "errors", lambda row: _read_error(found, change, row))
            found.ignored += not read
        case "user_preferences":
            found.ignored += not _each(
                found, value, "user_preferences", lambda row: _read_preference(found, change, row)
            )
        case "message_template_status_update":
            state = read_template_event(change.account, value, change.at)
            if state is not None:
                found.templates.append(state)
            else:
                found.notices.append(_notice(change, "event", syncs=True))
        case "account_update":
            account = read_account_event(change.account, value, change.at)
            if account is not None:
                found.accounts.append(account)
            found.notices.append(_notice(change, "event", syncs=True))
        case name if name in _SYNCS:
            found.notices.append(_notice(change, _SYNCS[name], syncs=True))
        case name if name in _NOTED:
            found.notices.append(_notice(change, _NOTED[name], syncs=False))
        case _:
            found.ignored += 1


def _each(found: _Found, value: dict[str, Any], name: str, read: Callable[[dict[str, Any]], None]) -> bool:
    """Whether the member was there at all."""
    if name not in value:
        return False
    rows = rows_of(value, name)
    if rows is None:
        found.malformed += 1
        return True
    for row in rows:
        if isinstance(row, dict):
            read(row)
        else:
            found.malformed += 1
    return True


def _notice(change: _Change, member: str, *, syncs: bool) -> Notice:
    said = change.value.get(member)
    return Notice(change.name, read_word(str(said)) if said is not None else None, change.at, change.account, syncs)


def _read_status(found: _Found, change: _Change, row: dict[str, Any]) -> None:
    provider_id, word, at = read_word(row.get("id")), row.get("status"), read_unix(row.get("timestamp"))
    key = row.get("biz_opaque_callback_data")
    if not isinstance(word, str) or at is None or (provider_id is None and not isinstance(key, str)):
        found.malformed += 1
        return
    kind = _STATUSES.get(word)
    if kind is None:
        found.ignored += 1
        return
    failed = _read_errors(row.get("errors")) if kind is FactKind.FAILED else None
    code, failure = (failed.code, failed.kind) if failed else (None, None)
    wait_s = failed.wait_s if failed and failed.scope is Scope.SENDER else None
    if not isinstance(key, str):
        assert provider_id is not None
        found.foreign.append(ForeignFact(provider_id, kind, at, code, failure, change.via, wait_s))
        return
    ours, followup = parse_message_key(key), parse_followup_key(key)
    if (named := ours or followup) is None:
        found.orphans.append(key)
        return
    fact = Fact(*named, kind, at, provider_id, code, failure, followup=ours is None, via=change.via, wait_s=wait_s)
    found.facts.append(fact)


def _read_errors(errors: Any) -> Meaning:
    """Why a message failed; the first error counts."""
    for error in errors if isinstance(errors, list) else []:
        code = read_number(error.get("code")) if isinstance(error, dict) else None
        if code is not None:
            return meaning_of(code)
    return Meaning("UNKNOWN", "UNKNOWN", Kind.TRANSIENT)


def _read_error(found: _Found, change: _Change, row: dict[str, Any]) -> None:
    """Trouble of a number that is no message's."""
    code = read_number(row.get("code"))
    found.notices.append(Notice("errors", None if code is None else str(code), change.at, change.account, syncs=False))


def _read_message(found: _Found, change: _Change, row: dict[str, Any]) -> None:
    kind, message_id = row.get("type"), read_word(row.get("id"))
    if not isinstance(kind, str) or message_id is None:
        found.malformed += 1
        return
    if kind not in _WORDS or row.get("errors"):
        found.ignored += 1
        return
    said, chosen = row.get(kind), kind == "button"
    text: Any = None
    if isinstance(said, dict):
        text = said.get(_WORDS[kind])
        if kind == "interactive":
            chosen = True
            choice = next((said[name] for name in _CHOICES if isinstance(said.get(name), dict)), None)
            text = choice.get("title") if choice else None
    if kind == "text" and not isinstance(text, str):
        found.malformed += 1
        return
    context = row.get("context")
    found.inbound.append(
        Inbound(
            _phone(change, row.get("from"), row.get("from_user_id")),
            text if isinstance(text, str) else "",
            read_unix(row.get("timestamp")),
            message_id=message_id,
            context_id=read_word(context.get("id")) if isinstance(context, dict) else None,
            sender=change.via,
            is_button=chosen,
        )
    )


def _read_preference(found: _Found, change: _Change, row: dict[str, Any]) -> None:
    word = row.get("value")
    if word not in ("stop", "resume"):
        found.malformed += 1
        return
    if row.get("category", "marketing_messages") != "marketing_messages":
        found.ignored += 1
        return
    phone = _phone(change, row.get("wa_id"), row.get("user_id"))
    found.preferences.append(Preference(phone, word == "stop", read_unix(row.get("timestamp")), change.via))


def _phone(change: _Change, given: Any, user_id: Any) -> str | None:
    """None: WhatsApp hides it."""
    if (phone := read_digits(given)) is not None:
        return phone
    for contact in rows_of(change.value, "contacts") or []:
        if isinstance(contact, dict) and user_id is not None and contact.get("user_id") == user_id:
            return read_digits(contact.get("wa_id"))
    return None
