"""What another application calls the tables and columns of its directory, and the values that count.

Read from a TOML file that has only what differs from the defaults below:

    [groups]
    table = "broadcast_lists"
    owner = ""                # no such column: nobody owns a group, only leaders address it

    [team_members]
    leader = ["LEADER", "COORDINATOR"]
"""

import tomllib
from typing import Annotated, Any

import msgspec
from psycopg.sql import Composable, Identifier

Name = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00]{1,63}\Z")]
"""Of a table or column, as it stands in the database: quoted wherever it is used. 63 bytes are Postgres's limit."""
Values = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class NamesError(ValueError):
    """The file cannot be used; the message says what of it."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member that we do not know is a mistake, and refused."""


class Users(Entry, frozen=True):
    table: Name = "users"
    id: Name = "id"
    phone: Name = "phone"


class Groups(Entry, frozen=True):
    table: Name = "groups"
    id: Name = "id"
    team: Name = "team_id"
    owner: str = "owner_id"
    """The user to whom a group belongs; empty: there is no such column."""


class GroupMembers(Entry, frozen=True):
    table: Name = "group_members"
    group: Name = "group_id"
    user: Name = "user_id"
    status: Name = "status"
    active: Values = ("ACTIVE",)


class Teams(Entry, frozen=True):
    table: Name = "teams"
    id: Name = "id"


class TeamMembers(Entry, frozen=True):
    table: Name = "team_members"
    team: Name = "team_id"
    user: Name = "user_id"
    role: Name = "role"
    status: Name = "status"
    leader: Values = ("LEADER",)
    active: Values = ("ACTIVE",)


class Names(Entry, frozen=True):
    users: Users = Users()
    groups: Groups = Groups()
    group_members: GroupMembers = GroupMembers()
    teams: Teams = Teams()
    team_members: TeamMembers = TeamMembers()

    def identifiers(self, schema: str) -> dict[str, Composable]:
        """For the placeholders of sql/directory.sql: `users` is a table, `users_phone` a column of it."""
        found: dict[str, Composable] = {}
        for entry in self.__struct_fields__:
            for field, name in msgspec.structs.asdict(getattr(self, entry)).items():
                if field == "table":
                    found[entry] = Identifier(schema, name)
                elif isinstance(name, str) and name:
                    found[f"{entry}_{field}"] = Identifier(name)
        return found


def read_names(text: str) -> Names:
    """Raises NamesError."""
    try:
        document: Any = tomllib.loads(text)
        return msgspec.convert(document, Names)
    except tomllib.TOMLDecodeError as error:
        raise NamesError(f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise NamesError(str(error)) from None
