"""Play Debian's cron daemon, minute by minute, as an oracle: slow, plain and written apart from `triggers.cron`.

It keeps a virtual clock as the daemon does: after a jump forward it catches up for fixed jobs, after one back it holds
them until the real clock has come as far again, and three hours or more it takes for a correction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Job:
    """The five texts of an expression, each with the values that whoever drew it meant."""

    texts: tuple[str, ...]
    values: tuple[frozenset[int], ...]

    @property
    def expression(self) -> str:
        return " ".join(self.texts)

    @property
    def is_wild(self) -> bool:
        return self.texts[0].startswith("*") or self.texts[1].startswith("*")

    def matches(self, wall: datetime) -> bool:
        minute, hour, day, month, weekday = self.values
        if wall.minute not in minute or wall.hour not in hour or wall.month not in month:
            return False
        in_days, in_week = wall.day in day, wall.isoweekday() % 7 in weekday
        starred = self.texts[2].startswith("*") or self.texts[4].startswith("*")
        return (in_days and in_week) if starred else (in_days or in_week)


def fires(job: Job, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """List the instants in (after, until] at which the daemon, up for some hours already, starts the job."""
    now = after.replace(second=0, microsecond=0) - timedelta(hours=4)
    virtual = _wall(now, zone)
    found = []
    while now < until:
        now += MINUTE
        clock = _wall(now, zone)
        if after < now <= until and any(_started(job, virtual, clock)):
            found.append(now)
        virtual = clock if _moves(virtual, clock) else virtual
    return found


def _started(job: Job, virtual: datetime, clock: datetime) -> Iterator[bool]:
    ahead = (clock - virtual) // MINUTE
    if job.is_wild or ahead > 180 or ahead <= -180:
        yield job.matches(clock)
    elif ahead > 0:
        yield from (job.matches(virtual + MINUTE * step) for step in range(1, ahead + 1))


def _moves(virtual: datetime, clock: datetime) -> bool:
    return clock > virtual or (clock - virtual) // MINUTE <= -180


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def utc(text: str) -> datetime:
    """Read `2026-03-29T01:00Z`."""
    return datetime.fromisoformat(text).astimezone(UTC)
