"""Meters, minute buckets and holds: limits without counting history.

Lock order: meters are locked first (`lock_meters`, sorted by kind and owner), then everything here may run. The
guards in the UPDATEs make a forgotten lock an error, never an overshoot.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection, AsyncCursor

from carteiro.storage.later import Later
from carteiro.storage.statements import load

SQL = load("capacity")

MeterId = tuple[str, str]
"""(kind, owner) with kind "bm" or "sender"."""


class Unit(NamedTuple):
    """One message's capacity: charged to its BM and to its sender, in the bucket of the latest instant of its
    acceptance.
    """

    business_manager: str
    sender: str
    bucket_at: datetime


@dataclass(frozen=True, slots=True)
class Meter:
    """As it is under its lock."""

    used: int
    held: int
    limit: int | None
    """None: no limit of its own. A business manager's is the operator's override, else the synced tier."""


def meters_of(units: Iterable[Unit]) -> set[MeterId]:
    """The meters that these units are charged to."""
    return {meter for unit in units for meter in (("bm", unit.business_manager), ("sender", unit.sender))}


class CapacityRaced(RuntimeError):
    """A guard refused what had been planned under the lock: a lock was forgotten. The transaction is rolled back."""


def _arrays(ids: Iterable[MeterId]) -> dict[str, list[str]]:
    ordered = sorted(ids)
    return {"kinds": [kind for kind, _ in ordered], "owners": [owner for _, owner in ordered]}


async def lock_meters(conn: AsyncConnection[Any], ids: Iterable[MeterId], *, keep_s: float) -> dict[MeterId, Meter]:
    """As `ask_meters`, and wait for them."""
    return await (await ask_meters(conn, ids, keep_s=keep_s))


async def ask_meters(
    conn: AsyncConnection[Any], ids: Iterable[MeterId], *, keep_s: float
) -> Later[dict[MeterId, Meter]]:
    """Lock the meters in order, release their buckets that began `keep_s` (window + bucket) ago or earlier, and read
    them, with limits that are no older than the lock: whoever changes one locks the meter first.
    """
    arrays = _arrays(ids)

    async def ask() -> tuple[AsyncCursor[Any], AsyncCursor[Any]]:
        locked = await conn.execute(SQL.lock_meters, arrays)
        return locked, await conn.execute(SQL.release_buckets, {**arrays, "keep_s": keep_s})

    asked = await ask()

    async def read() -> dict[MeterId, Meter]:
        meters = await _read_meters(*asked)
        if len(meters) < len(arrays["kinds"]):
            # Once in the life of a meter. New ones may come before those that are locked: a deadlock is tried again.
            await conn.execute(SQL.ensure_meters, arrays)
            meters = await _read_meters(*await ask())
        return meters

    return Later(read)


async def _read_meters(locked: AsyncCursor[Any], released: AsyncCursor[Any]) -> dict[MeterId, Meter]:
    """Those that there are."""
    told = {(kind, owner): (freed, limit) for kind, owner, freed, limit in await released.fetchall()}
    meters = {}
    for kind, owner, used, held in await locked.fetchall():
        freed, limit = told[kind, owner]
        meters[kind, owner] = Meter(used - freed, held, limit)
    return meters


async def oldest_bucket_at(conn: AsyncConnection[Any], ids: Iterable[MeterId]) -> datetime | None:
    """The start of the oldest bucket of these meters that still holds units: the next to be released."""
    cursor = await conn.execute(SQL.next_release, _arrays(ids))
    row = await cursor.fetchone()
    return row[0] if row else None


async def charge(
    conn: AsyncConnection[Any],
    batch_id: UUID,
    units: Sequence[Unit],
    from_holds: Mapping[str, int],
    limits: Mapping[MeterId, int | None],
) -> None:
    """Charge units, of which `from_holds` (per BM) come out of the batch's own holds. Raises CapacityRaced when a
    guard refuses.
    """
    per_meter: Counter[MeterId] = Counter()
    for unit in units:
        per_meter["bm", unit.business_manager] += 1
        per_meter["sender", unit.sender] += 1
    ordered = sorted(per_meter)
    cursor = await conn.execute(
        SQL.charge_meters,
        {
            **_arrays(ordered),
            "ns": [per_meter[meter] for meter in ordered],
            "from_holds": [from_holds.get(owner, 0) if kind == "bm" else 0 for kind, owner in ordered],
            "limits": [limits.get(meter) for meter in ordered],
        },
    )
    if cursor.rowcount != len(ordered):
        raise CapacityRaced(f"{len(ordered) - cursor.rowcount} of {len(ordered)} meters refused a planned charge")
    await conn.execute(SQL.charge_buckets, _bucket_arrays(units))
    used = {bm: n for bm, n in from_holds.items() if n}
    if used:
        cursor = await conn.execute(
            SQL.use_holds, {"batch_id": batch_id, "owners": list(used), "ns": list(used.values())}
        )
        if cursor.rowcount != len(used):
            raise CapacityRaced("a hold was smaller than planned")


async def give_back(conn: AsyncConnection[Any], batch_id: UUID, units: Sequence[Unit], *, restore_holds: bool) -> None:
    """Return units to the buckets that they were charged to; with `restore_holds` the batch holds them again.

    The caller has locked the meters. A unit whose bucket has left the window is not returned, and its hold not
    restored: the row then waits for free room like any other.
    """
    if not units:
        return
    cursor = await conn.execute(SQL.return_units, _bucket_arrays(units))
    returned = {owner: n for kind, owner, n in await cursor.fetchall() if kind == "bm"}
    if restore_holds and returned:
        arrays: dict[str, Any] = {"owners": list(returned), "ns": list(returned.values())}
        await conn.execute(SQL.restore_meter_holds, arrays)
        await conn.execute(SQL.add_holds, {**arrays, "batch_id": batch_id})


async def charge_again(conn: AsyncConnection[Any], batch_id: UUID, seqs: Sequence[int]) -> None:
    """Late evidence: rows that had been given back had gone after all. Unguarded, in their old buckets; locks the
    meters.
    """
    await conn.execute(SQL.charge_again, {"batch_id": batch_id, "seqs": list(seqs)})


async def hold(
    conn: AsyncConnection[Any], batch_id: UUID, holds: Mapping[str, int], limits: Mapping[str, int | None]
) -> None:
    """As `ask_hold`, and wait for it."""
    if any(holds.values()):
        await (await ask_hold(conn, batch_id, holds, limits))


async def ask_hold(
    conn: AsyncConnection[Any], batch_id: UUID, holds: Mapping[str, int], limits: Mapping[str, int | None]
) -> Later[None]:
    """Reserve `holds` (per BM) for the batch. The caller has locked the BMs' meters, and awaits what is answered, which
    raises CapacityRaced.
    """
    wanted = {bm: n for bm, n in sorted(holds.items()) if n}
    arrays: dict[str, Any] = {"owners": list(wanted), "ns": list(wanted.values())}
    cursor = await conn.execute(SQL.add_meter_holds, {**arrays, "limits": [limits.get(bm) for bm in wanted]})
    await conn.execute(SQL.add_holds, {**arrays, "batch_id": batch_id})

    async def check() -> None:
        if len(await cursor.fetchall()) != len(wanted):
            raise CapacityRaced("a business manager refused a planned hold")

    return Later(check)


async def release_holds(conn: AsyncConnection[Any], batch_id: UUID, surplus: Mapping[str, int]) -> None:
    """Release part of a batch's holds (per BM). The caller has locked the BMs' meters."""
    wanted = {bm: n for bm, n in sorted(surplus.items()) if n}
    if not wanted:
        return
    arrays: dict[str, Any] = {"owners": list(wanted), "ns": list(wanted.values())}
    cursor = await conn.execute(SQL.use_holds, {**arrays, "batch_id": batch_id})
    if cursor.rowcount != len(wanted):
        raise CapacityRaced("a hold was smaller than its release")
    await conn.execute(SQL.drop_meter_holds, arrays)


async def read_holders(conn: AsyncConnection[Any], business_manager_id: str) -> dict[UUID, int]:
    """What each batch holds on a business manager, zero ones left out."""
    cursor = await conn.execute(SQL.read_holders, {"business_manager_id": business_manager_id})
    return dict(await cursor.fetchall())


async def cut_holds(conn: AsyncConnection[Any], business_manager_id: str, cuts: Mapping[UUID, int]) -> None:
    """Take these units from batches' holds. The caller has locked the meter. Raises CapacityRaced."""
    if not cuts:
        return
    cursor = await conn.execute(
        SQL.cut_holds,
        {"business_manager_id": business_manager_id, "batch_ids": list(cuts), "ns": list(cuts.values())},
    )
    row = await cursor.fetchone()
    if row is None or row[0] != sum(cuts.values()):
        raise CapacityRaced("a hold was smaller than its cut")


async def read_holds(conn: AsyncConnection[Any], batch_id: UUID) -> dict[str, int]:
    """The batch's holds per BM, zero ones left out."""
    cursor = await conn.execute(SQL.read_holds, {"batch_id": batch_id})
    return dict(await cursor.fetchall())


def _bucket_arrays(units: Sequence[Unit]) -> dict[str, Any]:
    counts: Counter[tuple[str, str, datetime]] = Counter()
    for unit in units:
        counts["bm", unit.business_manager, unit.bucket_at] += 1
        counts["sender", unit.sender, unit.bucket_at] += 1
    ordered = sorted(counts)
    return {
        "kinds": [kind for kind, _, _ in ordered],
        "owners": [owner for _, owner, _ in ordered],
        "buckets": [bucket_at for _, _, bucket_at in ordered],
        "ns": [counts[key] for key in ordered],
    }
