"""`/api/v1/credits` and `/api/v1/capacity`: what the account may spend."""

from typing import Any

from litestar import Controller, get
from litestar.params import FromQuery

from carteiro.api import pagination
from carteiro.api.context import ApiRequest, context_of
from carteiro.api.operations import CURSOR, LIMIT, LimitQuery, Operation
from carteiro.api.schemas import Balance, Capacity, LedgerEntry, ManagerRoom, Page
from carteiro.services import accounts, reading


class SpendingController(Controller):
    @get(
        "/capacity",
        opt={
            "operation": Operation(
                id="getCapacity",
                summary="Daily capacity per business manager",
                scope="capacity:read",
                answers={200: (Capacity, "What the account's senders may still send.")},
            )
        },
    )
    async def capacity(self, request: ApiRequest) -> Capacity:
        context = context_of(request)
        rooms = await reading.read_capacity(context.pool, request.auth.account_id, context.settings)
        known = [room.available for room in rooms if room.available is not None]
        return Capacity(
            available=sum(known) if len(known) == len(rooms) else None,
            business_managers=[ManagerRoom.of(room) for room in rooms],
        )

    @get(
        "/credits",
        opt={
            "operation": Operation(
                id="getCredits",
                summary="Balance of the account that pays",
                scope="credits:read",
                answers={200: (Balance, "The balance.")},
            )
        },
    )
    async def credits(self, request: ApiRequest) -> Balance:
        return Balance.of(await accounts.read_credits(context_of(request).pool, request.auth.account_id))

    @get(
        "/credits/entries",
        opt={
            "operation": Operation(
                id="listCreditEntries",
                summary="What moved the balance, newest first",
                description="Of another account's credits only what this account's batches moved.",
                scope="credits:read",
                parameters=(LIMIT, CURSOR),
                answers={200: (Page[LedgerEntry], "A page of entries.")},
            )
        },
    )
    async def entries(
        self, request: ApiRequest, limit: LimitQuery = 50, cursor: FromQuery[str | None] = None
    ) -> Page[Any]:
        found = await accounts.read_entries(
            context_of(request).pool,
            account_id=request.auth.account_id,
            billing_account_id=request.auth.billing_account_id,
            before_id=pagination.decode(cursor, int),
            limit=limit + 1,
        )
        rows, following = pagination.next_cursor(found, limit, lambda entry: entry.id)
        items = [
            LedgerEntry(row.id, row.at, row.kind, row.amount, row.balance_after, row.cause, row.batch_id)
            for row in rows
        ]
        return Page(items, following)
