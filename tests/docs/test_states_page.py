import re
from pathlib import Path

from carteiro.cli.docs import states_page
from carteiro.domain.lifecycle import EDGES, STATES

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def test_the_states_page_is_what_the_code_generates() -> None:
    assert PAGE.read_text(encoding="utf-8") == states_page(), "run `make docs`"


def test_the_page_names_every_state_and_every_event() -> None:
    named = set(re.findall(r"`(\w+)`", states_page()))
    assert {state for states in STATES.values() for state in states} <= named
    assert {edge.event for edge in EDGES} <= named


def test_the_diagrams_have_an_arrow_for_every_edge() -> None:
    arrows = {tuple(arrow) for arrow in re.findall(r"^    (\w+) --> (\w+):", states_page(), re.MULTILINE)}
    assert arrows == {(source, edge.target) for edge in EDGES for source in edge.sources}
