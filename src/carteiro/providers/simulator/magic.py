"""Magic numbers: the last four digits of a recipient choose a fault, so that anybody can try it with curl.

All begin with 99. Those marked `once` strike the first call to that number only, so that a message that goes back to
pending gets through the next time; `POST /_sim/reset` forgets which were struck.
"""

from dataclasses import dataclass, replace

from carteiro.providers.simulator.plan import Plan


@dataclass(frozen=True, slots=True)
class Magic:
    """`title` says what happens, for people. `meta`: what happens instead where the call is Meta's."""

    title: str
    plan: Plan
    once: bool = False
    meta: Plan | None = None


def _refused(http_status: int, error: str, text: str, retry_after: str | None = None) -> Plan:
    return Plan(answer="http", http_status=http_status, error=error, text=text, retry_after=retry_after)


def _throttled(retry_after: str | None) -> Plan:
    return _refused(429, "TOO_MANY_REQUESTS", "Too many requests", retry_after)


def _proxy(http_status: int, *, accept: bool) -> Plan:
    return Plan(answer="http", http_status=http_status, envelope="none", accept=accept)


def _error(code: int, http_status: int = 400, *, retry_after: str | None = None, accept: bool = False) -> Plan:
    return Plan(answer="http", http_status=http_status, error_id=code, retry_after=retry_after, accept=accept)


def _later(code: int) -> Plan:
    return Plan(status_id=4, error_id=code)


META: dict[str, Plan] = {
    "9901": _error(130429),
    "9902": _error(4, retry_after="2"),
    "9903": _error(131056),
    "9904": _error(131057, 500),
    "9905": _error(80007, retry_after="86400000"),
    "9906": _error(131048),
    "9911": _error(131016, 500),
    "9912": _error(2, 503),
    "9931": _error(100),
    "9932": _error(132001, 404),
    "9933": _error(190, 401),
    "9934": _error(10, 403),
    "9935": _error(33),
    "9941": _error(131021),
    "9942": _error(131042),
    "9943": _error(131031, 403),
    "9944": _error(131000, 500),
    "9945": _error(131000, 500, accept=True),
    "9946": _error(132015),
    "9947": _error(131048),
    "9948": _error(130429),
    "9949": _error(131049),
    "9951": _later(131026),
    "9952": _later(131049),
    "9953": _later(131050),
    "9954": _later(132015),
    "9955": _later(131048),
    "9956": _later(131000),
    "9957": _later(130472),
}
"""What differs at Meta's; the other numbers do the same there."""


_INFOBIP: dict[str, Magic] = {
    "9901": Magic("429, no Retry-After", _throttled(None), once=True),
    "9902": Magic("429, Retry-After in seconds: 2", _throttled("2"), once=True),
    "9903": Magic("429, Retry-After as a date 2 s ahead", _throttled("date+2"), once=True),
    "9904": Magic("429, Retry-After: 0", _throttled("0"), once=True),
    "9905": Magic("429, absurd Retry-After: 86400000", _throttled("86400000"), once=True),
    "9906": Magic(
        "429 in the newer envelope",
        Plan(answer="http", http_status=429, envelope="newer", error="E429", text="Too many requests."),
        once=True,
    ),
    "9911": Magic("500 with Infobip's envelope: not taken", Plan(answer="http"), once=True),
    "9912": Magic(
        "503 with Infobip's newer envelope: not taken",
        Plan(answer="http", http_status=503, envelope="newer", error="E503", text="Service unavailable."),
        once=True,
    ),
    "9913": Magic("502 of a proxy, without envelope: not taken", _proxy(502, accept=False), once=True),
    "9914": Magic("504 of a proxy, without envelope: taken", _proxy(504, accept=True), once=True),
    "9921": Magic("reset before the message was taken", Plan(answer="reset"), once=True),
    "9922": Magic("reset after the message was taken", Plan(answer="reset", accept=True), once=True),
    "9923": Magic("closed without an answer after the message was taken", Plan(answer="close", accept=True), once=True),
    "9924": Magic("never answers, not taken", Plan(answer="hang"), once=True),
    "9925": Magic("never answers, taken", Plan(answer="hang", accept=True), once=True),
    "9926": Magic("200 that is not JSON, taken", Plan(answer="garbage", accept=True), once=True),
    "9927": Magic("200 without the message's row, taken", Plan(answer="no_row", accept=True), once=True),
    "9928": Magic("answers 2 s later", Plan(delay_ms=2000.0)),
    "9929": Magic(
        "reset after the message was taken, which the log shows 10 s later",
        Plan(answer="reset", accept=True, log_lag_ms=10_000.0),
        once=True,
    ),
    "9931": Magic("400, invalid request", _refused(400, "BAD_REQUEST", "Bad request")),
    "9932": Magic("400, template not found", _refused(400, "BAD_REQUEST", "Template not found"), once=True),
    "9933": Magic("401", _refused(401, "UNAUTHORIZED", "Invalid login details"), once=True),
    "9934": Magic("403", _refused(403, "FORBIDDEN", "Forbidden"), once=True),
    "9935": Magic("404", _refused(404, "NOT_FOUND", "Requested URL not found"), once=True),
    "9941": Magic("row rejected, status 52: the contact", Plan(answer="reject", status_id=52)),
    "9942": Magic("row rejected, status 12: no credits", Plan(answer="reject", status_id=12), once=True),
    "9943": Magic("row rejected, status 13: the sender", Plan(answer="reject", status_id=13), once=True),
    "9944": Magic("row rejected, status 21: a transient error", Plan(answer="reject", status_id=21), once=True),
    "9945": Magic("row rejected, status 23: id already known, though it is not", Plan(answer="reject", status_id=23)),
    "9946": Magic("row rejected, 7009: the template", Plan(answer="reject", status_id=4, error_id=7009), once=True),
    "9947": Magic("row rejected, 7016: spam rate", Plan(answer="reject", status_id=4, error_id=7016), once=True),
    "9948": Magic("row rejected, 7017: too many", Plan(answer="reject", status_id=4, error_id=7017), once=True),
    "9949": Magic("row rejected, 7032: frequency capping", Plan(answer="reject", status_id=4, error_id=7032)),
    "9951": Magic("fails later, 7002: not on WhatsApp", Plan(status_id=4, error_id=7002)),
    "9952": Magic("fails later, 7032: frequency capping", Plan(status_id=4, error_id=7032)),
    "9953": Magic("fails later, 7033: marketing opt-out", Plan(status_id=4, error_id=7033)),
    "9954": Magic("fails later, 7009: the template", Plan(status_id=4, error_id=7009)),
    "9955": Magic("fails later, 7016: spam rate", Plan(status_id=4, error_id=7016)),
    "9956": Magic("fails later, 7051: a transient error", Plan(status_id=9, error_id=7051)),
    "9957": Magic("expires (status 15, 4101)", Plan(status_id=15, error_id=4101)),
    "9958": Magic("delivery never known (status 29)", Plan(status_id=29)),
    "9959": Magic("reaches the operator and no further (status 2)", Plan(status_id=2)),
    "9961": Magic("report 10 s late", Plan(receipt="late", receipt_delay_ms=10_000.0)),
    "9962": Magic("report three times", Plan(receipt="repeat")),
    "9963": Magic("seen reported before delivered", Plan(receipt="reorder")),
    "9964": Magic("report before the send is answered", Plan(receipt="early")),
    "9965": Magic("no report at all", Plan(receipt="none")),
    "9966": Magic("reported as failed, then as delivered", Plan(receipt="contradict")),
    "9967": Magic("report beside an unreadable item", Plan(receipt="spoilt")),
}


MAGIC: dict[str, Magic] = {digits: replace(magic, meta=META.get(digits)) for digits, magic in _INFOBIP.items()}


def magic_table() -> str:
    """The rows of the table in docs/simulator.md."""
    rows = [
        f"| `{digits}` | {magic.title} | {_meta_title(magic)} | {'first' if magic.once else 'every'} |"
        for digits, magic in MAGIC.items()
    ]
    return "\n".join(["| last digits | at Infobip's | at Meta's | which calls |", "|---|---|---|---|", *rows])


def _meta_title(magic: Magic) -> str:
    plan = magic.meta
    if plan is None:
        return "the same"
    if plan.answer == "ok":
        return f"fails later, {plan.error_id}"
    wait = f", Retry-After: {plan.retry_after}" if plan.retry_after else ""
    return f"{plan.http_status}, {plan.error_id}{wait}{', taken' if plan.accept else ''}"
