"""Messages by the provider's own id, and receipts that wait for such an id to become known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from carteiro.domain.outcomes import FactKind, ForeignFact, Kind
from carteiro.storage.statements import load

SQL = load("aliases")


@dataclass(frozen=True, slots=True)
class Alias:
    batch_id: UUID
    seq: int
    followup: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """A receipt and the payload that it came in."""

    fact: ForeignFact
    received_at: datetime
    payload_id: int


async def note(conn: AsyncConnection[Any], batch_id: UUID, ids: Mapping[str, int], *, followup: bool = False) -> None:
    """Remember the provider's ids (id -> seq) of one batch's messages, or of their follow-ups; not of erased ones.

    The caller holds the messages' locks: two writers of one id never wait for each other.
    """
    if ids:
        await conn.execute(
            SQL.note,
            {"batch_id": batch_id, "provider_ids": list(ids), "seqs": list(ids.values()), "followup": followup},
        )


async def find(conn: AsyncConnection[Any], provider_ids: Sequence[str]) -> dict[str, Alias]:
    """Those that are known."""
    if not provider_ids:
        return {}
    cursor = await conn.execute(SQL.find, {"provider_ids": list(provider_ids)})
    return {provider_id: Alias(*row) for provider_id, *row in await cursor.fetchall()}


async def keep_waiting(conn: AsyncConnection[Any], waiting: Sequence[Waiting]) -> None:
    if waiting:
        facts = [one.fact for one in waiting]
        await conn.execute(
            SQL.wait,
            {
                "provider_ids": [fact.provider_id for fact in facts],
                "received_at": [one.received_at for one in waiting],
                "payload_ids": [one.payload_id for one in waiting],
                "kinds": [fact.kind for fact in facts],
                "at": [fact.at for fact in facts],
                "codes": [fact.code for fact in facts],
                "failures": [fact.failure for fact in facts],
                "vias": [fact.via for fact in facts],
            },
        )


async def take_waiting(conn: AsyncConnection[Any], *, wait_s: float, limit: int) -> list[Waiting]:
    """Take out those whose message is known by now, and those that waited longer than `wait_s`."""
    cursor = await conn.execute(SQL.take_waiting, {"wait_s": wait_s, "limit": limit})
    return [
        Waiting(
            ForeignFact(provider_id, FactKind(kind), at, code, Kind(failure) if failure else None, via),
            received_at,
            payload_id,
        )
        for provider_id, received_at, payload_id, kind, at, code, failure, via in await cursor.fetchall()
    ]
