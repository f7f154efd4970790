"""`carteiro docs`: the generated pages of docs/, printed. `make docs` writes them; tests/docs keeps them fresh."""

from collections.abc import Iterable

import rich_click as click

from carteiro.domain.lifecycle import ENDED, INITIAL, STATES, Edge, Machine, allowed_events, edges_of
from carteiro.settings import settings_page

INTRODUCTION = """\
# States

Every edge of the state machines, generated from `src/carteiro/domain/lifecycle.py` by `make docs`. The same table
is in Postgres (`lifecycle_edge`): the statements that move a row name an event and join it, and triggers refuse any
other edge, whoever asks. Each change appends a row to `batch_event`, `message_event` or `follow_up_event` in the same
statement.

An event is *fenced* when only the worker may cause it whose claim is the row's last one. *Only if* narrows an edge
by a fact of the row before the move: `gave_up`, its outcome had been given up and nothing else is known; `assumed`, its
delivery had only been assumed. The database checks that too.

Not here, because they move nothing: a rescheduled batch keeps its state (`batch_event` says from when to when), and an
abandoned draft is deleted.
"""

TITLES = {Machine.BATCH: "Batch", Machine.MESSAGE: "Message", Machine.FOLLOW_UP: "Follow-up"}


@click.group()
def docs() -> None:
    """Print the generated pages of the documentation."""


@docs.command()
def states() -> None:
    """docs/states.md: every state and every edge, from the lifecycle's table."""
    click.echo(states_page(), nl=False)


@docs.command()
def settings() -> None:
    """docs/settings.md: every setting, from the table in the code."""
    click.echo(settings_page(), nl=False)


def states_page() -> str:
    """docs/states.md."""
    parts = [INTRODUCTION]
    for machine in Machine:
        edges = edges_of(machine)
        parts.append(f"## {TITLES[machine]}\n")
        parts.append("```mermaid\n" + "\n".join(_diagram(machine, edges)) + "\n```\n")
        parts.append("\n".join(_states(machine)) + "\n")
        parts.append("\n".join(_edges(edges)) + "\n")
    return "\n".join(parts)


def _diagram(machine: Machine, edges: Iterable[Edge]) -> list[str]:
    """One arrow a pair of states, labelled with all events that lead along it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        for source in edge.sources:
            arrows.setdefault((source, edge.target), []).append(edge.event)
    lines = ["stateDiagram-v2", f"    [*] --> {INITIAL[machine]}"]
    lines += [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
    if machine is Machine.BATCH:
        lines += [f"    {state} --> [*]" for state in ENDED]
    return lines


def _states(machine: Machine) -> list[str]:
    rows = [(state, allowed_events(machine, state)) for state in STATES[machine]]
    return [
        "| state | what may happen to it |",
        "|---|---|",
        *(f"| `{state}` | {', '.join(f'`{event}`' for event in events) or 'nothing'} |" for state, events in rows),
    ]


def _edges(edges: Iterable[Edge]) -> list[str]:
    return [
        "| event | from | to | fenced | only if | why |",
        "|---|---|---|---|---|---|",
        *(
            f"| `{edge.event}` | {', '.join(f'`{source}`' for source in edge.sources)} | `{edge.target}` |"
            f" {'yes' if edge.fenced else ''} | {f'`{edge.only_if}`' if edge.only_if else ''} | {edge.why} |"
            for edge in edges
        ),
    ]
