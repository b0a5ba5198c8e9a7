from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from triggers.kinds.base import ArgsError, CatchUp, Rules
from triggers.kinds.time_cron import TimeCron

KIND = TimeCron()
RULES = Rules(min_interval=timedelta(seconds=60))
FAR = datetime(2100, 1, 1, tzinfo=UTC)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _catch_up(due: str, now: str, *, until: datetime = FAR, **args: Any) -> CatchUp:
    return KIND.catch_up(KIND.read(args), due=_at(due), now=_at(now), until=until)


@pytest.mark.parametrize(
    "cron",
    ["*/90 * * * *", "0 */25 * * *", "R R * * *", "0 0 9 * * *", "@daily", "* * * *", "", "60 * * * *", "* * * * 8",
     "1-1-1 * * * *", "5/20 * * * *", "0 0 L * *", "0 0 ? * *", "50-10 * * * *", "0 0 * * mon#2", "٥ * * * *"],
)  # fmt: skip
def test_rows_8_to_10_it_refuses_what_is_not_five_plain_fields(cron: str) -> None:
    with pytest.raises(ValidationError) as caught:
        KIND.read({"cron": cron})
    assert caught.value.errors()


def test_row_12_it_refuses_a_schedule_that_never_fires(now: datetime) -> None:
    with pytest.raises(ArgsError, match="never fires"):
        KIND.check(KIND.read({"cron": "0 0 30 2 *"}), now=now, rules=RULES)


def test_it_refuses_a_schedule_that_is_too_tight_anywhere(now: datetime) -> None:
    args = KIND.read({"cron": "0,1 9 * * *"})
    with pytest.raises(ArgsError, match="60 s apart"):
        KIND.check(args, now=now, rules=Rules(min_interval=timedelta(seconds=61)))
    KIND.check(args, now=now, rules=RULES)


def test_it_says_that_no_zone_means_utc() -> None:
    assert KIND.notes(KIND.read({"cron": "0 9 * * *"}))
    assert not KIND.notes(KIND.read({"cron": "0 9 * * *", "timezone": "Europe/Berlin"}))


def test_it_describes_its_schedule_its_zone_and_its_next_slot(now: datetime) -> None:
    args = KIND.read({"cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin"})
    assert KIND.describe(args, now=now) == "weekdays at 09:00, Europe/Berlin; next Wed 2026-12-02 09:00 CET"


def test_it_fires_a_slot_that_is_on_time() -> None:
    due = "2026-12-01T09:00:00Z"
    assert _catch_up(due, "2026-12-01T09:00:01Z", cron="0 * * * *") == CatchUp(_at(due))


def test_row_19_it_fires_once_for_all_that_were_missed() -> None:
    caught = _catch_up("2026-12-01T01:00:00Z", "2026-12-01T12:10:00Z", cron="0 * * * *")
    assert caught == CatchUp(_at("2026-12-01T12:00:00Z"), missed=12, since=_at("2026-12-01T01:00:00Z"))


def test_it_counts_only_the_earlier_slots_as_missed_when_the_latest_is_on_time() -> None:
    caught = _catch_up("2026-12-01T10:00:00Z", "2026-12-01T12:00:05Z", cron="0 * * * *")
    assert caught == CatchUp(_at("2026-12-01T12:00:00Z"), missed=2, since=_at("2026-12-01T10:00:00Z"))


def test_with_skip_it_gives_up_what_was_missed() -> None:
    caught = _catch_up("2026-12-01T01:00:00Z", "2026-12-01T12:10:00Z", cron="0 * * * *", misfire="skip")
    assert caught == CatchUp(None, missed=12, since=_at("2026-12-01T01:00:00Z"), skipped=True)


def test_with_skip_it_still_fires_the_slot_that_is_on_time() -> None:
    caught = _catch_up("2026-12-01T10:00:00Z", "2026-12-01T12:00:05Z", cron="0 * * * *", misfire="skip")
    assert caught.fire == _at("2026-12-01T12:00:00Z")
    assert (caught.missed, caught.skipped) == (2, True)


def test_it_counts_nothing_after_the_expiry() -> None:
    until = _at("2026-12-01T03:30:00Z")
    caught = _catch_up("2026-12-01T01:00:00Z", "2026-12-05T00:00:00Z", until=until, cron="0 * * * *")
    assert (caught.fire, caught.missed) == (_at("2026-12-01T03:00:00Z"), 3)


def test_a_clock_that_jumped_ahead_by_years_is_caught_up_with_by_counting() -> None:
    caught = _catch_up("2026-12-01T00:00:00Z", "2036-12-01T00:00:30Z", cron="* * * * *")
    assert caught.fire == _at("2036-12-01T00:00:00Z")
    assert caught.missed == (datetime(2036, 12, 1, tzinfo=UTC) - datetime(2026, 12, 1, tzinfo=UTC)) // timedelta(
        minutes=1
    )


@pytest.mark.parametrize("zone", ["IST", "Mars/Phobos", "http://bla.com"])
def test_row_25_it_refuses_a_zone_that_is_not_iana(zone: str) -> None:
    with pytest.raises(ValidationError, match="IANA"):
        KIND.read({"cron": "0 9 * * *", "timezone": zone})


def test_no_default_expiry_kills_a_schedule_before_its_first_slot(now: datetime) -> None:
    week = timedelta(days=7)
    assert KIND.default_expiry(KIND.read({"cron": "0 9 * * *"}), now=now, after=week) == now + week
    monthly = KIND.read({"cron": "0 0 1 * *"})
    assert KIND.default_expiry(monthly, now=now, after=week) == datetime(2027, 1, 8, tzinfo=UTC)
