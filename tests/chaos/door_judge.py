"""What the doors beside that for batches must not lead to: a second call where the first may have left, a person who
gets two messages under one reference, an answer that was not so, and anything charged.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from tests.chaos import legal
from tests.chaos.book import Book
from tests.chaos.doors import Doors
from tests.support.directories import RECIPIENTS
from tests.support.evidence import Arrival, Evidence

UNCLEAR = {"reset", "close", "hang", "garbage", "no_row", "502", "504", "EC_131000"}
"""Answers after which nobody knows whether the message was taken."""
SHOWN = 3


def judge_doors(doors: Doors, evidence: Evidence, book: Book) -> Iterable[str]:
    yield from doors.findings
    yield from called_again(evidence, book)
    yield from sent_back(book)
    yield from follow_ups(doors.answered, evidence, book)
    yield from references(doors, evidence, book)
    yield from broadcasts(doors, book)
    free = [
        str(id)
        for id, row in book.batches.items()
        if row["charge_rule"] == "free" and (row["debited"] or row["charged"])
    ]
    yield from _listed("free batches that cost something", free)


def called_again(evidence: Evidence, book: Book) -> Iterable[str]:
    """What has no log, and what is never sent again, is not called any more once a call of it may have left."""
    calls: dict[str, list[Arrival]] = defaultdict(list)
    for call in evidence.arrivals:
        if book.is_final(call.message_id):
            calls[call.message_id].append(call)
    again = [
        (key, [call.answer for call in made])
        for key, made in calls.items()
        if any(call.accepted or call.answer in UNCLEAR for call in made[:-1])
    ]
    yield from _listed("called again after a call that may have left", again)


def sent_back(book: Book) -> Iterable[str]:
    moves = Counter(
        (event["from_status"], event["to_status"])
        for event in book.tables["events"]
        if book.batches.get(event["batch_id"], {}).get("provider") == "meta"
        and event["event"] not in legal.MOVES_NOTHING
    )
    moves += Counter(
        (event["from_status"], event["to_status"]) for event in book.tables["follow_up_events"] if event["from_status"]
    )
    yield from _listed(
        "moved back though it may have left", [each for each in moves.items() if each[0] not in legal.NEVER_AGAIN]
    )


def follow_ups(answered: set[str], evidence: Evidence, book: Book) -> Iterable[str]:
    """One for each contact who answered, none for anybody else, and each came to its end."""
    followed = {key.removesuffix("f") for key in book.follow_ups}
    called = {call.message_id.removesuffix("f") for call in evidence.arrivals if call.message_id.endswith("f")}
    yield from _listed("follow-ups that nobody answered for", sorted((followed | called) - answered))
    yield from _listed("answers without a follow-up", sorted(answered - followed))
    still_open = [
        (key, row["status"])
        for key, row in book.follow_ups.items()
        if row["status"] in ("pending", "pending_send", "unknown")
    ]
    yield from _listed("follow-ups without an outcome", still_open)


def references(doors: Doors, evidence: Evidence, book: Book) -> Iterable[str]:
    """Each person got one message at most, and what was told of it is so."""
    to_phone: Counter[str] = Counter(call.to for call in evidence.accepted.arrivals)
    taken = {UUID(call.batch) for call in evidence.accepted.arrivals if _names_batch(call)}
    status = {row["batch_id"]: row["status"] for row in book.messages.values()}
    twice = [(one.reference, to_phone[one.phone]) for one in doors.asked if to_phone[one.phone] > 1]
    yield from _listed("references under which more than one was sent", twice)
    yield from _listed("asked for without an answer", [one.reference for one in doors.asked if not one.ended])
    yield from _listed(
        "told to be sent, and never taken", [one.reference for one in doors.asked for id in one.sent if id not in taken]
    )
    yield from _listed(
        "told to be unsent, and it is not so",
        [
            (one.reference, status.get(id))
            for one in doors.asked
            for id in one.unsent
            if id in taken or status.get(id) != "unsent"
        ],
    )
    yield from _listed(
        "links under two ids", [one.reference for one in doors.asked if one.door == "group_link" and len(one.ids) > 1]
    )


def broadcasts(doors: Doors, book: Book) -> Iterable[str]:
    yield from _listed("broadcasts without an answer", [key for key, id in doors.broadcasts.items() if id is None])
    rows: Counter[UUID] = Counter(row["batch_id"] for row in book.messages.values())
    wrong = [(key, rows[id]) for key, id in doors.broadcasts.items() if id is not None and rows[id] != RECIPIENTS]
    yield from _listed(f"broadcasts with other than {RECIPIENTS} recipients", wrong)


def nobody_told_of(doors: Doors, unknown: Iterable[UUID], book: Book) -> set[UUID]:
    """Of batches that no client of batches knows: those that no answer at any door named either. A reminder that was
    not answered, and is unsent, has given its reference to the next one.
    """
    named = {id for one in doors.asked for id in one.ids} | set(doors.broadcasts.values())
    unsent = {row["batch_id"] for row in book.messages.values() if row["status"] in ("unsent", "failed")}
    return {id for id in unknown if id not in named and not (book.batches[id]["door"] == "reminder" and id in unsent)}


def summary(book: Book) -> Counter[str]:
    """What went through the doors, in words."""
    counted: Counter[str] = Counter()
    for row in book.batches.values():
        if row["door"] != "batch":
            counted[f"{row['door'].replace('_', ' ')}s"] += 1
    counted["follow-ups"] = len(book.follow_ups)
    both: list[dict[str, Any]] = [*book.messages.values(), *book.follow_ups.values()]
    counted["given up"] = sum(row["code"] == "OUTCOME_UNKNOWN" and row["status"] == "failed" for row in both)
    return counted


def _names_batch(call: Arrival) -> bool:
    return len(call.batch) == 32


def _listed(what: str, found: list[Any]) -> Iterable[str]:
    if found:
        yield f"{what}: {len(found)}, such as {found[:SHOWN]}"
