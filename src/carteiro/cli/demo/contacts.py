"""The demo's contacts: made up, always the same, in a CSV file as an operation would have it."""

import csv
import random
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from carteiro.domain.phones import Phone, parse

SEED = 2026
AREAS = ("11", "21", "27", "31", "41", "48", "51", "61", "62", "71", "81", "85", "91", "92")
NAMES = ("Ana", "Bruno", "Carla", "Davi", "Elisa", "Fábio", "Gabriela", "Heitor", "Inês", "João", "Kátia", "Luís")
FAILING_SUFFIX = "9951"
"""Numbers that end so are accepted by the simulator, and reported as "not on WhatsApp" afterwards."""
FAILING_EVERY = 80
MAGIC = "99"
"""All numbers whose last four digits begin so make the simulator do something special."""


@dataclass(frozen=True, slots=True)
class DemoContact:
    phone: str
    """As an operation writes it, in one of several spellings."""
    name: str
    order: str

    @property
    def address(self) -> str:
        """E.164 digits, as the provider gets them."""
        phone = parse(self.phone)
        assert isinstance(phone, Phone), self.phone
        return phone.address

    @property
    def placeholders(self) -> tuple[str, str]:
        return self.name, self.order

    @property
    def fails(self) -> bool:
        return self.address.endswith(FAILING_SUFFIX)

    def as_json(self) -> dict[str, Any]:
        """As a batch's request has it."""
        return {"phone": self.phone, "placeholders": list(self.placeholders)}


def make_contacts(count: int) -> list[DemoContact]:
    """The first `count` of them. No phone twice; one in eighty will fail."""
    chance = random.Random(SEED)
    taken: set[str] = set()
    contacts: list[DemoContact] = []
    while len(contacts) < count:
        number = len(contacts)
        area, prefix = chance.choice(AREAS), f"9{chance.randrange(6000, 10_000)}"
        suffix = f"{chance.randrange(10_000):04d}"
        if number % FAILING_EVERY == FAILING_EVERY // 2:
            suffix = FAILING_SUFFIX
        elif suffix.startswith(MAGIC):
            continue
        phone = f"+55{area}{prefix}{suffix}"
        if phone in taken:
            continue
        taken.add(phone)
        spelling = f"({area}) {prefix}-{suffix}" if number % 3 == 1 else phone
        contacts.append(DemoContact(spelling, chance.choice(NAMES), f"{10_000 + number}"))
    return contacts


def write_csv(path: Path, contacts: list[DemoContact]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(DemoContact)])
        writer.writeheader()
        writer.writerows(asdict(contact) for contact in contacts)


def read_csv(path: Path) -> list[DemoContact]:
    with path.open(newline="", encoding="utf-8") as file:
        return [DemoContact(**row) for row in csv.DictReader(file)]
