"""API keys: their form, and who gets in."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carteiro.domain.errors import Unauthorized
from carteiro.services import api_keys
from carteiro.services.api_keys import ALPHABET, authenticate, generate, parse
from carteiro.storage.pool import Pool
from tests.support.factories import add_account, value


def test_a_key_has_an_id_and_a_secret() -> None:
    id, key = generate()
    assert key.startswith(f"carteiro_live_{id}_")
    assert len(key) == len("carteiro_live_") + 12 + 1 + 43 + 6
    parsed = parse(key)
    assert parsed is not None
    assert parsed[0] == id


@given(place=st.integers(0, 61), character=st.sampled_from(ALPHABET))
def test_one_wrong_character_is_told_without_the_database(place: int, character: str) -> None:
    _, key = generate()
    place += len("carteiro_live_")
    if key[place] in ("_", character):
        return
    assert parse(key[:place] + character + key[place + 1 :]) is None


@pytest.mark.parametrize("key", ["", "carteiro_live_", "carteiro_live_abc_def", "sk_live_1", "ç" * 80])
def test_anything_else_is_no_key(key: str) -> None:
    assert parse(key) is None


async def test_a_key_lets_its_account_in_with_its_scopes(pool: Pool) -> None:
    await add_account(pool, bills_to="payer")
    key = await api_keys.create(pool, "acme", scopes=("batches:read",), name="reports")
    found = await authenticate(pool, key)
    assert (found.account_id, found.billing_account_id, found.scopes) == ("acme", "payer", {"batches:read"})
    assert found.actor == f"key:{found.key_id}"
    assert found.owner_id is None
    assert (found.may("batches:read"), found.may("batches:write"), found.may("broadcast:read")) == (True, False, False)
    sends = await authenticate(pool, await api_keys.create(pool, "acme", scopes=("broadcast:send",), owner_id="ana"))
    assert (sends.owner_id, sends.may("broadcast:read"), sends.may("batches:read")) == ("ana", True, False)
    assert key.rsplit("_", 1)[1] not in await value(pool, "SELECT api_key::text FROM api_key")


async def test_a_revoked_key_is_refused_from_the_next_request_on(pool: Pool) -> None:
    await add_account(pool)
    key = await api_keys.create(pool, "acme", scopes=api_keys.SCOPES)
    id = (await authenticate(pool, key)).key_id
    assert await api_keys.revoke(pool, id)
    assert not await api_keys.revoke(pool, id)
    with pytest.raises(Unauthorized):
        await authenticate(pool, key)


async def test_an_expired_key_is_refused(pool: Pool) -> None:
    await add_account(pool)
    past = datetime.now(UTC) - timedelta(seconds=1)
    key = await api_keys.create(pool, "acme", scopes=api_keys.SCOPES, expires_at=past)
    with pytest.raises(Unauthorized):
        await authenticate(pool, key)


async def test_a_well_formed_key_with_another_secret_is_refused(pool: Pool) -> None:
    await add_account(pool)
    id = (await authenticate(pool, await api_keys.create(pool, "acme", scopes=api_keys.SCOPES))).key_id
    other = generate()[1]
    body = f"carteiro_live_{id}{other[len('carteiro_live_') + 12 : -6]}"
    with pytest.raises(Unauthorized, match="unknown"):
        await authenticate(pool, body + api_keys._check(body))


async def test_the_last_use_is_noted_once_a_minute(pool: Pool) -> None:
    await add_account(pool)
    key = await api_keys.create(pool, "acme", scopes=api_keys.SCOPES)
    assert await value(pool, "SELECT last_used_at FROM api_key") is None
    await authenticate(pool, key)
    first = await value(pool, "SELECT last_used_at FROM api_key")
    await authenticate(pool, key)
    assert await value(pool, "SELECT last_used_at FROM api_key") == first
    async with pool.connection() as conn:
        await conn.execute("UPDATE api_key SET last_used_at = last_used_at - interval '61 s'")
    await authenticate(pool, key)
    assert await value(pool, "SELECT last_used_at FROM api_key") >= first


async def test_a_key_needs_an_account_and_known_scopes(pool: Pool) -> None:
    with pytest.raises(LookupError):
        await api_keys.create(pool, "nobody", scopes=api_keys.SCOPES)
    with pytest.raises(ValueError, match="scopes are some of"):
        await api_keys.create(pool, "nobody", scopes=("everything",))


async def test_keys_are_listed_by_account(pool: Pool) -> None:
    await add_account(pool, bills_to="payer")
    for account in ("acme", "payer"):
        await api_keys.create(pool, account, scopes=api_keys.SCOPES)
    assert [key.account_id for key in await api_keys.read_list(pool, "payer")] == ["payer"]
    assert len(await api_keys.read_list(pool)) == 2
