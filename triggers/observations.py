"""What can be seen of a forge, in words of our own: a closed vocabulary that every forge is read into.

No forge's own word gets past here. One that is not in a forge's table is reported as unknown, and
what it says counts as not yet over: better late than wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sessions.instants import iso


class Conclusion(StrEnum):
    """How a run, a job or a check ended."""

    SUCCESS = "success"
    SKIPPED = "skipped"
    NEUTRAL = "neutral"
    FAILURE = "failure"
    TIMED_OUT = "timed_out"
    STARTUP_FAILURE = "startup_failure"
    CANCELLED = "cancelled"
    STALE = "stale"
    ACTION_REQUIRED = "action_required"


class Verdict(StrEnum):
    """What it comes to, for one run or for all checks of a commit."""

    PASSING = "passing"
    FAILING = "failing"
    CANCELLED = "cancelled"
    STALE = "stale"
    ACTION_REQUIRED = "action_required"
    PENDING = "pending"
    NO_CHECKS = "no_checks"  # nothing has reported on the commit for as long as the grace lasts
    UNSETTLED = "unsettled"  # merged or closed while its checks were under way


VERDICTS = {
    Conclusion.SUCCESS: Verdict.PASSING,
    Conclusion.SKIPPED: Verdict.PASSING,
    Conclusion.NEUTRAL: Verdict.PASSING,
    Conclusion.FAILURE: Verdict.FAILING,
    Conclusion.TIMED_OUT: Verdict.FAILING,
    Conclusion.STARTUP_FAILURE: Verdict.FAILING,
    Conclusion.CANCELLED: Verdict.CANCELLED,
    Conclusion.STALE: Verdict.STALE,
    Conclusion.ACTION_REQUIRED: Verdict.ACTION_REQUIRED,
}
# The first of these that any check has is the commit's.
_WORST = (Verdict.PENDING, Verdict.FAILING, Verdict.ACTION_REQUIRED, Verdict.CANCELLED, Verdict.STALE)


class Scope(StrEnum):
    """What of a repository is looked at."""

    RUNS = "runs"
    RUN = "run"
    PULL = "pull"


class PullEvent(StrEnum):
    """What can happen to a pull request. The last two are never seen by polling."""

    MERGED = "merged"
    CLOSED = "closed"
    CI_STATUS = "ci_status"
    REVIEW = "review"
    COMMENT = "comment"


class PullState(StrEnum):
    """Where a pull request stands."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True)
class Resource:
    """One thing to look at on a forge: what triggers share a poll of.

    `number` is a run's id or a pull request's number. `checks`: its commit's checks are wanted too.
    """

    scope: Scope
    repo: str
    number: int | None = None
    checks: bool = False

    @property
    def key(self) -> str:
        """Return what tells this resource from others of its host. Forges ignore case in a repository's name."""
        number = "" if self.number is None else f" {self.number}"
        return f"{self.scope} {self.repo.casefold()}{number}"


@dataclass(frozen=True)
class RunSeen:
    """One attempt of a run, as it stands. `conclusion` is None while it is not over."""

    run_id: int
    attempt: str  # its number; on a forge that does not count, the instant at which it ended
    conclusion: Conclusion | None
    name: str  # of the workflow, for people
    file: str  # of the workflow, without its folder
    ref: str  # branch or tag
    owner: str  # of the repository that the ref is in, where that is a fork
    sha: str
    event: str
    title: str
    url: str
    actor: str
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None

    what: ClassVar[str] = "run"

    @property
    def key(self) -> str:
        """Return what tells this attempt from every other."""
        return f"{self.run_id}:{self.attempt}"

    @property
    def verdict(self) -> Verdict:
        return VERDICTS[self.conclusion] if self.conclusion else Verdict.PENDING

    @property
    def counts_from(self) -> datetime | None:
        """Return the instant of which a trigger must be older for this to count, by the forge's clock."""
        return self.ended_at


@dataclass(frozen=True)
class PullSeen:
    """One thing that is so of a pull request."""

    event: PullEvent
    number: int
    sha: str  # of its head
    verdict: Verdict | None
    state: PullState
    title: str
    url: str
    actor: str
    at: datetime | None
    checks: dict[str, int]  # how many of the head's checks stand how

    what: ClassVar[str] = "pull_request"
    counts_from: ClassVar[datetime | None] = None  # it is so now, whenever it came about

    @property
    def key(self) -> str:
        if self.event == PullEvent.CI_STATUS:
            return f"{self.event}:{self.sha}:{self.verdict}"
        return self.event


Observation = RunSeen | PullSeen


@dataclass(frozen=True)
class Pull:
    """A pull request as it stands. `checks` is None where they were not asked for."""

    number: int
    state: PullState
    sha: str
    title: str
    url: str
    author: str
    ended_by: str
    ended_at: datetime | None
    checks: list[Verdict] | None

    def seen(self, *, quiet: bool) -> list[PullSeen]:
        """Return what is so of it. `quiet`: its head has been without any check for the whole grace.

        An empty set of checks says nothing: they may not have been created yet. A pull request that
        has ended ends the wait for its checks, and says so.
        """
        found = []
        if self.state == PullState.MERGED:
            found.append(self._seen(PullEvent.MERGED))
        if self.state == PullState.CLOSED:
            found.append(self._seen(PullEvent.CLOSED))
        if self.checks is None:
            return found
        verdict = overall(self.checks)
        if verdict == Verdict.NO_CHECKS and not quiet:
            verdict = Verdict.PENDING
        if verdict == Verdict.PENDING and self.state != PullState.OPEN:
            verdict = Verdict.UNSETTLED
        if verdict != Verdict.PENDING:
            found.append(self._seen(PullEvent.CI_STATUS, verdict))
        return found

    def _seen(self, event: PullEvent, verdict: Verdict | None = None) -> PullSeen:
        ended = event != PullEvent.CI_STATUS
        counts: dict[str, int] = {}
        for check in self.checks or []:
            counts[check] = counts.get(check, 0) + 1
        return PullSeen(
            event=event,
            number=self.number,
            sha=self.sha,
            verdict=verdict,
            state=self.state,
            title=self.title,
            url=self.url,
            actor=self.ended_by if ended else self.author,
            at=self.ended_at if ended else None,
            checks=counts,
        )


def overall(checks: Iterable[Verdict]) -> Verdict:
    """Return what all checks of a commit come to: nothing is settled while one is pending, nothing passes unseen."""
    seen = set(checks)
    if not seen:
        return Verdict.NO_CHECKS
    return next((verdict for verdict in _WORST if verdict in seen), Verdict.PASSING)


def as_json(observation: Observation) -> dict[str, Any]:
    """Return an observation as a wake's payload shows it: what is not known is left out."""
    shown = {"what": observation.what, "verdict": observation.verdict} | asdict(observation)
    return {name: _plain(value) for name, value in shown.items() if value not in (None, "", {})}


def _plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value
