"""The record of every message that arrived, kept in columns: about 0.4 kB a message, so that a million fit."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from carteiro.providers.simulator.witness import Sight

PENDING = 0
"""A message without an outcome so far; see `pack`."""


_ERRORS = 10_000_000


def pack(status_id: int, error_id: int) -> int:
    """An outcome as one number, never 0: error ids stay below ten million and there is no status 0."""
    return status_id * _ERRORS + error_id


def unpack(outcome: int) -> tuple[int, int]:
    return divmod(outcome, _ERRORS)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message of one request as it came."""

    request: int
    arrived_ns: int
    """CLOCK_MONOTONIC, which all processes of the machine share."""
    arrived_wall_ns: int
    caller: str
    """The request's User-Agent."""
    sender: str
    to: str
    message_id: str
    template: str
    placeholders: tuple[str, ...]
    notify_url: str | None
    is_meta: bool = False
    """It came by the Cloud API."""


class _Words:
    """Strings that repeat, by number."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = len(self.words)
            self.words.append(word)
        return number


class Ledger:
    """Rows are numbered from 0 in the order of arrival."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._request, self._arrived, self._wall = array("I"), array("q"), array("q")
        self._words = _Words()
        self._sender, self._template, self._notify = array("I"), array("I"), array("I")
        self._caller = array("I")
        self._sights: dict[int, Sight] = {}
        self._answer, self._accepted = array("I"), array("B")
        self._outcome, self._done, self._seen = array("Q"), array("q"), array("B")
        self._meta = array("B")
        self._taken: Counter[int] = Counter()
        self._taken_phones = array("Q")
        self._text, self._end = bytearray(), array("Q")
        self._hidden_until: dict[int, int] = {}
        self._known: dict[str, int] = {}
        self.repeated_ids = 0
        """Messages whose id had been accepted before."""

    def __len__(self) -> int:
        return len(self._arrived)

    def find(self, message_id: str) -> int | None:
        """The row under which an id was accepted last."""
        return self._known.get(message_id)

    def record(
        self, arrival: Arrival, answer: str, *, accepted: bool, hidden_ns: int = 0, sight: Sight | None = None
    ) -> int:
        """Write a message down, with what is going to be answered; its row's number. The log hides it for so long."""
        row = len(self._arrived)
        number = self._words.number
        self._request.append(arrival.request)
        self._arrived.append(arrival.arrived_ns)
        self._wall.append(arrival.arrived_wall_ns)
        self._caller.append(number(arrival.caller))
        self._sender.append(number(arrival.sender))
        self._template.append(number(arrival.template))
        self._notify.append(number(arrival.notify_url or ""))
        self._answer.append(number(answer))
        self._accepted.append(accepted)
        self._outcome.append(PENDING)
        self._done.append(0)
        self._seen.append(0)
        self._meta.append(arrival.is_meta)
        placeholders = msgspec.json.encode(arrival.placeholders)
        self._text += b"%b\n%b\n%b" % (arrival.to.encode(), arrival.message_id.encode(), placeholders)
        self._end.append(len(self._text))
        if arrival.message_id in self._known:
            self.repeated_ids += 1
        if accepted:
            self._known[arrival.message_id] = row
            self._taken[self._sender[row]] += 1
            self._taken_phones.append(_phone_key(arrival.to))
        if sight is not None:
            self._sights[row] = sight
        if hidden_ns:
            self._hidden_until[row] = arrival.arrived_wall_ns + hidden_ns
        return row

    def settle(self, row: int, outcome: int, done_wall_ns: int) -> None:
        self._outcome[row] = outcome
        self._done[row] = done_wall_ns

    def note_seen(self, row: int) -> None:
        self._seen[row] = 1

    def outcome(self, row: int) -> int:
        return self._outcome[row]

    def is_seen(self, row: int) -> bool:
        return bool(self._seen[row])

    def done_wall_ns(self, row: int) -> int:
        return self._done[row]

    def arrived_wall_ns(self, row: int) -> int:
        return self._wall[row]

    def notify_url(self, row: int) -> str:
        """Empty: the message named none."""
        return self._words.words[self._notify[row]]

    def is_meta(self, row: int) -> bool:
        return bool(self._meta[row])

    def sender(self, row: int) -> str:
        return self._words.words[self._sender[row]]

    def template(self, row: int) -> str:
        return self._words.words[self._template[row]]

    def address(self, row: int) -> tuple[str, str]:
        """(to, message id)."""
        to, message_id, _ = self._fields(row)
        return to.decode(), message_id.decode()

    def visible_in_log(self, row: int, now_wall_ns: int, lag_ns: int) -> bool:
        shown_at = max(self._wall[row] + lag_ns, self._hidden_until.get(row, 0))
        return now_wall_ns >= shown_at

    def templates_of(self, sender: str) -> list[str]:
        """The template names that this sender sent with."""
        words = self._words.words
        pairs = set(zip(self._sender, self._template, strict=True))
        return sorted(words[template] for owner, template in pairs if words[owner] == sender and words[template])

    def lines(self, since: int, limit: int) -> Iterator[bytes]:
        """Rows from number `since` on, each as one line of JSON."""
        words = self._words.words
        for row in range(since, min(since + limit, len(self))):
            to, message_id, placeholders = self._fields(row)
            status_id, error_id = unpack(self._outcome[row])
            yield (
                msgspec.json.encode(
                    {
                        "n": row,
                        "request": self._request[row],
                        "arrived_ns": self._arrived[row],
                        "arrived_wall_ns": self._wall[row],
                        "caller": words[self._caller[row]],
                        "sight": self._sights.get(row),
                        "sender": words[self._sender[row]],
                        "to": to.decode(),
                        "message_id": message_id.decode(),
                        "template": words[self._template[row]],
                        "placeholders": msgspec.Raw(placeholders),
                        "answer": words[self._answer[row]],
                        "accepted": bool(self._accepted[row]),
                        "status_id": status_id or None,
                        "error_id": error_id or None,
                        "seen": bool(self._seen[row]),
                    }
                )
                + b"\n"
            )

    def totals(self) -> dict[str, Any]:
        """Counts over all rows; about 0.2 s for a million. The last two count every acceptance after the first."""
        words, taken = self._words.words, len(self._taken_phones)
        return {
            "messages": len(self),
            "accepted": taken,
            "answers": {words[answer]: count for answer, count in Counter(self._answer).items()},
            "senders": {
                words[sender]: {"messages": count, "accepted": self._taken[sender]}
                for sender, count in Counter(self._sender).items()
            },
            "repeated_message_ids": self.repeated_ids,
            "message_ids_accepted_again": taken - len(self._known),
            "phones_accepted_again": taken - len(set(self._taken_phones)),
        }

    def _fields(self, row: int) -> tuple[bytes, bytes, bytes]:
        start = self._end[row - 1] if row else 0
        to, message_id, placeholders = bytes(self._text[start : self._end[row]]).split(b"\n", 2)
        return to, message_id, placeholders


def _phone_key(to: str) -> int:
    """A number to count by; a recipient may also be a WhatsApp user id, which is no number."""
    if len(to) <= 18 and to.isascii() and to.isdigit():
        return int(to)
    return (hash(to) & (2**63 - 1)) | 2**63
