import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from carteiro.logging import REDACTED, configure


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def output() -> io.StringIO:
    stream = io.StringIO()
    configure(log_format="json", stream=stream)
    return stream


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_one_json_object_a_line_with_level_time_and_logger(output: io.StringIO) -> None:
    structlog.get_logger("carteiro.worker").info("slice recorded", sent=250)
    (line,) = lines(output)
    assert line["event"] == "slice recorded"
    assert line["sent"] == 250
    assert line["level"] == "info"
    assert line["logger"] == "carteiro.worker"
    assert line["timestamp"].endswith("Z")


def test_standard_library_loggers_come_out_the_same_way(output: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("started on %s", "127.0.0.1", extra={"port": 8000})
    (line,) = lines(output)
    assert (line["event"], line["port"], line["level"]) == ("started on 127.0.0.1", 8000, "warning")


def test_loggers_that_report_every_call_are_quiet(output: io.StringIO) -> None:
    for name in ("httpx", "procrastinate.worker", "uvicorn.access", "psycopg.pool"):
        logging.getLogger(name).info("one of thousands")
    assert output.getvalue() == ""


@pytest.mark.parametrize("field", ["phone", "to", "text", "placeholders", "api_key", "Authorization", "body"])
def test_secret_fields_lose_their_value_at_any_depth(output: io.StringIO, field: str) -> None:
    structlog.get_logger().info("event", **{field: "anything"}, nested=[{field: {"deep": "anything"}}])
    assert "anything" not in output.getvalue()
    assert lines(output)[0]["nested"] == [{field: REDACTED}]


@pytest.mark.parametrize(
    "secret",
    [
        "5511987654321",
        "+5511987654321",
        "551187654321",
        "11987654321",
        "+55 (11) 98765-4321",
        "(11) 8765-4321",
        "carteiro_live_01jx2_Zm9vYmFyYmF6cXV4",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ],
)
def test_phones_and_keys_are_taken_out_of_any_string(output: io.StringIO, secret: str) -> None:
    logger = structlog.get_logger()
    logger.info(f"to={secret}, refused", note=f"'{secret}'", many=(secret,), error=ValueError(f"bad: {secret}"))
    assert secret not in output.getvalue()
    assert lines(output)[0]["event"] == f"to={REDACTED}, refused"


def test_credentials_in_headers_and_addresses_are_taken_out(output: io.StringIO) -> None:
    logger = structlog.get_logger()
    logger.info("App 0123456789abcdef0123456789abcdef-01234567-89ab")
    logger.info("Bearer abcdef0123456789")
    logger.info("postgresql://carteiro:hunter2@db.internal:5432/carteiro")
    logger.info("POST /webhooks/infobip/s3cr3t-token?x=1")
    events = [line["event"] for line in lines(output)]
    assert events == [
        f"App {REDACTED}",
        f"Bearer {REDACTED}",
        f"postgresql://{REDACTED}@db.internal:5432/carteiro",
        f"POST /webhooks/infobip/{REDACTED}?x=1",
    ]


def test_an_exception_keeps_its_traceback_and_loses_its_phones(output: io.StringIO) -> None:
    try:
        raise ValueError("duplicate key\nDETAIL:  Failing row contains (Maria, Olá Maria).\nphone 5511987654321")
    except ValueError:
        structlog.get_logger().exception("not recorded")
    (line,) = lines(output)
    assert "Traceback" in line["exception"]
    assert "duplicate key" in line["exception"]
    assert "Maria" not in line["exception"]
    assert "5511987654321" not in line["exception"]


def test_identifiers_times_and_counts_stay_readable(output: io.StringIO) -> None:
    kept: dict[str, Any] = {
        "batch_id": "01993c5e-1234-7000-8000-123456789012",
        "message_key": "01993c5e1234700080001234567890ab-17",
        "at": "2026-11-29T15:10:00.123456+00:00",
        "total": 1_000_000,
        "took_s": 0.25,
        "retried": True,
        "blocked_by": None,
    }
    structlog.get_logger().info("event", **kept)
    assert {name: lines(output)[0][name] for name in kept} == kept


def test_on_a_terminal_lines_are_for_people() -> None:
    stream = io.StringIO()
    configure(log_format="console", stream=stream)
    structlog.get_logger().info("sent to 5511987654321")
    assert "sent to [redacted]" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
