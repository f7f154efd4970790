"""Tell the client that a batch is settled: signed, at least once, until it is taken or given up."""

import asyncio
import random
from datetime import UTC, datetime
from http import HTTPStatus
from math import floor
from uuid import UUID

import msgspec
import structlog
from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError

from carteiro import __version__
from carteiro.domain.callbacks import retry_delay_s
from carteiro.services.callback_client import CallbackClient, CallbackFailed, open_client
from carteiro.settings import Settings
from carteiro.storage import callbacks
from carteiro.storage.callbacks import Due
from carteiro.storage.pool import Pool, transact

log = structlog.get_logger(__name__)

LEASE_MARGIN_S = 30.0
"""How much longer than its call a sender has a callback to itself."""


async def send_due(pool: Pool, settings: Settings, *, limit: int = 20) -> int:
    """Send up to `limit` due callbacks at once, each with one attempt; how many. 0: none is due.

    No connection is held during the calls. Whoever dies between call and record leaves the callback due again when its
    lease is over, under the same `webhook-id`. Any number of senders may run at once.
    """
    lease_s = settings.callback_timeout_s + LEASE_MARGIN_S
    async with transact(pool) as conn:
        due = await callbacks.claim_due(conn, limit=limit, lease_s=lease_s)
    if not due:
        return 0
    async with open_client(
        allow_private=settings.callback_allow_private, timeout_s=settings.callback_timeout_s
    ) as client:
        ended = await asyncio.gather(
            *(_send(pool, client, one, settings.callback_max_attempts) for one in due), return_exceptions=True
        )
    for error in ended:
        if error is not None:
            raise error
    return len(due)


async def replay(pool: Pool, callback_id: UUID) -> bool:
    """Send a callback anew, delivered or given up, under the same id. False: there is none."""
    async with pool.connection() as conn:
        return await callbacks.replay(conn, callback_id)


async def _send(pool: Pool, client: CallbackClient, due: Due, max_attempts: int) -> None:
    status, problem = await _attempt(client, due)
    async with transact(pool) as conn:
        if status is not None and problem is None:
            await callbacks.record_delivered(conn, due.id, status=status)
            return
        last = due.attempt >= max_attempts or status == HTTPStatus.GONE
        await callbacks.record_failed(
            conn,
            due.id,
            attempt=due.attempt,
            status=status,
            error=problem or "",
            delay_s=None if last else retry_delay_s(due.attempt, random.uniform(-1, 1)),
        )
    log.info("callback_failed", callback_id=str(due.id), attempt=due.attempt, problem=problem, given_up=last)


async def _attempt(client: CallbackClient, due: Due) -> tuple[int | None, str | None]:
    """One call: the answer's status, if one came, and what was wrong, if anything was."""
    body = msgspec.json.encode(due.body)
    try:
        status = await client.post(due.url, _headers(due, body, datetime.now(UTC)), body)
    except CallbackFailed as error:
        return None, str(error)
    return status, None if 200 <= status < 300 else f"answered {status}"


def _headers(due: Due, body: bytes, at: datetime) -> dict[str, str]:
    """Standard Webhooks. The signature covers id, time and the very bytes that are sent."""
    try:
        signature = Webhook(due.secret).sign(str(due.id), at, body.decode())
    except (ValueError, EmptyWebhookSecretError) as error:
        raise CallbackFailed(f"the account's secret cannot sign: {type(error).__name__}") from None
    return {
        "content-type": "application/json",
        "user-agent": f"carteiro/{__version__}",
        "webhook-id": str(due.id),
        "webhook-timestamp": str(floor(at.timestamp())),
        "webhook-signature": signature,
    }
