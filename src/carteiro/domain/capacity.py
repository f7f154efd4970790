"""Arithmetic of the sliding window: room, holds, buckets. Units are messages; None stands for "no limit".

A unit is charged to the bucket of the latest instant at which its call may be accepted, and leaves the window when
all of that bucket has left it: the count never falls below the truth, so accepted in (t - window, t] never exceeds
the limit, for every t.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from carteiro.domain.planning import RANKS, Rotation

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bucket_of(at: datetime, bucket_s: float) -> datetime:
    """The start of the bucket that contains an instant."""
    bucket = timedelta(seconds=bucket_s)
    return EPOCH + (at - EPOCH) // bucket * bucket


@dataclass(frozen=True, slots=True)
class ManagerMeter:
    """A business manager as a batch finds it: `used` in the window, `held` by all batches together."""

    id: str
    limit: int | None
    used: int
    held: int


@dataclass(frozen=True, slots=True)
class SenderMeter:
    """An eligible sender. `limit` None also where only its business manager's counts."""

    id: str
    business_manager_id: str
    quality: str
    limit: int | None
    used: int

    @property
    def rest(self) -> int | None:
        return None if self.limit is None else max(0, self.limit - self.used)


def free_room(manager: ManagerMeter, senders: Iterable[SenderMeter]) -> int | None:
    """What nobody holds: the smaller of the manager's own rest and what its eligible senders may still send, less all
    holds.
    """
    rests = [sender.rest for sender in senders]
    bounds = [] if manager.limit is None else [manager.limit - manager.used]
    known = [rest for rest in rests if rest is not None]
    if len(known) == len(rests):
        bounds.append(sum(known))
    return max(0, min(bounds) - manager.held) if bounds else None


def available(managers: Sequence[ManagerMeter], senders: Sequence[SenderMeter]) -> int | None:
    """What a new batch could hold: the sum of the managers' free rooms; None when one of them has no limit at all."""
    total = 0
    for manager in managers:
        free = free_room(manager, _of(manager, senders))
        if free is None:
            return None
        total += free
    return total


def plan_holds(
    n: int, managers: Sequence[ManagerMeter], senders: Sequence[SenderMeter], rotation: Rotation
) -> dict[str, int]:
    """Where to hold up to `n` units so that the senders come out as the rotation will choose them; fewer where room
    is short.

    By quality class (all in one for round robin), levelling the senders' volumes as water finds its level: a hundred
    over ten equal senders holds ten for each, whichever managers they belong to. Costs the same for a million units
    as for ten.
    """
    holds = {manager.id: 0 for manager in managers}
    frees = {manager.id: free_room(manager, _of(manager, senders)) for manager in managers}
    left = n
    for rank in sorted({_rank(sender, rotation) for sender in senders}):
        tier = [sender for sender in senders if _rank(sender, rotation) == rank]
        rooms = {id: left if free is None else free - holds[id] for id, free in frees.items()}
        for manager_id, taken in _level(left, rooms, tier).items():
            holds[manager_id] += taken
            left -= taken
    return {manager_id: held for manager_id, held in holds.items() if held}


def cut_holds(manager: ManagerMeter, holds: Mapping[UUID, int]) -> dict[UUID, int]:
    """What to take from each batch's hold so that used and held fit the manager's limit; the newest batch gives first.

    `holds` are all of the manager's, by batch: ids are time-ordered. Nothing is taken where there is no limit.
    """
    if manager.limit is None:
        return {}
    excess = manager.used + sum(holds.values()) - manager.limit
    cuts: dict[UUID, int] = {}
    for batch_id in sorted(holds, reverse=True):
        if excess <= 0:
            break
        cut = min(excess, holds[batch_id])
        if cut:
            cuts[batch_id] = cut
            excess -= cut
    return cuts


def _level(n: int, rooms: dict[str, int], tier: Sequence[SenderMeter]) -> dict[str, int]:
    """Pour `n` units over the senders of one tier, lowest volume first, within the managers' rooms."""

    def poured(level: int) -> dict[str, int]:
        wanted = dict.fromkeys(rooms, 0)
        for sender in tier:
            wanted[sender.business_manager_id] += _up_to(sender, level)
        return {manager_id: min(rooms[manager_id], n) for manager_id, n in wanted.items()}

    level = _highest(lambda level: sum(poured(level).values()) <= n, max((s.used for s in tier), default=0) + n)
    taken = poured(level)
    left = n - sum(taken.values())
    # Too few to raise the level once more: of the senders at it, those that the rotation would choose first.
    for sender in sorted(tier, key=lambda sender: sender.id):
        manager_id = sender.business_manager_id
        if left and taken[manager_id] < rooms[manager_id] and _up_to(sender, level + 1) > _up_to(sender, level):
            taken[manager_id] += 1
            left -= 1
    return taken


def _up_to(sender: SenderMeter, level: int) -> int:
    gap = max(0, level - sender.used)
    return gap if sender.rest is None else min(gap, sender.rest)


def _highest(holds_at: Callable[[int], bool], top: int) -> int:
    """The highest level in [0, top] at which a condition holds that, once broken, stays broken."""
    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        if holds_at(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _of(manager: ManagerMeter, senders: Iterable[SenderMeter]) -> list[SenderMeter]:
    return [sender for sender in senders if sender.business_manager_id == manager.id]


def _rank(sender: SenderMeter, rotation: Rotation) -> int:
    return RANKS.get(sender.quality, 2) if rotation is Rotation.QUALITY_FIRST else 0
