"""A slice planned: senders in the order of the rotation, no meter above its rate, no room overdrawn, none left idle."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carteiro.domain.pacing import MINUTE_US, SECOND_US, Calendar, open_calendar
from carteiro.domain.planning import Lane, Plan, Room, Rotation, plan_slots

LATENESS_US = 50_000
MS = 1_000
SLICE_US = 250 * MS


def calendar(limit: int, window_us: int = SECOND_US) -> Calendar:
    return open_calendar(limit, window_us, LATENESS_US, now_us=0)


def lane(
    id: str,
    manager: str = "bm",
    *paced: Calendar,
    quality: str = "HIGH",
    volume: int = 0,
    rest: int | None = None,
) -> Lane:
    return Lane(id, manager, quality, volume, rest, paced)


def plan(
    n: int,
    lanes: list[Lane],
    rooms: dict[str, Room] | None = None,
    *,
    service: Calendar | None = None,
    rotation: Rotation = Rotation.ROUND_ROBIN,
    start_us: int = 0,
    horizon_us: int = SLICE_US,
    gap_us: int = 1,
) -> Plan:
    return plan_slots(
        n,
        service=service or calendar(100_000),
        lanes=lanes,
        rooms=rooms if rooms is not None else {one.business_manager_id: Room(0, None) for one in lanes},
        rotation=rotation,
        start_us=start_us,
        horizon_us=horizon_us,
        gap_us=gap_us,
    )


def per_sender(planned: Plan) -> dict[str, int]:
    return dict(Counter(slot.lane.sender_id for slot in planned.slots))


# Rotation


def test_a_hundred_over_ten_equal_senders_is_ten_each():
    planned = plan(100, [lane(str(index)) for index in range(10)])
    assert per_sender(planned) == {str(index): 10 for index in range(10)}


def test_the_least_used_sender_goes_first_and_equals_go_by_id():
    planned = plan(5, [lane("c", volume=2), lane("b"), lane("a", volume=1)])
    assert [slot.lane.sender_id for slot in planned.slots] == ["b", "a", "b", "a", "b"]


def test_quality_first_uses_the_best_class_until_it_has_no_room():
    lanes = [
        lane("low", quality="LOW"),
        lane("new", quality="UNKNOWN", volume=1),
        lane("medium", quality="MEDIUM", rest=2),
        lane("high", quality="HIGH", volume=50, rest=3),
    ]
    planned = plan(9, lanes, rotation=Rotation.QUALITY_FIRST)
    order = [slot.lane.sender_id for slot in planned.slots]
    assert order == ["high"] * 3 + ["medium"] * 2 + ["low", "low", "new", "low"]


def test_round_robin_does_not_look_at_quality():
    planned = plan(4, [lane("a", quality="LOW"), lane("b", quality="HIGH")])
    assert per_sender(planned) == {"a": 2, "b": 2}


def test_a_sender_with_room_but_no_free_slot_passes_to_the_next():
    busy = calendar(1)
    busy.grant(0)
    planned = plan(3, [lane("a", "bm", busy), lane("b", volume=100)])
    assert per_sender(planned) == {"b": 3}


# Room


def test_the_own_hold_is_used_before_free_room():
    rooms = {"bm": Room(held=2, free=1)}
    planned = plan(5, [lane("a")], rooms)
    assert [slot.from_hold for slot in planned.slots] == [True, True, False]
    assert rooms == {"bm": Room(held=0, free=0)}


def test_a_business_manager_without_room_is_passed_over():
    rooms = {"full": Room(0, 0), "open": Room(0, 2)}
    planned = plan(5, [lane("a", "full"), lane("b", "open", volume=9)], rooms)
    assert per_sender(planned) == {"b": 2}


def test_a_senders_own_limit_ends_its_turn():
    assert per_sender(plan(9, [lane("a", rest=2), lane("b", rest=0), lane("c", rest=3)])) == {"a": 2, "c": 3}


def test_a_plan_without_room_says_so():
    assert plan(1, [lane("a", rest=0)]) == Plan([], None)
    assert plan(1, [lane("a")], {"bm": Room(0, 0)}) == Plan([], None)
    assert plan(1, [], {}) == Plan([], None)


def test_nothing_asked_for_is_nothing_planned():
    assert plan(0, [lane("a")]).slots == []


# Time


def test_a_plan_that_must_wait_says_until_when():
    service, sender = calendar(1), calendar(1)
    sender.grant(300 * MS)
    planned = plan(1, [lane("a", "bm", sender)], service=service)
    assert planned == Plan([], 300 * MS + SECOND_US + LATENESS_US)
    service.grant(0)
    assert plan(1, [lane("a")], service=service).next_us == SECOND_US + LATENESS_US


def test_a_slow_business_manager_under_a_fast_service_waits_for_seconds_only():
    """A fast calendar looks hardly more than a second ahead: beyond, nothing is granted."""
    bm = calendar(20, MINUTE_US)
    bm.grant(0)
    planned = plan(1, [lane("a", "bm", bm)], service=calendar(100))
    assert planned == Plan([], 2_700 * MS + LATENESS_US)


def test_a_plan_stays_inside_its_slice_and_keeps_the_workers_pace():
    planned = plan(500, [lane("a")], start_us=100 * MS, horizon_us=350 * MS, gap_us=2_500)
    assert len(planned.slots) == 101
    assert planned.slots[0].at_us == 100 * MS
    assert all(after.at_us - before.at_us == 2_500 for before, after in pairwise(planned.slots))


def test_all_meters_of_a_message_agree_on_its_instant():
    service, sender, bm = calendar(80), calendar(8), calendar(60, MINUTE_US)
    lanes = [lane("a", "bm", sender, bm), lane("b", "bm", bm)]
    planned = plan(10, lanes, service=service, horizon_us=10 * SECOND_US)
    assert len(planned.slots) == 10
    assert all(after.at_us - before.at_us >= 950 * MS for before, after in pairwise(planned.slots))


# Several workers on the same meters


@dataclass
class World:
    """A service and its senders as they stand in the database between claims."""

    service: int
    senders: int
    managers: int = 1
    per_sender: int | None = None
    per_manager: int | None = None
    stored: dict[tuple[str, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    volumes: Counter[int] = field(default_factory=Counter)
    slots: list[tuple[int, int]] = field(default_factory=list)

    def claim(self, now_us: int, start_us: int, ahead_us: int, gap_us: int, most: int = 500) -> list[int]:
        opened: dict[tuple[str, int], Calendar] = {}

        def open_one(key: tuple[str, int], limit: int, window_us: int = SECOND_US) -> Calendar:
            times_us, counts = self.stored.get(key, ([], []))
            opened[key] = open_calendar(limit, window_us, LATENESS_US, now_us=now_us, times_us=times_us, counts=counts)
            return opened[key]

        service = open_one(("service", 0), self.service)
        bms = [
            open_one(("bm", bm), self.per_manager, MINUTE_US) if self.per_manager else None
            for bm in range(self.managers)
        ]
        lanes = []
        for sender in range(self.senders):
            bm = sender % self.managers
            own = open_one(("sender", sender), self.per_sender) if self.per_sender else None
            paced = tuple(one for one in (own, bms[bm]) if one is not None)
            lanes.append(Lane(f"{sender:03}", str(bm), "HIGH", self.volumes[sender], None, paced))
        planned = plan(
            most,
            lanes,
            service=service,
            start_us=start_us,
            horizon_us=start_us + ahead_us,
            gap_us=gap_us,
        )
        for slot in planned.slots:
            sender = int(slot.lane.sender_id)
            self.volumes[sender] += 1
            self.slots.append((slot.at_us, sender))
        self.stored |= {key: one.trimmed(now_us) for key, one in opened.items()}
        return [slot.at_us for slot in planned.slots]

    def keep_busy(self, claimers: int, gap_us: int, seconds: float) -> float:
        """`claimers` workers pump in turn; calls a second after the first second."""
        lead_us, end_us = 15 * MS, round(seconds * SECOND_US)
        goes_on_at = [worker * 31 * MS for worker in range(claimers)]
        while (now_us := min(goes_on_at)) < end_us:
            worker = goes_on_at.index(now_us)
            most = max(1, min(500, round(SLICE_US / gap_us)))
            slots_us = self.claim(now_us, now_us + lead_us, SLICE_US, gap_us, most)
            goes_on_at[worker] = max(now_us + 5 * MS, slots_us[-1] - lead_us) if slots_us else now_us + 50 * MS
        return sum(SECOND_US <= at_us < end_us for at_us, _ in self.slots) / (seconds - 1)

    def assert_within_rates(self) -> None:
        _assert_within([at_us for at_us, _ in self.slots], self.service, SECOND_US)
        for sender in range(self.senders):
            if self.per_sender:
                _assert_within([at_us for at_us, s in self.slots if s == sender], self.per_sender, SECOND_US)
        for bm in range(self.managers):
            if self.per_manager:
                of_bm = [at_us for at_us, s in self.slots if s % self.managers == bm]
                _assert_within(of_bm, self.per_manager, MINUTE_US)


def _assert_within(slots_us: list[int], limit: int, window_us: int) -> None:
    """However late each call starts: the first of limit + 1 late, the last in time, and still a window apart."""
    ordered = sorted(slots_us)
    for first_us, beyond_us in zip(ordered, ordered[limit:], strict=False):
        assert beyond_us - first_us >= window_us + LATENESS_US


@given(
    service=st.sampled_from([1, 7, 30, 80, 150]),
    senders=st.integers(1, 4),
    managers=st.integers(1, 2),
    per_sender=st.sampled_from([None, 1, 8, 40]),
    per_manager=st.sampled_from([None, 3, 60, 600]),
    steps=st.lists(
        st.tuples(st.integers(0, 400 * MS), st.integers(0, 40 * MS), st.sampled_from([1, 2_500, 12_500, 40 * MS])),
        min_size=1,
        max_size=15,
    ),
)
@settings(max_examples=60, deadline=None)
def test_no_interleaving_of_workers_breaks_a_rate(service, senders, managers, per_sender, per_manager, steps):
    world = World(service, senders, managers, per_sender, per_manager)
    now_us = 0
    for advance_us, lead_us, gap_us in steps:
        now_us += advance_us
        slots_us = world.claim(now_us, now_us + lead_us, SLICE_US, gap_us)
        assert slots_us == sorted(slots_us)
        assert all(now_us + lead_us <= at_us <= now_us + lead_us + SLICE_US for at_us in slots_us)
    world.assert_within_rates()


EIGHTY = World(80, 10)
EIGHTY_OVER_TEN = World(80, 10, 10, per_sender=8)
META_SENDERS = World(1_000, 13, 1, per_sender=80)
MANY_SMALL = World(5_000, 50, 5, per_sender=8)
MINUTES = World(400, 20, 10, per_manager=1_000)


@pytest.mark.parametrize("claimers", [1, 2, 4])
@pytest.mark.parametrize(
    ("like", "rate", "seconds"),
    [(EIGHTY, 80, 6), (EIGHTY_OVER_TEN, 80, 6), (META_SENDERS, 1_000, 3), (MANY_SMALL, 400, 4), (MINUTES, 166.7, 6)],
    ids=["80/s", "80/s over 10 of 8/s", "1000/s over 13 of 80/s", "50 of 8/s", "10 of 1000/min"],
)
def test_with_work_waiting_nearly_all_of_the_rate_is_used(like, rate, seconds, claimers):
    world = World(like.service, like.senders, like.managers, like.per_sender, like.per_manager)
    assert world.keep_busy(claimers, 50, seconds) >= 0.90 * rate
    world.assert_within_rates()


@pytest.mark.parametrize("claimers", [2, 4])
@pytest.mark.parametrize(
    ("like", "share", "seconds"),
    [
        (EIGHTY, 0.5, 6),
        (EIGHTY, 0.75, 6),
        (EIGHTY_OVER_TEN, 0.5, 6),
        (EIGHTY_OVER_TEN, 0.75, 6),
        (META_SENDERS, 0.6, 3),
        (META_SENDERS, 0.75, 3),
    ],
)
def test_workers_slower_than_the_service_fill_it_together(like, seconds, share, claimers):
    world = World(like.service, like.senders, like.managers, like.per_sender, like.per_manager)
    assert world.keep_busy(claimers, round(SECOND_US / like.service / share), seconds) >= 0.90 * like.service
    world.assert_within_rates()


@pytest.mark.parametrize("claimers", [1, 2, 4])
def test_sixty_a_minute_is_about_one_a_second(claimers):
    world = World(80, 2, 1, per_manager=60)
    assert world.keep_busy(claimers, 2_500, 20) >= 0.90
    slots_us = sorted(at_us for at_us, _ in world.slots)
    assert all(after_us - before_us >= 900 * MS + LATENESS_US for before_us, after_us in pairwise(slots_us))
