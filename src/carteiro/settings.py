"""Settings, read from CARTEIRO_* environment variables.

The fields of `Settings` are the one table of them: the variable is the field's name in capitals after CARTEIRO_,
durations are in seconds (`_s`), lists are separated by commas, booleans are `true` or `false`. docs/settings.md is
generated from here.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

PREFIX = "CARTEIRO_"
_GRAPH_VERSION = re.compile(r"v\d{1,3}\.\d{1,2}")

LogFormat = Literal["auto", "json", "console"]


class SettingsError(ValueError):
    """A variable is missing or holds something unusable; the message names it."""


def _setting(default: object, meaning: str, *, minimum: float | None = None, secret: bool = False) -> Any:
    """One row of the table. `minimum` is the smallest number accepted; without it a number must be above 0. A secret is
    not shown with the others.
    """
    return field(default=default, repr=not secret, metadata={"meaning": meaning, "minimum": minimum})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a deployment may change. Immutable; read once by the composition root."""

    database_url: str | None = _setting(
        None, "Postgres, as a URI or libpq keywords; a direct connection. `up` starts its own without it, `demo` always"
    )
    database_pooler_url: str | None = _setting(
        None,
        "the same database through a pooler in transaction mode, for `serve` (docs/scaling.md); unset: it connects "
        "directly",
    )
    pool_min_size: int = _setting(2, "connections that a process keeps open", minimum=0)
    pool_max_size: int = _setting(10, "connections that a process opens at most")

    directory_dsn: str | None = _setting(
        None,
        "Postgres with the directory of groups that broadcasts go to, a direct connection; a role that may only "
        "read is enough. Unset: the same database",
    )
    directory_schema: str = _setting("public", "schema of the directory's tables")
    directory_names: str | None = _setting(
        None, "TOML file with what the directory calls its tables and columns, where docs/broadcasts.md is not right"
    )
    directory_timeout_s: float = _setting(5.0, "how long the directory may take for a connection or an answer")

    host: str = _setting("127.0.0.1", "address that `serve` listens on")
    port: int = _setting(8000, "port that `serve` listens on")
    public_url: str = _setting("http://127.0.0.1:8000", "where providers reach this API; base of the webhook addresses")
    log_level: str = _setting("INFO", "least level that is logged: DEBUG, INFO, WARNING or ERROR")
    log_format: LogFormat = _setting("auto", "`json`, `console`, or `auto`: console on a terminal, else json")

    meta_graph_version: str = _setting(
        "v26.0", "version of Meta's Graph API, where a service's base_url does not end in one"
    )
    meta_app_secrets: tuple[str, ...] = _setting(
        (), "Meta's app secrets: a webhook signed with any of them is taken, and none without", secret=True
    )
    meta_verify_token: str | None = _setting(
        None, "what Meta's webhook is verified with when it is set up there", secret=True
    )

    window_s: float = _setting(86_400.0, "length of the sliding window of daily limits")
    bucket_s: float = _setting(60.0, "length of one bucket of that window")
    call_timeout_s: float = _setting(30.0, "total deadline of one call to a provider")
    lateness_s: float = _setting(0.05, "how late after its slot a call may start; later ones give the slot back")
    lease_s: float = _setting(
        60.0, "how long a claim is its worker's without a renewal; at least twice the deadline of a call"
    )
    lease_grace_s: float = _setting(60.0, "leases do not lapse for so long after the database was away", minimum=0)

    slice_s: float = _setting(0.25, "how far ahead one claim plans its calls")
    slice_max: int = _setting(1000, "messages in one claim at most")
    max_calls_in_flight: int = _setting(128, "calls to providers at once, per worker process")
    pump_s: float = _setting(30.0, "how long one job pumps a service before it makes room and is deferred anew")
    blackout_first_s: float = _setting(30.0, "pause of a service after 15 infrastructure failures in a row")
    blackout_longest_s: float = _setting(1_800.0, "longest such pause; it doubles after each probe that failed")
    service_window_s: float = _setting(
        86_400.0, "how long after a message an answer to it counts, and after an answer what follows may be sent"
    )
    reconcile_after_s: float = _setting(180.0, "how long an unknown outcome waits before the provider's log is asked")
    unknown_give_up_after_s: float = _setting(
        169_200.0, "an outcome still unknown after this time is given up, visibly; inside the 48 h of the log"
    )
    group_link_retry_base_s: float = _setting(
        60.0, "a group link that did not leave waits this, times its attempt (8 at most), and up to a tenth more"
    )
    reminder_deadline_s: float = _setting(10.0, "within this a reminder is sent, or it is not sent at all")
    sweep_interval_s: float = _setting(1.0, "pause between two sweeps, which re-derive all work from the tables")
    assume_delivered_after_s: float = _setting(86_400.0, "a sent message without a receipt counts as delivered then")

    sync_every_s: float = _setting(
        900.0, "how often senders, limits and templates are read from the providers; 0: never", minimum=0
    )

    retention_messages_days: float = _setting(
        90.0, "how long after its settlement a batch keeps its messages and their contents", minimum=7
    )
    retention_receipts_days: float = _setting(90.0, "how long receipts are kept, raw and merged", minimum=7)
    retention_audit_days: float = _setting(
        90.0, "how long the history of messages, and what was called back, is kept", minimum=7
    )

    group_link_retention_days: float = _setting(
        30.0, "how long group links and reminders are kept after their settlement, and their references", minimum=1
    )

    signature_ttl_s: float = _setting(300.0, "an equal batch within this time is answered with the first one")
    forbidden_utility_terms: tuple[str, ...] = _setting(
        ("promoção", "desconto", "oferta", "cupom", "liquidação"), "words that a UTILITY service refuses in a message"
    )
    stop_words: tuple[str, ...] = _setting(
        ("parar", "pare", "parar de receber", "sair", "stop", "cancelar", "descadastrar"),
        "a contact who answers with one of these, and nothing else, is suppressed; case and accents do not matter",
    )

    callback_allow_private: bool = _setting(False, "let callbacks go to private, loopback and link-local addresses")
    callback_timeout_s: float = _setting(10.0, "total deadline of one callback")
    callback_max_attempts: int = _setting(10, "tries of one callback before it is given up")

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            minimum = spec.metadata["minimum"]
            if not math.isfinite(value):
                raise SettingsError(f"{variable(spec.name)} must be finite")
            if minimum is None and not value > 0:
                raise SettingsError(f"{variable(spec.name)} must be above 0, not {value:g}")
            if minimum is not None and not value >= minimum:
                raise SettingsError(f"{variable(spec.name)} must be at least {minimum:g}, not {value:g}")
        self._in_order("pool_min_size", "pool_max_size")
        self._in_order("bucket_s", "window_s")
        if self.call_timeout_s * 2 > self.lease_s:
            # A call starts only under a lease that outlasts it, and one in use has three quarters left at least.
            raise SettingsError(f"{variable('call_timeout_s')} must not be above half of {variable('lease_s')}")
        self._in_order("call_timeout_s", "reconcile_after_s")
        self._in_order("blackout_first_s", "blackout_longest_s")
        if not _GRAPH_VERSION.fullmatch(self.meta_graph_version):
            raise SettingsError(f"{variable('meta_graph_version')} must be like v26.0")
        if self.log_level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise SettingsError(
                f"{variable('log_level')} must be DEBUG, INFO, WARNING or ERROR, not {self.log_level!r}"
            )
        address = urlsplit(self.public_url)
        if address.scheme not in {"http", "https"} or not address.hostname or self.public_url.endswith("/"):
            raise SettingsError(f"{variable('public_url')} must be http(s)://host without a slash at the end")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Read the variables; an empty one counts as unset. Raises SettingsError."""
        given = os.environ if environment is None else environment
        types = get_type_hints(cls)
        values: dict[str, Any] = {
            spec.name: _read(variable(spec.name), types[spec.name], given[variable(spec.name)])
            for spec in fields(cls)
            if given.get(variable(spec.name))
        }
        return cls(**values)

    def require_database_url(self) -> str:
        """The DSN, for commands that do not start a Postgres themselves. Raises SettingsError."""
        if self.database_url is None:
            raise SettingsError(f"{variable('database_url')} is not set: it says which Postgres to use")
        return self.database_url

    def _in_order(self, smaller: str, larger: str) -> None:
        if getattr(self, smaller) > getattr(self, larger):
            raise SettingsError(f"{variable(smaller)} must not be above {variable(larger)}")


def variable(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.upper()


def settings_page() -> str:
    """docs/settings.md."""
    rows = [f"| `{variable(spec.name)}` | {_shown(spec)} | {spec.metadata['meaning']} |" for spec in fields(Settings)]
    return "\n".join(
        [
            "# Settings",
            "",
            "Environment variables. Durations (`_S`) are in seconds, lists are separated by commas, booleans are",
            "`true` or `false`; an empty variable counts as unset. Generated from `src/carteiro/settings.py` by",
            "`make docs`.",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _shown(spec: "Field[Any]") -> str:
    match spec.default:
        case None | ():
            return "unset"
        case bool():
            return f"`{str(spec.default).lower()}`"
        case tuple():
            return f"`{','.join(spec.default)}`"
        case float():
            return f"`{spec.default:g}`"
        case _:
            return f"`{spec.default}`"


def _read(name: str, kind: Any, text: str) -> object:
    if kind is bool:
        if text not in {"true", "false"}:
            raise SettingsError(f"{name} must be true or false, not {text!r}")
        return text == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise SettingsError(f"{name} must be {'a whole' if kind is int else 'a'} number, not {text!r}") from None
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is LogFormat and text not in get_args(LogFormat):
        raise SettingsError(f"{name} must be one of {', '.join(get_args(LogFormat))}, not {text!r}")
    return text
