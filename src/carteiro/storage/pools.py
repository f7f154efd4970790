"""The senders that could carry a template for an account."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import args_row

from carteiro.storage.statements import load

SQL = load("pools")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An eligible sender and what paces it. None: nothing does. Its daily limits are read with the meters."""

    sender_id: str
    business_manager_id: str
    physical_name: str
    """The template's name in the sender's business manager."""
    quality: str
    messages_per_second: int | None
    bm_messages_per_minute: int | None
    provider_ref: str
    """What the provider calls the sender."""
    parameter_names: list[str]
    wait_until: datetime | None
    """The provider asked it to slow down until then: nothing is sent with it before."""


async def read_candidates(
    conn: AsyncConnection[Any],
    *,
    account_id: str,
    service_id: str,
    template_name: str,
    template_language: str,
    signature: bytes,
) -> list[Candidate]:
    """In order of sender id, those that wait included. Read after the service's lock, so that an operator's change
    holds from the next claim on.
    """
    async with conn.cursor(row_factory=args_row(Candidate)) as cursor:
        await cursor.execute(
            SQL.candidates,
            {
                "account_id": account_id,
                "service_id": service_id,
                "template_name": template_name,
                "template_language": template_language,
                "signature": signature,
            },
        )
        return await cursor.fetchall()
