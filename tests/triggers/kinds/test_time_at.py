from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from triggers.kinds.base import ArgsError, Rules
from triggers.kinds.time_at import TimeAt

KIND = TimeAt()
RULES = Rules(min_interval=timedelta(seconds=60))


def _instant(**args: Any) -> datetime:
    return KIND.read(args).instant


def _problem(**args: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        KIND.read(args)
    error = caught.value.errors()[0].get("ctx", {}).get("error")
    assert isinstance(error, ArgsError)
    return error.field, error.message


@pytest.mark.parametrize(
    ("at", "zone", "utc"),
    [
        ("2026-07-01T09:00", "Asia/Kolkata", "2026-07-01T03:30Z"),  # row 20
        ("2026-07-01 09:00:00", "Asia/Kolkata", "2026-07-01T03:30Z"),
        ("2026-12-07T09:00:00Z", None, "2026-12-07T09:00Z"),
        ("2026-12-07T09:00:00+01:00", None, "2026-12-07T08:00Z"),
        ("2026-12-07T09:00:00.5Z", None, "2026-12-07T09:00:00.500Z"),
        ("2026-11-01T01:30:00-05:00", "America/New_York", "2026-11-01T06:30Z"),  # row 24: a given offset wins
    ],
)
def test_it_reads_the_one_instant_that_is_meant(at: str, zone: str | None, utc: str) -> None:
    args = {"at": at} | ({"timezone": zone} if zone else {})
    assert _instant(**args) == datetime.fromisoformat(utc)


def test_row_20_it_refuses_a_wall_clock_time_without_a_zone() -> None:
    field, message = _problem(at="2026-07-01T09:00")
    assert field == "at"
    assert "no offset and no timezone" in message


def test_row_23_it_refuses_a_time_that_does_not_exist_with_both_readings() -> None:
    field, message = _problem(at="2026-03-08T02:30:00", timezone="America/New_York")
    assert field == "at"
    assert "does not exist" in message
    assert "2026-03-08T07:30:00Z" in message
    assert "2026-03-08T06:30:00Z" in message


def test_row_24_it_refuses_a_time_that_exists_twice_with_both_readings() -> None:
    _, message = _problem(at="2026-11-01T01:30:00", timezone="America/New_York")
    assert "happens twice" in message
    assert "2026-11-01T05:30:00Z" in message
    assert "2026-11-01T06:30:00Z" in message


@pytest.mark.parametrize("zone", ["IST", "http://bla.com", "Mars/Phobos", "../etc/passwd", "localtime", "America"])
def test_row_25_it_refuses_a_zone_that_is_not_iana(zone: str) -> None:
    field, message = _problem(at="2026-07-01T09:00", timezone=zone)
    assert field == "timezone"
    assert "IANA" in message


def test_it_refuses_an_unknown_zone_even_where_an_offset_wins() -> None:
    assert _problem(at="2026-07-01T09:00Z", timezone="IST")[0] == "timezone"


@pytest.mark.parametrize(
    "at",
    ["tomorrow", "2026-13-01T00:00Z", "2026-02-30T00:00Z", "20261207T090000Z", "2026-12-07", "1765098000", "x" * 5000,
     "2026-12-07T24:30Z", "2026-12-07T09:00 PST", "２０26-12-07T09:00Z", "0001-01-01T00:00+14:00"],
)  # fmt: skip
def test_it_refuses_what_is_not_an_instant_and_says_what_is(at: str) -> None:
    field, message = _problem(at=at)
    assert field == "at"
    assert "ISO 8601" in message
    assert len(message) < 400


def test_row_21_it_refuses_the_past_naming_both_instants(now: datetime) -> None:
    args = KIND.read({"at": "2026-12-01T08:55:00Z"})
    with pytest.raises(ArgsError, match=r"2026-12-01T08:55:00Z.*2026-12-01T09:00:00Z"):
        KIND.check(args, now=now, rules=RULES)


def test_row_21_it_accepts_what_has_only_just_passed(now: datetime) -> None:
    KIND.check(KIND.read({"at": "2026-12-01T08:59:57Z"}), now=now, rules=RULES)


def test_it_keeps_a_triggered_turn_from_waking_itself_at_once(now: datetime) -> None:
    soon = KIND.read({"at": "2026-12-01T09:00:59Z"})
    KIND.check(soon, now=now, rules=RULES)
    with pytest.raises(ArgsError, match="60 s ahead"):
        KIND.check(soon, now=now, rules=Rules(timedelta(seconds=60), triggered=True))


def test_it_is_due_once(now: datetime) -> None:
    args = KIND.read({"at": "2026-12-01T10:00:00Z"})
    due = datetime(2026, 12, 1, 10, tzinfo=UTC)
    assert KIND.next_due(args, after=now) == due
    assert KIND.next_due(args, after=due) is None
    assert KIND.occurrence(args, due) == "2026-12-01T10:00:00Z"


def test_its_default_expiry_lies_after_its_instant(now: datetime) -> None:
    args = KIND.read({"at": "2030-01-01T00:00:00Z"})
    assert KIND.default_expiry(args, now=now, after=timedelta(days=7)) == datetime(2030, 1, 8, tzinfo=UTC)


def test_it_describes_itself_in_its_zone(now: datetime) -> None:
    args = KIND.read({"at": "2026-12-07T09:00:00", "timezone": "Europe/Berlin"})
    assert KIND.describe(args, now=now) == "once, Mon 2026-12-07 09:00:00 CET"
