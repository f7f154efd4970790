"""Faults of the provider: what the simulator is told to do wrong for a while."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from tests.chaos.fault import Fault, Record
from tests.chaos.rig import Rig


class ProviderFault(Fault):
    """Faults of the simulator, in force for a while and lifted for a while."""

    every_s = (0.5, 2.0)
    lasts_s: ClassVar[tuple[float, float]] = (2.0, 6.0)

    def plans(self) -> Sequence[dict[str, Any]]:
        """The first that strikes a call counts."""
        raise NotImplementedError

    def judge(self, record: Record) -> Iterable[str]:
        yield from super().judge(record)
        struck = sum(call.answer != "200" for call in record.evidence.arrivals)
        self.did["calls struck"] = max(struck, self.did["calls struck"])
        if not struck:
            yield f"{self.name} struck no call"

    async def strike(self, rig: Rig) -> None:
        for plan in self.plans():
            await rig.simulator.fault(**plan)
        self.did[f"{self.name} times"] += 1
        await self.rest(*self.lasts_s)
        await rig.simulator.clear_faults()


class Outage(ProviderFault):
    name = "outage"
    does = "the provider refuses or resets everything, its log too, and recovers"

    def plans(self) -> Sequence[dict[str, Any]]:
        down = self.random.choice(
            [
                {"answer": "reset"},
                {"answer": "http", "http_status": 503, "envelope": "newer"},
                {"answer": "http", "http_status": 502, "envelope": "none"},
            ]
        )
        return [{"plan": down}, {"plan": down, "on": "log"}]


class Throttle(ProviderFault):
    name = "throttle"
    does = "a storm of 429, with Retry-After in seconds, as a date, 0 and absent"

    def plans(self) -> Sequence[dict[str, Any]]:
        plan = {"answer": "http", "http_status": 429}
        return [
            {"plan": plan | {"retry_after": after}, "probability": 0.4}
            for after in self.random.sample(["1", "0", "date+1", None], 3)
        ]


RESETS: list[dict[str, Any]] = [
    {"plan": {"answer": "reset", "accept": True}, "probability": 0.15},
    {"plan": {"answer": "close", "accept": True, "log_lag_ms": 1_000}, "probability": 0.1},
    {
        "plan": {"answer": "http", "http_status": 504, "envelope": "none", "accept": True, "receipt": "none"},
        "probability": 0.1,
    },
    {"plan": {"answer": "reset"}, "probability": 0.1},
]


_HTTP: dict[str, Any] = {"answer": "http"}
ERRORS: list[dict[str, Any]] = [
    _HTTP | {"http_status": 429, "retry_after": "1"},
    _HTTP | {"http_status": 500},
    _HTTP | {"http_status": 503, "envelope": "newer"},
    _HTTP | {"http_status": 502, "envelope": "none", "accept": True},
    _HTTP | {"http_status": 504, "envelope": "none"},
    {"answer": "reject", "status_id": 21},
    {"answer": "reject", "status_id": 52},
    {"answer": "reset", "accept": True},
    {"answer": "close", "accept": True},
    {"answer": "hang", "accept": True},
    {"answer": "hang"},
    {"answer": "garbage", "accept": True},
    {"answer": "no_row", "accept": True},
    {"status_id": 4, "error_id": 7002},
    {"receipt": "repeat"},
    {"receipt": "reorder"},
    {"receipt": "early"},
    {"receipt": "spoilt"},
    {"receipt": "contradict"},
]


class Resets(ProviderFault):
    name = "resets"
    does = "connections end without an answer; most messages were taken, some not; the log lags, reports are missing"
    lasts_s = (4.0, 8.0)

    def plans(self) -> Sequence[dict[str, Any]]:
        return RESETS


class Silence(ProviderFault):
    name = "silence"
    does = "calls that are never answered: some were taken, some were not"

    def plans(self) -> Sequence[dict[str, Any]]:
        return [
            {"plan": {"answer": "hang", "accept": True}, "probability": 0.3},
            {"plan": {"answer": "hang"}, "probability": 0.3},
        ]


class LogDown(ProviderFault):
    name = "log-down"
    does = "lost answers while the provider's log is unreachable"

    def plans(self) -> Sequence[dict[str, Any]]:
        down = self.random.choice([{"answer": "http", "http_status": 503}, {"answer": "hang"}, {"answer": "reset"}])
        return [*RESETS, {"plan": down, "on": "log"}]


class Errors(ProviderFault):
    name = "errors"
    does = "every wrong answer that there is, now and then: refusals, errors in each envelope, what cannot be read"

    def plans(self) -> Sequence[dict[str, Any]]:
        return [{"plan": plan, "probability": 0.02} for plan in ERRORS]
