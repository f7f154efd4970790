"""The targets of the project, beside what one run measured. All for two cores with everything on the one machine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    what: str
    wanted: str
    measured: str
    met: bool


def judge(measured: Mapping[str, Any]) -> list[Target]:
    """Those that these entries say something about."""
    return [target for entry, judged in JUDGES.items() if entry in measured for target in judged(measured)]


def _dispatch(measured: Mapping[str, Any]) -> Iterator[Target]:
    single, together = (rounds.middle for rounds in measured["dispatch"][:2])
    yield Target(
        "two workers, 20 ms, a message a request, to the floor of two processes",
        ">= 0.8",
        f"{single.ratio:.2f}",
        single.ratio >= 0.8,
    )
    yield Target("the same with up to 100 messages a request", ">= 2", f"{together.ratio:.2f}", together.ratio >= 2)
    commits = single.ours.commits
    yield Target("commits a message at full speed", "<= 0.1", f"{commits:.3f}", commits <= 0.1)
    if "peers" in measured:
        best = measured["peers"].rates[0]
        for what, rate in (
            ("a message a request, to the best peer", measured["peers"].ours),
            ("up to 100 messages a request, to the best peer", together.ours),
        ):
            ratio = rate.per_second / best.per_second
            yield Target(f"{what} ({best.peer.name})", ">= 2.5", f"{ratio:.2f}", ratio >= 2.5)


def _creation(measured: Mapping[str, Any]) -> Iterator[Target]:
    took_s = next(made.best_s for made in measured["creation"] if made.contacts == 100_000)
    yield Target("100,000 contacts by JSON, first byte to 202", "<= 1.5 s", f"{took_s:.2f} s", took_s <= 1.5)


def _streaming(measured: Mapping[str, Any]) -> Iterator[Target]:
    stream = measured["streaming"]
    yield Target("1,000,000 contacts by NDJSON", "<= 20 s", f"{stream.seconds:.1f} s", stream.seconds <= 20)
    yield Target("largest memory of the API meanwhile", "< 300 MB", f"{stream.api_mb:.0f} MB", stream.api_mb < 300)
    least, most = stream.held_p99_ms
    yield Target("the service's lock held meanwhile, p99", "< 20 ms", f"{least:.1f} to {most:.1f} ms", most < 20)


def _receipts(measured: Mapping[str, Any]) -> Iterator[Target]:
    told = measured["receipts"]
    kept = told.rate_beside / told.rate_alone
    yield Target("statuses/s merged, 100 a request", ">= 5,000", f"{told.merged:,.0f}", told.merged >= 5_000)
    yield Target("requests/s of one status", ">= 1,500", f"{told.singles:,.0f}", told.singles >= 1_500)
    yield Target("their p99", "< 250 ms", f"{told.singles_p99_ms:.0f} ms", told.singles_p99_ms < 250)
    yield Target("of its rate dispatch keeps meanwhile", ">= 80 %", f"{100 * kept:.0f} %", kept >= 0.8)


def _claims(measured: Mapping[str, Any]) -> Iterator[Target]:
    first, *others = measured["claims"]
    for cost in others:
        ratio, most = cost.claim_ms / first.claim_ms, 1.5 if "batches" in cost.name else 1.2
        yield Target(f"a claim with {cost.name}", f"<= {most} x", f"{ratio:.2f} x", ratio <= most)


def _fairness(measured: Mapping[str, Any]) -> Iterator[Target]:
    worst_s = max(measured["fairness"].seconds)
    yield Target("a batch of ten beside a large one", "<= 2 s", f"{worst_s:.2f} s at most", worst_s <= 2)


def _idle(measured: Mapping[str, Any]) -> Iterator[Target]:
    idle = measured["idle"]
    core = max(idle.worker_core, idle.api_core)
    yield Target("of a core, idle, a process", "< 1 %", f"{100 * core:.2f} %", core < 0.01)
    yield Target("statements/s, idle, a worker", "< 5", f"{idle.statements_per_s:.1f}", idle.statements_per_s < 5)


def _transaction(measured: Mapping[str, Any]) -> Iterator[Target]:
    old = measured["transaction"]
    kept = old.rate_after / old.rate_before
    yield Target(
        "of its rate dispatch keeps beside a transaction of ten minutes", ">= 80 %", f"{100 * kept:.0f} %", kept >= 0.8
    )


def _million(measured: Mapping[str, Any]) -> Iterator[Target]:
    worst_mb = max(measured["million"].worker_mb)
    yield Target("memory of a worker that sends a million", "< 150 MB", f"{worst_mb:.0f} MB", worst_mb < 150)


JUDGES = {
    "dispatch": _dispatch,
    "creation": _creation,
    "streaming": _streaming,
    "receipts": _receipts,
    "claims": _claims,
    "fairness": _fairness,
    "idle": _idle,
    "transaction": _transaction,
    "million": _million,
}
