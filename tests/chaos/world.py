"""What a run is tried in: limits, rates, timers and load."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from carteiro.cli.stack import DIRECTORY_SCHEMA
from tests.support import factories
from tests.support.stack import SHORT, window

ACCOUNT = factories.ACCOUNT
SERVICES = {"acme-utility": "sent_only", "acme-full": "full"}
"""One for each charge rule."""
META_SERVICE = "acme-meta"
DOOR_SERVICES: dict[str, dict[str, Any]] = {
    META_SERVICE: {"provider": "meta", "charge_rule": "sent_only"},
    "acme-broadcasts": {"provider": "meta", "kind": "broadcast", "charge_rule": "free"},
    "acme-links": {"provider": "infobip", "kind": "group_link", "flow": "personal", "charge_rule": "free"},
    "acme-links-meta": {"provider": "meta", "kind": "group_link", "flow": "business", "charge_rule": "free"},
}
"""Beside these, where all doors are open: bulk by Meta, and the free ones."""
MANAGERS = ("acme-bm1", "acme-bm2", "acme-bm3", "acme-bm4")
SENDERS_EACH = 2
CREDITS = 100_000

LATENCY_MS, JITTER_MS = 30, 30

DOOR_SETTINGS = {
    "CARTEIRO_DIRECTORY_SCHEMA": DIRECTORY_SCHEMA,
    "CARTEIRO_META_APP_SECRETS": "simulated-app-secret",
    "CARTEIRO_UNKNOWN_GIVE_UP_AFTER_S": "20",
    "CARTEIRO_GROUP_LINK_RETRY_BASE_S": "0.5",
    "CARTEIRO_REMINDER_DEADLINE_S": "2",
}
"""An unknown outcome is given up after any report of it has come."""


def _limits() -> dict[str, int]:
    return dict.fromkeys(MANAGERS, 200)


@dataclass(frozen=True, kw_only=True)
class World:
    """Timers are scaled down, so that what takes a day in production happens several times in a run.

    A business manager that is not in `manager_limits` has no limit. `sender_limits`: of each sender of a business
    manager, its own; where there is none only the business manager's counts.
    """

    apis: int = 2
    workers: int = 4
    window_s: float = 20.0
    bucket_s: float = 0.2
    manager_limits: Mapping[str, int] = field(default_factory=_limits)
    sender_limits: Mapping[str, int] = field(default_factory=lambda: {"acme-bm4": 70})
    rate_per_s: int = 40
    """Of each service. Together they could send more in a window than the limits allow."""
    messages_per_request: int = 1
    call_timeout_s: float = 0.5
    lateness_s: float = 0.15
    lease_s: float = 3.0

    messages_per_s: float = 45.0
    """What clients post."""
    sizes: tuple[int, ...] = (1, 3, 10, 25, 25, 60, 60, 120)
    doors: bool = False
    """Broadcasts, group links and reminders beside the batches; batches by Meta, and some that follow up answers."""
    plain: bool = False
    """Batches that may spill and have no other option."""
    orders_every_s: tuple[float, float] | None = (0.2, 1.0)
    """How often a batch is paused or cancelled, at random. None: never."""
    cancels: float = 0.25
    """Part of these orders that are cancellations."""

    @property
    def settings(self) -> dict[str, str]:
        return {
            **SHORT,
            **window(self.window_s, self.bucket_s),
            "CARTEIRO_CALL_TIMEOUT_S": str(self.call_timeout_s),
            "CARTEIRO_LATENESS_S": str(self.lateness_s),
            "CARTEIRO_LEASE_S": str(self.lease_s),
            "CARTEIRO_BLACKOUT_LONGEST_S": "4",
            "CARTEIRO_ASSUME_DELIVERED_AFTER_S": "30",
            "CARTEIRO_CALLBACK_TIMEOUT_S": "1",
            **(DOOR_SETTINGS if self.doors else {}),
        }

    @property
    def services(self) -> list[str]:
        """Those that batches are posted for."""
        return [*SERVICES, META_SERVICE] if self.doors else list(SERVICES)

    @property
    def total_rate_per_s(self) -> int:
        return self.rate_per_s * len(SERVICES)

    def catalog(self, base_url: str) -> str:
        """One account with a service for each charge rule, and a template that all business managers have approved."""
        tables = [_table("account", id=ACCOUNT)]
        tables.append(_table("template", name=factories.TEMPLATE, category="UTILITY", body=factories.BODY))
        fields = {
            **factories.SERVICE_FIELDS,
            "base_url": base_url,
            "messages_per_second": self.rate_per_s,
            "messages_per_request": self.messages_per_request,
        }
        for service, rule in SERVICES.items():
            tables.append(_table("service", id=service, account=ACCOUNT, charge_rule=rule, **fields))
        for service, own_fields in DOOR_SERVICES.items() if self.doors else ():
            tables.append(_table("service", **{**fields, "id": service, "account": ACCOUNT, **own_fields}))
        for number, manager in enumerate(MANAGERS, 1):
            limit = self.manager_limits.get(manager)
            tables.append(_table("business_manager", id=manager, **({} if limit is None else {"daily_limit": limit})))
            own = self.sender_limits.get(manager)
            for place in range(1, SENDERS_EACH + 1 + self.doors):
                limited: dict[str, Any] = {"use_waba_limit": True} if own is None else {"daily_limit": own}
                sender = factories.sender_id(number, place)
                if place > SENDERS_EACH:
                    limited |= {"phone_number_id": factories.number_id(sender), "waba_id": factories.waba_id(manager)}
                tables.append(_table("sender", id=sender, business_manager=manager, accounts=[ACCOUNT], **limited))
            tables.append(
                _table(
                    "submission",
                    template=factories.TEMPLATE,
                    business_manager=manager,
                    physical_name=f"{factories.TEMPLATE}_v{number}",
                    status="APPROVED",
                )
            )
        return "\n\n".join(tables) + "\n"


def _table(kind: str, /, **fields: Any) -> str:
    return "\n".join([f"[[{kind}]]", *(f"{key} = {_value(given)}" for key, given in fields.items())])


def _value(given: Any) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, list):
        return f"[{', '.join(map(_value, given))}]"
    return str(given) if isinstance(given, int) else f'"{given}"'


USUAL = World()
