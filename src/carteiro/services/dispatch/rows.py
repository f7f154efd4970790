"""Which rows of a batch go next: those given back, then the cursor's; rendered, or failed by the guard, or withdrawn
because their contact was suppressed.
"""

from dataclasses import dataclass
from uuid import UUID

import structlog

from carteiro.domain.suppression import scopes_of
from carteiro.domain.templates import GuardFailure, Parameters, render_parameters
from carteiro.storage import claims, erasure, suppression
from carteiro.storage.claims import Row, Turn
from carteiro.storage.pool import Connection

log = structlog.get_logger(__name__)

RENDERING_RAISED = "RENDERING_RAISED"
"""The guard's code for a contact that our own rendering broke on."""
REACH = 4
"""How many rows beyond those asked for the cursor looks, past rows that are no longer pending."""


@dataclass(slots=True)
class Ready:
    """Locked rows in order of seq, sorted by what can be done with them."""

    rows: list[Row]
    going: list[tuple[Row, Parameters]]
    guarded: dict[int, str]
    """seq -> code of the guard."""
    suppressed: list[int]
    """Seqs whose contact is suppressed by now."""
    erased: list[int]
    """Seqs whose contact was erased: there is nobody left to send to."""
    reach: int

    def keep_first(self, n: int) -> None:
        """Only `n` rows got a slot: from the first that did not, all rows stay as they are."""
        if n == len(self.going):
            return
        stop_seq = self.going[n][0].seq
        self.rows = [row for row in self.rows if row.seq < stop_seq]
        self.guarded = {seq: code for seq, code in self.guarded.items() if seq < stop_seq}
        self.suppressed = [seq for seq in self.suppressed if seq < stop_seq]
        self.erased = [seq for seq in self.erased if seq < stop_seq]
        del self.going[n:]


async def take_ready(conn: Connection, turn: Turn, cursor_seq: int, most: int, *, probing: bool) -> Ready:
    """Lock up to `most` rows, look whether their contacts are suppressed, and render the others."""
    rows = await claims.take_rows(conn, turn.batch_id, cursor_seq, most, reach=most * REACH, probing=probing)
    listed = await suppression.find_among(
        conn, turn.account_id, [row.phone_key for row in rows], scopes_of(turn.template_content.get("category"))
    )
    going: list[tuple[Row, Parameters]] = []
    guarded: dict[int, str] = {}
    suppressed: list[int] = []
    erased: list[int] = []
    for row in rows:
        if row.phone_key < 0:
            erased.append(row.seq)
            continue
        if row.phone_key in listed:
            suppressed.append(row.seq)
            continue
        try:
            rendered = render_parameters(turn.template_content, row.placeholders, row.extra, turn.header)
        except Exception as error:  # one contact must not keep its whole service from being claimed
            log.warning("rendering_raised", batch_id=str(turn.batch_id), seq=row.seq, error=type(error).__name__)
            guarded[row.seq] = RENDERING_RAISED
            continue
        if isinstance(rendered, GuardFailure):
            guarded[row.seq] = rendered.code
        else:
            going.append((row, rendered))
    return Ready(rows, going, guarded, suppressed, erased, most * REACH)


async def advance(conn: Connection, batch_id: UUID, cursor_seq: int, ready: Ready) -> None:
    """Fail what the guard refused, withdraw what is suppressed or erased, and move the cursor over what was handled.

    Rows that it passes although somebody else had them locked are kept where returned rows are kept. Where nothing
    was found, the cursor moves on over rows that are no longer pending.
    """
    await claims.fail_guarded(conn, batch_id, ready.guarded)
    await suppression.withdraw(conn, batch_id, ready.suppressed)
    await erasure.withdraw(conn, batch_id, ready.erased)
    fresh = [row.seq for row in ready.rows if row.fresh]
    reached_seq = cursor_seq
    if fresh:
        reached_seq = fresh[-1]
    elif not ready.rows:
        reached_seq = cursor_seq + ready.reach
        await claims.drop_stale_returns(conn, batch_id)
    if reached_seq - cursor_seq != len(fresh):
        await claims.note_gaps(conn, batch_id, cursor_seq, reached_seq, fresh)
    await claims.advance_batch(conn, batch_id, reached_seq)
