"""Rows loaded by COPY come back as they were."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection
from uuid_utils.compat import uuid7

from carteiro.domain.contacts import Row
from carteiro.storage import messages

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
EXTRA = st.none() | st.fixed_dictionaries({"header_text": TEXT, "buttons": st.lists(TEXT, max_size=2)})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(contents=st.lists(st.tuples(st.lists(TEXT, max_size=3), EXTRA), min_size=1, max_size=5))
async def test_any_text_survives(
    conn: AsyncConnection[Any], contents: list[tuple[list[str], dict[str, Any] | None]]
) -> None:
    batch_id = uuid7()
    rows = [
        Row(seq, 5511900000000 + seq, f"55119{seq:08d}", placeholders, extra)
        for seq, (placeholders, extra) in enumerate(contents, start=1)
    ]
    await messages.load_messages(conn, messages.copy_text(batch_id, rows))
    cursor = await conn.execute(
        "SELECT placeholders, extra FROM message_content WHERE batch_id = %s ORDER BY seq", (batch_id,)
    )
    assert await cursor.fetchall() == contents


async def test_rows_are_counted_and_read_in_order(conn: AsyncConnection[Any]) -> None:
    batch_id = uuid7()
    for first in (1, 1_001):
        rows = [Row(seq, seq, str(seq), [], None) for seq in range(first, first + 1_000)]
        await messages.load_messages(conn, messages.copy_text(batch_id, rows))
    page = await messages.read_page(conn, batch_id, after_seq=1_998, status=None, limit=10)
    assert [(listed.seq, listed.address, listed.status) for listed in page] == [
        (1_999, "1999", "pending"),
        (2_000, "2000", "pending"),
    ]
    cursor = await conn.execute("SELECT sum(pending)::int FROM batch_tally WHERE batch_id = %s", (batch_id,))
    assert await cursor.fetchone() == (2_000,)
