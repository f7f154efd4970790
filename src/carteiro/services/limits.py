"""What batches hold, made to fit a limit that was lowered."""

from collections.abc import Iterable

from carteiro.domain.capacity import ManagerMeter, cut_holds
from carteiro.settings import Settings
from carteiro.storage import capacity
from carteiro.storage.capacity import MeterId
from carteiro.storage.pool import Connection


async def lock_limited(
    conn: Connection, settings: Settings, managers: Iterable[str], senders: Iterable[str] = ()
) -> None:
    """Lock the meters of those whose limit is about to change, before any row of the catalog: a claim that waits for
    one of them goes by the new limit.
    """
    ids: set[MeterId] = {("bm", manager) for manager in managers} | {("sender", sender) for sender in senders}
    await capacity.lock_meters(conn, ids, keep_s=settings.window_s + settings.bucket_s)


async def fit_holds(conn: Connection, settings: Settings, managers: Iterable[str]) -> dict[str, int]:
    """Cut holds, newest batch first, until used and held fit the limit; units cut, by business manager.

    The rows of a batch that lost its hold wait for free room, like those that spilled. In the transaction that changes
    the limit; locks the meters.
    """
    owners = sorted(set(managers))
    keep_s = settings.window_s + settings.bucket_s
    meters = await capacity.lock_meters(conn, {("bm", owner) for owner in owners}, keep_s=keep_s)
    cut: dict[str, int] = {}
    for owner in owners:
        meter = meters["bm", owner]
        if not meter.held:
            continue
        holds = await capacity.read_holders(conn, owner)
        cuts = cut_holds(ManagerMeter(owner, meter.limit, meter.used, meter.held), holds)
        await capacity.cut_holds(conn, owner, cuts)
        if cuts:
            cut[owner] = sum(cuts.values())
    return cut
