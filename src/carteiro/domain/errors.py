"""Refusals that a client is told about, as the members of an RFC 9457 problem.

A use case raises one; the API turns it into `application/problem+json` and needs to know nothing else. `status` is the
HTTP number, `code` a stable slug that clients branch on, `detail` words for people.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with a request."""

    pointer: str
    """JSON pointer into the request's body, for example /contacts/3/phone; where there is a `line`, into that line."""
    code: str
    detail: str
    """What is wrong and how to mend it."""
    line: int | None = None
    """Of a body that is read line by line, from 1."""


class Problem(Exception):
    """The base. `extra` are further members of the problem's body, `headers` go into the response."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Something went wrong on our side"

    def __init__(
        self,
        detail: str = "",
        *,
        errors: Iterable[FieldError] = (),
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.errors: tuple[FieldError, ...] = tuple(errors)
        self.extra: dict[str, Any] = dict(extra or {})
        self.headers: dict[str, str] = dict(headers or {})


class InvalidRequest(Problem):
    status = 400
    code = "invalid-request"
    title = "The request is not valid"


class Unauthorized(Problem):
    status = 401
    code = "unauthorized"
    title = "A valid API key is needed"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class NotGenuine(Problem):
    status = 401
    code = "not-genuine"
    title = "The request cannot be shown to come from the provider"


class InsufficientCredits(Problem):
    status = 402
    code = "insufficient-credits"
    title = "The billing account has too few credits"

    def __init__(self, *, balance: int, required: int) -> None:
        super().__init__(
            f"The batch costs {required} credits and the billing account has {balance}.",
            extra={"balance": balance, "required": required},
        )


class CapacityExhausted(Problem):
    status = 402
    code = "capacity-exhausted"
    title = "The daily capacity is too small"

    def __init__(self, *, available: int, required: int) -> None:
        super().__init__(
            f"The batch needs capacity for {required} messages and {available} are available. "
            'Send fewer, wait, or ask for "on_capacity": "spill".',
            extra={"available": available, "required": required},
        )


class Forbidden(Problem):
    status = 403
    code = "forbidden"
    title = "This API key may not do that"


class NotFound(Problem):
    status = 404
    code = "not-found"
    title = "There is no such thing in this account"


class Conflict(Problem):
    status = 409
    code = "conflict"
    title = "The request conflicts with the present state"


class IllegalTransition(Conflict):
    """`allowed`: what a client may do in this state, by the names of the operations."""

    code = "illegal-transition"
    title = "Its present state does not allow that"

    def __init__(self, *, state: str, event: str, allowed: Iterable[str]) -> None:
        super().__init__(f"In state {state} it cannot be {event}.", extra={"state": state, "allowed": sorted(allowed)})


class Gone(Problem):
    """It was there, and was dropped for its age."""

    status = 410
    code = "gone"
    title = "It was kept for a time that is over"


class PayloadTooLarge(Problem):
    status = 413
    code = "payload-too-large"
    title = "The request is too large"


class IdempotencyKeyReused(Problem):
    status = 422
    code = "idempotency-key-reused"
    title = "This Idempotency-Key was used with another request"


class Unavailable(Problem):
    """Nothing was done; the same request may be sent again after `retry_after_s` whole seconds."""

    status = 503
    code = "unavailable"
    title = "The service cannot answer now"

    def __init__(self, detail: str = "", *, retry_after_s: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})
