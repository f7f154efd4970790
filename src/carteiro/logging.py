"""Structured logs, one JSON object a line (or coloured text on a terminal), without phones, keys or message text.

Use `structlog.get_logger()`; the standard library's loggers come out the same way. Everything passes `redact` last,
exceptions included, so that a careless call or a database error's detail does not leak a contact.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "[redacted]"

# Fields whose value never goes out, whatever it is.
SECRET_FIELDS = frozenset(
    {
        "api_key",
        "authorization",
        "body",
        "callback_secret",
        "contact",
        "contacts",
        "content",
        "cookie",
        "database_url",
        "dsn",
        "message_text",
        "password",
        "payload",
        "phone",
        "phones",
        "placeholders",
        "recipient",
        "recipients",
        "secret",
        "text",
        "to",
        "token",
        "variables",
    }
)

# Looked for in every other string, in this order. A UUID may hold a phone's worth of digits and is kept.
_SECRETS = re.compile(
    r"""
    (?P<keep> (?<![0-9A-Za-z]) [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12} (?![0-9A-Za-z]) )
    | carteiro_live_[0-9A-Za-z_-]+                                   # API keys
    | whsec_[0-9A-Za-z+/=]+                                          # callback secrets
    | (?<=App[ ]) [0-9A-Za-z._-]{8,}                                 # Infobip's authorization
    | (?<=Bearer[ ]) [0-9A-Za-z._-]{8,}
    | (?<=://) [^\s/@:]* : [^\s/@]+ (?=@)                            # user and password in a URL
    | (?<=/webhooks/infobip/) [^\s/?"']+                             # the token of a webhook address
    | (?<=DETAIL:) .*                                                # Postgres quotes whole rows there
    | (?<![0-9A-Za-z]) \+? \d{10,15} (?![0-9A-Za-z])                 # phones
    | (?<![0-9A-Za-z]) (?:\+?55[ ]?)? \(?\d{2}\)? [ ]? 9?\d{4}[- ]\d{4} (?![0-9A-Za-z])
    """,
    re.VERBOSE,
)

# Loggers that report every request, job or connection at INFO.
_CHATTY = ("alembic", "httpcore", "httpx", "procrastinate", "psycopg.pool", "uvicorn.access")


def configure(
    level: str = "INFO", log_format: Literal["auto", "json", "console"] = "auto", stream: TextIO | None = None
) -> None:
    """Send all logs of this process to `stream` (default: standard error). Call once, when the process starts."""
    out = stream if stream is not None else sys.stderr
    console = log_format == "console" or (log_format == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer()
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _drop_colours],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _drop_colours(logger: WrappedLogger | None, method: str, event: EventDict) -> EventDict:
    """uvicorn says everything twice, once with the codes of a terminal."""
    event.pop("color_message", None)
    return event


def redact(logger: WrappedLogger | None, method: str, event: EventDict) -> EventDict:
    """structlog processor: take out secret fields, and what looks like a secret or a phone in every string."""
    return {str(name): _clean_field(str(name), value) for name, value in event.items()}


def _clean_field(name: str, value: object) -> object:
    return REDACTED if name.lower() in SECRET_FIELDS and value is not None else _clean(value)


def _clean(value: object) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _SECRETS.sub(lambda found: found["keep"] or REDACTED, value)
        case Mapping():
            return {str(name): _clean_field(str(name), item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(item) for item in value]
        case _:
            return _clean(str(value))
