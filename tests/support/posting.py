"""Payloads posted as providers post them, each by itself."""

from carteiro.services.intake import Intake
from carteiro.storage.pool import Pool


async def store_payload(pool: Pool, provider: str, token: str, body: bytes) -> bool:
    return await Intake(pool).store_payload(provider, token, body)


async def store_posted(pool: Pool, provider: str, body: bytes) -> None:
    await Intake(pool).store_posted(provider, body)
