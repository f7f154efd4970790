"""From a request to an order: everything that can be checked before anything is taken. No transaction, no locks."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from carteiro.domain.callbacks import check_callback_url
from carteiro.domain.contacts import Row, Screened, Screening
from carteiro.domain.errors import Conflict, FieldError, Forbidden
from carteiro.domain.requests import BatchTerms, request_faults
from carteiro.domain.templates import Category
from carteiro.services.api_keys import Caller
from carteiro.services.create.refusals import TemplateNotApproved, UnknownTemplate
from carteiro.settings import Settings
from carteiro.storage import catalog
from carteiro.storage.batches import Draft
from carteiro.storage.catalog import Service, Template
from carteiro.storage.pool import Connection, Pool

CONTACTS_MAX = 100_000
"""Of a request that is in memory as a whole; more are streamed."""
SCHEDULE_MAX = timedelta(days=365)
EXPIRY_MAX = 2 * SCHEDULE_MAX


@dataclass(frozen=True, slots=True)
class Order:
    """A valid request: what to insert, and what to take for it."""

    service: Service
    draft: Draft
    rows: list[Row]
    """To be loaded; empty where they were loaded as they came."""
    starts_now: bool
    """Its messages need capacity at once: it neither is scheduled nor waits for moderation."""
    guarded: frozenset[int]
    """Seqs of rows that cannot be rendered. Only `skip` lets them pass; they fail by the guard and take no capacity."""
    allow_duplicate: bool
    signed: bool = True
    """An equal request of the last minutes is this one. Not at the doors that go by other names."""
    write_beside: Callable[[Connection], Awaitable[None]] | None = None
    """What its door keeps beside the batch, written in the transaction that opens it."""

    @property
    def batch_id(self) -> UUID:
        return self.draft.id


@dataclass(frozen=True, slots=True)
class Ground:
    """What a request's terms are checked against, and its contacts after them."""

    terms: BatchTerms
    service: Service
    template: Template
    now: datetime
    forbidden: tuple[str, ...]
    """Words that the service refuses."""
    callback_allow_private: bool

    def faults(self) -> Iterator[FieldError]:
        """What is wrong with the terms."""
        terms = self.terms
        yield from request_faults(terms, self.template.content, now=self.now, forbidden=self.forbidden)
        yield from category_faults(self.service, self.template, "/template")
        if terms.scheduled_at is not None and terms.scheduled_at > self.now + SCHEDULE_MAX:
            yield FieldError("/scheduled_at", "too-far", f"Within {SCHEDULE_MAX.days} days.")
        if terms.expires_at is not None and terms.expires_at > self.now + EXPIRY_MAX:
            yield FieldError("/expires_at", "too-far", f"Within {EXPIRY_MAX.days} days.")
        if terms.callback_url is not None:
            wrong = check_callback_url(terms.callback_url, self.callback_allow_private)
            if wrong:
                yield FieldError("/callback_url", "bad-url", f"It {wrong}.")

    def screening(self) -> Screening:
        return Screening(self.template.content, self.terms.header, self.terms.on_invalid, self.forbidden)

    def draft(self, *, total: int, request_signature: bytes, skipped: dict[str, Any] | None) -> Draft:
        """Under a new id."""
        terms = self.terms
        return replace(
            begin_draft(self.service, self.template, total=total, request_signature=request_signature),
            header=terms.header,
            reference=terms.reference,
            callback_url=terms.callback_url,
            on_capacity=terms.on_capacity,
            skipped=skipped,
            max_attempts=terms.max_attempts,
            scheduled_at=_utc(terms.scheduled_at),
            expires_at=_utc(terms.expires_at),
            follow_up=terms.follow_up.content if terms.follow_up else None,
        )

    def order(self, draft: Draft, screened: Screened) -> Order:
        """`screened`: the rows that are not loaded yet."""
        test_mode, scheduled_at = self.service.test_mode, self.terms.scheduled_at
        return Order(
            service=self.service,
            draft=draft,
            rows=screened.rows,
            starts_now=not test_mode and (scheduled_at is None or scheduled_at <= self.now),
            guarded=screened.guarded,
            allow_duplicate=self.terms.allow_duplicate,
        )


def begin_draft(service: Service, template: Template, *, total: int, request_signature: bytes) -> Draft:
    """What the batch of any door takes over from its service and freezes of its template, under a new id."""
    return Draft(
        id=uuid7(),
        account_id=service.account_id,
        billing_account_id=service.billing_account_id,
        service_id=service.id,
        total=total,
        charge_rule=service.charge_rule,
        template_name=template.name,
        template_language=template.language,
        template_signature=template.signature,
        template_content=template.content,
        request_signature=request_signature,
    )


async def read_ground(pool: Pool, settings: Settings, caller: Caller, terms: BatchTerms) -> Ground:
    """The service and the template that a request names.

    Raises Forbidden, Conflict, UnknownTemplate or TemplateNotApproved.
    """
    name, language = terms.template.name, terms.template.language
    async with pool.connection() as conn:
        service = await catalog.read_service(conn, terms.service)
        if service is None or service.account_id != caller.account_id:
            raise Forbidden(f"This account has no service {terms.service}.")
        if not service.active:
            raise Conflict(f"The service {service.id} is not active.")
        if service.kind != "multibm":
            raise Conflict(f"The service {service.id} is of kind {service.kind}: it sends no batches.")
        template = await read_usable_template(conn, service.id, name, language)
    return Ground(
        terms,
        service,
        template,
        datetime.now(UTC),
        forbidden_terms_of(service, settings),
        settings.callback_allow_private,
    )


async def read_usable_template(
    conn: Connection, service_id: str, name: str, language: str, *, pointer: str = "/template"
) -> Template:
    """A template that some sender of the account can send under the service. `pointer`: where the request names it.

    Raises UnknownTemplate or TemplateNotApproved.
    """
    template = await catalog.read_template(conn, name, language)
    if template is None:
        raise UnknownTemplate(name, language, pointer)
    if not await catalog.is_usable(conn, template, service_id):
        raise TemplateNotApproved(name, language, pointer)
    return template


def category_faults(service: Service, template: Template, pointer: str) -> Iterator[FieldError]:
    """Whether the service may send templates of that category. `pointer`: where the request names the template."""
    if service.category == Category.UTILITY and template.category == Category.MARKETING:
        yield FieldError(pointer, "template-category", "A UTILITY service does not send MARKETING templates.")


def forbidden_terms_of(service: Service, settings: Settings) -> tuple[str, ...]:
    """The words that the service refuses in a message."""
    return settings.forbidden_utility_terms if service.category == Category.UTILITY else ()


def _utc(at: datetime | None) -> datetime | None:
    return at.astimezone(UTC) if at else None
