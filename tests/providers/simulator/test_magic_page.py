from pathlib import Path

from carteiro.providers.simulator.magic import magic_table

PAGE = Path(__file__).parents[3] / "docs" / "simulator.md"


def test_the_page_shows_the_table_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text.partition("<!-- magic:begin -->\n")[2].partition("\n<!-- magic:end -->")[0]
    assert shown == magic_table(), "put magic_table() between the marks in docs/simulator.md"
