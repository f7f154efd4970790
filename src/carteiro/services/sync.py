"""Provider sync: how senders, limits and templates stand at the provider, applied while batches run.

Claims read the catalog anew each time, so that what is written here holds from the next claim on. The operator's
`active` is never touched, nor is a status that a refusal or an operator gave.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from carteiro.domain.standing import AccountState, SenderState, TemplateState, portfolio_tier
from carteiro.providers.contract import Provider, StatesUnreadable
from carteiro.services.dispatch.dispatcher import ProviderFor
from carteiro.services.dispatch.waking import SENDERS, wake_waiting
from carteiro.services.limits import fit_holds, lock_limited
from carteiro.settings import Settings
from carteiro.storage import catalog, outcomes, sync
from carteiro.storage.pool import Connection, Pool, retry_serialization, transact
from carteiro.storage.sync import LimitChange, Manager, SenderChange, TemplateChange

log = structlog.get_logger(__name__)

LEASE_S = 300.0
"""How long one process has for a sync; also when it is tried again after a provider did not answer."""
SENDERS_ASKED = 3
"""Senders of one business manager that are asked for its templates, until one is answered."""
ACTIVE = "ACTIVE"
APPROVED = "APPROVED"


@dataclass(slots=True)
class SyncReport:
    """What a sync changed, as lines for people, and what it could not find out."""

    changes: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    """Providers that gave no answer, and what they were asked."""
    unlisted: list[str] = field(default_factory=list)
    """Senders and templates of which the provider says nothing: they stay as they are."""
    freed: set[str] = field(default_factory=set)
    """Business managers through which more may be sent than before."""


async def sync_when_due(pool: Pool, settings: Settings, provider_for: ProviderFor, holder: str) -> SyncReport | None:
    """Sync, unless another does or has done so within `sync_every_s`. Due earlier where not everything was answered."""
    async with pool.connection() as conn:
        if not await sync.take_lead(conn, holder, lease_s=min(LEASE_S, settings.sync_every_s)):
            return None
    report = await sync_now(pool, settings, provider_for)
    if report.changes:
        log.info("synced", changes=report.changes)
    if report.unanswered:
        log.warning("sync_unanswered", unanswered=report.unanswered)
    else:
        async with pool.connection() as conn:
            await sync.rest_until_due(conn, holder, rest_s=settings.sync_every_s)
    return report


async def sync_now(pool: Pool, settings: Settings, provider_for: ProviderFor) -> SyncReport:
    """Ask every provider about every sender in use and its templates, and apply the answers.

    No connection is held while a provider is asked. One transaction a business manager. What a provider does not
    answer changes nothing.
    """
    report = SyncReport()
    async with pool.connection() as conn:
        connections = await sync.read_connections(conn)
    for service_id, senders in connections:
        try:
            provider = await provider_for(service_id)
            await _sync_connection(pool, settings, provider, senders, report)
        except (StatesUnreadable, LookupError, ValueError, TimeoutError) as error:
            report.unanswered.append(f"service {service_id}: {error.args[0] if error.args else type(error).__name__}")
    if report.freed:
        await wake_waiting(pool, report.freed, SENDERS)
    return report


async def note_notices(conn: Connection, account_id: str | None, notices: Sequence[TemplateState]) -> set[str]:
    """Apply what a webhook says of templates. Locks their rows. `account_id` None: each says whose account it is.
    Answers the business managers through which more may be sent than before: wake what waits for them afterwards.

    Where it cannot be told whose template it is, because names recur, the provider is asked at once.
    """
    freed: set[str] = set()
    for state in notices:
        if account_id is not None:
            managers = await sync.managers_of_notice(conn, account_id, state)
        else:
            accounts = [state.account] if state.account else []
            managers = [bm for of in (await sync.managers_of_accounts(conn, accounts)).values() for bm in of]
        if state.at is None or not managers:
            await sync.make_due(conn)
            continue
        for manager in managers:
            for change in await sync.note_templates(conn, manager, [state], state.at):
                log.info("template_notice", changes=list(_template_lines(manager, change)))
                if _became_usable(change):
                    freed.add(manager)
    return freed


async def note_accounts(conn: Connection, states: Sequence[AccountState]) -> set[str]:
    """Apply what a webhook says of whole accounts: their senders are stopped, for a time where it has an end, or may
    send again. Locks the senders. Answers as `note_notices`.
    """
    freed: set[str] = set()
    for state in sorted(states, key=lambda state: (state.at, state.account)):
        if state.until is not None:
            await sync.wait_account(conn, state.account, state.until, word=state.word)
            continue
        senders = await sync.senders_of_account(conn, state.account, state.at)
        told = [SenderState(sender, state.word, state.standing) for sender in senders]
        for change in await sync.note_senders(conn, told, state.at):
            log.info("account_notice", changes=list(_sender_lines(change)))
            if _may_send_again(change):
                freed.update(*(await sync.managers_of_accounts(conn, [state.account])).values())
    return freed


async def ask_soon(conn: Connection) -> None:
    """Something changed at a provider: the next sync is due at once."""
    await sync.make_due(conn)


async def _sync_connection(
    pool: Pool, settings: Settings, provider: Provider, senders: Sequence[str], report: SyncReport
) -> None:
    async with pool.connection() as conn:
        managers = await sync.read_managers(conn, senders)
        names = await sync.read_names(conn, senders)
        asked_at = await outcomes.read_clock(conn)
    async with asyncio.timeout(settings.call_timeout_s * (1 + len(senders) / 100)):
        said_of = {state.sender: state for state in await provider.read_senders([names[sender] for sender in senders])}
    states = {sender: replace(said_of[name], sender=sender) for sender, name in names.items() if name in said_of}
    report.unlisted += [f"sender {sender}" for sender in senders if sender not in states]
    for manager in managers:
        said = [states[sender] for sender in manager.senders if sender in states]
        templates = await _read_templates(provider, manager, names, report)

        async def attempt(
            manager: Manager = manager,
            said: Sequence[SenderState] = said,
            templates: Sequence[TemplateState] = templates,
        ) -> SyncReport:
            async with transact(pool) as conn:
                return await _apply(conn, settings, manager, said, templates, asked_at)

        applied = await retry_serialization(attempt)
        report.changes += applied.changes
        report.freed |= applied.freed


async def _read_templates(
    provider: Provider, manager: Manager, names: Mapping[str, str], report: SyncReport
) -> list[TemplateState]:
    """The templates of a business manager: of all its accounts where the provider names those, else by the first of its
    senders that is answered. None where there are none, or not every account was answered.
    """
    if not manager.submissions:
        return []
    found: list[TemplateState] = []
    problems: list[str] = []
    for asked in manager.accounts or [names[sender] for sender in manager.senders[:SENDERS_ASKED]]:
        try:
            found += await provider.read_templates(asked)
        except StatesUnreadable as error:
            problems.append(str(error))
            continue
        if not manager.accounts:
            problems.clear()
            break
    if problems:
        report.unanswered.append(f"templates of {manager.id}: {problems[-1]}")
        return []
    listed = {f"{state.name} {state.language}" for state in found}
    report.unlisted += [f"template {name} of {manager.id}" for name in manager.submissions if name not in listed]
    return found


async def _apply(
    conn: Connection,
    settings: Settings,
    manager: Manager,
    said: Sequence[SenderState],
    templates: Iterable[TemplateState],
    asked_at: datetime,
) -> SyncReport:
    """Locks the catalog, the business manager's meter, its row, those of its senders and submissions."""
    done = SyncReport()
    await catalog.lock(conn)
    await lock_limited(conn, settings, [manager.id])
    tier = portfolio_tier(state.tier for state in said if state.tier is not None)
    limit = await sync.note_limit(conn, manager.id, tier, asked_at) if said else None
    if limit is not None:
        done.changes += _limit_lines(manager.id, limit)
        if _rose(limit):
            done.freed.add(manager.id)
    for sender in await sync.note_senders(conn, said, asked_at):
        done.changes += _sender_lines(sender)
        if _may_send_again(sender):
            done.freed.add(manager.id)
    for template in await sync.note_templates(conn, manager.id, templates, asked_at):
        done.changes += _template_lines(manager.id, template)
        if _became_usable(template):
            done.freed.add(manager.id)
    # Also when nothing changed: who lowers a limit by SQL leaves what was held by the old one.
    for owner, units in (await fit_holds(conn, settings, [manager.id])).items():
        done.changes.append(f"business manager {owner}: {units} units no longer held")
    return done


def _may_send_again(sender: SenderChange) -> bool:
    return sender.status[0] != sender.status[1] == ACTIVE


def _became_usable(template: TemplateChange) -> bool:
    return template.status[0] != template.status[1] == APPROVED


def _rose(limit: LimitChange) -> bool:
    before, after = limit.synced
    return before is not None and not limit.overridden and (after is None or after > before)


def _limit_lines(manager: str, limit: LimitChange) -> Iterator[str]:
    if limit.synced[0] != limit.synced[1]:
        note = "; the operator's counts" if limit.overridden else ""
        yield f"business manager {manager}: limit {_shown(limit.synced[0])} -> {_shown(limit.synced[1])}{note}"
    if limit.note[0] != limit.note[1] and limit.note[1] is not None:
        yield f"business manager {manager}: the provider says {limit.note[1]!r} of its limit"


def _sender_lines(change: SenderChange) -> Iterator[str]:
    for name, (before, after) in (("status", change.status), ("quality", change.quality)):
        if before != after:
            yield f"sender {change.sender}: {name} {before} -> {after}"


def _template_lines(manager: str, change: TemplateChange) -> Iterator[str]:
    before, after = change.status
    if before != after:
        yield f"template {change.name} {change.language} of {manager}: {before} -> {after}"


def _shown(limit: int | None) -> str:
    return "none" if limit is None else str(limit)
