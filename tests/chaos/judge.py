"""What a run came to. Two judges: the product's own `violation_*` views, and a checker that reads the simulator's
record and the tables, and shares no code with the engine.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from carteiro.services import audit
from carteiro.storage.pool import open_pool
from tests.chaos.load import Loader
from tests.chaos.rig import (
    CALL_TIMEOUT_S,
    CREDITS,
    LATENESS_S,
    MANAGER_LIMITS,
    SENDER_LIMITS,
    WINDOW_S,
    Rig,
    to_ns,
)
from tests.support.evidence import Arrival, Evidence, History

REACHED = ("sent", "delivered", "seen")
"""What the row of a message says that the provider took. The simulator reports no failures here."""
THAW_S = 1.0
"""How long after SIGCONT a call that was past its last check may still come out."""
ON_THE_WAY_S = CALL_TIMEOUT_S + LATENESS_S
"""How long after the answer to a pause a call may arrive that had started before."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    findings: list[str]
    batches: int
    messages: int
    calls: int
    unknown: int
    """Times that a message's outcome was unknown."""
    lapsed: int
    """Of these, because a lease had lapsed."""
    apart: int
    """Calls of a frozen worker that were past their last check: listed, not judged."""
    recovery_s: float | None
    """The longest time from Postgres being back to the next call."""


class Book:
    """The tables at the end of a run."""

    def __init__(self, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        self.batches: dict[UUID, dict[str, Any]] = {row["id"]: row for row in tables["batches"]}
        self.messages: dict[str, dict[str, Any]] = {
            f"{row['batch_id'].hex}-{row['seq']}": row for row in tables["messages"]
        }
        changes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.claims: dict[str, list[tuple[int, str]]] = defaultdict(list)
        """(when, worker) of each claim, by message."""
        self.unknown = self.lapsed = 0
        for event in tables["events"]:
            at_ns = to_ns(event["at"])
            for seq in event["seqs"]:
                key = f"{event['batch_id'].hex}-{seq}"
                changes[key].append((at_ns, event["to_status"]))
                if event["event"] == "claimed":
                    self.claims[key].append((at_ns, event["worker_id"]))
            if event["to_status"] == "unknown":
                self.unknown += len(event["seqs"])
                self.lapsed += len(event["seqs"]) if event["code"] == "LEASE_LAPSED" else 0
        self.histories = {key: History.of(of_message) for key, of_message in changes.items()}
        self.tables = tables


QUERIES = {
    "batches": "SELECT id, status, total, debited, charged, refunded, settled_at, callback_url, charge_rule,"
    " EXISTS (SELECT FROM callback c WHERE c.batch_id = b.id) AS called_back FROM batch b WHERE status <> 'draft'",
    "messages": "SELECT m.batch_id, m.seq, m.status, m.charged, c.address"
    " FROM message m JOIN message_content c USING (batch_id, seq) JOIN batch b ON b.id = m.batch_id"
    " WHERE b.status <> 'draft'",
    "events": "SELECT e.at, e.batch_id, e.event, e.to_status, e.code, e.seqs, c.worker_id"
    " FROM message_event e LEFT JOIN claim c ON c.id = e.claim_id ORDER BY e.at",
    "meters": "SELECT kind, owner, used, held,"
    " (SELECT coalesce(sum(b.used), 0) FROM capacity_bucket b WHERE (b.kind, b.owner) = (m.kind, m.owner)) AS buckets,"
    " CASE kind WHEN 'bm' THEN (SELECT coalesce(sum(h.held), 0) FROM capacity_hold h"
    " WHERE h.business_manager_id = m.owner) ELSE 0 END AS holds FROM capacity_meter m",
    "holds": "SELECT h.batch_id, h.held FROM capacity_hold h JOIN batch b ON b.id = h.batch_id"
    " WHERE b.settled_at IS NOT NULL AND h.held > 0",
    "senders": "SELECT id, business_manager_id FROM sender",
    "balance": "SELECT sum(balance) AS balance FROM account",
    "open": "SELECT id FROM claim WHERE closed_at IS NULL",
    "keys": "SELECT batch_id, count(*) AS n FROM idempotency_key GROUP BY batch_id HAVING count(*) > 1",
}


async def judge(rig: Rig, loader: Loader) -> Verdict:
    evidence = await rig.simulator.evidence()
    book = Book({name: await rig.read(query) for name, query in QUERIES.items()})
    thawed = calls_after_thaw(evidence, book, rig)
    apart = {arrival.n for arrival in thawed}
    judged = evidence.where(lambda arrival: arrival.n not in apart)
    findings = [*rig.findings, *loader.findings]
    findings += await _violations(rig)
    findings += _calls(judged, book)
    findings += _limits(judged, book)
    findings += _rows(loader, book)
    findings += _money(book)
    findings += _meters(book)
    findings += _halts(judged, loader)
    return Verdict(
        findings=findings,
        batches=len(book.batches),
        messages=len(book.messages),
        calls=len(evidence),
        unknown=book.unknown,
        lapsed=book.lapsed,
        apart=len(thawed),
        recovery_s=_recovery_s(evidence, rig),
    )


async def _violations(rig: Rig) -> list[str]:
    async with open_pool(rig.dsn, min_size=1, max_size=1, application_name="rig") as pool:
        found = await audit.violations(pool, lookback=audit.EVERYTHING)
    return [f"{view}: {len(rows)} rows, such as {rows[:SHOWN]}" for view, rows in found.items()]


def calls_after_thaw(evidence: Evidence, book: Book, rig: Rig) -> list[Arrival]:
    """Calls that came out of a frozen worker right after it was thawed, of claims from before it was frozen."""
    found = []
    for arrival in evidence.arrivals:
        for pid, since, until in rig.frozen:
            if not until.wall_ns <= arrival.arrived_wall_ns <= until.wall_ns + THAW_S * 1e9:
                continue
            its_own = [
                at_ns
                for at_ns, worker in book.claims[arrival.message_id]
                if worker.split("-")[-2] == str(pid) and at_ns <= since.wall_ns
            ]
            if its_own and book.histories[arrival.message_id].state_at(arrival.arrived_wall_ns) != "pending_send":
                found.append(arrival)
    return found


def _calls(evidence: Evidence, book: Book) -> Iterable[str]:
    """Nothing twice, nothing without a committed row, and each accepted call has a row that says so."""
    yield from _listed("accepted twice", evidence.doubles())
    yield from _listed(
        "called without a committed row",
        [
            (call.message_id, book.histories[call.message_id].state_at(call.arrived_wall_ns))
            if call.message_id in book.histories
            else call.message_id
            for call in evidence.without_row(book.histories)
        ],
    )
    lost = [
        (call.message_id, book.messages[call.message_id]["status"] if call.message_id in book.messages else None)
        for call in evidence.accepted.arrivals
        if call.message_id not in book.messages or book.messages[call.message_id]["status"] not in REACHED
    ]
    yield from _listed("accepted, and its row does not say so", lost)
    wrong = [
        call.message_id
        for call in evidence.arrivals
        if call.message_id in book.messages and book.messages[call.message_id]["address"] != call.to
    ]
    yield from _listed("called under the id of another contact", wrong)
    accepted = {call.message_id for call in evidence.accepted.arrivals}
    never = [key for key, row in book.messages.items() if row["status"] in REACHED and key not in accepted]
    yield from _listed("said to have been sent, and the provider never took it", never)


def _limits(evidence: Evidence, book: Book) -> Iterable[str]:
    manager_of = {row["id"]: row["business_manager_id"] for row in book.tables["senders"]}
    sender_limits = {
        sender: SENDER_LIMITS[manager] for sender, manager in manager_of.items() if manager in SENDER_LIMITS
    }
    accepted = evidence.accepted
    over = accepted.over_limits(WINDOW_S, MANAGER_LIMITS, lambda call: manager_of[call.sender])
    over += accepted.over_limits(WINDOW_S, sender_limits, lambda call: call.sender)
    yield from _listed("more in a window than its limit (owner, most, limit)", over)


def _rows(loader: Loader, book: Book) -> Iterable[str]:
    """Every contact that was posted and accepted is a row, and nothing else is; every batch came to its end."""
    phones: dict[UUID, set[str]] = defaultdict(set)
    counted: Counter[UUID] = Counter()
    for row in book.messages.values():
        phones[row["batch_id"]].add(row["address"])
        counted[row["batch_id"]] += 1
    accepted = {request.batch_id: request for request in loader.posted if request.batch_id is not None}
    for batch_id, request in accepted.items():
        if phones.get(batch_id) != request.phones or counted[batch_id] != len(request.phones):
            yield f"batch {batch_id} was posted with {len(request.phones)} contacts and has {counted[batch_id]} rows"
    yield from _listed("batches that nobody was told of", [str(one) for one in book.batches.keys() - accepted.keys()])
    yield from _listed("posts without an answer", [one.key for one in loader.posted if one.status is None])
    refused = Counter(request.status for request in loader.posted if request.status not in (202, 402, None))
    yield from _listed("posts that were answered with", sorted(refused.items(), key=str))
    yield from _listed("batches under two keys", [str(row["batch_id"]) for row in book.tables["keys"]])
    yield from _listed(
        "batches that are not settled",
        [(str(row["id"]), row["status"]) for row in book.batches.values() if row["settled_at"] is None],
    )
    open_rows = [
        (key, row["status"])
        for key, row in book.messages.items()
        if row["status"] in ("pending", "pending_send", "unknown", "sent") and row["charged"] is None
    ]
    yield from _listed("messages without an outcome", open_rows)
    yield from _listed("claims that are open", [row["id"] for row in book.tables["open"]])
    silent = [str(row["id"]) for row in book.batches.values() if row["callback_url"] and not row["called_back"]]
    yield from _listed("settled batches whose client is not told", silent)


def _money(book: Book) -> Iterable[str]:
    spent: Counter[UUID] = Counter()
    for row in book.messages.values():
        rule = book.batches[row["batch_id"]]["charge_rule"]
        costs = row["status"] in ("delivered", "seen") or (rule == "full" and row["status"] == "failed")
        spent[row["batch_id"]] += row["charged"] if row["charged"] is not None else costs
    charged = held = 0
    for batch_id, row in book.batches.items():
        charged += row["charged"]
        held += row["debited"] - row["charged"] - row["refunded"]
        if row["settled_at"] is not None and row["charged"] != spent[batch_id]:
            yield f"batch {batch_id} charged {row['charged']} credits for {spent[batch_id]} messages that cost one"
    balance = book.tables["balance"][0]["balance"]
    if balance + charged + held != CREDITS:
        yield f"{CREDITS} credits were granted, {balance} are left, {charged} charged, {held} held"
    if held:
        yield f"{held} credits are still held"


def _meters(book: Book) -> Iterable[str]:
    uneven = [row for row in book.tables["meters"] if (row["used"], row["held"]) != (row["buckets"], row["holds"])]
    yield from _listed("meters that are not the sum of their buckets and holds", uneven)
    yield from _listed("holds of settled batches", [str(row["batch_id"]) for row in book.tables["holds"]])


def _halts(evidence: Evidence, loader: Loader) -> Iterable[str]:
    """No call that arrives later than any could that had started before the answer."""
    by_batch: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in evidence.arrivals:
        by_batch[arrival.batch].append(arrival)
    late = []
    for halt in loader.halts:
        until_ns = halt.resumed_ns or time.monotonic_ns()
        since_ns = halt.answered_ns + ON_THE_WAY_S * 1e9
        late += [
            (call.message_id, halt.what, round((call.arrived_ns - halt.answered_ns) / 1e9, 3))
            for call in by_batch[halt.batch_id.hex]
            if since_ns < call.arrived_ns < until_ns
        ]
    yield from _listed("called after the answer to", late)


def _recovery_s(evidence: Evidence, rig: Rig) -> float | None:
    waits = []
    for back in rig.came_back:
        after = [arrival.arrived_ns for arrival in evidence.arrivals if arrival.arrived_ns > back.monotonic_ns]
        if after:
            waits.append((after[0] - back.monotonic_ns) / 1e9)
    return max(waits, default=None)


def _listed(what: str, found: list[Any]) -> Iterable[str]:
    if found:
        yield f"{what}: {len(found)}, such as {found[:SHOWN]}"
