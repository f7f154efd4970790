"""Receipts commute: any order, any repetition, any grouping gives the row that the domain's pure function names."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carteiro.domain.facts import NOTHING, Known, code_of, known_of, merge, state_of
from carteiro.domain.lifecycle import MessageState
from carteiro.domain.outcomes import Fact, FactKind, Parsed
from carteiro.services.receive import apply_payloads
from carteiro.storage.pool import open_pool
from tests.support.batches import SENT_AT, STEPS, TOKEN, add_batch, add_service
from tests.support.posting import store_payload

Told = tuple[int, FactKind, int]
"""(seq, kind, seconds after SENT_AT)"""

BEFORE: dict[str, Known] = {
    "given_back": NOTHING,
    "pending_send": NOTHING,
    "unknown": NOTHING,
    "sent": Known(sent_at=SENT_AT),
    "delivered": Known(sent_at=SENT_AT, delivered_at=SENT_AT),
    "seen": Known(sent_at=SENT_AT, seen_at=SENT_AT),
    "failed": Known(failed_at=SENT_AT, code="EC_0"),
    "assumed": Known(sent_at=SENT_AT, assumed_at=SENT_AT),
    "gave_up": Known(gave_up_at=SENT_AT),
}
"""What is known of a message with each past of which receipts can tell something."""

PASTS = tuple(BEFORE)

told = st.lists(
    st.tuples(
        st.integers(1, len(PASTS)),
        st.sampled_from([FactKind.SENT, FactKind.DELIVERED, FactKind.SEEN, FactKind.FAILED]),
        st.integers(-2, 3),
    ),
    max_size=14,
)


@pytest.fixture(scope="module")
def service_dsn(postgres_server) -> Iterator[str]:  # type: ignore[no-untyped-def]
    with postgres_server.fresh_database() as dsn:

        async def add() -> None:
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
                await add_service(conn)

        asyncio.run(add())
        yield dsn


def fact(batch_id: UUID, seq: int, kind: FactKind, offset_s: int) -> Fact:
    """Equal facts are equal in all they say, as a provider's repeats are."""
    code = f"EC_{offset_s}" if kind is FactKind.FAILED else None
    return Fact(batch_id, seq, kind, SENT_AT + timedelta(seconds=offset_s), code=code)


async def run(dsn: str, payloads: list[list[Told]], limit: int, appliers: int) -> None:
    """Give a fresh batch these payloads, and compare each row with what the domain says."""
    async with open_pool(dsn, min_size=1, max_size=4, application_name="tests") as pool:
        async with pool.connection() as conn:
            batch_id = await add_batch(conn, PASTS)

        def parser_of(_: str) -> Callable[[bytes], Parsed]:
            return lambda body: Parsed(tuple(fact(batch_id, *item) for item in payloads[int(body)]))

        for number in range(len(payloads)):
            assert await store_payload(pool, "infobip", TOKEN, str(number).encode())

        async def drain() -> None:
            while (await apply_payloads(pool, parser_of, limit=limit)).taken:
                pass

        await asyncio.gather(*(drain() for _ in range(appliers)))

        facts: dict[int, list[Fact]] = defaultdict(list)
        for seq, kind, offset_s in [item for payload in payloads for item in payload]:
            facts[seq].append(fact(batch_id, seq, kind, offset_s))
        async with pool.connection() as conn:
            cursor = await conn.execute(
                "SELECT seq, status, seen_at, delivered_at, failed_at, assumed_at, sent_at, gave_up_at, code"
                " FROM message WHERE batch_id = %s ORDER BY seq",
                [batch_id],
            )
            for seq, status, *times, code in await cursor.fetchall():
                expect(PASTS[seq - 1], status, times, code, known_of(facts[seq]))
            counted = await (
                await conn.execute(
                    "SELECT result, count(*) FROM receipt WHERE batch_id = %s GROUP BY result", [batch_id]
                )
            ).fetchall()
        assert sum(n for _, n in counted) == sum(map(len, payloads))
        assert {result for result, _ in counted} <= {"applied", "repeated"}


def expect(past: str, status: str, times: list[datetime | None], code: str | None, heard: Known) -> None:
    known = merge(BEFORE[past], heard)
    assert status == (state_of(known) or STEPS[past][-1][1])
    assert times == [known.at(kind) for kind in FactKind]
    if status == MessageState.FAILED:
        assert code == code_of(known)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    payloads=st.lists(told, min_size=1, max_size=5),
    repeats=st.lists(st.integers(0, 4), max_size=3),
    limit=st.sampled_from([1, 2, 200]),
    appliers=st.sampled_from([1, 2]),
    data=st.data(),
)
def test_any_order_repetition_and_grouping_gives_the_same_rows(
    service_dsn: str, payloads: list[list[Told]], repeats: list[int], limit: int, appliers: int, data: st.DataObject
) -> None:
    again = payloads + [payloads[at % len(payloads)] for at in repeats]
    shuffled = data.draw(st.permutations(again))
    asyncio.run(run(service_dsn, shuffled, limit, appliers))
