"""Cron: what a five-field expression says, and the instants it names in a zone. Pure; the clock is an argument.

The rule is that of Debian's cron, as cron(8) and crontab(5) document it and as the daemon itself was seen to do:

1. A field is a comma list of `*`, `n` and `a-b`, the first and last with an optional `/step`.
2. A day matches if its month does, and its day of month and its day of week do; if neither of these two fields begins
   with `*`, one of them is enough.
3. A schedule whose minute or hour begins with `*` runs on real time: nothing for the minutes that a change of the
   clocks leaves out, and twice for those that it repeats.
4. Any other schedule is fixed: what falls into the minutes left out runs once, right after them, and what falls into
   the minutes repeated runs the first time only.
5. A change of three hours or more is a correction of the clock, and nothing is done about it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from triggers.cron_fields import FIELDS, MONTH, WEEKDAY, CronError, read_field, split_fields
from triggers.offsets import STRIDE, stretches

__all__ = [
    "HORIZON",
    "CronError",
    "Schedule",
    "count_between",
    "describe",
    "latest_until",
    "never_fires",
    "next_after",
    "parse",
    "tightest_gap",
]

# Nothing is sought further ahead than this. The rarest day that an expression can name, a 29 February that is a certain
# day of the week, comes again within 40 years even across 2100; so what is not found by then never is.
HORIZON = timedelta(days=41 * 366)

_LIMIT = timedelta(hours=3)  # cron(8): "Local time changes of less than three hours [...] are handled specially."
_SLACK = timedelta(days=2)  # more than any two offsets differ by: Samoa lost one whole day
_LAST = datetime(9999, 12, 1, tzinfo=UTC) - HORIZON  # so that nothing runs out of the calendar
_MIDNIGHT = time()
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_TICK = timedelta.resolution
_YEARS = (date(2000, 1, 1), date(2028, 12, 31))  # after 28 years the days of the week repeat, leap years included


@dataclass(frozen=True)
class Schedule:
    """A parsed expression: the wall-clock minutes that it names, in no zone yet. Weekdays count from Sunday = 0."""

    expression: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool  # day of month or day of week is enough; else both must match
    real_time: bool  # minute or hour begins with `*`

    @cached_property
    def times(self) -> Sequence[int]:
        """List the minutes of a day, counted from midnight."""
        if len(self.minutes) == 60 and len(self.hours) == 24:
            return range(1440)
        return tuple([hour * 60 + minute for hour in self.hours for minute in self.minutes])

    def runs_on(self, day: date) -> bool:
        """Tell whether the schedule names this day."""
        return day.month in self.months and self._names(day.day, day.isoweekday() % 7)

    def first(self, start: datetime, stop: datetime) -> datetime | None:
        """Return the first minute in [start, stop), wall-clock times; of `start` only what the clock shows is read."""
        wall = self._later_on(start) or self._on_a_day_after(start, stop)
        return wall if wall and wall < stop else None

    def last(self, start: datetime, stop: datetime) -> datetime | None:
        """Return the last minute in [start, stop), naive wall-clock times."""
        day, minute = _split(stop)
        index = bisect_left(self.times, minute) if self.runs_on(day) else 0
        if index > 0:
            wall: datetime | None = _join(day, *divmod(self.times[index - 1], 60))
        else:
            days = self.days_between(start.date(), day - _DAY, step=-1)
            wall = next((_join(found, self.hours[-1], self.minutes[-1]) for found in days), None)
        return wall if wall and wall >= start else None

    def count(self, start: datetime, stop: datetime) -> int:
        """Count the minutes in [start, stop), naive wall-clock times; the work grows with the days between only."""
        if start >= stop:
            return 0
        (first, early), (last, late) = _split(start), _split(stop)
        total = sum(len(self.times) for _ in self.days_between(first, last - _DAY))
        total -= bisect_left(self.times, early) if self.runs_on(first) else 0
        total += bisect_left(self.times, late) if self.runs_on(last) else 0
        return total

    def days_between(self, since: date, until: date, *, step: int = 1) -> Iterator[date]:
        """Yield the days that the schedule names in [since, until], backwards if `step` is -1."""
        first, last = since.year * 12 + since.month - 1, until.year * 12 + until.month - 1
        for number in range(first, last + 1)[::step]:
            year, month = number // 12, number % 12 + 1
            if month not in self.months:
                continue
            weekday, length = monthrange(year, month)
            low, high = since.day if number == first else 1, until.day if number == last else length
            named = self.days[bisect_left(self.days, low) : bisect_right(self.days, high)]
            for day in (range(low, high + 1) if self.either_day else named)[::step]:
                if self._names(day, (weekday + day) % 7):
                    yield date(year, month, day)

    def _later_on(self, start: datetime) -> datetime | None:
        # Every fire comes this way: nothing is built here but the answer.
        if not self.runs_on(start):
            return None
        minute = start.minute + (1 if start.second or start.microsecond else 0)
        if start.hour in self.hours and minute <= self.minutes[-1]:
            return _join(start, start.hour, self.minutes[bisect_left(self.minutes, minute)])
        index = bisect_right(self.hours, start.hour)
        return _join(start, self.hours[index], self.minutes[0]) if index < len(self.hours) else None

    def _on_a_day_after(self, start: datetime, stop: datetime) -> datetime | None:
        day: date | None = start.date() + _DAY
        if day and not self.runs_on(day):
            day = next(self.days_between(day, stop.date()), None)
        return _join(day, self.hours[0], self.minutes[0]) if day else None

    def _names(self, day: int, weekday: int) -> bool:
        if self.either_day:
            return day in self.days or weekday in self.weekdays
        return day in self.days and weekday in self.weekdays


@lru_cache(maxsize=4096)
def parse(expression: str) -> Schedule:
    """Read an expression of exactly five fields; raise CronError for whatever crontab(5) does not plainly allow.

    The fields are minute, hour, day of month, month (or jan-dec) and day of week (0-7, 0 and 7 are Sunday; or sun-sat),
    names in any case. Refused are seconds, years, `@daily`, `L`, `W`, `#`, `?`, `R`, `H`, ranges that wrap around, a
    step on a single value, and a step larger than its field.
    """
    texts = split_fields(expression)
    minute, hour, day, _, weekday = texts
    minutes, hours, days, months, weekdays = map(read_field, FIELDS, texts)
    return Schedule(
        " ".join(texts),
        minutes,
        hours,
        days,
        months,
        weekdays,
        either_day=day[0] != "*" and weekday[0] != "*",
        real_time=minute[0] == "*" or hour[0] == "*",
    )


def next_after(schedule: Schedule, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the first instant strictly after `after`, in UTC; None when there is none within HORIZON.

    1. Guess: the next wall-clock minute that matches, when it is first shown. That is it, if the clocks do show it and
       do not soon show again what they show now.
    2. Else look at what the zone really does in the next days, and guess again from there, or from shortly before the
       guess: no minute in between matches.
    """
    start = _utc(after) + _TICK
    limit = min(start, _LAST) + HORIZON
    while start < limit:
        local = start.astimezone(zone)
        guess = schedule.first(local, datetime.combine(limit, _MIDNIGHT))
        if guess is None:
            return None
        read = datetime.combine(guess, guess.time(), zone)
        found = read.astimezone(UTC)
        shown = found.astimezone(zone)
        soon = shown if found - start < STRIDE else (start + _DAY).astimezone(zone)  # no clock goes back by more
        if shown == read and soon.utcoffset() == local.utcoffset():
            return found
        if slot := _first_slot(schedule, zone, start, start + _SLACK):
            return slot
        start = max(start + _SLACK, found - _SLACK)
    return None


def latest_until(schedule: Schedule, zone: ZoneInfo, until: datetime, *, since: datetime) -> datetime | None:
    """Return the latest instant in [since, until], in UTC; None when there is none. Seek backwards."""
    start, stop = _utc(since), _utc(until) + _TICK
    while start < stop:
        near = max(start, stop - _SLACK)
        if slot := _last_slot(schedule, zone, near, stop):
            return slot
        wall = near.replace(tzinfo=None)
        guess = schedule.last(min(wall, start.replace(tzinfo=None) - _SLACK), wall + _SLACK)
        if guess is None:
            return None
        stop = min(near, guess.replace(tzinfo=UTC) + _SLACK)
    return None


def count_between(schedule: Schedule, zone: ZoneInfo, after: datetime, until: datetime) -> int:
    """Count the instants in (after, until], without stepping through them: days are counted."""
    start, stop = _utc(after) + _TICK, _utc(until) + _TICK
    return sum(window.count(schedule) for window in _windows(schedule, zone, start, stop))


def tightest_gap(schedule: Schedule) -> timedelta:
    """Return the shortest time between any two neighbours in the schedule, on a wall clock that never changes.

    Changes of the clocks are left out on purpose. They bring two fires closer once a year, by the length of the change
    (a daily schedule has one day of 23 hours); a floor held against that would refuse "daily" in Berlin but not in UTC.
    A schedule that never fires, or only once in 28 years, has the gap `timedelta.max`.
    """
    times = schedule.times
    within = min((later - earlier for earlier, later in pairwise(times)), default=None)
    between = _tightest_days(schedule)
    across = between * _DAY - _MINUTE * (times[-1] - times[0]) if between else timedelta.max
    return across if within is None else min(across, _MINUTE * within)


def never_fires(schedule: Schedule) -> bool:
    """Tell whether no year has a day that the schedule names (`0 0 30 2 *`)."""
    return next(schedule.days_between(*_YEARS), None) is None


@dataclass(frozen=True, slots=True)
class _Window:
    """Wall-clock minutes [begin, end) read by one offset; a match in [opening, begin) runs when the window begins."""

    opening: datetime
    begin: datetime
    end: datetime
    offset: timedelta

    def first(self, schedule: Schedule) -> datetime | None:
        wall = schedule.first(self.opening, self.end)
        return _instant(max(wall, self.begin), self.offset) if wall else None

    def last(self, schedule: Schedule) -> datetime | None:
        wall = schedule.last(self.opening, self.end)
        return _instant(max(wall, self.begin), self.offset) if wall else None

    def count(self, schedule: Schedule) -> int:
        if self.opening == self.begin:
            return schedule.count(self.begin, self.end)
        late = schedule.count(self.opening, self.begin + _MINUTE)
        return min(late, 1) + schedule.count(self.begin + _MINUTE, self.end)


def _first_slot(schedule: Schedule, zone: ZoneInfo, start: datetime, stop: datetime) -> datetime | None:
    return next(filter(None, (window.first(schedule) for window in _windows(schedule, zone, start, stop))), None)


def _last_slot(schedule: Schedule, zone: ZoneInfo, start: datetime, stop: datetime) -> datetime | None:
    windows = reversed(list(_windows(schedule, zone, start, stop)))
    return next(filter(None, (window.last(schedule) for window in windows)), None)


def _windows(schedule: Schedule, zone: ZoneInfo, start: datetime, stop: datetime) -> Iterator[_Window]:
    """Cut the instants [start, stop) into windows in which instants follow from the wall clock."""
    done: datetime | None = None  # how far the wall clock had come before this stretch
    for stretch in stretches(zone, start - _LIMIT, stop):
        begin, end = _wall(stretch.start, stretch.offset), _wall(stretch.stop, stretch.offset)
        opening, begin = (begin, begin) if schedule.real_time or done is None else _resume(done, begin)
        done = end
        if (cut := _wall(start, stretch.offset)) > begin:
            opening = begin = cut
        if begin < end:
            yield _Window(opening, begin, end, stretch.offset)


def _resume(done: datetime, begin: datetime) -> tuple[datetime, datetime]:
    # The daemon takes three hours back for a repetition still, and three hours forward for a correction already.
    if done < begin < done + _LIMIT:
        return done, begin
    if begin < done <= begin + _LIMIT:
        return done, done
    return begin, begin


def _tightest_days(schedule: Schedule) -> int | None:
    tightest: int | None = None
    for earlier, later in pairwise(schedule.days_between(*_YEARS)):
        gap = (later - earlier).days
        if gap == 1:
            return 1
        tightest = min(gap, tightest or gap)
    return tightest


# --- For people ------------------------------------------------------------------------------------------------------


def describe(schedule: Schedule | str) -> str:
    """Say a schedule, or an expression, in one short line: "weekdays at 09:00", "every 5 minutes".

    What cannot be said shortly and exactly is given as it is: "cron 3,7 1-5/2 * * *". Raise CronError as parse does.
    """
    schedule = parse(schedule) if isinstance(schedule, str) else schedule
    times, days, months = _say_times(schedule), _say_days(schedule), _say_months(schedule)
    if times is None or days is None or months is None:
        return f"cron {schedule.expression}"
    if times.startswith("at ") and days.startswith(("every day", "week", "on the")):
        return f"{days}{months} {times}"
    after = {"every day": "", "weekdays": " on weekdays", "weekends": " on weekends"}.get(days, f" {days}")
    return f"{times}{after}{months}"


def _say_times(schedule: Schedule) -> str | None:
    minutes, hours = schedule.minutes, schedule.hours
    pace, hourly = _pace(minutes, 60), _pace(hours, 24)
    paced = "every minute" if pace == 1 else f"every {pace} minutes"
    if hourly == 1:
        return paced if pace else _listed("every hour at ", [f":{minute:02}" for minute in minutes])
    if hourly and hourly < 12 and len(minutes) == 1:
        return f"every {hourly} hours" + (f" at :{minutes[0]:02}" if minutes[0] else "")
    if len(schedule.times) > 4 and len(hours) == hours[-1] - hours[0] + 1 and (pace or len(minutes) == 1):
        return f"{paced if pace else 'every hour'} from {_clock(schedule.times[0])} to {_clock(schedule.times[-1])}"
    return _listed("at ", [_clock(minute) for minute in schedule.times])


def _say_days(schedule: Schedule) -> str | None:
    any_date, any_weekday = len(schedule.days) == 31, len(schedule.weekdays) == 7
    if (any_date and any_weekday) or (schedule.either_day and (any_date or any_weekday)):
        return "every day"
    dates = _listed("on the ", [_ordinal(day) for day in schedule.days])
    weekdays = _say_weekdays(schedule)
    if any_date or any_weekday:
        return weekdays if any_date else dates
    simple = schedule.either_day and dates and len(schedule.weekdays) == 1
    return f"{dates} and on every {weekdays[3:]}" if simple else None


def _say_weekdays(schedule: Schedule) -> str:
    known = {(1, 2, 3, 4, 5): "weekdays", (0, 6): "weekends"}
    names = [WEEKDAY.names[day % 7].title() for day in range(1, 8) if day % 7 in schedule.weekdays]
    return known.get(schedule.weekdays) or f"on {_joined(names)}"


def _say_months(schedule: Schedule) -> str | None:
    if len(schedule.months) == 12:
        return ""
    return _listed(" in ", [MONTH.names[month - 1].title() for month in schedule.months])


def _pace(values: tuple[int, ...], full: int) -> int | None:
    step = full // len(values)
    return step if len(values) > 1 and values == tuple(range(0, full, step)) and full % step == 0 else None


def _listed(lead: str, words: Sequence[str]) -> str | None:
    return lead + _joined(words) if len(words) <= 4 else None


def _joined(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _ordinal(day: int) -> str:
    return f"{day}{'th' if 10 < day < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


# --- Instants and walls ----------------------------------------------------------------------------------------------


def _utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no offset, so it names no instant")
    return instant.astimezone(UTC)


def _wall(instant: datetime, offset: timedelta) -> datetime:
    return instant.replace(tzinfo=None) + offset


def _instant(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _split(wall: datetime) -> tuple[date, int]:
    # The first whole minute that is not before `wall`; 1440 for the next midnight.
    minute = wall.hour * 60 + wall.minute + (1 if wall.second or wall.microsecond else 0)
    return wall.date(), minute


def _join(day: date, hour: int, minute: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001  (a wall clock's time has no zone)
