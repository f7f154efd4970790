"""From a request to an order: everything that can be checked before anything is taken. No transaction, no locks."""

from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from carteiro.domain.callbacks import check_callback_url
from carteiro.domain.errors import Conflict, FieldError, Forbidden, InvalidRequest
from carteiro.domain.requests import BatchRequest, OnInvalid, Row, Validated, request_signature, validate
from carteiro.domain.templates import Category, GuardFailure, render_parameters
from carteiro.services.api_keys import Caller
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate
from carteiro.settings import Settings
from carteiro.storage import catalog
from carteiro.storage.batches import Draft
from carteiro.storage.catalog import Service, Template
from carteiro.storage.pool import Connection, Pool

CONTACTS_MAX = 100_000
SCHEDULE_MAX = timedelta(days=365)
EXPIRY_MAX = 2 * SCHEDULE_MAX


@dataclass(frozen=True, slots=True)
class Order:
    """A valid request: what to insert, and what to take for it."""

    service: Service
    draft: Draft
    rows: list[Row]
    starts_now: bool
    """Its messages need capacity at once: it neither is scheduled nor waits for moderation."""
    guarded: frozenset[int]
    """Seqs of rows that cannot be rendered. Only `skip` lets them pass; they fail by the guard and take no capacity."""
    event: str
    """The lifecycle event by which the batch begins."""
    allow_duplicate: bool
    signed: bool = True
    """An equal request of the last minutes is this one. Not at the doors that go by other names."""
    write_beside: Callable[[Connection], Awaitable[None]] | None = None
    """What its door keeps beside the batch, written in the transaction that opens it."""

    @property
    def batch_id(self) -> UUID:
        return self.draft.id

    @property
    def price(self) -> int:
        """Credits to take for it."""
        return self.draft.price

    def capacity(self, suppressed: Collection[int]) -> int:
        """Messages that need capacity at once, when those with these seqs are withdrawn."""
        if not self.starts_now:
            return 0
        return self.draft.total - len(self.guarded.union(suppressed))


async def read_ground(pool: Pool, caller: Caller, request: BatchRequest) -> tuple[Service, Template]:
    """The service and the template that a request names.

    Raises Forbidden, Conflict, UnknownTemplate or TemplateNotApproved.
    """
    name, language = request.template.name, request.template.language
    async with pool.connection() as conn:
        service = await catalog.read_service(conn, request.service)
        if service is None or service.account_id != caller.account_id:
            raise Forbidden(f"This account has no service {request.service}.")
        if not service.active:
            raise Conflict(f"The service {service.id} is not active.")
        if service.kind != "multibm":
            raise Conflict(f"The service {service.id} is of kind {service.kind}: it sends no batches.")
        template = await read_usable_template(conn, caller.account_id, name, language)
    return service, template


async def read_usable_template(
    conn: Connection, account_id: str, name: str, language: str, *, pointer: str = "/template"
) -> Template:
    """A template that some sender of the account can send. `pointer`: where the request names it.

    Raises UnknownTemplate or TemplateNotApproved.
    """
    template = await catalog.read_template(conn, name, language)
    if template is None:
        raise UnknownTemplate(name, language, pointer)
    if not await catalog.is_usable(conn, template, account_id):
        raise TemplateNotApproved(name, language, pointer)
    return template


def make_order(request: BatchRequest, service: Service, template: Template, settings: Settings, now: datetime) -> Order:
    """Raises InvalidRequest, naming what is wrong. Takes long for many contacts: run it in a thread."""
    if len(request.contacts) > CONTACTS_MAX:
        told = f"{CONTACTS_MAX:,} contacts at most in one request."
        raise InvalidRequest(errors=[FieldError("/contacts", "too-many", told)])
    if errors := list(_service_faults(request, service, template, settings, now)):
        raise InvalidRequest(errors=errors)
    validated = validate(
        request,
        template.content,
        now=now,
        min_size=service.min_batch_size,
        forbidden=forbidden_terms_of(service, settings),
    )
    starts_now = not service.test_mode and (request.scheduled_at is None or request.scheduled_at <= now)
    return Order(
        service=service,
        draft=_draft(request, service, template, validated),
        rows=validated.rows,
        starts_now=starts_now,
        guarded=_guarded(request, template, validated.rows) if starts_now else frozenset(),
        event="moderated" if service.test_mode else "opened",
        allow_duplicate=request.allow_duplicate,
    )


def category_faults(service: Service, template: Template, pointer: str) -> Iterator[FieldError]:
    """Whether the service may send templates of that category. `pointer`: where the request names the template."""
    if service.category == Category.UTILITY and template.category == Category.MARKETING:
        yield FieldError(pointer, "template-category", "A UTILITY service does not send MARKETING templates.")


def forbidden_terms_of(service: Service, settings: Settings) -> tuple[str, ...]:
    """The words that the service refuses in a message."""
    return settings.forbidden_utility_terms if service.category == Category.UTILITY else ()


def _service_faults(
    request: BatchRequest, service: Service, template: Template, settings: Settings, now: datetime
) -> Iterator[FieldError]:
    """What the request alone cannot tell."""
    yield from category_faults(service, template, "/template")
    if request.scheduled_at is not None and request.scheduled_at > now + SCHEDULE_MAX:
        yield FieldError("/scheduled_at", "too-far", f"Within {SCHEDULE_MAX.days} days.")
    if request.expires_at is not None and request.expires_at > now + EXPIRY_MAX:
        yield FieldError("/expires_at", "too-far", f"Within {EXPIRY_MAX.days} days.")
    if request.callback_url is not None:
        wrong = check_callback_url(request.callback_url, settings.callback_allow_private)
        if wrong:
            yield FieldError("/callback_url", "bad-url", f"It {wrong}.")


def _guarded(request: BatchRequest, template: Template, rows: list[Row]) -> frozenset[int]:
    if request.on_invalid is OnInvalid.REJECT:
        return frozenset()
    return frozenset(
        row.seq
        for row in rows
        if isinstance(render_parameters(template.content, row.placeholders, row.extra, request.header), GuardFailure)
    )


def _draft(request: BatchRequest, service: Service, template: Template, validated: Validated) -> Draft:
    return Draft(
        id=uuid7(),
        account_id=service.account_id,
        billing_account_id=service.billing_account_id,
        service_id=service.id,
        total=len(validated.rows),
        charge_rule=service.charge_rule,
        template_name=template.name,
        template_language=template.language,
        template_signature=template.signature,
        template_content=template.content,
        header=request.header,
        request_signature=request_signature(service.account_id, request, validated.rows),
        reference=request.reference,
        callback_url=request.callback_url,
        on_capacity=request.on_capacity,
        skipped=validated.report(),
        max_attempts=request.max_attempts,
        scheduled_at=_utc(request.scheduled_at),
        expires_at=_utc(request.expires_at),
    )


def _utc(at: datetime | None) -> datetime | None:
    return at.astimezone(UTC) if at else None
