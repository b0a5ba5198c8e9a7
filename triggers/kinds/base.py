"""The contract of a kind: what an agent may wait for. Kinds are pure: no ORM, no network, no clock."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

ON_TIME = timedelta(seconds=60)  # how late an instant may be and still count as on time


class Args(BaseModel):
    """A kind's own data. Unknown fields are refused; text is trimmed."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


A = TypeVar("A", bound=Args)


class ArgsError(ValueError):
    """An argument that cannot be accepted: `field` names it, `message` says what would be right."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Rules:
    """The limits that a kind has to know at arming. `triggered`: in a turn that a trigger caused."""

    min_interval: timedelta
    triggered: bool = False


@dataclass(frozen=True)
class CatchUp:
    """What to do about a due instant, looked at from a possibly much later now.

    `fire` is the instant to fire for, None if none. `missed` counts the earlier instants, since
    `since`, that passed without a fire of their own; `skipped` tells whether they are given up
    (recorded as skipped) rather than made good by this fire.
    """

    fire: datetime | None
    missed: int = 0
    since: datetime | None = None
    skipped: bool = False


class Kind(ABC, Generic[A]):
    """One kind of trigger. `Args` is the shape of a trigger's `args`."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for the tool's description
    Args: type[A]  # in each kind: its own subclass of `Args`
    max_fires: ClassVar[int | None] = None  # a bound that the kind itself sets

    def check(self, args: A, *, now: datetime, rules: Rules) -> None:
        """Refuse what is well-formed but makes no sense, with `ArgsError`."""

    @abstractmethod
    def describe(self, args: A, *, now: datetime) -> str:
        """Return one line for people: what it waits for, and when that is next."""

    def notes(self, args: A) -> list[str]:
        """Return what the one who arms it should know of it besides."""
        return []

    def zone(self, args: A) -> str:
        """Return the zone in which people read its times."""
        return "UTC"

    def default_expiry(self, args: A, *, now: datetime, after: timedelta) -> datetime:
        """Return when a trigger armed without an expiry expires."""
        return now + after

    def secrets(self, args: A) -> dict[str, str]:
        """Return the secrets that a new trigger of this kind needs, by name."""
        return {}

    def read(self, args: Mapping[str, Any]) -> A:
        """Read stored or given args. Raises pydantic's `ValidationError`."""
        return self.Args.model_validate(args)


class TimeKind(Kind[A]):
    """A kind that the clock fires."""

    @abstractmethod
    def next_due(self, args: A, *, after: datetime) -> datetime | None:
        """Return the first instant strictly after `after`, in UTC, or None."""

    @abstractmethod
    def catch_up(self, args: A, *, due: datetime, now: datetime, until: datetime) -> CatchUp:
        """Say what to fire for an instant `due` that has passed by `now`; nothing after `until` counts."""

    def occurrence(self, args: A, due: datetime) -> str:
        """Return what makes the firing for `due` unique: the instant itself."""
        return due.isoformat().replace("+00:00", "Z")


class EventKind(Kind[A]):
    """A kind that an observation of a forge fires."""

    @abstractmethod
    def matches(self, args: A, observation: Any) -> bool:
        """Return whether an observation is what this trigger waits for."""

    @abstractmethod
    def occurrence(self, args: A, observation: Any) -> str:
        """Return what makes the firing for this observation unique."""


def _as_list(value: Any) -> Any:
    """Accept a list as models send it: JSON in a string, or items with commas between them."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return [item.strip() for item in value.split(",") if item.strip()]


AsList = BeforeValidator(_as_list)
TextList = Annotated[list[str], AsList]
