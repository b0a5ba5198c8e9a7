"""`time.cron`: fires at each slot of a five-field cron schedule in a time zone."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from sessions.instants import iso
from triggers.cron import CronError, Schedule, count_between, describe, latest_until, next_after, parse, tightest_gap
from triggers.kinds import base
from triggers.zones import ZoneError, load_zone


class Misfire(StrEnum):
    """What becomes of slots that passed while nothing could fire."""

    ONCE = "once"
    SKIP = "skip"


class CronArgs(base.Args):
    cron: Annotated[
        str,
        Field(description='Exactly five fields: minute hour day-of-month month day-of-week, e.g. "0 9 * * mon-fri".'),
    ]
    timezone: Annotated[str, Field(description='IANA zone of the schedule, e.g. "Europe/Berlin".')] = "UTC"
    misfire: Annotated[
        Misfire,
        Field(
            description='Slots missed by downtime or a pause: "once" fires once for all of them, "skip" gives them up.'
        ),
    ] = Misfire.ONCE

    @model_validator(mode="after")
    def _can_be_read(self) -> CronArgs:
        self.place, self.schedule  # noqa: B018 (computing them is the check)
        return self

    @cached_property
    def place(self) -> ZoneInfo:
        try:
            return load_zone(self.timezone)
        except ZoneError as error:
            raise base.ArgsError("timezone", str(error)) from error

    @cached_property
    def schedule(self) -> Schedule:
        try:
            return parse(self.cron)
        except CronError as error:
            raise base.ArgsError("cron", str(error).removeprefix("cron: ")) from error


class TimeCron(base.TimeKind[CronArgs]):
    name: ClassVar[str] = "time.cron"
    summary: ClassVar[str] = "fires at each slot of a cron schedule"
    Args = CronArgs

    def check(self, args: CronArgs, *, now: datetime, rules: base.Rules) -> None:
        if self.next_due(args, after=now) is None:
            raise base.ArgsError("cron", f"{args.cron!r} never fires: no such date exists; it is now {iso(now)}")
        gap = tightest_gap(args.schedule)
        if gap < rules.min_interval:
            raise base.ArgsError(
                "cron",
                f"{args.cron!r} has fires {gap.total_seconds():g} s apart; between any two of them, "
                f"anywhere in the schedule, must lie at least {rules.min_interval.total_seconds():g} s",
            )

    def describe(self, args: CronArgs, *, now: datetime) -> str:
        line = f"{describe(args.schedule)}, {args.timezone}"
        upcoming = self.next_due(args, after=now)
        return f"{line}; next {upcoming.astimezone(args.place):%a %Y-%m-%d %H:%M %Z}" if upcoming else line

    def notes(self, args: CronArgs) -> list[str]:
        if "timezone" in args.model_fields_set:
            return []
        return ["no timezone was given, so the schedule is in UTC; arm again with timezone if that is not meant"]

    def zone(self, args: CronArgs) -> str:
        return args.timezone

    def next_due(self, args: CronArgs, *, after: datetime) -> datetime | None:
        return next_after(args.schedule, args.place, after)

    def catch_up(self, args: CronArgs, *, due: datetime, now: datetime, until: datetime) -> base.CatchUp:
        """Fire for the latest slot there has been; all earlier ones were missed.

        With `skip`, the latest slot too is given up, unless it is on time.
        """
        latest = latest_until(args.schedule, args.place, min(now, until), since=due) or due
        on_time = now - latest <= base.ON_TIME
        earlier = count_between(args.schedule, args.place, due, latest) if latest > due else 0
        missed = earlier if on_time else earlier + 1
        fire = None if args.misfire == Misfire.SKIP and not on_time else latest
        return base.CatchUp(fire, missed, due if missed else None, skipped=args.misfire == Misfire.SKIP)
