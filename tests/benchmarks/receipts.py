"""Receipts stored, answered and merged, a hundred in a payload and one in each."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from carteiro.domain.outcomes import message_key
from tests.benchmarks.bed import Bed, contacts, wait_until

STATUSES = 20_000
SINGLES = 6_400
SINGLES_PER_S = 1_600
"""Posted so many a second: as fast as answers come they would take what dispatch needs, and its share say nothing."""
DISPATCHED = 60_000
CONNECTIONS = 64
DONE_AT = "2030-01-01T00:00:00.000+0000"


@dataclass(frozen=True)
class Receipts:
    stored: float
    """Statuses a second until the last payload of a hundred was answered."""
    merged: float
    """The same until all of them were merged into the messages."""
    singles: float
    """Requests of one status a second, while two workers send."""
    singles_p99_ms: float
    rate_alone: float
    """Messages a second that the workers send without them, and with them."""
    rate_beside: float


def measure_receipts(bed: Bed) -> Receipts:
    bed.simulator("POST", "reset")
    bed.simulator("POST", "settings", {"latency_ms": 20.0})
    bed.execute("UPDATE service SET messages_per_request = 1")
    url = f"{bed.api_url}/webhooks/infobip/{bed.scalar('SELECT webhook_token FROM service')}"
    bed.start_workers(2)
    first, _ = bed.post_batch(contacts(STATUSES, first=bed.take(STATUSES)))
    wait_until(lambda: bed.sent([first]) == STATUSES, "the messages are sent", 180)
    merged = f"SELECT sum(delivered) FROM batch_tally WHERE batch_id = '{first}'"
    with Posting(url, [receipt_payload(first, range(seq, seq + 100)) for seq in range(1, STATUSES, 100)]) as posting:
        stored = posting.wait()
        wait_until(lambda: bed.scalar(merged) == STATUSES, "all receipts are merged", 120, every_s=0.02)
        merged_s = posting.since_s()

    large, _ = bed.post_batch(contacts(DISPATCHED, first=bed.take(DISPATCHED)))
    wait_until(lambda: bed.sent([large]) > 5_000, "the workers are at full speed", 60)
    rate_alone = bed.sent_per_second([large], 3.0)
    with Posting(url, [receipt_payload(first, [seq]) for seq in range(1, SINGLES + 1)], SINGLES_PER_S) as posting:
        rate_beside = bed.sent_per_second([large], 3.0)
        singles = posting.wait()
    bed.cancel(large)
    bed.stop_workers()
    return Receipts(
        stored=STATUSES / stored["seconds"],
        merged=STATUSES / merged_s,
        singles=SINGLES / singles["seconds"],
        singles_p99_ms=singles["p99_ms"],
        rate_alone=rate_alone,
        rate_beside=rate_beside,
    )


class Posting:
    """A process of its own that posts bodies, over CONNECTIONS: so many a second, or one after the other."""

    def __init__(self, url: str, bodies: list[bytes], per_second: float = 0.0) -> None:
        self._file = tempfile.NamedTemporaryFile(suffix=".jsonl")  # noqa: SIM115 (closed at the exit)
        self._file.write(b"\n".join(bodies))
        self._file.flush()
        self._command = [
            *(sys.executable, "-m", "tests.benchmarks.poster"),
            *(url, self._file.name, str(CONNECTIONS), str(per_second)),
        ]

    def __enter__(self) -> "Posting":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.began_s = time.perf_counter()
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.wait(120)
        self._file.close()

    def since_s(self) -> float:
        return time.perf_counter() - self.began_s

    def wait(self) -> dict[str, float]:
        """{"seconds", "p99_ms"}, once all are answered."""
        assert self._process.stdout is not None
        told: dict[str, float] = json.loads(self._process.stdout.readline())
        return told


def receipt_payload(batch_id: UUID, seqs: Iterable[int]) -> bytes:
    results = [
        {
            "bulkId": "",
            "status": {"groupId": 3, "groupName": "DELIVERED", "id": 5, "name": "DELIVERED_TO_HANDSET"},
            "error": {"groupId": 0, "groupName": "OK", "id": 0, "name": "NO_ERROR", "permanent": False},
            "messageId": message_key(batch_id, seq),
            "doneAt": DONE_AT,
            "sentAt": DONE_AT,
            "messageCount": 1,
            "to": "5511980000000",
        }
        for seq in seqs
    ]
    return json.dumps({"results": results}).encode()
