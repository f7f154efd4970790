"""The words of group links, in SQL and in Python."""

from itertools import product

from carteiro.domain.group_links import link_state
from carteiro.domain.lifecycle import BatchState, MessageState
from carteiro.storage.pool import Connection


async def test_sql_and_python_say_the_same_of_every_state(conn: Connection) -> None:
    for batch, message in product(BatchState, MessageState):
        cursor = await conn.execute("SELECT audit.group_link_status(%s, %s)", (str(batch), str(message)))
        assert await cursor.fetchone() == (str(link_state(batch, message)),), (batch, message)
