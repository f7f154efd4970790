"""Meta's error codes, each with what it means to us. The same code may come in an answer, in a receipt, or in both.

Branch on codes: titles, subcodes and HTTP statuses change. Our code of a failure is the bare number.
"""

from dataclasses import dataclass
from typing import Literal

from carteiro.domain.outcomes import Kind, Scope

SENDER_WAIT_S = 5.0
"""After "too many from this number"; short, because the throughput is counted by the second."""
MAINTENANCE_WAIT_S = 90.0
SPAM_WAIT_S = 3600.0
APP_WAIT_S = 60.0
UNKNOWN_TRIES_MAX = 2
"""How often a message is tried whose refusal nobody has listed."""

Taken = Literal["no", "perhaps"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code says. `kind` RATE: `scope` waits, and for how long as far as is known."""

    code: str
    name: str
    kind: Kind
    taken: Taken = "no"
    """Whether a refusal with this code leaves open that the message goes out all the same."""
    scope: Scope = Scope.SERVICE
    wait_s: float | None = None
    tries_max: int | None = None


def _codes(kind: Kind, *rows: tuple[int, str]) -> dict[int, Meaning]:
    return {number: Meaning(str(number), name, kind) for number, name in rows}


def _rate(number: int, name: str, scope: Scope, wait_s: float | None = None) -> dict[int, Meaning]:
    return {number: Meaning(str(number), name, Kind.RATE, scope=scope, wait_s=wait_s)}


CODES: dict[int, Meaning] = {
    **_codes(
        Kind.ACCOUNT,
        (0, "AUTHENTICATION_FAILED"),
        (3, "NO_CAPABILITY"),
        (10, "PERMISSION_DENIED"),
        (190, "TOKEN_INVALID"),
        (368, "BLOCKED_FOR_POLICY"),
        (131005, "ACCESS_DENIED"),
    ),
    # Of one number or its WhatsApp business account: what else the token may send from is fine.
    **_codes(
        Kind.SENDER,
        (33, "NUMBER_DELETED"),
        (131030, "NOT_ON_THE_TEST_LIST"),
        (131031, "ACCOUNT_LOCKED"),
        (131037, "DISPLAY_NAME_UNAPPROVED"),
        (131042, "PAYMENT_PROBLEM"),
        (131044, "PAYMENT_PROBLEM_CALLING"),
        (131045, "REGISTRATION_PROBLEM"),
        (131063, "MARKETING_DISABLED"),
        (131064, "CLASSIFICATION_VIOLATIONS"),
        (133000, "DEREGISTRATION_INCOMPLETE"),
        (133005, "PIN_WRONG"),
        (133006, "VERIFICATION_NEEDED"),
        (133008, "TOO_MANY_PIN_TRIES"),
        (133009, "PIN_TOO_FAST"),
        (133010, "NOT_REGISTERED"),
        (133015, "DELETED_RECENTLY"),
        (133016, "TOO_MANY_REGISTRATIONS"),
        (134011, "PAYMENT_TERMS_NOT_ACCEPTED"),
        (134103, "MARKETING_API_REFUSED"),
        (2388019, "TOO_MANY_TEMPLATES"),
    ),
    **_codes(
        Kind.TEMPLATE,
        (132000, "PARAMETER_COUNT"),
        (132001, "TEMPLATE_MISSING"),
        (132007, "CONTENT_POLICY"),
        (132012, "PARAMETER_FORMAT"),
        # Also of messages that were held back and then dropped.
        (132015, "TEMPLATE_PAUSED"),
        (132016, "TEMPLATE_DISABLED"),
        (132068, "FLOW_BLOCKED"),
        (141002, "TEMPLATE_NOT_APPROVED"),
    ),
    **_codes(
        Kind.CONTACT,
        (130403, "USER_BLOCKED_BY_BUSINESS"),
        # This sender may not write to the contact's country; to others it may.
        (130497, "COUNTRY_NOT_ALLOWED"),
        (131021, "SENDER_IS_RECIPIENT"),
        (131026, "UNDELIVERABLE"),
        # Only messages that are no templates need the contact's 24-hour window.
        (131047, "WINDOW_CLOSED"),
        (137000, "IDENTITY_CHANGED"),
    ),
    **_codes(Kind.CONTACT_MARKETING, (131050, "MARKETING_OPT_OUT")),
    **_codes(
        Kind.COOL_DOWN,
        (131049, "ECOSYSTEM_ENGAGEMENT"),
        # An experiment of Meta's leaves this person without marketing. Nobody has opted out, so it must lapse.
        (130472, "IN_AN_EXPERIMENT"),
    ),
    **_codes(
        Kind.REQUEST,
        (100, "INVALID_PARAMETER"),
        (131008, "PARAMETER_MISSING"),
        (131009, "PARAMETER_INVALID"),
        (131051, "TYPE_UNSUPPORTED"),
        (131052, "MEDIA_DOWNLOAD"),
        (131053, "MEDIA_UPLOAD"),
        (131055, "METHOD_NOT_ALLOWED"),
        (131062, "USER_ID_UNSUPPORTED"),
        (132005, "TEXT_TOO_LONG"),
        (132008, "PARAMETER_VALUE"),
        (132018, "PARAMETERS_INVALID"),
        (134100, "MARKETING_ONLY"),
        (135000, "GENERIC_PARAMETER"),
    ),
    **_codes(
        Kind.TRANSIENT,
        (2, "TEMPORARY"),
        (131016, "UNAVAILABLE"),
        (133004, "SERVER_UNAVAILABLE"),
        (134101, "TEMPLATE_SYNCING"),
        (134102, "MARKETING_API_UNAVAILABLE"),
        (2494100, "NUMBER_IN_MAINTENANCE"),
    ),
    # Errors that explain nothing: the message may have gone.
    1: Meaning("1", "UNKNOWN_API_OR_SERVER_ERROR", Kind.TRANSIENT, taken="perhaps"),
    131000: Meaning("131000", "SOMETHING_WENT_WRONG", Kind.TRANSIENT, taken="perhaps"),
    **_rate(4, "APP_CALLS", Scope.SERVICE, APP_WAIT_S),
    **_rate(80007, "BUSINESS_ACCOUNT_CALLS", Scope.SENDER, APP_WAIT_S),
    **_rate(130429, "NUMBER_THROUGHPUT", Scope.SENDER, SENDER_WAIT_S),
    **_rate(131048, "SPAM_RATE", Scope.SENDER, SPAM_WAIT_S),
    **_rate(131056, "PAIR_RATE", Scope.CONTACT),
    **_rate(131057, "MAINTENANCE", Scope.SENDER, MAINTENANCE_WAIT_S),
    **_rate(132069, "FLOW_THROTTLED", Scope.SENDER, APP_WAIT_S),
}

_PERMISSIONS = range(200, 300)
_NO_SUCH_OBJECT = 33
"""Subcode of 100: the number that the call is addressed to does not exist, or not for this token."""


def meaning_of(code: int, subcode: int | None = None) -> Meaning:
    if code in _PERMISSIONS:
        return Meaning(str(code), "PERMISSION_DENIED", Kind.ACCOUNT)
    if code == 100 and subcode == _NO_SUCH_OBJECT:
        return Meaning("100", "NO_SUCH_NUMBER", Kind.SENDER)
    return CODES.get(code) or Meaning(str(code), "UNKNOWN", Kind.TRANSIENT, tries_max=UNKNOWN_TRIES_MAX)
