"""The tables at the end of a run, and what they say of each message."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.chaos.rig import Rig, to_ns
from tests.support.evidence import History

LAPSED = "LEASE_LAPSED"

QUERIES = {
    "batches": "SELECT id, status, total, debited, charged, refunded, settled_at, callback_url, charge_rule, door,"
    " provider FROM batch b JOIN (SELECT id AS service_id, provider FROM service) s USING (service_id)"
    " WHERE status <> 'draft'",
    "messages": "SELECT m.batch_id, m.seq, m.status, m.code, m.charged, c.address"
    " FROM message m JOIN message_content c USING (batch_id, seq) JOIN batch b ON b.id = m.batch_id"
    " WHERE b.status <> 'draft'",
    "events": "SELECT at, batch_id, event, from_status, to_status, code, claim_id, seqs FROM message_event ORDER BY at",
    "follow_ups": "SELECT f.batch_id, f.seq, f.status, f.code, c.address"
    " FROM follow_up f JOIN message_content c USING (batch_id, seq)",
    "follow_up_events": "SELECT at, batch_id, seq, from_status, to_status FROM follow_up_event ORDER BY at, id",
    "batch_events": "SELECT batch_id, event, from_status, to_status FROM batch_event",
    "claims": "SELECT id, worker_id, claimed_at, closed_at, lease_until FROM claim",
    "meters": "SELECT kind, owner, used, held,"
    " (SELECT coalesce(sum(b.used), 0) FROM capacity_bucket b WHERE (b.kind, b.owner) = (m.kind, m.owner)) AS buckets,"
    " CASE kind WHEN 'bm' THEN (SELECT coalesce(sum(h.held), 0) FROM capacity_hold h"
    " WHERE h.business_manager_id = m.owner) ELSE 0 END AS holds FROM capacity_meter m",
    "holds": "SELECT h.batch_id, h.held FROM capacity_hold h JOIN batch b ON b.id = h.batch_id"
    " WHERE b.settled_at IS NOT NULL AND h.held > 0",
    "senders": "SELECT coalesce(provider_ref, id) AS id, business_manager_id FROM sender",
    "balance": "SELECT sum(balance) AS balance FROM account",
    "keys": "SELECT batch_id, count(*) AS n FROM idempotency_key GROUP BY batch_id HAVING count(*) > 1",
}


@dataclass(frozen=True, slots=True)
class Claim:
    id: int
    pid: int
    """Of the worker's process."""
    at_ns: int
    closed_ns: int | None
    lease_until_ns: int


class Book:
    def __init__(self, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        self.tables = tables
        self.batches: dict[UUID, dict[str, Any]] = {row["id"]: row for row in tables["batches"]}
        self.messages: dict[str, dict[str, Any]] = {
            f"{row['batch_id'].hex}-{row['seq']}": row for row in tables["messages"]
        }
        self.claims = {row["id"]: _claim(row) for row in tables["claims"]}
        changes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.unknown = 0
        self.lapsed: dict[int, list[str]] = defaultdict(list)
        """Messages that became unknown because a lease had lapsed, by the process that had held it."""
        self.lapsed_ns: dict[int, int] = {}
        """When the lease of a claim was found to have lapsed."""
        for event in tables["events"]:
            keys = [f"{event['batch_id'].hex}-{seq}" for seq in event["seqs"]]
            for key in keys:
                changes[key].append((to_ns(event["at"]), event["to_status"]))
            if event["to_status"] == "unknown":
                self.unknown += len(keys)
                if event["code"] == LAPSED:
                    self.lapsed[self.claims[event["claim_id"]].pid] += keys
                    self.lapsed_ns[event["claim_id"]] = to_ns(event["at"])
        self.follow_ups: dict[str, dict[str, Any]] = {
            f"{row['batch_id'].hex}-{row['seq']}f": row for row in tables["follow_ups"]
        }
        for event in tables["follow_up_events"]:
            changes[f"{event['batch_id'].hex}-{event['seq']}f"].append((to_ns(event["at"]), event["to_status"]))
            self.unknown += event["to_status"] == "unknown"
        self.histories = {key: History.of(of_message) for key, of_message in changes.items()}

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Messages and what follows answers, by the id of each call."""
        return self.messages | self.follow_ups

    def is_final(self, key: str) -> bool:
        """Not sent again when nobody knows whether it left: what follows an answer, messages by Meta, reminders."""
        if key in self.follow_ups:
            return True
        batch = self.batches[self.messages[key]["batch_id"]] if key in self.messages else {}
        return batch.get("provider") == "meta" or batch.get("door") == "reminder"

    @classmethod
    async def read(cls, rig: Rig) -> "Book":
        return cls({name: await rig.read(query) for name, query in QUERIES.items()})


def _claim(row: dict[str, Any]) -> Claim:
    """A worker's id ends in its process id and a random part."""
    closed_at = row["closed_at"]
    return Claim(
        row["id"],
        int(row["worker_id"].split("-")[-2]),
        to_ns(row["claimed_at"]),
        None if closed_at is None else to_ns(closed_at),
        to_ns(row["lease_until"]),
    )
