"""How long others hold a service's advisory lock: looked at from inside Postgres, about a thousand times a second."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

WATCHED = "CREATE UNLOGGED TABLE IF NOT EXISTS bench_hold (least_ms float NOT NULL, most_ms float NOT NULL)"
WATCH = """
DO $$
DECLARE
    key bigint := hashtextextended('service:bench', 0);
    holder text;
    seen text;
    at timestamptz;
    first_at timestamptz;
    last_at timestamptz;
    before_at timestamptz;
    looks int := 0;
BEGIN
    LOOP
        SELECT l.virtualtransaction INTO seen
        FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> {ignored_pid}
            AND l.classid::bigint = (key >> 32) & 4294967295 AND l.objid::bigint = key & 4294967295;
        at := clock_timestamp();
        IF seen IS DISTINCT FROM holder THEN
            IF holder IS NOT NULL THEN
                INSERT INTO bench_hold VALUES (
                    1000 * extract(epoch FROM last_at - first_at), 1000 * extract(epoch FROM at - before_at));
            END IF;
            holder := seen; first_at := at; before_at := coalesce(last_at, at);
        END IF;
        last_at := at;
        looks := looks + 1;
        IF looks % 100 = 0 THEN
            COMMIT;
            EXIT WHEN EXISTS (SELECT FROM bench_hold WHERE least_ms < 0);
        END IF;
        PERFORM pg_sleep(0.0005);
    END LOOP;
END $$
"""
STOP = "INSERT INTO bench_hold VALUES (-1, -1)"
READ = "SELECT least_ms, most_ms FROM bench_hold WHERE least_ms >= 0"


@dataclass
class Held:
    """Filled when the watch is over: milliseconds of each hold, from the first look that saw it to the last one, and
    from the look before it to the look after it. What fell between two looks is left out.
    """

    least_ms: list[float] = field(default_factory=list)
    most_ms: list[float] = field(default_factory=list)


@contextmanager
def watched_lock(dsn: str, ignored_pid: int) -> Iterator[Held]:
    """Watch who holds the lock of service `bench` during the block, but for the session of `ignored_pid`: it only asks
    for the lock to see how long that takes.
    """
    held = Held()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(WATCHED)
        conn.execute("TRUNCATE bench_hold")
        watch = threading.Thread(target=_watch, args=(dsn, ignored_pid))
        watch.start()
        try:
            yield held
        finally:
            conn.execute(STOP)
            watch.join()
        for least_ms, most_ms in conn.execute(READ):
            held.least_ms.append(least_ms)
            held.most_ms.append(most_ms)


def _watch(dsn: str, ignored_pid: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(WATCH.format(ignored_pid=ignored_pid).encode())
