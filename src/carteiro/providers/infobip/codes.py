"""Infobip's status ids and error ids, each with what it means to us. Branch on ids: the names changed over time.

Two families share small numbers, so a code says which it is: `EC_7002` is an error id, `STATUS_52` a status id. Error
ids are the more precise and win over the status that comes with them. `permanent` in Infobip's error object speaks of
the one message, not of the contact, and is not looked at.
"""

from dataclasses import dataclass
from enum import Enum

from carteiro.domain.outcomes import Kind


class Progress(Enum):
    """How far a message is that did not fail."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    UNKNOWABLE = "unknowable"
    """Final there, without a word on whether it arrived."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an id says: that the message is on its way (`Progress`) or that it failed, and what that does (`Kind`)."""

    code: str
    name: str
    verdict: Kind | Progress


def _statuses(*rows: tuple[int, str, Kind | Progress]) -> dict[int, Meaning]:
    return {number: Meaning(f"STATUS_{number}", name, verdict) for number, name, verdict in rows}


def _errors(*rows: tuple[int, str, Kind | Progress]) -> dict[int, Meaning]:
    return {number: Meaning(f"EC_{number}", name, verdict) for number, name, verdict in rows}


STATUSES = _statuses(
    (3, "PENDING_WAITING_DELIVERY", Progress.ACCEPTED),
    (7, "PENDING_ENROUTE", Progress.ACCEPTED),
    (26, "PENDING_ACCEPTED", Progress.ACCEPTED),
    # Group DELIVERED, but only on its way to the handset.
    (2, "DELIVERED_TO_OPERATOR", Progress.ACCEPTED),
    (5, "DELIVERED_TO_HANDSET", Progress.DELIVERED),
    (4, "UNDELIVERABLE_REJECTED_OPERATOR", Kind.CONTACT),
    (9, "UNDELIVERABLE_NOT_DELIVERED", Kind.CONTACT),
    (31, "UNDELIVERABLE_NOT_SENT", Kind.CONTACT),
    (100, "UNDELIVERABLE_REJECTED_PLATFORM", Kind.CONTACT),
    (15, "EXPIRED_EXPIRED", Kind.CONTACT),
    (29, "EXPIRED_DLR_UNKNOWN", Progress.UNKNOWABLE),
    (87, "SIGNALS_BLOCKED", Kind.CONTACT),
    (6, "REJECTED_NETWORK", Kind.CONTACT),
    (8, "REJECTED_PREFIX_MISSING", Kind.CONTACT),
    (10, "REJECTED_DND", Kind.CONTACT),
    (11, "REJECTED_SOURCE", Kind.SENDER),
    (13, "REJECTED_SENDER", Kind.SENDER),
    (12, "REJECTED_NOT_ENOUGH_CREDITS", Kind.ACCOUNT),
    (17, "REJECTED_PREPAID_PACKAGE_EXPIRED", Kind.ACCOUNT),
    (14, "REJECTED_DESTINATION_BLOCKLISTED", Kind.BLOCKED),
    (18, "REJECTED_DESTINATION_NOT_REGISTERED", Kind.CONTACT),
    (19, "REJECTED_ROUTE_NOT_AVAILABLE", Kind.CONTACT),
    (20, "REJECTED_FLOODING_FILTER", Kind.COOL_DOWN),
    (21, "REJECTED_SYSTEM_ERROR", Kind.TRANSIENT),
    (23, "REJECTED_DUPLICATE_MESSAGE_ID", Kind.DUPLICATE),
    (24, "REJECTED_INVALID_UDH", Kind.REQUEST),
    (25, "REJECTED_MESSAGE_TOO_LONG", Kind.REQUEST),
    (51, "MISSING_TO", Kind.REQUEST),
    (52, "REJECTED_DESTINATION", Kind.CONTACT),
)

ERRORS = _errors(
    (7001, "EC_UNKNOWN_APPLICATION", Kind.ACCOUNT),
    (7002, "EC_UNKNOWN_USER", Kind.CONTACT),
    (7003, "EC_BLOCKED_USER", Kind.CONTACT),
    (7004, "EC_UNAUTHORIZED_ACCESS", Kind.ACCOUNT),
    (7005, "EC_FORBIDDEN_ACCESS", Kind.ACCOUNT),
    (7006, "EC_BAD_REQUEST", Kind.REQUEST),
    (7007, "EC_ILLEGAL_TRAFFIC_TYPE", Kind.SENDER),
    (7008, "EC_INVALID_TEMPLATE_ARGS", Kind.REQUEST),
    (7009, "EC_INVALID_TEMPLATE", Kind.TEMPLATE),
    # Only free-form messages need the contact's 24-hour window.
    (7010, "EC_NO_SESSION", Kind.CONTACT),
    # Trouble of one WhatsApp business account: the other BMs behind the same key are fine.
    (7011, "EC_ACCOUNT_ISSUE", Kind.SENDER),
    (7012, "EC_DEPLOYMENT_CONFIGURATION_ERROR", Kind.SENDER),
    (7013, "EC_MEDIA_HOSTING_ERROR", Kind.TRANSIENT),
    (7014, "EC_MEDIA_UPLOAD_ERROR", Kind.TRANSIENT),
    (7015, "EC_MEDIA_METADATA_ERROR", Kind.REQUEST),
    (7016, "EC_SPAM_RATE", Kind.SENDER),
    (7017, "EC_TOO_MANY_REQUESTS", Kind.RATE),
    (7018, "EC_INTERNAL_BAD_MAPPING", Kind.REQUEST),
    (7019, "EC_PROVIDER_BILLING_ERROR", Kind.SENDER),
    (7020, "EC_DEVICE_REPRODUCTION_ERROR", Kind.CONTACT),
    (7021, "EC_LIMITED_FUNCTIONALITY", Kind.SENDER),
    (7022, "EC_MEDIA_UNSUPPORTED", Kind.REQUEST),
    (7023, "EC_DATA_MISMATCH", Kind.REQUEST),
    (7024, "EC_NOT_ALLOWED_SENDING_TIME", Kind.RATE),
    (7025, "EC_UNSUPPORTED_MOBILE_APP_VERSION", Kind.CONTACT),
    (7026, "EC_MESSAGE_TYPE_EXHAUSTED", Kind.SENDER),
    (7027, "EC_BLOCKED_CONTENT", Kind.TEMPLATE),
    (7029, "EC_USER_IDENTITY_CHANGED", Kind.CONTACT),
    (7030, "EC_TEMPLATE_BLOCKED_BY_USER", Kind.CONTACT),
    (7031, "EC_INVALID_WA_FLOW", Kind.TEMPLATE),
    (7032, "EC_FREQUENCY_CAPPING", Kind.COOL_DOWN),
    (7033, "EC_MARKETING_OPT_OUT", Kind.CONTACT_MARKETING),
    (7034, "EC_SENDER_NOT_REGISTERED", Kind.SENDER),
    (7035, "EC_CALL_PERMISSION_REQUEST_FAILED", Kind.CONTACT),
    (7036, "EC_TEMPLATE_NOT_SYNCED", Kind.TRANSIENT),
    (7037, "EC_TEMPLATE_NOT_AVAILABLE", Kind.TEMPLATE),
    (7038, "EC_INVALID_WA_ACCOUNT_TYPE", Kind.SENDER),
    # Seen in the field, absent from the registry; its full name is not known.
    (7046, "EC_DESTINATION_PROMO_QUOTA", Kind.COOL_DOWN),
    (7048, "EC_DESTINATION_PROMO_QUOTA", Kind.COOL_DOWN),
    (7050, "EC_PROVIDER_INTERNAL_ERROR", Kind.TRANSIENT),
    (7051, "EC_PROVIDER_TIMEOUT", Kind.TRANSIENT),
    (7052, "EC_PROVIDER_DR_ERROR", Progress.UNKNOWABLE),
    (7080, "EC_INTERNAL_ERROR", Kind.TRANSIENT),
    (7081, "EC_CONFIGURATION_ERROR", Kind.SENDER),
    (7082, "EC_TEMPORARY_GATEWAY_ERROR", Kind.TRANSIENT),
    (7083, "EC_SERVICE_NOT_ACTIVATED", Kind.ACCOUNT),
    (7084, "EC_MISSING_SENDER_METADATA", Kind.SENDER),
    (7102, "EC_PHONE_MATCHING_DISABLED", Kind.SENDER),
    (7201, "EC_UNSUPPORTED_DEVICE", Kind.CONTACT),
    (7280, "EC_DUPLICATE_REQUEST", Kind.DUPLICATE),
    (7281, "EC_BAD_ORIGIN", Kind.SENDER),
    (351, "EC_INVALID_DESTINATION_ADDRESS", Kind.CONTACT),
    (2050, "EC_DESTINATION_BLOCKLISTED", Kind.BLOCKED),
    (2052, "EC_DESTINATION_BLOCKLISTED", Kind.BLOCKED),
    # Too old to be wanted: never sent again by itself.
    (4098, "EC_VP_EXPIRED", Kind.CONTACT),
    (4101, "EC_VALIDITY_EXPIRED", Kind.CONTACT),
    (4099, "EC_MONTHLY_LIMIT_REACHED", Kind.ACCOUNT),
    (4103, "EC_DESTINATION_FLOODING", Kind.COOL_DOWN),
    (4104, "EC_DESTINATION_TXT_FLOODING", Kind.COOL_DOWN),
    (5492, "EC_DUPLICATE_MESSAGE", Kind.DUPLICATE),
    (255, "EC_UNKNOWN_ERROR", Kind.TRANSIENT),
)

# What an id that is not in the table says, by its group; any other group is transient, like an unknown error.
_GROUPS: dict[int, Kind | Progress] = {
    0: Progress.ACCEPTED,
    1: Progress.ACCEPTED,
    # The one final id of group 3 is 5.
    3: Progress.ACCEPTED,
    4: Kind.CONTACT,
}


def meaning_of(group_id: int | None, status_id: int | None, error_id: int | None) -> Meaning:
    """What a status with its error says; an error explains a failure, beside any other status it says nothing."""
    status = STATUSES.get(status_id) if status_id is not None else None
    if status is None:
        verdict = _GROUPS.get(group_id, Kind.TRANSIENT) if group_id is not None else Kind.TRANSIENT
        code = f"STATUS_{status_id}" if status_id is not None else f"GROUP_{group_id}"
        status = Meaning(code, "UNKNOWN", verdict)
    if isinstance(status.verdict, Progress) or status.verdict is Kind.DUPLICATE or not error_id:
        return status
    return ERRORS.get(error_id) or Meaning(f"EC_{error_id}", "UNKNOWN", Kind.TRANSIENT)
