"""Parameters reach Postgres as they were given, however they are converted."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carteiro.storage.pool import Pool

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6) | st.sampled_from(
    ["", "NULL", "null", '"', "\\", "{", "}", ",", " a ", 'a"b\\']
)
INSTANTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1))


class Word(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        ("int[]", []),
        ("int[]", [1, 2, 3]),
        ("bigint[]", [2**40, None, -1]),
        ("text[]", ["a", "", "NULL", None, 'say "x" \\ {1,2}', " b ", "ç\u2003"]),
        ("text[]", ["a", None]),
        ("text[]", [None, None]),
        ("text[]", [Word.ONE]),
        ("timestamptz[]", [datetime(2026, 11, 29, 1, 2, 3, 45, UTC), None]),
        ("float8[]", [0.5, 1e300]),
        ("bool[]", [True, False]),
        ("uuid[]", [UUID(int=5)]),
        ("int[]", [[1, 2], [3, 4]]),
        ("interval[]", [timedelta(seconds=5)]),
    ],
)
async def test_postgres_reads_what_was_given(pool: Pool, kind: str, items: list[Any]) -> None:
    async with pool.connection() as conn:
        cursor = await conn.execute(f"SELECT %s::{kind}".encode(), (items,))
        assert await cursor.fetchone() == (items,)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    numbers=st.lists(st.none() | st.integers(-(2**62), 2**62)), texts=st.lists(st.none() | TEXT), at=st.lists(INSTANTS)
)
async def test_any_array_survives(pool: Pool, numbers: list[Any], texts: list[Any], at: list[Any]) -> None:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT %s::bigint[], %s::text[], %s::timestamptz[]", (numbers, texts, at))
        assert await cursor.fetchone() == (numbers, texts, at)


@pytest.mark.parametrize("number", [0, 32_767, -32_768, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, 2**70])
async def test_any_integer_survives(pool: Pool, number: int) -> None:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT %s", (number,))
        assert await cursor.fetchone() == (number,)


async def test_two_small_integers_may_have_any_sum(pool: Pool) -> None:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT %s + %s, (%s::int[])[1]", (32_700, 500, [1]))
        assert await cursor.fetchone() == (33_200, 1)
