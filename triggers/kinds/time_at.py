"""`time.at`: fires once, when an instant passes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from sessions.instants import iso
from triggers.kinds import base
from triggers.zones import ZoneError, gap_readings, load_zone, resolve_wall

_FORM = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?\s?(Z|z|[+-]\d\d:?(\d\d)?)?\Z", re.ASCII)
_YEARS = range(2, 9900)  # far enough from the calendar's ends for any zone, and for any expiry after it
_WANTED = 'an ISO 8601 instant with an offset ("2026-12-07T09:00:00+01:00"), or a wall-clock time with `timezone`'


class AtArgs(base.Args):
    at: Annotated[
        str,
        Field(
            description='When: ISO 8601 with an offset ("2026-12-07T09:00:00Z"), '
            'or a wall-clock time ("2026-12-07T09:00:00") together with timezone.'
        ),
    ]
    timezone: Annotated[
        str | None, Field(description='IANA zone, e.g. "Europe/Berlin". An offset within `at` wins over it.')
    ] = None

    @model_validator(mode="after")
    def _names_one_instant(self) -> AtArgs:
        self.instant  # noqa: B018 (computing it is the check)
        return self

    @cached_property
    def place(self) -> ZoneInfo | None:
        try:
            return load_zone(self.timezone) if self.timezone is not None else None
        except ZoneError as error:
            raise base.ArgsError("timezone", str(error)) from error

    @cached_property
    def instant(self) -> datetime:
        """The one instant that `at` names, in UTC."""
        moment = self._parsed()
        if moment.tzinfo is not None:
            self.place  # noqa: B018 (an unknown zone is refused even where the offset wins)
            return moment.astimezone(UTC)
        if self.place is None:
            raise base.ArgsError("at", f"{self.at} has no offset and no timezone is given; give {_WANTED}")
        return self._on_the_wall(moment, self.place)

    def _parsed(self) -> datetime:
        if not _FORM.match(self.at):
            raise base.ArgsError("at", f"{self.at[:80]!r} is not an instant; give {_WANTED}")
        try:
            moment = datetime.fromisoformat(
                self.at.replace(",", ".").replace("z", "Z").replace(" ", "T", 1).replace(" ", "")
            )
        except ValueError as error:
            raise base.ArgsError("at", f"{self.at!r} does not exist ({error}); give {_WANTED}") from error
        if moment.year not in _YEARS:
            raise base.ArgsError("at", f"{self.at} is out of range; give {_WANTED}")
        return moment

    def _on_the_wall(self, wall: datetime, place: ZoneInfo) -> datetime:
        instants = resolve_wall(wall, place)
        if len(instants) == 1:
            return instants[0]
        readings = instants or gap_readings(wall, place)
        why = "happens twice" if instants else "does not exist"
        both = " or ".join(f'"{reading.astimezone(place).isoformat()}" ({iso(reading)})' for reading in readings)
        raise base.ArgsError(
            "at", f"{self.at} {why} in {place.key}, where the clocks change; say which you mean: {both}"
        )


class TimeAt(base.TimeKind[AtArgs]):
    name: ClassVar[str] = "time.at"
    summary: ClassVar[str] = "fires once, at an instant"
    Args = AtArgs
    max_fires: ClassVar[int | None] = 1

    def check(self, args: AtArgs, *, now: datetime, rules: base.Rules) -> None:
        instant = args.instant
        if instant < now - base.ON_TIME:
            raise base.ArgsError("at", f"{iso(instant)} is in the past, it is now {iso(now)}; give a future instant")
        if rules.triggered and instant < now + rules.min_interval:
            least = now + rules.min_interval
            raise base.ArgsError(
                "at",
                f"{iso(instant)} is too soon: this turn was itself caused by a trigger, so the next wake must be "
                f"{rules.min_interval.total_seconds():g} s ahead or more, {iso(least)} or later (it is now {iso(now)})",
            )

    def describe(self, args: AtArgs, *, now: datetime) -> str:
        local = args.instant.astimezone(args.place or UTC)
        return f"once, {local:%a %Y-%m-%d %H:%M:%S %Z}"

    def zone(self, args: AtArgs) -> str:
        return args.timezone or "UTC"

    def default_expiry(self, args: AtArgs, *, now: datetime, after: timedelta) -> datetime:
        return max(now, args.instant) + after

    def next_due(self, args: AtArgs, *, after: datetime) -> datetime | None:
        return args.instant if args.instant > after else None

    def catch_up(self, args: AtArgs, *, due: datetime, now: datetime, until: datetime) -> base.CatchUp:
        return base.CatchUp(fire=args.instant)
