"""What a failure that is reported later says beyond its own message: the sender or the template that it names stops, as
it does when a call is refused for that reason.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from carteiro.domain.outcomes import Fact, FactKind, Kind
from carteiro.storage import outcomes
from carteiro.storage.facts import Merged
from carteiro.storage.pool import Connection

STALE_AFTER = timedelta(hours=1)
"""What happened longer before it was told stops nothing any more: things may stand otherwise by now."""


@dataclass(slots=True)
class Aftermath:
    """Collected while receipts are merged, and written after that: senders and templates are locked last."""

    senders: set[str] = field(default_factory=set)
    waits_s: dict[str, float] = field(default_factory=dict)
    submissions: dict[UUID, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Business managers by a batch with the template."""

    def note(self, facts: Iterable[Fact], merged: Iterable[Merged]) -> None:
        """Facts that were new, and told in time."""
        units = {row.seq: row.unit for row in merged if row.unit is not None}
        for fact in facts:
            unit = units.get(fact.seq)
            if unit is None or fact.kind is not FactKind.FAILED:
                continue
            if fact.failure is Kind.SENDER:
                self.senders.add(unit.sender)
            elif fact.failure is Kind.TEMPLATE:
                self.submissions[fact.batch_id].add(unit.business_manager)
            elif fact.failure is Kind.RATE and fact.wait_s is not None:
                self.waits_s[unit.sender] = max(fact.wait_s, self.waits_s.get(unit.sender, 0.0))

    async def write(self, conn: Connection) -> None:
        if self.senders:
            await outcomes.stop_senders(conn, sorted(self.senders))
        if self.waits_s:
            await outcomes.wait_senders(conn, self.waits_s, reason="throttled")
        for batch_id in sorted(self.submissions):
            await outcomes.stop_submissions(conn, batch_id, sorted(self.submissions[batch_id]))
