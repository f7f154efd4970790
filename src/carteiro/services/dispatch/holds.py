"""A batch's holds while it is dispatched: taken at its start, released when they exceed what is left to send."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from carteiro.domain.capacity import plan_holds
from carteiro.domain.planning import Rotation, Slot
from carteiro.services.dispatch.ground import Ground
from carteiro.storage import capacity
from carteiro.storage.pool import Connection


async def hold_at_start(conn: Connection, batch_id: UUID, ground: Ground, rotation: Rotation, pending: int) -> None:
    """A scheduled or moderated batch held nothing at its creation: now it holds what it can of what it needs.

    A batch that holds already (all of it, or what there was with `spill`) keeps what it has.
    """
    if ground.holds:
        return
    holds = plan_holds(pending, ground.managers, ground.senders, rotation)
    await capacity.hold(conn, batch_id, holds, _limits(ground))
    for bm, held in holds.items():
        ground.hold(bm, held)


async def tidy_holds(
    conn: Connection, batch_id: UUID, ground: Ground, rotation: Rotation, slots: Sequence[Slot], left: int
) -> list[str]:
    """Release what the batch holds beyond its `left` rows, after the units of `slots` come out of its holds.

    First on business managers that have no eligible sender any more, whose holds are useless to it: they are released
    whole, and taken anew elsewhere as far as there is free room. Then where it holds most. Answers the business
    managers on which room became free.
    """
    used = Counter(slot.lane.business_manager_id for slot in slots if slot.from_hold)
    holds = {bm: held - used[bm] for bm, held in ground.holds.items()}
    surplus = Counter({bm: held for bm, held in holds.items() if held and bm not in ground.rooms})
    excess = sum(holds.values()) - surplus.total() - left
    if surplus and excess < 0:
        moved = plan_holds(min(surplus.total(), -excess), *ground.after(slots), rotation)
        await capacity.hold(conn, batch_id, moved, _limits(ground))
    for bm in sorted(ground.rooms, key=lambda bm: -holds.get(bm, 0)):
        released = min(holds.get(bm, 0), max(0, excess))
        surplus[bm] += released
        excess -= released
    await capacity.release_holds(conn, batch_id, surplus)
    return [bm for bm, released in surplus.items() if released]


def _limits(ground: Ground) -> dict[str, int | None]:
    return {owner: limit for (kind, owner), limit in ground.limits.items() if kind == "bm"}
