"""Millions of messages of the past, as real use leaves them: settled, with claims, events, receipts and money."""

from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.support.factories import ACCOUNT, SERVICE

CLAIM_ROWS = 250
PAYLOAD_ROWS = 100
PHONES = 50_000_000
STATEMENTS = Path(__file__).with_suffix(".sql")


@dataclass(frozen=True, slots=True)
class History:
    """Half of it was posted in the two weeks before this one, half in this week."""

    messages: int
    batch_rows: int
    suppressed: int = 0

    @property
    def batches(self) -> int:
        return self.messages // self.batch_rows


def load_history(dsn: str, history: History) -> None:
    """Fill a database in which the catalog of tests/support/factories.py stands. Triggers are off meanwhile: what they
    write is written here. Ends with a checkpoint's worth of dirty pages and no statistics.
    """
    params = {
        "batches": history.batches,
        "rows": history.batch_rows,
        "suppressed": history.suppressed,
        "claim_rows": CLAIM_ROWS,
        "payload_rows": PAYLOAD_ROWS,
        "phones": PHONES,
        "account": ACCOUNT,
        "service": SERVICE,
    }
    with psycopg.connect(dsn, autocommit=True, application_name="history") as conn:
        conn.execute("SELECT ensure_partitions(2, 1)")
        with conn.transaction():
            conn.execute("SET LOCAL session_replication_role = replica")
            conn.execute("SET LOCAL synchronous_commit = off")
            conn.execute("SET LOCAL maintenance_work_mem = '512MB'")
            for statement in STATEMENTS.read_text().rstrip().removesuffix(";").split(";\n"):
                conn.execute(psycopg.ClientCursor(conn).mogrify(statement.encode(), params).encode())
