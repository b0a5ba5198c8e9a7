from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.triggers.daemon import Job, fires, utc
from triggers import cron

CASES = json.loads((Path(__file__).parents[1] / "cases" / "debian_cron.json").read_text())["rows"]

# Zone and change: gaps and folds of a half hour to a whole day, at midnight and across it, negative daylight time.
CHANGES = [
    (zone, utc(instant))
    for zone, instants in {
        "Europe/Berlin": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
        "America/New_York": ["2026-03-08T07:00Z", "2026-11-01T06:00Z"],
        "Australia/Lord_Howe": ["2026-04-04T15:00Z", "2026-10-03T15:30Z"],
        "Antarctica/Troll": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
        "America/Sao_Paulo": ["2018-02-18T02:00Z", "2018-11-04T03:00Z"],
        "Asia/Beirut": ["2026-03-28T22:00Z", "2026-10-24T21:00Z"],
        "Africa/Cairo": ["2026-04-23T22:00Z", "2026-10-29T21:00Z"],
        "Pacific/Apia": ["2011-04-02T14:00Z", "2011-12-30T10:00Z"],
        "America/Caracas": ["2007-12-09T07:00Z", "2016-05-01T07:00Z"],
        "Asia/Pyongyang": ["2015-08-14T15:00Z", "2018-05-04T15:00Z"],
        "Asia/Kathmandu": ["1985-12-31T18:30Z"],
        "Europe/Dublin": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
        "Africa/Casablanca": ["2026-02-15T02:00Z", "2026-03-22T02:00Z"],
        "Pacific/Chatham": ["2026-04-04T14:00Z", "2026-09-26T14:00Z"],
        "America/St_Johns": ["2006-04-02T03:31Z", "2006-10-29T02:31Z"],
        "America/Toronto": ["1919-03-31T04:30Z", "1919-10-26T04:00Z"],
        "Antarctica/Casey": ["2018-03-10T17:00Z", "2018-10-06T20:00Z"],
        "Antarctica/Vostok": ["1994-01-31T17:00Z", "1994-11-01T00:00Z"],
        "Pacific/Kwajalein": ["1993-08-21T12:00Z"],
    }.items()
    for instant in instants
]
LIMITS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}

exactly = settings(deadline=None, derandomize=True, max_examples=120, suppress_health_check=list(HealthCheck))


def wall(year: int) -> datetime:
    return datetime.fromisoformat(f"{year}-01-01")


def following(expression: str, zone: str, after: str, *, count: int = 1) -> list[str]:
    found, instant = [], utc(after)
    for _ in range(count):
        slot = cron.next_after(cron.parse(expression), ZoneInfo(zone), instant)
        assert slot is not None
        found.append(f"{slot:%Y-%m-%dT%H:%MZ}")
        instant = slot
    return found


def walk(expression: str, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    schedule, found = cron.parse(expression), []
    while (slot := cron.next_after(schedule, zone, after)) and slot <= until:
        found.append(slot)
        after = slot
    return found


@st.composite
def items(draw: st.DrawFn, name: str, near: tuple[int, int]) -> tuple[str, set[int]]:
    low, high = LIMITS[name]
    top = 6 if name == "weekday" else high
    first = draw(st.integers(*near) | st.integers(low, high))
    last = draw(st.integers(first, high))
    step = draw(st.integers(1, top - low + 1))
    meant: list[tuple[str, set[int]]] = [
        (str(first), {first}),
        (f"{first}-{last}", set(range(first, last + 1))),
        (f"{first}-{last}/{step}", set(range(first, last + 1, step))),
        (f"*/{step}", set(range(low, top + 1, step))),
        ("*", set(range(low, top + 1))),
    ]
    return draw(st.sampled_from(meant))


@st.composite
def fields(draw: st.DrawFn, name: str, near: tuple[int, int] | None = None) -> tuple[str, frozenset[int]]:
    drawn = draw(st.lists(items(name, near or LIMITS[name]), min_size=1, max_size=3))
    wrap = 7 if name == "weekday" else 60
    return ",".join(text for text, _ in drawn), frozenset(value % wrap for _, values in drawn for value in values)


@st.composite
def jobs(draw: st.DrawFn, *, hours: tuple[int, int] | None = None, any_day: bool = False) -> Job:
    star = [("*", frozenset(range(low, high + 1))) for low, high in ((1, 31), (1, 12), (0, 6))]
    some = [st.just(every) | fields(name) for every, name in zip(star, ("day", "month", "weekday"), strict=True)]
    drawn = [
        draw(fields("minute")),
        draw(fields("hour", hours)),
        *(star if any_day else [draw(field) for field in some]),
    ]
    return Job(tuple(text for text, _ in drawn), tuple(values for _, values in drawn))


def has_range_of_one(job: Job) -> bool:
    """Tell whether a field holds the like of 1-1, which the two peers take for every value, each in its own cases."""
    ends = [item.split("/")[0].split("-") for text in job.texts for item in text.split(",") if "-" in item]
    return any(first == last for first, last in ends)


@st.composite
def spans(draw: st.DrawFn) -> tuple[ZoneInfo, datetime, datetime]:
    zone, change = draw(st.sampled_from(CHANGES))
    after = change + timedelta(minutes=draw(st.integers(-600, 300)), seconds=draw(st.sampled_from([0, 0, 1, 59])))
    return ZoneInfo(zone), after, after + timedelta(minutes=draw(st.integers(0, 1440)))


# --- Debian's rule ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", CASES, ids=lambda row: f"{row['zone']}-{row['transition']}-{row['cron']}")
def test_it_fires_when_the_debian_daemon_did(row: dict[str, Any]) -> None:
    zone, after, until = ZoneInfo(row["zone"]), utc(row["after"]), utc(row["until"])

    assert walk(row["cron"], zone, after, until) == [utc(text) for text in row["fires"]]
    assert cron.count_between(cron.parse(row["cron"]), zone, after, until) == len(row["fires"])


@exactly
@given(jobs(hours=(0, 5), any_day=True), spans())
def test_it_equals_the_daemon_around_changes_of_the_clocks(job: Job, span: tuple[ZoneInfo, datetime, datetime]) -> None:
    zone, after, until = span

    assert walk(job.expression, zone, after, until) == fires(job, zone, after, until)


@exactly
@given(jobs(hours=(20, 23)), spans())
def test_it_equals_the_daemon_on_chosen_days(job: Job, span: tuple[ZoneInfo, datetime, datetime]) -> None:
    zone, after, until = span

    assert walk(job.expression, zone, after, until) == fires(job, zone, after, until)


@exactly
@given(jobs(hours=(0, 5), any_day=True), spans())
def test_it_counts_and_finds_the_latest_as_the_daemon_fires(
    job: Job, span: tuple[ZoneInfo, datetime, datetime]
) -> None:
    zone, after, until = span
    schedule, expected = cron.parse(job.expression), fires(job, zone, after - timedelta(minutes=1), until)

    since = after.replace(second=0)
    within = [slot for slot in expected if slot >= since]
    assert cron.count_between(schedule, zone, after, until) == sum(slot > after for slot in expected)
    assert cron.latest_until(schedule, zone, until, since=since) == (within[-1] if within else None)


@exactly
@given(
    jobs(),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Cairo", "Africa/Casablanca"]),
    st.datetimes(wall(2020), wall(2036)),
)
def test_it_counts_what_it_steps_through_over_months(job: Job, zone: str, start: datetime) -> None:
    schedule, place, after = cron.parse(job.expression), ZoneInfo(zone), start.replace(tzinfo=UTC)
    steps = walk_some(schedule, place, after, 60)
    if not steps:
        assert cron.never_fires(schedule)
        return

    assert cron.count_between(schedule, place, after, steps[-1]) == len(steps)
    assert cron.count_between(schedule, place, after, steps[-1] - timedelta.resolution) == len(steps) - 1
    assert cron.latest_until(schedule, place, steps[-1], since=after) == steps[-1]
    before = steps[-2] if len(steps) > 1 else None
    assert (
        cron.latest_until(schedule, place, steps[-1] - timedelta.resolution, since=after + timedelta.resolution)
        == before
    )


def walk_some(schedule: cron.Schedule, zone: ZoneInfo, after: datetime, most: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < most and (slot := cron.next_after(schedule, zone, found[-1] if found else after)):
        found.append(slot)
    return found


@exactly
@given(
    jobs(),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Tokyo", "America/Santiago"]),
    st.datetimes(wall(2020), wall(2036)),
)
def test_it_equals_cronsim_in_zones_with_whole_hours(job: Job, zone: str, start: datetime) -> None:
    after = start.replace(second=0, microsecond=0, tzinfo=UTC)
    assume(not has_range_of_one(job))
    steps = walk_some(cron.parse(job.expression), ZoneInfo(zone), after, 5)

    peer = CronSim(job.expression, after.astimezone(ZoneInfo(zone)))
    assert [next(peer).astimezone(UTC) for _ in steps] == steps


def test_it_fires_once_in_a_repeated_hour() -> None:  # K1, row 1
    after, until = utc("2026-10-31T16:00Z"), utc("2026-11-02T12:00Z")

    found = walk("30 1 * * *", ZoneInfo("America/New_York"), after, until)

    assert found == [utc("2026-11-01T05:30Z"), utc("2026-11-02T06:30Z")]


def test_it_fires_right_after_a_gap() -> None:  # K1, row 3
    found = following("30 2 * * *", "America/New_York", "2026-03-08T06:30Z", count=2)

    assert found == ["2026-03-08T07:00Z", "2026-03-09T06:30Z"]


@pytest.mark.parametrize(
    ("zone", "after", "expected"),
    [
        ("America/New_York", "2026-07-01T04:00Z", "2026-07-01T13:00Z"),
        ("America/New_York", "2026-01-10T05:00Z", "2026-01-10T14:00Z"),
        ("Europe/Berlin", "2026-07-01T04:00Z", "2026-07-01T07:00Z"),
        ("Europe/Berlin", "2026-01-10T05:00Z", "2026-01-10T08:00Z"),
        ("Asia/Kathmandu", "2026-01-10T05:00Z", "2026-01-11T03:15Z"),
        ("UTC", "2026-07-01T09:00Z", "2026-07-02T09:00Z"),
    ],
)
def test_it_reads_the_hour_in_the_zone_of_that_day(zone: str, after: str, expected: str) -> None:  # K1, row 5
    assert following("0 9 * * *", zone, after) == [expected]


def test_it_merges_all_that_a_gap_left_out_into_one_fire() -> None:
    assert following("15,45 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00Z", count=3) == [
        "2026-03-29T01:00Z",
        "2026-03-29T01:15Z",
        "2026-03-29T01:45Z",
    ]


def test_it_leaves_a_skipped_day_out() -> None:
    after, until = utc("2011-12-28T00:00Z"), utc("2012-01-02T00:00Z")

    assert walk("0 9 30 * *", ZoneInfo("Pacific/Apia"), after, until) == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 29 3 *", ["2026-03-29T01:00Z", "2027-03-29T00:30Z"]),
        ("*/30 2 29 3 *", ["2027-03-29T00:00Z", "2027-03-29T00:30Z"]),
        ("30 2 25 10 *", ["2026-10-25T00:30Z", "2027-10-25T00:30Z"]),
    ],
)
def test_it_sees_a_change_of_the_clocks_from_afar(expression: str, expected: list[str]) -> None:
    assert following(expression, "Europe/Berlin", "2026-01-15T12:00Z", count=2) == expected


def test_it_catches_up_after_less_than_three_hours_only() -> None:
    casey, troll = ZoneInfo("Antarctica/Casey"), ZoneInfo("Antarctica/Troll")

    assert walk("30 5 * * *", casey, utc("2018-10-06T12:00Z"), utc("2018-10-07T12:00Z")) == []  # 04:00 became 07:00
    assert walk("30 1 * * *", troll, utc("2026-03-28T12:00Z"), utc("2026-03-29T12:00Z")) == [utc("2026-03-29T01:00Z")]


def test_it_repeats_a_fixed_job_when_the_clock_is_corrected_back() -> None:
    after, until = utc("1994-01-31T10:00Z"), utc("1994-02-01T00:30Z")  # seven hours back at 17:00Z

    found = walk("30 18 * * *", ZoneInfo("Antarctica/Vostok"), after, until)

    assert found == [utc("1994-01-31T11:30Z"), utc("1994-01-31T18:30Z")]


def test_it_finds_the_second_pass_before_the_same_hours_of_next_year() -> None:
    found = following("*/15 1-2 25 10 *", "Europe/Berlin", "2026-10-25T00:45Z", count=5)

    assert found[:4] == ["2026-10-25T01:00Z", "2026-10-25T01:15Z", "2026-10-25T01:30Z", "2026-10-25T01:45Z"]
    assert found[4] == "2027-10-24T23:00Z"


def test_it_joins_day_of_month_and_day_of_week_by_or_unless_one_begins_with_a_star() -> None:
    either = following("0 0 13 * 5", "UTC", "2026-02-01T00:00Z", count=3)
    both = following("0 0 */2 * 5", "UTC", "2026-02-01T00:00Z", count=3)

    assert either == ["2026-02-06T00:00Z", "2026-02-13T00:00Z", "2026-02-20T00:00Z"]
    assert both == ["2026-02-13T00:00Z", "2026-02-27T00:00Z", "2026-03-13T00:00Z"]


def test_it_is_never_early_and_never_the_same_instant_again() -> None:
    schedule, zone = cron.parse("0 9 * * *"), ZoneInfo("UTC")

    assert cron.next_after(schedule, zone, datetime(2026, 1, 1, 8, 59, 59, 999_999, UTC)) == utc("2026-01-01T09:00Z")
    assert cron.next_after(schedule, zone, datetime(2026, 1, 1, 9, 0, 0, 0, UTC)) == utc("2026-01-02T09:00Z")
    assert cron.next_after(schedule, zone, datetime(2026, 1, 1, 9, 0, 0, 1, UTC)) == utc("2026-01-02T09:00Z")


def test_it_answers_in_utc_whatever_zone_it_is_asked_in() -> None:
    after = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))

    found = cron.next_after(cron.parse("0 9 * * *"), ZoneInfo("Asia/Tokyo"), after)

    assert found == utc("2026-01-02T00:00Z")
    assert found is not None
    assert found.tzinfo is UTC


def test_it_refuses_an_instant_without_an_offset() -> None:
    with pytest.raises(ValueError, match="no offset"):
        cron.next_after(cron.parse("0 9 * * *"), ZoneInfo("UTC"), wall(2026))


# --- Far away --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 2 *", "*/5 * 31 feb,apr *"])
def test_it_knows_what_never_fires(expression: str) -> None:  # K3, row 12
    schedule = cron.parse(expression)

    assert cron.never_fires(schedule)
    assert cron.next_after(schedule, ZoneInfo("UTC"), utc("2026-01-01T00:00Z")) is None
    assert (
        cron.latest_until(schedule, ZoneInfo("UTC"), utc("2026-01-01T00:00Z"), since=utc("1990-01-01T00:00Z")) is None
    )
    assert cron.count_between(schedule, ZoneInfo("UTC"), utc("1990-01-01T00:00Z"), utc("2026-01-01T00:00Z")) == 0


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01T00:00Z", "2028-02-29T00:00Z"),
        ("0 0 29 2 *", "2096-02-29T00:00Z", "2104-02-29T00:00Z"),
        ("0 0 29 2 */7", "2032-02-29T00:00Z", "2060-02-29T00:00Z"),
        ("0 0 29 2 */7", "2088-02-29T00:00Z", "2128-02-29T00:00Z"),
        ("0 0 30 2 1", "2026-01-01T00:00Z", "2026-02-02T00:00Z"),
        ("59 23 31 12 *", "2026-12-31T23:59Z", "2027-12-31T23:59Z"),
    ],
)
def test_it_finds_the_rarest_days(expression: str, after: str, expected: str) -> None:
    assert not cron.never_fires(cron.parse(expression))
    assert following(expression, "UTC", after) == [expected]


def test_it_ends_with_the_calendar() -> None:
    schedule, zone = cron.parse("* * * * *"), ZoneInfo("America/New_York")

    assert cron.next_after(schedule, zone, datetime(9990, 1, 1, tzinfo=UTC)) == datetime(9990, 1, 1, 0, 1, tzinfo=UTC)
    assert cron.next_after(schedule, zone, datetime(9999, 12, 30, tzinfo=UTC)) is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll"])
def test_it_counts_years_of_minutes(zone: str) -> None:
    after, until = utc("2026-01-01T00:00Z"), utc("2031-01-01T00:00Z")

    counted = cron.count_between(cron.parse("* * * * *"), ZoneInfo(zone), after, until)

    assert counted == (until - after) // timedelta(minutes=1)


def test_it_counts_one_daily_fire_for_every_day() -> None:
    after, until = utc("2026-01-01T12:00Z"), utc("2031-01-01T12:00Z")

    assert cron.count_between(cron.parse("30 2 * * *"), ZoneInfo("Europe/Berlin"), after, until) == 1826


def test_it_counts_nothing_backwards() -> None:
    schedule, zone, now = cron.parse("* * * * *"), ZoneInfo("UTC"), utc("2026-01-01T00:00Z")

    assert cron.count_between(schedule, zone, now, now) == 0
    assert cron.count_between(schedule, zone, now, now - timedelta(days=9)) == 0
    assert cron.latest_until(schedule, zone, now, since=now + timedelta(days=9)) is None


# --- The grammar -----------------------------------------------------------------------------------------------------


@exactly
@given(jobs())
def test_it_reads_the_values_that_were_written(job: Job) -> None:
    schedule = cron.parse(job.expression)

    read = (schedule.minutes, schedule.hours, schedule.days, schedule.months, schedule.weekdays)
    assert read == tuple(tuple(sorted(values)) for values in job.values)


@exactly
@given(jobs())
def test_it_reads_what_croniter_reads(job: Job) -> None:
    assume(not has_range_of_one(job))
    schedule = cron.parse(job.expression)
    read = (schedule.minutes, schedule.hours, schedule.days, schedule.months, schedule.weekdays)
    whole = [range(60), range(24), range(1, 32), range(1, 13), range(7)]
    peer = croniter.expand(job.expression)[0]
    assert read == tuple(tuple(whole[n]) if "*" in values else tuple(values) for n, values in enumerate(peer))


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("0 9 * JAN-Dec MON-fri", "0 9 * 1-12 1-5"),
        ("0 9 * * 7", "0 9 * * 0"),
        ("0 9 * * 5-7", "0 9 * * 5,6,0"),
        ("0 9 * * sat-sun", "0 9 * * 6,0"),
        ("0 9 * * 0-7", "0 9 * * 0-6"),
        ("00 09 01 * *", "0 9 1 * *"),
        ("1-1 5-5/20 * * *", "1 5 * * *"),
        ("  0\t9  * * *\n", "0 9 * * *"),
        ("*/60 */24 * * *", "0 0 * * *"),
    ],
)
def test_it_reads_both_spellings_alike(expression: str, same: str) -> None:
    one, other = cron.parse(expression), cron.parse(same)

    assert (one.times, one.days, one.months, one.weekdays) == (other.times, other.days, other.months, other.weekdays)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/90 * * * *", ["minute", "`*/90`", "1 to 60"]),  # K2, row 8
        ("0 */25 * * *", ["hour", "`*/25`", "1 to 24"]),  # K2, row 8
        ("0 0 */32 * *", ["day of month", "`*/32`"]),
        ("0 0 * */13 *", ["month", "`*/13`"]),
        ("0 0 * * */8", ["day of week", "`*/8`"]),
        ("0-30/61 * * * *", ["minute", "step"]),
        ("*/0 * * * *", ["minute", "step of 0"]),
        ("R R * * *", ["minute", "`r`"]),  # K2, row 9
        ("H * * * *", ["minute", "`h`"]),
        ("0 0 9 * * *", ["6 fields", "seconds are not supported", "exactly 5 fields"]),  # K2, row 10
        ("0 0 9 * * * 2026", ["7 fields", "exactly 5 fields"]),
        ("0 9 * *", ["4 fields", "exactly 5 fields"]),
        ("@daily", ["1 field:", "exactly 5 fields"]),
        ("", ["0 fields", "exactly 5 fields"]),
        ("0 9 L * *", ["day of month", "`l`"]),
        ("0 9 15W * *", ["day of month", "`15w`"]),
        ("0 9 ? * 1", ["day of month", "`?`"]),
        ("0 9 * * 1#2", ["day of week", "`1#2`"]),
        ("0 9 * * L5", ["day of week", "`l5`"]),
        ("5/20 * * * *", ["minute", "5-59/20"]),
        ("0 22-6 * * *", ["hour", "`22-6`", "wrap"]),
        ("0 9 * * fri-mon", ["day of week", "wrap"]),
        ("0 9 * * 6-0", ["day of week", "wrap"]),
        ("0 9 * nov-feb *", ["month", "wrap"]),
        ("60 * * * *", ["minute", "60", "0-59"]),
        ("0 24 * * *", ["hour", "24", "0-23"]),
        ("0 0 0 * *", ["day of month", "1-31"]),
        ("0 0 * 13 *", ["month", "1-12"]),
        ("0 0 * * 8", ["day of week", "0-7"]),
        ("0 0 * monday *", ["month", "'monday'"]),
        ("0 0 * * monday", ["day of week", "'monday'", "sun-sat"]),
        ("0 mon * * *", ["hour", "'mon'"]),
        ("-5 * * * *", ["minute", "`-5`"]),
        ("1,,2 * * * *", ["minute", "``"]),
        ("1, * * * *", ["minute"]),
        ("1-2-3 * * * *", ["minute"]),
        ("*/ * * * *", ["minute"]),
        ("*5 * * * *", ["minute"]),
        ("*-5 * * * *", ["minute"]),
        ("1.5 * * * *", ["minute"]),
        ("٣ * * * *", ["ASCII"]),
        ("0 9 * * *\n* * * * *", ["one line"]),
        ("0\x0b9 * * *", ["ASCII"]),
        ("0 9 * * *\x00", ["ASCII"]),
        (",".join(["0"] * 100) + ",10 * * * *", ["210 characters", "200"]),
        ("9" * 190 + " * * * *", ["minute"]),
    ],
)
def test_it_refuses_and_says_what_would_be_right(expression: str, words: list[str]) -> None:
    with pytest.raises(cron.CronError) as caught:
        cron.parse(expression)

    assert [word for word in words if word not in caught.value.message] == []


@exactly
@given(st.text(alphabet="0123456789*/,- \tlwrhLWRH#?@sunjan", max_size=40))
def test_it_refuses_or_reads_but_never_fails(expression: str) -> None:
    try:
        schedule = cron.parse(expression)
    except cron.CronError:
        return
    assert schedule.times
    assert cron.describe(schedule)


# --- Gaps and words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "gap"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("*/7 * * * *", timedelta(minutes=4)),
        ("0,1 9 * * *", timedelta(minutes=1)),
        ("0 0,23 * * *", timedelta(hours=1)),
        ("59,0 0,23 * * *", timedelta(minutes=1)),
        ("0 9 * * *", timedelta(days=1)),
        ("0 0,12 1,20 * *", timedelta(hours=12)),
        ("0,30 0,23 1,3 * *", timedelta(minutes=30)),
        ("0 9 * * 1,4", timedelta(days=3)),
        ("0 9 * * 6,0", timedelta(days=1)),
        ("0 0 1,31 * *", timedelta(days=1)),
        ("0 0 1 * *", timedelta(days=28)),
        ("0 0 31 * *", timedelta(days=31)),
        ("0 0 29 2 *", timedelta(days=1461)),
        ("0 0 30 2 *", timedelta.max),
    ],
)
def test_it_finds_the_tightest_gap_of_the_whole_schedule(expression: str, gap: timedelta) -> None:
    assert cron.tightest_gap(cron.parse(expression)) == gap


@exactly
@given(jobs(), st.datetimes(wall(2026), wall(2036)))
def test_it_never_steps_closer_than_the_tightest_gap(job: Job, start: datetime) -> None:
    schedule = cron.parse(job.expression)
    steps = walk_some(schedule, ZoneInfo("UTC"), start.replace(tzinfo=UTC), 30)

    tightest = cron.tightest_gap(schedule)
    assert all(later - earlier >= tightest for earlier, later in pairwise(steps))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/1 * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("*/5 * * * 1-5", "every 5 minutes on weekdays"),
        ("*/15 9-17 * * mon-fri", "every 15 minutes from 09:00 to 17:45 on weekdays"),
        ("0 * * * *", "every hour at :00"),
        ("30 * * * *", "every hour at :30"),
        ("5,20 * * * *", "every hour at :05 and :20"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("0 */2 * * *", "every 2 hours"),
        ("15 */6 * * *", "every 6 hours at :15"),
        ("0 9 * * *", "every day at 09:00"),
        ("0 */12 * * *", "every day at 00:00 and 12:00"),
        ("0 9 * * 1-5", "weekdays at 09:00"),
        ("0 10 * * sat-sun", "weekends at 10:00"),
        ("0 9 * * 1,4", "at 09:00 on Mon and Thu"),
        ("0 9 * * 0,3,5", "at 09:00 on Wed, Fri and Sun"),
        ("0 0 1,15 * *", "on the 1st and 15th at 00:00"),
        ("0 0 2,3,22 * *", "on the 2nd, 3rd and 22nd at 00:00"),
        ("0 0 11,12,13 * *", "on the 11th, 12th and 13th at 00:00"),
        ("0 0 1 1 *", "on the 1st in Jan at 00:00"),
        ("0 9 * 1,7 1-5", "weekdays in Jan and Jul at 09:00"),
        ("0 0 13 * 5", "on the 13th and on every Fri at 00:00"),
        ("0 0 1-31 * 5", "every day at 00:00"),
        ("3,7 1-5/2 * * *", "cron 3,7 1-5/2 * * *"),
        ("*/7 * * * *", "cron */7 * * * *"),
        ("0 */5 * * *", "cron 0 */5 * * *"),
        ("0 0 */2 * 1", "cron 0 0 */2 * 1"),
        ("0 0 1,2 * 1,2", "cron 0 0 1,2 * 1,2"),
    ],
)
def test_it_says_a_schedule_in_words_or_not_at_all(expression: str, words: str) -> None:
    assert cron.describe(expression) == words
    assert cron.describe(cron.parse(expression)) == words
