"""What is a stop word, and which scopes stop what."""

import pytest

from carteiro.domain.suppression import TEXT_MAX, Scope, StopWords, scopes_of
from carteiro.settings import Settings

WORDS = StopWords(["parar", "Não quero", "STOP"])


@pytest.mark.parametrize(
    "text",
    [
        "parar",
        "PARAR",
        " Parar.\n",
        "*parar*!!!",
        "nao  quero",
        "NÃO QUERO",
        "na\N{COMBINING TILDE}o quero",
        "Stop \N{OCTAGONAL SIGN}",
        "\N{FULLWIDTH LATIN SMALL LETTER S}top",
    ],
)
def test_a_stop_word_is_known_whatever_its_case_accents_and_punctuation(text: str) -> None:
    assert text in WORDS


@pytest.mark.parametrize(
    "text", ["", " ", "...", "não", "não quero parar", "parar?não", "para", "parara", "quero", "stop" + " " * TEXT_MAX]
)
def test_only_a_whole_message_is_a_stop_word(text: str) -> None:
    assert text not in WORDS


@pytest.mark.parametrize("words", [[], [""], [" ", "!"]])
def test_without_words_nothing_is_one(words: list[str]) -> None:
    assert "" not in StopWords(words)
    assert "!" not in StopWords(words)


@pytest.mark.parametrize("text", ["PARE", "Sair", "cancelar", "Descadastrar.", "Parar de receber"])
def test_the_usual_words_are_known_without_any_setting(text: str) -> None:
    assert text in StopWords(Settings().stop_words)


def test_only_marketing_is_stopped_by_both_scopes() -> None:
    assert scopes_of("MARKETING") == [Scope.ALL, Scope.MARKETING]
    assert scopes_of("UTILITY") == scopes_of("AUTHENTICATION") == scopes_of(None) == [Scope.ALL]
