"""The contract of a kind: what an agent may wait for. Kinds are pure: no ORM, no network, no clock."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from triggers.observations import Observation, Resource

ON_TIME = timedelta(seconds=60)  # how late an instant may be and still count as on time

_REPO_PART = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_REPO_URL = re.compile(r"https?://(?P<host>[^/@\s]+)/(?P<repo>[^?#\s]+?)(\.git)?/?")


class Strict(BaseModel):
    """What models and programs send. Unknown fields are refused; text is trimmed; true and false are no numbers."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a truth where an integer is wanted: pydantic alone takes it for 1 or 0."""
        if isinstance(value, bool) and _is_integer(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticKnownError("int_type")
        return value


class Args(Strict):
    """A kind's own data."""

    model_config = ConfigDict(frozen=True)


class RepoArgs(Args):
    """The args of a kind that looks at a repository."""

    repo: Annotated[str, Field(description='The repository as "owner/name".', max_length=255)]
    host: Annotated[
        str | None, Field(description='The forge\'s name, e.g. "github.com"; needed only where there are several.')
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _take_url_apart(cls, given: Any) -> Any:
        """Accept a repository's URL for its name: it says the host too."""
        match = _REPO_URL.fullmatch(given["repo"].strip()) if isinstance(given, dict) and _is_text(given) else None
        if match is None:
            return given
        host = given.get("host") or match["host"]
        if host.lower() != match["host"].lower():
            raise ArgsError("host", f"is {host!r}, but the URL in repo says {match['host']!r}; give one of them")
        return given | {"repo": match["repo"], "host": host}

    @field_validator("repo")
    @classmethod
    def _is_a_repo(cls, value: str) -> str:
        parts = value.split("/")
        if len(parts) < 2 or not all(_REPO_PART.fullmatch(part) and part.strip(".") for part in parts):
            raise ValueError(f'must be "owner/name", e.g. "octo/repo", not {value[:80]!r}')
        return value

    @field_validator("host")
    @classmethod
    def _is_lower(cls, value: str | None) -> str | None:
        return value.lower() if value else None

    @property
    def place(self) -> str:
        """Return the repository and its host, for people."""
        return f"{self.repo} on {self.host}" if self.host else self.repo


A = TypeVar("A", bound=Args)
R = TypeVar("R", bound=RepoArgs)


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

    def default_expiry(self, args: A, *, now: datetime, after: timedelta) -> datetime:
        """Return when a trigger armed without an expiry expires: never before it could first fire."""
        first = self.next_due(args, after=now)
        return first + after if first and first > now + after else now + after

    def occurrence(self, args: A, due: datetime) -> str:
        """Return what makes the firing for `due` unique: the instant itself."""
        return due.isoformat().replace("+00:00", "Z")


class EventKind(Kind[R]):
    """A kind that an observation of a forge fires."""

    @abstractmethod
    def resource(self, args: R) -> Resource | None:
        """Return what to look at, None where polling would never see what this trigger waits for."""

    @abstractmethod
    def matches(self, args: R, observation: Observation) -> bool:
        """Return whether an observation is what this trigger waits for."""

    def occurrence(self, args: R, observation: Observation) -> str:
        """Return what makes the firing for this observation unique."""
        return observation.key

    def is_last(self, args: R, observation: Observation) -> bool:
        """Return whether nothing that this trigger waits for can follow."""
        return False


def _is_integer(annotation: Any) -> bool:
    return annotation is int or int in get_args(annotation)


def _is_text(given: dict[str, Any]) -> bool:
    return isinstance(given.get("repo"), str) and isinstance(given.get("host") or "", str)


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
