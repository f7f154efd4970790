"""What a run came to. Two judges: the product's own `violation_*` views, and a checker that reads the simulator's
record and the tables, and shares no code with the engine.
"""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from carteiro.services import audit
from carteiro.storage.pool import open_pool
from tests.chaos import legal
from tests.chaos.book import Book
from tests.chaos.door_judge import judge_doors, nobody_told_of
from tests.chaos.fault import Record
from tests.chaos.load import Loader
from tests.chaos.rig import Rig
from tests.chaos.steer import Halt
from tests.chaos.world import CREDITS, World
from tests.support.evidence import Arrival, Evidence

REACHED = ("sent", "delivered", "seen")
"""What the row of a message says that the provider took."""
OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
REPORTED_FAILED = 4
"""The status under which the simulator reports that a message that it took was not delivered."""
THAW_S = 1.0
"""How long after SIGCONT a call that was past its last check may still come out."""
BLIND_SHARE = 0.1
"""Part of the calls at which the witness may have looked too late, on a busy machine."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    findings: list[str]
    batches: int
    messages: int
    calls: int
    witnessed: int
    """Calls at whose arrival the database was looked into."""
    unknown: int
    """Times that a message's outcome was unknown."""
    apart: int
    """Calls of a frozen worker that were past their last check: listed, not judged."""
    fullest: float | None
    """The most of its limit that any business manager or sender used in a window: 1 is exactly the limit."""


async def judge(rig: Rig, loader: Loader, *, may_be_blind: bool) -> tuple[Verdict, Record]:
    """`may_be_blind`: Postgres was away at times, and the witness with it."""
    evidence = await rig.simulator.evidence()
    book = await Book.read(rig)
    thawed = calls_after_thaw(evidence, book, rig)
    apart = {arrival.n for arrival in thawed}
    judged = evidence.where(lambda arrival: arrival.n not in apart)
    findings = [*rig.findings, *loader.findings, *rig.steering.findings]
    findings += await _violations(rig)
    findings += _calls(judged, book)
    findings += _sights(judged, may_be_blind=may_be_blind)
    findings += _edges(book)
    full = _fullness(judged, book, rig.world)
    findings += _listed(
        "more in a window than its limit (owner, most, limit)", [row for row in full if row[1] > row[2]]
    )
    findings += _rows(loader, book)
    findings += _callbacks(await rig.simulator.callbacks(), book)
    findings += _money(book)
    findings += _meters(book)
    findings += _halts(judged, rig.steering.halts)
    if loader.doors is not None:
        findings += judge_doors(loader.doors, judged, book)
    verdict = Verdict(
        findings=findings,
        batches=len(book.batches),
        messages=len(book.messages),
        calls=len(evidence),
        witnessed=sum(call.sight is not None for call in evidence.arrivals),
        unknown=book.unknown,
        apart=len(thawed),
        fullest=max((most / limit for _, most, limit in full), default=None),
    )
    return verdict, Record(rig, judged, book)


async def _violations(rig: Rig) -> list[str]:
    async with open_pool(rig.dsn, min_size=1, max_size=1, application_name="rig") as pool:
        found = await audit.violations(pool, lookback=audit.EVERYTHING)
    return [f"{view}: {len(rows)} rows, such as {rows[:SHOWN]}" for view, rows in found.items()]


def calls_after_thaw(evidence: Evidence, book: Book, rig: Rig) -> list[Arrival]:
    """Calls that came out of a frozen worker right after it was thawed, under claims from before it was frozen, and for
    which the last check was begun before as well. One that a thawed worker asks for is judged like any other.
    """
    found = []
    for call in evidence.arrivals:
        claim = book.claims.get(call.claim_id or 0)
        if claim is None or book.histories[call.message_id].state_at(call.arrived_wall_ns) == "pending_send":
            continue
        for pid, since, until in rig.frozen:
            just_thawed = until.wall_ns <= call.arrived_wall_ns <= until.wall_ns + THAW_S * 1e9
            asked_before = (call.asked_ns or sys.maxsize) <= since.monotonic_ns
            if just_thawed and asked_before and claim.pid == pid and claim.at_ns <= since.wall_ns:
                found.append(call)
                break
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
    rows = book.rows
    lost = [
        (call.message_id, rows[call.message_id]["status"] if call.message_id in rows else None)
        for call in evidence.accepted.arrivals
        if call.message_id not in rows or not _says_so(rows[call.message_id], call, book)
    ]
    yield from _listed("accepted, and its row does not say so", lost)
    wrong = [
        call.message_id
        for call in evidence.arrivals
        if call.message_id in rows and rows[call.message_id]["address"] != call.to
    ]
    yield from _listed("called under the id of another contact", wrong)
    accepted = {call.message_id for call in evidence.accepted.arrivals}
    never = [key for key, row in rows.items() if row["status"] in REACHED and key not in accepted]
    yield from _listed("said to have been sent, and the provider never took it", never)


def _says_so(row: Mapping[str, Any], call: Arrival, book: Book) -> bool:
    """Taken, or reported to have failed; or given up for all to see, where no log tells and no report came."""
    if row["status"] in REACHED:
        return True
    given_up = row.get("code") == OUTCOME_UNKNOWN and book.is_final(call.message_id)
    return row["status"] == "failed" and (call.status_id == REPORTED_FAILED or given_up)


def _sights(evidence: Evidence, *, may_be_blind: bool) -> Iterable[str]:
    """At its arrival each call's message was committed as about to be sent, under the very claim that called."""
    seen = [(call, call.sight) for call in evidence.arrivals if call.sight is not None]
    wrong = [
        (call.message_id, sight, call.caller)
        for call, sight in seen
        if (sight.status, sight.claim_open) != ("pending_send", True)
        or sight.claim_id is None
        or sight.claim_id != call.claim_id
    ]
    yield from _listed("at its arrival not about to be sent under the claim that called", wrong)
    blind = len(evidence) - len(seen)
    if not may_be_blind and blind > len(evidence) * BLIND_SHARE:
        yield f"the witness did not see {blind} of {len(evidence)} calls"


def _edges(book: Book) -> Iterable[str]:
    """Every move is one that the design has."""
    for table, edges in (("events", legal.MESSAGE), ("batch_events", legal.BATCH)):
        moves = Counter(
            (row["from_status"], row["to_status"])
            for row in book.tables[table]
            if row["event"] not in legal.MOVES_NOTHING
        )
        yield from _listed("moves that no edge allows", [move for move in moves.items() if move[0] not in edges])


def _fullness(evidence: Evidence, book: Book, world: World) -> list[tuple[str, int, int]]:
    """(owner, most accepted in any window, limit)."""
    manager_of = {row["id"]: row["business_manager_id"] for row in book.tables["senders"]}
    sender_limits = {
        sender: world.sender_limits[manager] for sender, manager in manager_of.items() if manager in world.sender_limits
    }
    # What follows an answer takes no daily capacity.
    accepted = evidence.accepted.where(lambda call: bool(call.template))
    return [
        *accepted.fullest(world.window_s, world.manager_limits, lambda call: manager_of[call.sender]),
        *accepted.fullest(world.window_s, sender_limits, lambda call: call.sender),
    ]


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
    strange = book.batches.keys() - accepted.keys()
    if loader.doors is not None:
        strange = nobody_told_of(loader.doors, strange, book)
    yield from _listed("batches that nobody was told of", [str(one) for one in strange])
    yield from _listed("posts without an answer", [one.key for one in loader.posted if one.status is None])
    refused = Counter(
        request.status
        for request in loader.posted
        if request.status not in (202, 402, None) and not (request.status == 400 and request.came_too_late)
    )
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
    still_open = [claim.id for claim in book.claims.values() if claim.closed_ns is None]
    yield from _listed("claims that are open", still_open)


def _callbacks(posted: list[dict[str, Any]], book: Book) -> Iterable[str]:
    """Each client is told of its settled batch, what is so, under one id however often."""
    told: dict[str, set[str]] = defaultdict(set)
    wrong = []
    for post in posted:
        body = msgspec.json.decode(post["body"])
        if not body.get("type", "").startswith("batch."):
            continue
        batch_id = body["data"]["batch_id"]
        told[batch_id].add(next(value for name, value in post["headers"] if name.lower() == "webhook-id"))
        if body["data"]["money"]["charged"] != book.batches[UUID(batch_id)]["charged"]:
            wrong.append(body)
    wanted = {str(row["id"]) for row in book.batches.values() if row["callback_url"]}
    yield from _listed("settled batches whose client was not told", sorted(wanted - told.keys()))
    yield from _listed("callbacks under two ids", [batch_id for batch_id, ids in told.items() if len(ids) > 1])
    yield from _listed("callbacks that say what is not so", wrong)


def _money(book: Book) -> Iterable[str]:
    spent: Counter[UUID] = Counter()
    for row in book.messages.values():
        rule = book.batches[row["batch_id"]]["charge_rule"]
        reached = row["status"] in ("delivered", "seen")
        costs = rule != "free" and (reached or (rule == "full" and row["status"] == "failed"))
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


def _halts(evidence: Evidence, halts: Iterable[Halt]) -> Iterable[str]:
    """After the answer no call begins until the batch is told to go on, and no more arrive than it said were on their
    way.
    """
    by_batch: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in evidence.arrivals:
        by_batch[arrival.batch].append(arrival)
    late, more = [], []
    for halt in halts:
        until_ns = halt.resumed_ns or time.monotonic_ns()
        calls = by_batch[halt.batch_id.hex]
        late += [
            (call.message_id, halt.what, round((call.started_ns - halt.answered_ns) / 1e9, 3))
            for call in calls
            if halt.answered_ns < call.started_ns < until_ns
        ]
        arrived = sum(halt.answered_ns < call.arrived_ns < until_ns for call in calls)
        if arrived > halt.on_their_way:
            more.append((str(halt.batch_id), halt.what, arrived, halt.on_their_way))
    yield from _listed("called after the answer to", late)
    yield from _listed("more arrived after the answer than it said (batch, what, arrived, said)", more)


def _listed(what: str, found: list[Any]) -> Iterable[str]:
    if found:
        yield f"{what}: {len(found)}, such as {found[:SHOWN]}"
