"""Messages a second through the whole path, beside the floor: the same client with no database."""

import json
import subprocess
import sys
from dataclasses import dataclass

from tests.benchmarks.bed import API_KEY, Bed, contacts, wait_until

MESSAGES = 12_000
IN_FLIGHT = 64
LONGEST_S = 120.0


@dataclass(frozen=True)
class Rate:
    """What one run came to. Database figures are per message."""

    name: str
    messages: int
    per_second: float
    commits: float | None = None
    wal_bytes: float | None = None


def measure_floor(bed: Bed, processes: int, *, messages: int = MESSAGES) -> Rate:
    """Bare loops over the same HTTP client: as many processes, `IN_FLIGHT` calls in flight each, nothing stored."""
    bed.simulator("POST", "reset")
    each = messages // processes
    command = [sys.executable, "-m", "tests.benchmarks.floor", bed.simulator_url, API_KEY, str(each), str(IN_FLIGHT)]
    loops = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE) for number in range(processes)]
    rates = [json.loads(loop.communicate(timeout=LONGEST_S)[0])["seconds"] for loop in loops]
    return Rate(f"floor, {processes} process(es)", each * processes, each * processes / max(rates))


def measure_ours(bed: Bed, workers: int, *, messages: int = MESSAGES, first: int | None = None) -> Rate:
    """The whole path with credits, capacity, pacing and audit on. From the first call at the provider to the last.

    `first` numbers the contacts: an equal batch within minutes would be the same one.
    """
    bed.simulator("POST", "reset")
    bed.start_workers(workers)
    before = _database(bed)
    batch_id, _ = bed.post_batch(contacts(messages, first=workers * 1_000_000 if first is None else first))
    sent = f"SELECT sum(sent) FROM batch_tally WHERE batch_id = '{batch_id}'"
    wait_until(lambda: bed.scalar(sent) == messages, "all messages sent", LONGEST_S)
    after = _database(bed)
    bed.stop_workers()
    stats = bed.simulator("GET", "stats")
    if stats["accepted"] != messages:
        raise RuntimeError(f"the simulator accepted {stats['accepted']} of {messages}")
    return Rate(
        f"Carteiro, {workers} worker(s)",
        messages,
        messages / _span_s(bed),
        commits=(after[0] - before[0]) / messages,
        wal_bytes=(after[1] - before[1]) / messages,
    )


SPAN = """
SELECT extract(epoch FROM max(sent_at) - min(slot_at)) FROM message
WHERE sent_at IS NOT NULL AND batch_id = (SELECT id FROM batch ORDER BY created_at DESC LIMIT 1)
"""


def _span_s(bed: Bed) -> float:
    """From the first call's slot to the last one's answer."""
    return float(bed.scalar(SPAN))


def _database(bed: Bed) -> tuple[int, int]:
    commits = bed.scalar("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return int(commits), int(bed.scalar("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
