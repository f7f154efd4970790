"""The role `carteiro_auditor` reads schema `audit` and nothing else."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Identifier

from carteiro.embedded import Cluster
from carteiro.storage.migrations import migrate


@pytest.fixture
def auditor(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("SET ROLE carteiro_auditor")
        yield connection


def test_the_auditor_reads_every_view(auditor: psycopg.Connection) -> None:
    names = auditor.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'audit'::regnamespace AND relkind IN ('v', 'r')"
    ).fetchall()
    assert len(names) > 25
    for (name,) in names:
        auditor.execute(SQL("SELECT * FROM audit.{}").format(Identifier(name)))


@pytest.mark.parametrize(
    "table", ["message_content", "message", "api_key", "account", "ledger_entry", "receipt_payload"]
)
def test_the_auditor_reads_no_table(auditor: psycopg.Connection, table: str) -> None:
    with pytest.raises(InsufficientPrivilege):
        auditor.execute(SQL("SELECT * FROM {}").format(Identifier(table)))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit.setting SET value = 0",
        "DELETE FROM audit.limit_history",
        "UPDATE audit.batch_money SET charged = 0",
        "INSERT INTO audit.assignment_history VALUES ('a', 's')",
        "CREATE TABLE audit.mine (x int)",
        "CREATE TABLE mine (x int)",
    ],
)
def test_the_auditor_writes_nothing(auditor: psycopg.Connection, statement: str) -> None:
    with pytest.raises(InsufficientPrivilege):
        auditor.execute(statement.encode())


def test_others_read_nothing_without_being_let_in(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE ROLE stranger")
        connection.execute("SET LOCAL ROLE stranger")
        with pytest.raises(InsufficientPrivilege):
            connection.execute("SELECT * FROM audit.batch_counts")


def test_views_of_later_releases_are_readable_too(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE VIEW audit.later AS SELECT id FROM batch")
        connection.execute("SET LOCAL ROLE carteiro_auditor")
        connection.execute("SELECT * FROM audit.later")


def test_a_second_database_of_the_server_finds_the_role_there(own_cluster: Cluster) -> None:
    migrate(own_cluster.dsn())
    with psycopg.connect(own_cluster.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE second")
    second = make_conninfo(own_cluster.dsn(), dbname="second")
    migrate(second)
    with psycopg.connect(second) as connection:
        connection.execute("SET LOCAL ROLE carteiro_auditor")
        connection.execute("SELECT * FROM audit.batch_counts")


def test_who_may_not_create_roles_migrates_all_the_same_and_lets_the_auditor_in_later(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE owner LOGIN")
        admin.execute("CREATE DATABASE theirs OWNER owner")
        theirs = make_conninfo(own_cluster.dsn(), dbname="theirs")
        migrate(make_conninfo(theirs, options="-c role=owner"))
        assert admin.execute("SELECT FROM pg_roles WHERE rolname = 'carteiro_auditor'").fetchone() is None
        # As docs/audit.md tells the server's administrator to.
        admin.execute("CREATE ROLE carteiro_auditor NOLOGIN")
    with psycopg.connect(theirs, options="-c role=owner") as connection:
        connection.execute("GRANT USAGE ON SCHEMA audit TO carteiro_auditor")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA audit TO carteiro_auditor")
    with psycopg.connect(theirs) as connection:
        connection.execute("SET LOCAL ROLE carteiro_auditor")
        connection.execute("SELECT * FROM audit.batch_counts")
