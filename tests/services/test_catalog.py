"""The catalog file: read strictly, applied once, shown first."""

import pytest

from carteiro.services.catalog import CatalogError, apply_catalog, read_catalog
from carteiro.storage.pool import Pool
from tests.support import factories
from tests.support.factories import catalog_text, value


def lines(changes: list[object]) -> list[str]:
    return [line for change in changes for line in change.lines()]  # type: ignore[attr-defined]


async def test_applying_makes_the_rows_and_what_dispatch_needs_beside_them(pool: Pool) -> None:
    changes = await apply_catalog(pool, catalog_text(bms=2, senders_per_bm=2, sender_limit=100))
    assert lines(changes)[:3] == ["+ account acme", "+ service acme-utility", "+ business_manager acme-bm1"]
    assert await value(pool, "SELECT count(*) FROM sender s JOIN sender_account a ON a.sender_id = s.id") == 4
    assert await value(pool, "SELECT count(*) FROM submission s JOIN template t USING (signature)") == 2
    assert await value(pool, "SELECT count(*) FROM capacity_meter") == 6
    assert await value(pool, "SELECT count(*) FROM pace_meter") == 7
    assert await value(pool, "SELECT count(*) FROM service_health") == 1
    assert await value(pool, "SELECT callback_secret LIKE 'whsec\\_%%' FROM account")
    assert await value(pool, "SELECT length(webhook_token) FROM service") == 32


async def test_applying_twice_changes_nothing(pool: Pool) -> None:
    text = catalog_text(bms=3, bills_to="payer")
    await apply_catalog(pool, text)
    secrets = "SELECT (webhook_token, callback_secret)::text FROM service, account WHERE account.id = 'acme'"
    before = await value(pool, secrets)
    assert await apply_catalog(pool, text) == []
    assert await value(pool, secrets) == before


async def test_a_dry_run_shows_and_changes_nothing(pool: Pool) -> None:
    assert await apply_catalog(pool, catalog_text(), dry_run=True)
    assert await value(pool, "SELECT count(*) FROM account") == 0


async def test_a_change_is_shown_field_by_field(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text())
    changes = await apply_catalog(pool, catalog_text(messages_per_second=100, max_inflight=1))
    assert lines(changes) == [
        "~ service acme-utility",
        "    messages_per_second: 80 -> 100",
        "    max_inflight: none -> 1",
    ]
    assert await value(pool, "SELECT messages_per_second FROM service") == 100


async def test_changing_a_template_changes_its_signature_and_that_of_its_copies(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text())
    before = await value(pool, "SELECT signature FROM template")
    changes = await apply_catalog(pool, catalog_text(body="Outra coisa {{1}}."))
    assert "    body: Ola {{1}}, pedido {{2}} saiu. -> Outra coisa {{1}}." in lines(changes)
    assert await value(pool, "SELECT signature FROM template") != before
    assert await value(pool, "SELECT count(*) FROM submission s JOIN template t USING (signature)") == 1


async def test_a_copy_with_members_of_its_own_has_a_signature_of_its_own(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text() + 'body = "Ola {{1}}."\n')
    assert await value(pool, "SELECT count(*) FROM submission s JOIN template t USING (signature)") == 0


async def test_a_copy_that_differs_only_in_words_that_do_not_count_is_equal(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text() + 'footer = "Acme"\n')
    assert await value(pool, "SELECT count(*) FROM submission s JOIN template t USING (signature)") == 1


async def test_what_vanished_is_deactivated_where_it_is_referred_to_and_deleted_where_not(pool: Pool) -> None:
    await factories.add_account(pool, credits=5, bms=2)
    await factories.add_batch(pool)
    changes = await apply_catalog(pool, '[[account]]\nid = "acme"\n')
    assert [line for line in lines(changes) if line.startswith("-")] == lines(changes)
    assert await value(pool, "SELECT array_agg(DISTINCT active) FROM service") == [False]
    assert await value(pool, "SELECT array_agg(DISTINCT active) FROM business_manager") == [False]
    assert await value(pool, "SELECT array_agg(DISTINCT active) FROM sender") == [False]
    assert await value(pool, "SELECT count(*) FROM template") == 0
    assert await value(pool, "SELECT count(*) FROM submission") == 0
    assert await apply_catalog(pool, '[[account]]\nid = "acme"\n') == []


async def test_what_comes_back_is_active_again(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text())
    await apply_catalog(pool, '[[account]]\nid = "acme"\n')
    await apply_catalog(pool, catalog_text())
    assert await value(pool, "SELECT array_agg(DISTINCT active) FROM sender") == [True]


async def test_an_account_that_vanished_stays_with_its_money(pool: Pool) -> None:
    await factories.add_account(pool, credits=5)
    assert await apply_catalog(pool, "") != []
    assert await value(pool, "SELECT balance FROM account") == 5


async def test_what_the_provider_taught_about_a_sender_stays_unless_the_file_says_otherwise(pool: Pool) -> None:
    await apply_catalog(pool, catalog_text())
    async with pool.connection() as conn:
        await conn.execute("UPDATE sender SET quality = 'LOW', status = 'STOPPED'")
    assert await apply_catalog(pool, catalog_text()) == []
    said = catalog_text().replace("use_waba_limit", 'status = "ACTIVE"\nuse_waba_limit')
    assert lines(await apply_catalog(pool, said)) == [
        f"~ sender {factories.sender_id(1)}",
        "    status: STOPPED -> ACTIVE",
    ]
    assert await value(pool, "SELECT (quality, status)::text FROM sender") == "(LOW,ACTIVE)"


async def test_a_sender_can_lose_an_account(pool: Pool) -> None:
    text = catalog_text() + '\n[[account]]\nid = "other"\n'
    await apply_catalog(pool, text.replace('accounts = ["acme"]', 'accounts = ["acme", "other"]'))
    await apply_catalog(pool, text.replace('accounts = ["acme"]', 'accounts = ["other"]'))
    assert await value(pool, "SELECT array_agg(account_id) FROM sender_account") == ["other"]


def two_broadcast_services(*, active: bool) -> str:
    second = {**factories.SERVICE_FIELDS, "id": "second", "account": "acme", "kind": "broadcast", "active": active}
    return catalog_text(kind="broadcast") + factories.toml("service", second)


def test_a_second_service_for_broadcasts_may_wait_in_the_file() -> None:
    assert len(read_catalog(two_broadcast_services(active=False))["service"]) == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[service]\n", "not TOML"),
        ("[[servic]]\nid = 1\n", "[[servic]]: there is no such table"),
        ('[account]\nid = "acme"\n', "account: write each entry as a [[account]] of its own"),
        (
            catalog_text(charge_rule="half"),
            "[[service]] #1 acme-utility: charge_rule: Invalid enum value 'half'",
        ),
        (
            catalog_text(colour="red"),
            "[[service]] #1 acme-utility: Object contains unknown field `colour`",
        ),
        (catalog_text(messages_per_second=0), "[[service]] #1 acme-utility: messages_per_second: Expected `int` >= 1"),
        (
            catalog_text(body="Ola {{nome}} {{1}}."),
            "[[template]] #1 order_update: body: placeholders are numbered, or named",
        ),
        (catalog_text() + "[[account]]\n", "[[account]] #2: Object missing required field `id`"),
        (catalog_text() + catalog_text(), "[[account]] acme: given 2 times"),
        (catalog_text().replace('id = "acme"', 'id = "b"'), "[[service]] acme-utility: account: acme is not in the"),
        (
            '[[account]]\nid = "acme"\nbills_to = "acme"\n',
            "[[account]] acme: bills_to: acme must be another account that pays itself",
        ),
        (
            catalog_text().replace('template = "order_update"', 'template = "none"'),
            "[[submission]] none pt_BR acme-bm1: no such [[template]]",
        ),
        (
            catalog_text().replace('accounts = ["acme"]', 'accounts = ["b"]'),
            f"[[sender]] {factories.sender_id(1)}: accounts: b is not in the file",
        ),
        (
            two_broadcast_services(active=True),
            "[[service]]: account acme has 2 active ones of kind broadcast; one at most",
        ),
    ],
)
def test_a_fault_is_told_with_its_table_place_and_field(text: str, fault: str) -> None:
    with pytest.raises(CatalogError) as refused:
        read_catalog(text)
    assert any(told.startswith(fault) for told in refused.value.faults), refused.value.faults


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(CatalogError) as refused:
        read_catalog(catalog_text(charge_rule="half", body="{{2}}", bm_limit=-1))
    assert {fault.split("]]")[0] for fault in refused.value.faults} >= {"[[service", "[[template", "[[business_manager"}


async def test_a_service_is_never_handed_to_another_account(pool: Pool) -> None:
    """Its batches, their money and its receipts are the first account's."""
    await apply_catalog(pool, catalog_text())
    others = catalog_text().replace('account = "acme"', 'account = "rival"') + '[[account]]\nid = "rival"\n'
    for dry_run in (True, False):
        with pytest.raises(CatalogError, match="service acme-utility: it belongs to account acme") as refused:
            await apply_catalog(pool, others, dry_run=dry_run)
        assert len(refused.value.faults) == 1
    assert await value(pool, "SELECT string_agg(id, ' ') FROM account") == "acme"
