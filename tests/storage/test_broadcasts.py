"""The audit's words for broadcasts are those of the API."""

from typing import Any

import psycopg
from psycopg.rows import dict_row

from carteiro.domain.broadcasts import STATUS_OF_BATCH, STATUS_OF_MESSAGE
from carteiro.services.codes import MEANINGS, publish_codes
from carteiro.storage.pool import Pool
from tests.support.lives import World


async def test_states_have_the_words_that_the_api_gives_them(conn: psycopg.AsyncConnection) -> None:
    for function, words in (("broadcast_status", STATUS_OF_BATCH), ("recipient_status", STATUS_OF_MESSAGE)):
        for state, word in words.items():
            cursor = await conn.execute(f"SELECT audit.{function}(%s)".encode(), (str(state),))
            assert await cursor.fetchone() == (str(word),)


async def test_codes_are_told_in_words(pool: Pool) -> None:
    for _ in range(2):
        await publish_codes(pool)
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT code, meaning FROM audit.code_meaning")
        assert dict(await cursor.fetchall()) == MEANINGS


def test_the_views_show_broadcasts_and_their_recipients(
    session: psycopg.Connection[dict[str, Any]], world: World
) -> None:
    session.execute(
        "INSERT INTO broadcast SELECT id, 'public-' || reference, 'ana', 'customers', '{}' FROM batch"
        " WHERE id = ANY(%s)",
        ([world.settled, world.running],),
    )
    session.execute("INSERT INTO audit.code_meaning VALUES ('EC_7', 'not there')")
    session.execute("SET LOCAL ROLE carteiro_auditor")
    shown = session.execute("SELECT * FROM audit.broadcasts ORDER BY broadcast_id").fetchall()
    told = [
        (row["public_id"], row["owner_id"], row["status"], *(row[step] for step in ("total", "pending", "failed")))
        for row in shown
    ]
    assert told == [
        ("public-settled", "ana", "completed", 7, 0, 2),
        ("public-running", "ana", "sending", 9, 4, 0),
    ]
    assert [(row["sent"], row["delivered"], row["read"]) for row in shown] == [(5, 4, 1), (5, 2, 0)]
    assert all(row["pending"] + row["sent"] + row["failed"] == row["total"] for row in shown)

    rows = session.cursor(row_factory=dict_row).execute(
        "SELECT * FROM audit.broadcast_recipients WHERE broadcast_id = %s ORDER BY seq", (world.settled,)
    )
    recipients = rows.fetchall()
    assert [row["status"] for row in recipients] == [
        "delivered",
        "read",
        "failed",
        "delivered",
        "failed",
        *["delivered", "sent"],
    ]
    assert [row["phone"] for row in recipients][:2] == ["***0001", "***0002"]
    assert [row["attempts"] for row in recipients] == [1, 1, 1, 1, 0, 1, 1]
    errors = [(row["error_code"], row["error_detail"]) for row in recipients if row["error_code"]]
    assert errors == [("EC_7", "not there"), ("MISSING_PLACEHOLDER", None)]
