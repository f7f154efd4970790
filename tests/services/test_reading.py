"""What follows from a batch's row: forecast, blocks, held credits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from uuid_utils.compat import uuid7

from carteiro.services.reading import view
from carteiro.storage.batches import Report

NOW = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
REPORT = Report(
    id=uuid7(),
    service_id="s",
    status="processing",
    reason=None,
    error_code=None,
    blocked_by=None,
    next_attempt_at=None,
    total=1_000,
    debited=1_000,
    charged=0,
    refunded=0,
    template_name="t",
    template_language="pt_BR",
    reference=None,
    callback_url=None,
    on_capacity="reject",
    skipped=None,
    suppressed=0,
    max_attempts=None,
    created_at=NOW,
    scheduled_at=None,
    expires_at=None,
    started_at=NOW - timedelta(minutes=5),
    ended_at=None,
    settled_at=None,
    follow_up=None,
    pending=590,
    pending_send=10,
    unknown=0,
    sent=400,
    delivered=0,
    seen=0,
    failed=0,
    unsent=0,
    answered=120,
    parent_batch_id=None,
    retried_as=None,
    read_at=NOW,
)


def test_the_rate_is_over_the_last_minute_and_the_forecast_follows_from_it() -> None:
    seen = view(REPORT)
    assert seen.rate_per_s == 2.0
    assert seen.eta_at == NOW + timedelta(seconds=300)
    assert sum(seen.counts.values()) == REPORT.total


def test_the_rate_of_a_young_batch_is_over_its_life() -> None:
    assert view(replace(REPORT, started_at=NOW - timedelta(seconds=10))).rate_per_s == 12.0
    assert view(replace(REPORT, started_at=NOW)).rate_per_s == 120.0


@pytest.mark.parametrize("change", [{"answered": 0}, {"started_at": None}, {"blocked_by": "capacity"}])
def test_there_is_no_forecast_while_nothing_leaves(change: dict[str, object]) -> None:
    assert view(replace(REPORT, **change)).eta_at is None  # type: ignore[arg-type]


def test_there_is_no_forecast_when_nothing_is_left() -> None:
    assert view(replace(REPORT, pending=0, pending_send=0, sent=1_000)).eta_at is None


def test_what_is_neither_charged_nor_refunded_is_held() -> None:
    assert view(replace(REPORT, charged=300, refunded=100)).held == 600


def test_a_batch_that_waits_for_its_time_or_for_moderation_says_so() -> None:
    later = NOW + timedelta(hours=1)
    scheduled = view(replace(REPORT, status="pending", scheduled_at=later))
    assert (scheduled.blocked_by, scheduled.next_attempt_at) == ("schedule", later)
    due = view(replace(REPORT, status="pending", scheduled_at=NOW))
    assert (due.blocked_by, due.next_attempt_at) == (None, None)
    assert view(replace(REPORT, status="pending_moderation")).blocked_by == "moderation"
