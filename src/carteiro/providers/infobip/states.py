"""What Infobip says of senders and templates, as answers and as webhooks. Unknown words are kept and settle nothing."""

from typing import Any

from carteiro.domain.standing import SenderState, Standing, TemplateState, Tier
from carteiro.providers.foreign import decode_json, read_time, read_word, rows_of
from carteiro.providers.whatsapp import STANDINGS, USABLE, read_limit, read_template

QUALITIES = frozenset({"HIGH", "MEDIUM", "LOW"})


def read_senders(body: bytes) -> list[SenderState] | None:
    """The rows of `GET /whatsapp/1/senders/quality`; unreadable ones are left out. None when there is no list."""
    rows = rows_of(decode_json(body), "results")
    return None if rows is None else [state for row in rows if (state := _sender(row)) is not None]


def read_templates(body: bytes) -> list[TemplateState] | None:
    """The rows of `GET /whatsapp/2/senders/{sender}/templates`, alike."""
    rows = rows_of(decode_json(body), "templates")
    return None if rows is None else [state for row in rows if (state := read_template(row)) is not None]


def read_template_update(document: dict[str, Any]) -> TemplateState | None:
    """The state that a template webhook reports, if it reports one and says when."""
    change = document.get("change")
    if not isinstance(change, dict) or change.get("type") != "TEMPLATE_STATUS_UPDATE":
        return None
    name, language = read_word(document.get("messageTemplateName")), read_word(document.get("messageTemplateLanguage"))
    word, at = read_word(change.get("newStatus")), read_time(document.get("timestamp"))
    if name is None or language is None or word is None or at is None:
        return None
    return TemplateState(name, language, word, word in USABLE, read_word(document.get("messageTemplateId")), at)


def read_tier(word: str | None) -> Tier | None:
    """A word for a limit: LIMIT_2K is 2,000 messages; UNLIMITED is none; LIMIT_NA says nothing."""
    if word is None or word == "LIMIT_NA":
        return None
    if word == "UNLIMITED":
        return Tier(word, None)
    return read_limit(word, "LIMIT_")


def _sender(row: Any) -> SenderState | None:
    if not isinstance(row, dict):
        return None
    sender, word, quality = (
        read_word(row.get("sender")),
        read_word(row.get("status")),
        read_word(row.get("qualityRating")),
    )
    if sender is None or word is None:
        return None
    return SenderState(
        sender,
        word,
        STANDINGS.get(word, Standing.UNCLEAR),
        quality if quality in QUALITIES else None,
        read_tier(read_word(row.get("currentLimit"))),
    )
