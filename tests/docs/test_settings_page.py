from pathlib import Path

from carteiro.settings import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_settings_page_is_what_the_code_generates() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run `make docs`"
