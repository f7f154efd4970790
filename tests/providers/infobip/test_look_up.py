import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from carteiro.domain.outcomes import FactKind, Kind
from carteiro.providers.contract import LogUnreachable, Provider
from carteiro.providers.registry import open_provider
from tests.providers.driving import Driver
from tests.providers.infobip.reports import BATCH, log_row, outgoing
from tests.support.waiting import until


async def test_what_was_taken_is_found_and_what_was_not_is_absent(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"receipts": False})
    await provider.submit([outgoing(1)])
    found = await provider.look_up([(BATCH, 1), (BATCH, 2)])
    assert [(fact.seq, fact.kind) for fact in found.facts] == [(1, FactKind.SENT)]
    assert found.absent == ((BATCH, 2),)


async def test_outcomes_are_found(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"status_id": 4, "error_id": 7002}, to="0002")
    await provider.submit([outgoing(1), outgoing(2, "5531987650002")])

    async def both_settled() -> bool:
        return all(call["status_id"] for call in await simulator.calls())

    await until(both_settled, 5, "both messages have their outcome")
    facts = (await provider.look_up([(BATCH, 1), (BATCH, 2)])).facts
    assert {(fact.seq, fact.kind, fact.code, fact.failure) for fact in facts} == {
        (1, FactKind.SENT, None, None),
        (1, FactKind.DELIVERED, None, None),
        (2, FactKind.FAILED, "EC_7002", Kind.CONTACT),
    }


async def test_any_number_of_ids_is_asked_for_in_pages(provider: Provider, simulator: Driver) -> None:
    await simulator.ask("POST", "settings", {"receipts": False})
    await provider.submit([outgoing(seq) for seq in range(1, 121)])
    found = await provider.look_up([(BATCH, seq) for seq in range(1, 131)])
    assert sorted(fact.seq for fact in found.facts) == list(range(1, 121))
    assert sorted(seq for _, seq in found.absent) == list(range(121, 131))
    assert (await simulator.stats())["requests"]["log"] == 3


async def test_nothing_is_asked_about_nothing(provider: Provider, simulator: Driver) -> None:
    assert (await provider.look_up([])).facts == ()
    assert "log" not in (await simulator.stats())["requests"]


async def test_a_message_that_the_log_does_not_show_yet_is_absent(provider: Provider, simulator: Driver) -> None:
    await simulator.add_fault({"log_lag_ms": 60_000})
    await provider.submit([outgoing(1)])
    assert (await provider.look_up([(BATCH, 1)])).absent == ((BATCH, 1),)


@pytest.mark.parametrize(
    "plan",
    [
        {"answer": "http", "http_status": 500},
        {"answer": "http", "http_status": 429},
        {"answer": "http", "http_status": 401},
        {"answer": "http", "http_status": 302},
        {"answer": "hang"},
        {"answer": "reset"},
        {"answer": "garbage"},
    ],
    ids=str,
)
async def test_an_unreachable_log_proves_nothing(
    plan: dict[str, object], provider: Provider, simulator: Driver
) -> None:
    await provider.submit([outgoing(1)])
    await simulator.add_fault(plan, on="log")
    with pytest.raises(LogUnreachable):
        await provider.look_up([(BATCH, 1), (BATCH, 2)])


class ScriptedLog:
    """A log that answers what a test wants it to."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.query.getall("messageId"))
        return web.json_response(self.answers.pop(0))

    async def look_up(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """(sequence numbers with facts, absent ones)."""
        app = web.Application()
        app.router.add_get("/whatsapp/2/logs", self.handle)
        async with TestServer(app) as server:
            provider = open_provider("infobip", base_url=str(server.make_url("/")), api_key="key")
            try:
                found = await provider.look_up([(BATCH, seq) for seq in ids])
            finally:
                await provider.close()
        return sorted({fact.seq for fact in found.facts}), sorted(seq for _, seq in found.absent)


async def test_rows_that_fill_the_page_do_not_prove_the_others_absent() -> None:
    log = ScriptedLog({"results": [log_row(1)] * 50}, {"results": [log_row(2)]})
    assert await log.look_up([1, 2, 3]) == ([1, 2], [3])
    assert len(log.asked) == 2
    assert {key[-2:] for key in log.asked[1]} == {"-2", "-3"}


async def test_a_row_without_an_outcome_is_neither_found_nor_absent() -> None:
    log = ScriptedLog({"results": [log_row(1, 5, 23)]})
    assert await log.look_up([1, 2]) == ([], [2])


async def test_rows_that_were_not_asked_for_are_left_out() -> None:
    log = ScriptedLog({"results": [log_row(7), log_row(1)]})
    assert await log.look_up([1]) == ([1], [])


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"results": None},
        {"results": [7]},
        {"results": [log_row(1), log_row(messageId=None)]},
        {"results": [log_row(1, status=None)]},
    ],
)
async def test_a_log_that_cannot_be_read_proves_nothing(answer: object) -> None:
    with pytest.raises(LogUnreachable):
        await ScriptedLog(answer).look_up([1, 2])
