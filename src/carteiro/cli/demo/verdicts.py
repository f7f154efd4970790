"""What was promised, and what speaks against it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Seen = TypeVar("Seen")

SHOWN = 3
"""Examples of one problem."""


@dataclass(frozen=True, slots=True)
class Verdict:
    promise: str
    problems: tuple[str, ...]


def judge_by(promises: Sequence[tuple[str, Callable[[Seen], Iterator[str]]]], evidence: Seen) -> list[Verdict]:
    """Every promise, with what its finder has to say. Pure."""
    return [Verdict(promise, tuple(find(evidence))) for promise, find in promises]


def judge_audit(breaches: Mapping[str, Sequence[Any]]) -> Verdict:
    """`breaches`: rows of every violation view, by its name."""
    problems = [] if breaches else ["there are no views"]
    for view, rows in breaches.items():
        problems += some(view, rows)
    return Verdict(f"audit clean: {len(breaches)} views of broken promises, all empty", tuple(problems))


def some(what: str, found: Sequence[object]) -> Iterator[str]:
    """Nothing, or one line with the first of them."""
    if found:
        rest = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield f"{what}: {', '.join(map(str, found[:SHOWN]))}{rest}"
