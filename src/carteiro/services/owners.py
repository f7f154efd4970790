"""Whose it is what a provider tells: by the address that it posts to, else by the number or account that it names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from carteiro.domain.outcomes import Parsed
from carteiro.storage import receipts, sync
from carteiro.storage.pool import Connection
from carteiro.storage.receipts import Payload


@dataclass(frozen=True, slots=True)
class Owners:
    """Names are the provider's; what is missing is nobody's here."""

    numbers: dict[str, list[str]] = field(default_factory=dict)
    """Number -> accounts that send from it."""
    managers: dict[str, list[str]] = field(default_factory=dict)
    """The provider's account -> business managers of its senders."""

    def accounts_of(self, payload: Payload, number: str | None) -> Sequence[str]:
        """The accounts that something told under a number concerns."""
        if payload.account_id is not None:
            return [payload.account_id]
        return self.numbers.get(number, []) if number is not None else []


async def find_owners(conn: Connection, read: Iterable[Parsed]) -> Owners:
    """Of everything that is named in these payloads and came to no account's own address."""
    numbers: set[str | None] = set()
    accounts: set[str | None] = set()
    for parsed in read:
        numbers |= {fact.via for fact in parsed.facts} | {fact.via for fact in parsed.foreign}
        numbers |= {inbound.sender for inbound in parsed.inbound} | {told.sender for told in parsed.preferences}
        accounts |= {state.account for state in parsed.templates} | {state.account for state in parsed.accounts}
        accounts |= {notice.account for notice in parsed.notices}
    named = sorted(number for number in numbers if number is not None)
    of_accounts = sorted(account for account in accounts if account is not None)
    return Owners(await receipts.read_numbers(conn, named), await sync.managers_of_accounts(conn, of_accounts))
