"""Pacing over several worker processes together, at the slots that were granted and at what the simulator saw.

A call starts at its slot or up to LATENESS_S after it, by the database's clock, and reaches the simulator's handler a
little later: JITTER_S is tolerated, a few milliseconds are usual where a core is free. What is granted holds exactly.
Arrivals are judged with the jitter; one that a busy machine held up for longer says nothing on the pace and is left
out.
"""

from itertools import pairwise
from uuid import UUID

from tests.scenarios.conftest import StackStarter
from tests.support.evidence import Evidence, most_within
from tests.support.stack import Stack

LATENESS_S = 0.05
JITTER_S = 0.03
SECOND_US = 1_000_000
N = 400


async def test_sixty_a_minute_are_one_a_second_and_not_sixty_at_once(start: StackStarter) -> None:
    async with start({"messages_per_second": 80}, workers=2) as stack:
        await stack.set_pace(bm_per_minute=60)
        api = await stack.client()
        n = 9
        await stack.settled(api, await api.create(n))
        evidence = await stack.check()

        slots_us = sorted((await read_slots(stack)).values())
        # 0.9 s and the lateness: the starts themselves keep 0.9 s.
        assert min(later - earlier for earlier, later in pairwise(slots_us)) >= 900_000 + LATENESS_S * SECOND_US
        assert (await in_time(stack, evidence)).smallest_gap_s() >= 0.9 - JITTER_S


async def test_eighty_a_second_over_ten_senders_of_eight_are_used_and_never_exceeded(start: StackStarter) -> None:
    async with start({"bms": 10, "messages_per_second": 80}, workers=2) as stack:
        await stack.set_pace(sender_per_second=8)
        api = await stack.client()
        n, slots_us = 0, dict[str, int]()
        # Three seconds of it are enough, whenever the machine has them; a busy one gets another try.
        while not slots_us or (n < 4 * N and most_within(slots_us.values(), 3 * SECOND_US) < 0.9 * 80 * 3):
            await stack.settled(api, await api.create(N, start=n), 40)
            slots_us, n = await read_slots(stack), n + N
        evidence = await stack.check()
        assert len(evidence.accepted) == n

        assert most_within(slots_us.values(), SECOND_US) <= 80
        for sender in evidence.per_sender:
            of_sender = evidence.where(lambda arrival, sender=sender: arrival.sender == sender)
            assert most_within([slots_us[arrival.message_id] for arrival in of_sender.arrivals], SECOND_US) <= 8
        assert most_within(slots_us.values(), 3 * SECOND_US) >= 0.9 * 80 * 3

        arrived = await in_time(stack, evidence)
        assert arrived.most_in(1.0 - JITTER_S) <= 80
        assert arrived.most_in(1.0 - JITTER_S, by=lambda arrival: arrival.sender) <= 8


async def in_time(stack: Stack, evidence: Evidence) -> Evidence:
    """Without the arrivals that the machine held up. None is ever before its slot."""
    slots_us = await read_slots(stack)
    lags_s = {
        arrival.message_id: arrival.arrived_wall_ns / 1e9 - slots_us[arrival.message_id] / 1e6
        for arrival in evidence.arrivals
    }
    assert min(lags_s.values()) > -0.001
    return evidence.where(lambda arrival: lags_s[arrival.message_id] <= LATENESS_S + JITTER_S)


async def read_slots(stack: Stack) -> dict[str, int]:
    """Each message's slot in microseconds. One that was missed was given back: its row has another since."""
    async with stack.pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT batch_id, seq, (extract(epoch FROM slot_at) * 1000000)::int8 FROM message WHERE slot_at IS NOT NULL"
        )
        rows: list[tuple[UUID, int, int]] = await cursor.fetchall()
    return {f"{batch_id.hex}-{seq}": slot_us for batch_id, seq, slot_us in rows}
