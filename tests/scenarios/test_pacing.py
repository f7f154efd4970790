"""Pacing over several worker processes together, at the slots that were granted and at what the simulator saw.

A call starts at its slot or up to 50 ms (the tolerated lateness) after it, by the database's clock, and reaches the
simulator a little later. What is granted holds exactly. What arrives is judged with the jitter of a busy machine
beside the lateness: JITTER_S, both ways.
"""

from itertools import pairwise

from tests.scenarios.conftest import StackStarter
from tests.support.evidence import most_within
from tests.support.stack import Stack

LATENESS_US = 50_000
JITTER_S = 0.03
"""From the start of a call to its arrival in the simulator's handler: a few milliseconds where a core is free."""


async def test_sixty_a_minute_are_one_a_second_and_not_sixty_at_once(start: StackStarter) -> None:
    async with start({"messages_per_second": 80}, workers=2) as stack:
        await stack.set_pace(bm_per_minute=60)
        api = await stack.client()
        n = 9
        batch_id = await api.create(n)
        await stack.settled(api, batch_id)
        evidence = await stack.check()

        slots = await slots_us(stack)
        # 0.9 s and the lateness: at the least 0.9 s between the starts.
        assert min(later - earlier for earlier, later in pairwise(slots)) >= 900_000 + LATENESS_US
        assert evidence.smallest_gap_s() >= 0.9 - JITTER_S
        assert evidence.span_s <= (n - 1) * 1.0 / 0.9


async def test_eighty_a_second_over_ten_senders_of_eight_are_used_and_never_exceeded(start: StackStarter) -> None:
    async with start({"bms": 10, "messages_per_second": 80}, workers=2) as stack:
        await stack.set_pace(sender_per_second=8)
        api = await stack.client()
        n = 480
        batch_id = await api.create(n)
        await stack.settled(api, batch_id, 40)
        evidence = await stack.check()
        assert len(evidence.accepted) == n

        slots = await slots_us(stack)
        assert most_within(slots, 1_000_000) <= 80
        assert len(slots) / (slots[-1] - slots[0]) * 1e6 >= 0.9 * 80
        for slots_of_sender in (await slots_by_sender(stack)).values():
            assert most_within(slots_of_sender, 1_000_000) <= 8
        assert evidence.most_in(1.0 - JITTER_S) <= 80
        assert evidence.most_in(1.0 - JITTER_S, by=lambda arrival: arrival.sender) <= 8


async def slots_us(stack: Stack) -> list[int]:
    """The slots of the calls that were made, in order. One that was missed was given back: its row has another."""
    return sorted(slot for slots in (await slots_by_sender(stack)).values() for slot in slots)


async def slots_by_sender(stack: Stack) -> dict[str, list[int]]:
    async with stack.pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT sender_id, array_agg((extract(epoch FROM slot_at) * 1000000)::int8 ORDER BY slot_at) FROM message"
            " WHERE slot_at IS NOT NULL GROUP BY sender_id"
        )
        return dict(await cursor.fetchall())
