"""Postgres refuses every edge that the table does not list, whoever asks, and keeps count and record of the others."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg.errors import CheckViolation
from uuid_utils.compat import uuid7

from carteiro.domain.lifecycle import INITIAL, STATES, Machine, edges_of, steps, target_of
from tests.support.databases import DatabaseServer

Connection = psycopg.Connection[tuple[Any, ...]]

EVENTS = {machine: sorted({edge.event for edge in edges_of(machine)}) for machine in Machine}
EDGES = {machine: {(step[2], step[3]) for step in steps() if step[0] == machine} for machine in Machine}

ONLY_IF: dict[tuple[str, str], str] = {
    (str(source), str(edge.target)): edge.only_if
    for edge in edges_of(Machine.MESSAGE)
    for source in edge.sources
    if edge.only_if
}
"""Edges of a message that a fact must allow."""
FACTS = {
    "gave_up": {"gave_up_at": "now()", "failed_at": "NULL"},
    "assumed": {"assumed_at": "now()", "delivered_at": "NULL"},
}


@pytest.fixture(scope="module")
def dsn(postgres_server: DatabaseServer) -> Iterator[str]:
    with postgres_server.fresh_database() as name:
        yield name


@pytest.fixture
def session(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO account (id, callback_secret) VALUES ('a', '') ON CONFLICT DO NOTHING")
        connection.execute(
            "INSERT INTO service (id, account_id, provider, base_url, api_key_env, webhook_token, messages_per_second)"
            " VALUES ('s', 'a', 'infobip', '', '', '', 1) ON CONFLICT DO NOTHING"
        )
        yield connection
        connection.rollback()


def add_batch(session: Connection, state: str | None = None, *, total: int = 1) -> UUID:
    """A batch in any state, put there behind the triggers' back; None: as it begins."""
    batch_id = uuid7()
    with behind_the_triggers(session, state is not None):
        session.execute(
            "INSERT INTO batch (id, account_id, billing_account_id, service_id, status, total, charge_rule,"
            " template_name, template_language, template_signature, template_content, request_signature)"
            " VALUES (%s, 'a', 'a', 's', coalesce(%s, 'draft'), %s, 'full', '', '', '', '{}', '')",
            (batch_id, state, total),
        )
    return batch_id


def add_message(session: Connection, batch_id: UUID, seq: int, state: str | None = None, **facts: str) -> None:
    columns = "".join(f", {name}" for name in facts)
    values = "".join(f", {value}" for value in facts.values())
    with behind_the_triggers(session, state is not None):
        session.execute(
            f"INSERT INTO message (batch_id, seq, phone_key, status{columns})"
            f" VALUES (%s, %s, %s, coalesce(%s, 'pending'){values})".encode(),
            (batch_id, seq, seq, state),
        )


def add_follow_up(session: Connection, batch_id: UUID, state: str | None = None, **facts: str) -> None:
    columns = "".join(f", {name}" for name in facts)
    values = "".join(f", {value}" for value in facts.values())
    with behind_the_triggers(session, state is not None):
        session.execute(
            f"INSERT INTO follow_up (batch_id, seq, account_id, service_id, sender_id, business_manager_id,"
            f" answered_at, answered_by, window_until, status{columns})"
            f" VALUES (%s, 1, 'a', 's', '1', 'b', now(), 'phone', now(), coalesce(%s, 'pending'){values})".encode(),
            (batch_id, state),
        )


@contextlib.contextmanager
def behind_the_triggers(session: Connection, really: bool) -> Iterator[None]:
    if really:
        session.execute("SET LOCAL session_replication_role = replica")
    yield
    session.execute("SET LOCAL session_replication_role = origin")


def accepts(session: Connection, statement: str, *values: object) -> bool:
    """Whether Postgres lets the statement through; whatever it did is undone."""
    session.execute("SAVEPOINT before")
    try:
        cursor = session.execute(statement.encode(), values)
    except CheckViolation:
        return False
    else:
        assert cursor.rowcount == 1
        return True
    finally:
        session.execute("ROLLBACK TO SAVEPOINT before")


def test_the_database_has_the_steps_of_the_table(session: Connection) -> None:
    rows = session.execute("SELECT machine, event, source, target FROM lifecycle_edge").fetchall()
    assert sorted(rows) == steps()


@pytest.mark.parametrize("source", STATES[Machine.BATCH])
def test_from_each_state_a_batch_can_be_set_to_those_alone_that_an_edge_leads_to(
    session: Connection, source: str
) -> None:
    batch_id = add_batch(session, source)
    accepted = {
        target
        for target in STATES[Machine.BATCH]
        if accepts(session, "UPDATE batch SET status = %s WHERE id = %s", target, batch_id)
    }
    assert accepted == {source} | {target for state, target in EDGES[Machine.BATCH] if state == source}


@pytest.mark.parametrize("fact", ["", *FACTS])
@pytest.mark.parametrize("source", STATES[Machine.MESSAGE])
def test_from_each_state_a_message_can_be_set_to_those_alone_that_an_edge_leads_to(
    session: Connection, source: str, fact: str
) -> None:
    batch_id = add_batch(session)
    add_message(session, batch_id, 1, source, **FACTS.get(fact, {}))
    accepted = {
        target
        for target in STATES[Machine.MESSAGE]
        if accepts(session, "UPDATE message SET status = %s WHERE batch_id = %s", target, batch_id)
    }
    allowed = {
        target
        for state, target in EDGES[Machine.MESSAGE]
        if state == source and ONLY_IF.get((state, target), fact) == fact
    }
    assert accepted == {source} | allowed


@pytest.mark.parametrize("gave_up", [False, True])
@pytest.mark.parametrize("source", STATES[Machine.FOLLOW_UP])
def test_from_each_state_a_follow_up_can_be_set_to_those_alone_that_an_edge_leads_to(
    session: Connection, source: str, gave_up: bool
) -> None:
    batch_id = add_batch(session)
    add_follow_up(session, batch_id, source, **FACTS["gave_up"] if gave_up else {})
    accepted = {
        target
        for target in STATES[Machine.FOLLOW_UP]
        if accepts(session, "UPDATE follow_up SET status = %s WHERE batch_id = %s", target, batch_id)
    }
    allowed = {target for state, target in EDGES[Machine.FOLLOW_UP] if state == source}
    assert accepted == {source} | (allowed - ({"sent"} if source == "failed" and not gave_up else set()))
    assert not accepts(session, "UPDATE follow_up SET sender_id = '2' WHERE batch_id = %s", batch_id)


@pytest.mark.parametrize(
    ("source", "target", "facts"),
    [
        ("failed", "sent", {"gave_up_at": "now()", "failed_at": "now()"}),
        ("delivered", "failed", {"assumed_at": "now()", "delivered_at": "now()"}),
    ],
)
def test_a_fact_that_is_known_closes_the_edge_that_only_its_want_had_opened(
    session: Connection, source: str, target: str, facts: dict[str, str]
) -> None:
    batch_id = add_batch(session)
    add_message(session, batch_id, 1, source, **facts)
    assert not accepts(session, "UPDATE message SET status = %s WHERE batch_id = %s", target, batch_id)


@pytest.mark.parametrize("state", STATES[Machine.BATCH])
def test_a_batch_begins_as_a_draft_only(session: Connection, state: str) -> None:
    insert = (
        "INSERT INTO batch (id, account_id, billing_account_id, service_id, status, total, charge_rule, template_name,"
        " template_language, template_signature, template_content, request_signature)"
        " VALUES (%s, 'a', 'a', 's', %s, 1, 'full', '', '', '', '{}', '')"
    )
    assert accepts(session, insert, uuid7(), state) is (state == INITIAL[Machine.BATCH])


@pytest.mark.parametrize("state", STATES[Machine.MESSAGE])
def test_a_message_begins_as_pending_only(session: Connection, state: str) -> None:
    insert = "INSERT INTO message (batch_id, seq, phone_key, status) VALUES (%s, 1, 1, %s)"
    assert accepts(session, insert, add_batch(session), state) is (state == INITIAL[Machine.MESSAGE])


@pytest.mark.parametrize("column", ["batch_id = %s", "seq = 2", "phone_key = 2"])
def test_who_a_message_is_for_is_fixed(session: Connection, column: str) -> None:
    batch_id = add_batch(session)
    add_message(session, batch_id, 1)
    values = (uuid7(), batch_id) if "%s" in column else (batch_id,)
    assert not accepts(session, f"UPDATE message SET {column} WHERE batch_id = %s", *values)


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize("event", sorted({event for events in EVENTS.values() for event in events}))
def test_an_event_moves_rows_of_its_sources_and_no_others(session: Connection, machine: Machine, event: str) -> None:
    """The guarded UPDATE, over one row in each state."""
    facts = {name: value for fact in FACTS.values() for name, value in fact.items()}
    table, key = ("batch", "id") if machine is Machine.BATCH else (str(machine), "batch_id")
    for state in STATES[machine]:
        batch_id = add_batch(session, state if machine is Machine.BATCH else None)
        if machine is Machine.MESSAGE:
            add_message(session, batch_id, 1, state, **facts)
        elif machine is Machine.FOLLOW_UP:
            add_follow_up(session, batch_id, state, **FACTS["gave_up"])
        moved = session.execute(
            f"UPDATE {table} t SET status = e.target, event = e.event FROM lifecycle_edge e"
            f" WHERE t.{key} = %s AND e.machine = '{machine}' AND e.event = %s AND e.source = t.status"
            " RETURNING t.status".encode(),
            (batch_id, event),
        ).fetchall()
        target = target_of(machine, event, state)
        assert moved == ([] if target is None else [(target,)])


@pytest.mark.parametrize("table", ["batch_event", "message_event", "ledger_entry", "receipt"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET at = now()", "DELETE FROM {}", "TRUNCATE {}"])
def test_the_record_cannot_be_rewritten(session: Connection, table: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        session.execute(statement.format(table).encode())


@pytest.mark.parametrize(
    "statement", ["UPDATE follow_up_event SET at = now()", "DELETE FROM follow_up_event", "TRUNCATE follow_up_event"]
)
def test_the_history_of_follow_ups_goes_with_its_week_only(session: Connection, statement: str) -> None:
    add_follow_up(session, add_batch(session))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"), session.transaction():
        session.execute(statement.encode())
    week = "now() - interval '1 hour', now() + interval '1 hour'"
    session.execute(f"INSERT INTO partition_drop VALUES ('message_event', {week}, now(), now())".encode())
    assert session.execute("DELETE FROM follow_up_event").rowcount == 1


@pytest.mark.parametrize("parent", ["message", "message_content", "message_event", "receipt", "receipt_payload"])
def test_nothing_is_changed_behind_the_back_of_what_counts_and_records(session: Connection, parent: str) -> None:
    (partition,) = session.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass LIMIT 1", (parent,)
    ).fetchall()[0]
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"name {parent} instead"):
        session.execute(f"DELETE FROM {partition}".encode())


@dataclass
class Modelled:
    state: str
    lived: list[tuple[str, str, str]] = field(default_factory=list)
    facts: set[str] = field(default_factory=set)


class Lifecycle(RuleBasedStateMachine):
    """One batch of a few messages, any event at any time, any state by force; against the table in Python."""

    session: Connection
    N = 3

    def __init__(self) -> None:
        super().__init__()
        self.batch_id = add_batch(self.session, total=self.N)
        for seq in range(1, self.N + 1):
            add_message(self.session, self.batch_id, seq)
        self.batch = Modelled(INITIAL[Machine.BATCH])
        self.messages = {seq: Modelled(INITIAL[Machine.MESSAGE]) for seq in range(1, self.N + 1)}

    def teardown(self) -> None:
        self.session.rollback()

    @rule(event=st.sampled_from(EVENTS[Machine.BATCH]))
    def move_the_batch(self, event: str) -> None:
        cursor = self.session.execute(
            "UPDATE batch b SET status = e.target, event = e.event FROM lifecycle_edge e"
            " WHERE b.id = %s AND e.machine = 'batch' AND e.event = %s AND e.source = b.status",
            (self.batch_id, event),
        )
        target = target_of(Machine.BATCH, event, self.batch.state)
        assert cursor.rowcount == (target is not None)
        if target is not None:
            self.batch.lived.append((event, self.batch.state, target))
            self.batch.state = target

    @rule(event=st.sampled_from(EVENTS[Machine.MESSAGE]), seqs=st.sets(st.integers(1, N), min_size=1))
    def move_messages(self, event: str, seqs: set[int]) -> None:
        """In one statement, as the product does; where an only_if edge is closed all of it is refused."""
        targets = {seq: target_of(Machine.MESSAGE, event, self.messages[seq].state) for seq in seqs}
        refused = any(target is not None and self._is_closed(seq, target) for seq, target in targets.items())
        fact = {"failed": "failed_at", "delivered": "delivered_at", "assumed": "assumed_at", "gave_up": "gave_up_at"}
        also = f", {fact[event]} = coalesce(m.{fact[event]}, clock_timestamp())" if event in fact else ""
        self.session.execute("SAVEPOINT before")
        try:
            cursor = self.session.execute(
                f"UPDATE message m SET status = e.target, event = e.event{also} FROM lifecycle_edge e"
                " WHERE m.batch_id = %s AND m.seq = ANY(%s) AND e.machine = 'message' AND e.event = %s"
                " AND e.source = m.status".encode(),
                (self.batch_id, list(seqs), event),
            )
        except CheckViolation:
            self.session.execute("ROLLBACK TO SAVEPOINT before")
            assert refused
            return
        assert not refused
        assert cursor.rowcount == sum(target is not None for target in targets.values())
        for seq, target in targets.items():
            if target is not None:
                message = self.messages[seq]
                message.lived.append((event, message.state, target))
                message.state = target
                message.facts.add(event)

    def _is_closed(self, seq: int, target: str) -> bool:
        message = self.messages[seq]
        match ONLY_IF.get((message.state, target)):
            case "gave_up":
                return "gave_up" not in message.facts or "failed" in message.facts
            case "assumed":
                return "assumed" not in message.facts or "delivered" in message.facts
            case _:
                return False

    @rule(seq=st.integers(1, N), wanted=st.sampled_from(STATES[Machine.MESSAGE]))
    def force_a_message(self, seq: int, wanted: str) -> None:
        """From psql: refused unless an edge leads there."""
        source = self.messages[seq].state
        if (source, wanted) in EDGES[Machine.MESSAGE] or source == wanted:
            return
        statement = "UPDATE message SET status = %s WHERE batch_id = %s AND seq = %s"
        assert not accepts(self.session, statement, wanted, self.batch_id, seq)

    @precondition(lambda self: self.batch.lived)
    @rule()
    def read_the_record_of_the_batch(self) -> None:
        rows = self.session.execute(
            "SELECT event, from_status, to_status FROM batch_event WHERE batch_id = %s ORDER BY id", (self.batch_id,)
        ).fetchall()
        assert rows == [("created", None, "draft"), *self.batch.lived]

    @invariant()
    def states_and_records_agree(self) -> None:
        rows = self.session.execute(
            "SELECT m.seq, m.status, coalesce(array_agg(ROW(e.event, e.from_status, e.to_status)::text ORDER BY e.at)"
            " FILTER (WHERE e.event IS NOT NULL), '{}') FROM message m"
            " LEFT JOIN message_event e ON e.batch_id = m.batch_id AND m.seq = ANY(e.seqs)"
            " WHERE m.batch_id = %s GROUP BY m.seq, m.status ORDER BY m.seq",
            (self.batch_id,),
        ).fetchall()
        assert rows == [
            (seq, message.state, [f"({','.join(step)})" for step in message.lived])
            for seq, message in self.messages.items()
        ]

    @invariant()
    def counts_are_exact(self) -> None:
        sums = ", ".join(f"coalesce(sum({state}), 0)::int" for state in STATES[Machine.MESSAGE])
        row = self.session.execute(
            f"SELECT {sums} FROM batch_tally WHERE batch_id = %s".encode(), (self.batch_id,)
        ).fetchone()
        states = [message.state for message in self.messages.values()]
        assert row == tuple(states.count(state) for state in STATES[Machine.MESSAGE])


def test_whatever_is_asked_for_the_database_follows_the_table(session: Connection) -> None:
    class Machinery(Lifecycle):
        pass

    Machinery.session = session
    session.commit()  # account and service stay; each run's batch is rolled back
    run_state_machine_as_test(
        Machinery,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
