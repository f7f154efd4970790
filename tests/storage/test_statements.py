import pytest

from carteiro.storage.statements import StatementFileError, Statements, load, parse

TEXT = """-- What this file is about.

-- name: take_two
-- Why: 100% of the rows.
SELECT *
  -- inside
  FROM t
 WHERE a = %(a)s;

-- name: drop_one
DELETE FROM t
"""


def test_blocks_become_statements_without_comments_or_final_semicolon() -> None:
    assert parse("t", TEXT) == {"take_two": "SELECT *\n  FROM t\n WHERE a = %(a)s", "drop_one": "DELETE FROM t"}


def test_an_unknown_name_is_an_attribute_error_that_names_the_file() -> None:
    statements = Statements("t", parse("t", TEXT))
    assert statements.drop_one == "DELETE FROM t"
    with pytest.raises(AttributeError, match=r"t\.sql has no statement 'drop_two'"):
        _ = statements.drop_two


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", r"t\.sql:3: a second statement named a"),
        ("-- name: a\n-- nothing\n", "a is empty"),
        ("SELECT 1\n-- name: a\nSELECT 1", r"t\.sql:1: SQL before the first"),
        ("-- Name: a\nSELECT 1", r"t\.sql:1: write the header"),
        ("--name:a\nSELECT 1", r"t\.sql:1: write the header"),
        ("-- name: two words\nSELECT 1", r"t\.sql:1: write the header"),
    ],
)
def test_a_file_that_breaks_the_format_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(StatementFileError, match=complaint):
        parse("t", text)


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load("no_such_noun")
