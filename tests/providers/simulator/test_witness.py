"""The simulator looks into Carteiro's database when a message arrives."""

from carteiro.domain.outcomes import message_key
from carteiro.providers.registry import open_provider
from carteiro.providers.simulator.app import running_simulator
from carteiro.providers.simulator.options import Options
from carteiro.storage.pool import Pool
from tests.support.dispatching import FakeProvider
from tests.support.evidence import Sight
from tests.support.stack import Simulator
from tests.support.steering import add_owner, bench, post
from tests.support.waiting import until


async def test_it_records_what_is_committed_when_a_message_arrives(pool: Pool, postgres_dsn: str) -> None:
    owner = await add_owner(pool)
    batch_id = await post(pool, owner, 3)
    station = bench(pool, FakeProvider())
    piece = await station.claimed()
    claimed, *rest = piece.due
    async with running_simulator(Options(latency_ms=0, receipts=False), witness_dsn=postgres_dsn) as address:
        provider = open_provider("infobip", base_url=address, api_key="key", timeout_s=5.0)
        simulator = Simulator(address)
        await provider.submit([claimed.outgoing])
        await station.record_all(piece, None)
        await provider.submit([rest[0].outgoing])
        sights = {arrival.message_id: arrival.sight for arrival in (await simulator.evidence()).arrivals}
        await provider.close()
        await simulator.http.aclose()
    assert sights == {
        message_key(batch_id, claimed.outgoing.seq): Sight("pending_send", piece.claim_id, True),
        message_key(batch_id, rest[0].outgoing.seq): Sight("pending", piece.claim_id, False),
    }


async def test_a_database_that_is_away_holds_up_no_answer() -> None:
    async with running_simulator(Options(latency_ms=0, receipts=False), witness_dsn="host=127.0.0.1 port=1") as address:
        simulator = Simulator(address)
        body = {
            "messages": [
                {
                    "from": "1",
                    "to": "2",
                    "messageId": "x-1",
                    "content": {"templateName": "t", "templateData": {"body": {"placeholders": []}}, "language": "en"},
                }
            ]
        }
        answer = await simulator.http.post(
            f"{address}/whatsapp/1/message/template", json=body, headers={"Authorization": "App k"}
        )
        assert answer.status_code == 200
        await until(simulator.accepted, 5, "it is on record")
        assert [arrival.sight for arrival in (await simulator.evidence()).arrivals] == [None]
        await simulator.http.aclose()
