"""The directory of another application: read with the least of rights, whatever its columns are called."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction, UndefinedColumn

from carteiro.storage import directory
from carteiro.storage.directory import Layout
from carteiro.storage.directory_names import Names, NamesError, read_names
from carteiro.storage.pool import Pool
from tests.support.directories import load_directory

# Numbers for ids, enums and booleans for states, and names that have to be quoted.
FOREIGN = """
CREATE SCHEMA "Their CRM";
SET search_path = "Their CRM";
CREATE TYPE role AS ENUM ('Chefe', 'Membro');
CREATE TABLE "user" (id int PRIMARY KEY, "Fone; -- {1}" text);
CREATE TABLE squad (uid uuid PRIMARY KEY);
CREATE TABLE squad_person (squad uuid, person int, as_what role, here boolean);
CREATE TABLE "group" (no bigint PRIMARY KEY, squad uuid);
CREATE TABLE "in" ("group" bigint, person int, here boolean);
INSERT INTO "user" SELECT n, '+55119810' || to_char(n, 'FM00000') FROM generate_series(1, 25) AS n;
INSERT INTO squad VALUES ('00000000-0000-0000-0000-000000000001');
INSERT INTO squad_person VALUES
    ('00000000-0000-0000-0000-000000000001', 1, 'Chefe', true),
    ('00000000-0000-0000-0000-000000000001', 2, 'Chefe', false),
    ('00000000-0000-0000-0000-000000000001', 3, 'Membro', true);
INSERT INTO "group" VALUES (7, '00000000-0000-0000-0000-000000000001');
INSERT INTO "in" SELECT 7, id, id <> 25 FROM "user";
CREATE ROLE reader LOGIN;
GRANT USAGE ON SCHEMA "Their CRM" TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA "Their CRM" TO reader;
"""
NAMES = """
[users]
table = "user"
phone = 'Fone; -- {1}'
[groups]
table = "group"
id = "no"
team = "squad"
owner = ""
[group_members]
table = "in"
group = "group"
user = "person"
status = "here"
active = ["true"]
[teams]
table = "squad"
id = "uid"
[team_members]
table = "squad_person"
team = "squad"
user = "person"
role = "as_what"
status = "here"
leader = ["Chefe", "Dona"]
active = ["true"]
"""
LAYOUT = Layout("Their CRM", read_names(NAMES))


@pytest.fixture
async def reading(postgres_dsn: str) -> AsyncIterator[Pool]:
    """A role that may read five tables and nothing else."""
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(FOREIGN.encode())
        try:
            dsn = make_conninfo(postgres_dsn, options="-c role=reader")
            async with directory.open_read_only(dsn, application_name="tests", timeout_s=2.0) as pool:
                yield pool
        finally:
            admin.execute("DROP OWNED BY reader; DROP ROLE reader")


async def test_a_role_that_only_reads_is_enough(reading: Pool) -> None:
    async with reading.connection() as conn:
        await directory.probe(conn, LAYOUT)
        allowed = {
            (owner, group): await directory.may_address(conn, LAYOUT, owner_id=owner, group_id=group)
            for owner in ("1", "2", "3", "4", "ana", "99999999999999999999")
            for group in ("7", "8", "x", "7; DROP TABLE squad")
        }
        assert [pair for pair, may in allowed.items() if may] == [("1", "7")]
        # In pages, in one snapshot, and no further than asked.
        async with conn.transaction():
            phones = await directory.read_phones(conn, LAYOUT, "7", page=10, most=100)
        assert phones == [f"+55119810{number:05}" for number in range(1, 25)]
        async with conn.transaction():
            assert len(await directory.read_phones(conn, LAYOUT, "7", page=5, most=7)) == 10
        async with conn.transaction():
            assert await directory.read_phones(conn, LAYOUT, "8", page=5, most=7) == []

        for statement in ('DELETE FROM "Their CRM".squad', 'CREATE TABLE "Their CRM".x (y int)'):
            with pytest.raises((ReadOnlySqlTransaction, InsufficientPrivilege)):
                await conn.execute(statement.encode())
        # Even what the role could change.
        with pytest.raises(ReadOnlySqlTransaction):
            await conn.execute("CREATE SEQUENCE mine")
        cursor = await conn.execute("SHOW statement_timeout")
        assert await cursor.fetchone() == ("2s",)
        with pytest.raises(UndefinedColumn):
            await directory.probe(conn, Layout("Their CRM", read_names(NAMES.replace('"no"', '"number"'))))


async def test_an_owner_needs_no_team(conn: psycopg.AsyncConnection, postgres_dsn: str) -> None:
    load_directory(postgres_dsn)
    layout = Layout("demo_directory", Names())
    await directory.probe(conn, layout)
    assert await directory.may_address(conn, layout, owner_id="carla", group_id="neighbours")
    ownerless = Layout("demo_directory", read_names('[groups]\nowner = ""'))
    assert not await directory.may_address(conn, ownerless, owner_id="carla", group_id="neighbours")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[users", "not TOML"),
        ("[persons]", "persons"),
        ('[users]\nfone = "x"', "fone"),
        ('[users]\nphone = ""', "$.users.phone"),
        (f'[users]\nphone = "{"x" * 64}"', "$.users.phone"),
        ("[team_members]\nleader = []", "$.team_members.leader"),
        ('[team_members]\nactive = "ACTIVE"', "$.team_members.active"),
    ],
)
def test_a_file_of_names_that_cannot_be_used_says_why(text: str, told: str) -> None:
    with pytest.raises(NamesError, match=told.replace("$", r"\$")):
        read_names(text)


def test_an_empty_file_names_nothing_else() -> None:
    assert read_names("") == Names()
