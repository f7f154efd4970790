"""The sliding window's arithmetic: never above the limit, nothing held for ever, holds where senders will be chosen."""

from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carteiro.domain.capacity import (
    ManagerMeter,
    SenderMeter,
    available,
    bucket_of,
    cut_holds,
    free_room,
    plan_holds,
)
from carteiro.domain.planning import RANKS, Rotation

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def manager(id: str, limit: int | None = None, used: int = 0, held: int = 0) -> ManagerMeter:
    return ManagerMeter(id, limit, used, held)


def sender(id: str, bm: str, limit: int | None = None, used: int = 0, quality: str = "HIGH") -> SenderMeter:
    return SenderMeter(id, bm, quality, limit, used)


# Buckets


@given(st.integers(0, 10**15), st.sampled_from([0.2, 1.0, 60.0]))
def test_a_bucket_contains_its_instants(us, bucket_s):
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)
    bucket = bucket_of(at, bucket_s)
    assert bucket <= at < bucket + timedelta(seconds=bucket_s)
    assert bucket_of(bucket, bucket_s) == bucket


WINDOW_S, BUCKET_S, TIMEOUT_S, LATENESS_S = 20.0, 0.2, 0.3, 0.05

gaps_and_delays = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=80)


@given(limit=st.integers(1, 5), steps=gaps_and_delays)
@settings(max_examples=200, deadline=None)
def test_accepted_in_any_window_never_exceeds_the_limit_and_room_always_comes_back(limit, steps):
    """A meter by hand: charge the bucket of the latest acceptance, release one when all of it is out of the window."""
    buckets: dict[datetime, int] = {}
    accepted: list[datetime] = []
    now = NOON
    refused_since: datetime | None = None
    for gap_s, delay in steps:
        now += timedelta(seconds=gap_s)
        keep_s = WINDOW_S + BUCKET_S
        buckets = {at: n for at, n in buckets.items() if at > now - timedelta(seconds=keep_s)}
        if sum(buckets.values()) + 1 > limit:
            refused_since = refused_since or now
            assert now - refused_since <= timedelta(seconds=keep_s + LATENESS_S + TIMEOUT_S)
            continue
        refused_since = None
        latest = now + timedelta(seconds=LATENESS_S + TIMEOUT_S)
        bucket = bucket_of(latest, BUCKET_S)
        buckets[bucket] = buckets.get(bucket, 0) + 1
        accepted.append(now + delay * (latest - now))

    inside: deque[datetime] = deque()
    for at in sorted(accepted):
        inside.append(at)
        while inside[0] <= at - timedelta(seconds=WINDOW_S):
            inside.popleft()
        assert len(inside) <= limit


# Room


@pytest.mark.parametrize(
    ("meter", "senders", "free"),
    [
        (manager("a", 2000, used=500, held=300), [sender("1", "a")], 1200),
        (manager("a", 2000), [sender("1", "a", 100, used=40), sender("2", "a", 100)], 160),
        (manager("a", 100, used=40), [sender("1", "a", 1000)], 60),
        (manager("a", 100, used=100), [sender("1", "a", 1000)], 0),
        (manager("a", 50, used=100), [sender("1", "a", 1000)], 0),
        (manager("a", 100, held=120), [sender("1", "a")], 0),
        (manager("a"), [sender("1", "a", 10, used=4), sender("2", "a", 10, used=15)], 6),
        (manager("a"), [sender("1", "a", 10), sender("2", "a")], None),
        (manager("a", 100), [], 0),
    ],
)
def test_free_room_is_the_smaller_rest_less_all_holds(meter, senders, free):
    assert free_room(meter, senders) == free


def test_available_is_the_sum_over_the_managers():
    managers = [manager("a", 100, used=10), manager("b", 100, held=70), manager("c", 10, used=20)]
    senders = [sender("1", "a"), sender("2", "b"), sender("3", "c")]
    assert available(managers, senders) == 90 + 30
    assert available([*managers, manager("d")], [*senders, sender("4", "d")]) is None


# Holds


def chosen_one_by_one(n: int, managers: list[ManagerMeter], senders: list[SenderMeter], rotation: Rotation):
    """What the rotation picks, message after message: by class, then least volume, then id."""
    rooms = {m.id: free_room(m, [s for s in senders if s.business_manager_id == m.id]) for m in managers}
    volumes = {s.id: s.used for s in senders}
    holds: dict[str, int] = {}
    for _ in range(n):
        open_ones = [
            s for s in senders if rooms[s.business_manager_id] != 0 and (s.limit is None or volumes[s.id] < s.limit)
        ]
        if not open_ones:
            break
        best = min(
            open_ones,
            key=lambda s: (RANKS[s.quality] if rotation is Rotation.QUALITY_FIRST else 0, volumes[s.id], s.id),
        )
        volumes[best.id] += 1
        bm = best.business_manager_id
        holds[bm] = holds.get(bm, 0) + 1
        if rooms[bm] is not None:
            rooms[bm] -= 1
    return holds


managers_of = st.lists(
    st.builds(manager, st.just(""), st.none() | st.integers(0, 30), st.integers(0, 10), st.integers(0, 10)),
    min_size=1,
    max_size=4,
).map(lambda ms: [replace(m, id="abcd"[index]) for index, m in enumerate(ms)])


@st.composite
def pools(draw):
    managers = draw(managers_of)
    senders = draw(
        st.lists(
            st.builds(
                sender,
                st.just(""),
                st.sampled_from([m.id for m in managers]),
                st.none() | st.integers(0, 15),
                st.integers(0, 12),
                st.sampled_from(sorted(RANKS)),
            ),
            max_size=8,
        )
    )
    return managers, [replace(s, id=str(index)) for index, s in enumerate(senders)]


@given(pools(), st.integers(0, 60), st.sampled_from(Rotation))
@settings(max_examples=400, deadline=None)
def test_holds_are_where_the_senders_will_be_chosen(pool, n, rotation):
    managers, senders = pool
    assert plan_holds(n, managers, senders, rotation) == chosen_one_by_one(n, managers, senders, rotation)


@given(pools(), st.integers(0, 60), st.sampled_from(Rotation))
@settings(max_examples=200, deadline=None)
def test_as_much_is_held_as_is_asked_for_and_available(pool, n, rotation):
    managers, senders = pool
    most = available(managers, senders)
    assert sum(plan_holds(n, managers, senders, rotation).values()) == (n if most is None else min(n, most))


def test_a_hundred_over_ten_equal_senders_is_ten_each_whoever_they_belong_to():
    senders = [sender("0", "a"), *(sender(str(index), "b") for index in range(1, 10))]
    assert plan_holds(100, [manager("a", 500), manager("b", 500)], senders, Rotation.ROUND_ROBIN) == {"a": 10, "b": 90}


def test_quality_first_fills_the_best_class_before_the_next():
    managers = [manager("a", 1000), manager("b", 1000)]
    senders = [
        sender("1", "a", 50, quality="MEDIUM"),
        sender("2", "b", 30, quality="HIGH"),
        sender("3", "b", 99, quality="LOW"),
    ]
    assert plan_holds(40, managers, senders, Rotation.QUALITY_FIRST) == {"a": 10, "b": 30}
    assert plan_holds(100, managers, senders, Rotation.QUALITY_FIRST) == {"a": 50, "b": 50}


def test_a_million_over_many_senders_is_a_matter_of_levels():
    managers = [manager(f"bm{index}", 100_000) for index in range(20)]
    senders = [sender(f"{index:04}", f"bm{index % 20}", used=index) for index in range(200)]
    holds = plan_holds(1_000_000, managers, senders, Rotation.ROUND_ROBIN)
    assert sum(holds.values()) == 1_000_000
    assert max(holds.values()) - min(holds.values()) <= 200


# Cuts


def batch(number: int) -> UUID:
    """Ids rise with time."""
    return UUID(int=number)


@pytest.mark.parametrize(
    ("limit", "used", "holds", "cuts"),
    [
        (100, 20, {1: 30, 2: 50}, {}),
        (90, 20, {1: 30, 2: 50}, {2: 10}),
        (40, 20, {1: 30, 2: 50}, {1: 10, 2: 50}),
        (10, 20, {1: 30, 2: 50}, {1: 30, 2: 50}),
        (None, 20, {1: 30, 2: 50}, {}),
        (10, 10, {1: 0, 2: 1, 3: 0}, {2: 1}),
    ],
)
def test_a_lowered_limit_takes_from_the_newest_batch_first(limit, used, holds, cuts):
    held = {batch(number): n for number, n in holds.items()}
    found = cut_holds(manager("a", limit, used, sum(holds.values())), held)
    assert found == {batch(number): n for number, n in cuts.items()}


@given(
    limit=st.none() | st.integers(0, 500),
    used=st.integers(0, 300),
    held=st.dictionaries(st.integers(1, 50).map(batch), st.integers(0, 100), max_size=8),
)
def test_after_the_cuts_holds_fit_and_nothing_was_cut_for_nothing(limit, used, held):
    cuts = cut_holds(manager("a", limit, used, sum(held.values())), held)
    assert all(0 < cut <= held[batch_id] for batch_id, cut in cuts.items())
    left = {batch_id: n - cuts.get(batch_id, 0) for batch_id, n in held.items()}
    if limit is None or used + sum(held.values()) <= limit:
        assert cuts == {}
        return
    assert used + sum(left.values()) == max(limit, used)
    newest_kept = max((batch_id for batch_id, n in left.items() if n), default=batch(0))
    assert all(batch_id >= newest_kept for batch_id in cuts), "a batch keeps its hold while a newer one still has some"
    assert cut_holds(manager("a", limit, used, sum(left.values())), left) == {}
