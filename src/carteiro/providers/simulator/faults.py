"""Faults: what goes wrong, for which calls, how often."""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

import msgspec

from carteiro.providers.simulator.magic import MAGIC, Magic
from carteiro.providers.simulator.plan import Plan

Door = Literal["send", "log", "states", "callback"]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A plan, and the calls it is for. Filters that are not given match everything."""

    plan: Plan
    on: Door = "send"
    calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """For the next so many matching calls. None: until it is deleted."""
    probability: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Of each matching call, drawn by the seed; a call that is spared does not count."""
    to: str | None = None
    """The recipient's last digits."""
    sender: str | None = None
    template: str | None = None
    id: int = 0
    """Given by the book."""

    def matches(self, to: str, sender: str, template: str) -> bool:
        return (
            (self.to is None or to.endswith(self.to))
            and (self.sender is None or sender == self.sender)
            and (self.template is None or template == self.template)
        )


class FaultBook:
    """The faults in force, in the order they were added: the first that matches a call strikes it, and no other."""

    def __init__(self, seed: int) -> None:
        self.reset(seed)

    def reset(self, seed: int) -> None:
        self._random = Random(seed)
        self._faults: list[Fault] = []
        self._struck: set[str] = set()
        self._last_id = 0

    def add(self, faults: Sequence[Fault]) -> list[int]:
        for fault in faults:
            self._last_id += 1
            fault.id = self._last_id
            self._faults.append(fault)
        return [fault.id for fault in faults]

    def remove(self, fault_id: int | None = None) -> int:
        """Remove one, or all of them; how many went."""
        kept = [fault for fault in self._faults if fault_id is not None and fault.id != fault_id]
        removed = len(self._faults) - len(kept)
        self._faults = kept
        return removed

    @property
    def faults(self) -> Sequence[Fault]:
        return self._faults

    def pick(self, door: Door, to: str = "", sender: str = "", template: str = "") -> Plan | None:
        """What is to go wrong with this call; a fault for the next n calls counts it."""
        for fault in self._faults:
            if fault.on == door and fault.matches(to, sender, template) and self._strikes(fault):
                return fault.plan
        return None

    def pick_magic(self, to: str, *, is_meta: bool = False) -> Plan | None:
        """What the recipient's last four digits ask for."""
        magic = MAGIC.get(to[-4:])
        if magic is None or self._is_spent(magic, to):
            return None
        return magic.meta if is_meta and magic.meta is not None else magic.plan

    def _strikes(self, fault: Fault) -> bool:
        if fault.probability < 1 and self._random.random() >= fault.probability:
            return False
        if fault.calls is not None:
            fault.calls -= 1
            if fault.calls == 0:
                self._faults = [other for other in self._faults if other is not fault]
        return True

    def _is_spent(self, magic: Magic, to: str) -> bool:
        if not magic.once:
            return False
        spent = to in self._struck
        self._struck.add(to)
        return spent
