"""`forge.pr`: fires when a pull request is merged or closed, or its checks have come to a verdict."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from triggers.kinds import base
from triggers.observations import Observation, PullEvent, PullSeen, PullState, Resource, Scope, Verdict

_UNSEEN = (PullEvent.REVIEW, PullEvent.COMMENT)


def _without_hash(value: object) -> object:
    return value.strip().removeprefix("#") if isinstance(value, str) else value


class PullArgs(base.RepoArgs):
    number: Annotated[
        int, BeforeValidator(_without_hash), Field(description="The pull request's number.", ge=1, lt=2**63)
    ]
    events: Annotated[
        base.TextList, Field(description=f"What to wait for: a list of {', '.join(PullEvent)}.", min_length=1)
    ]

    @field_validator("events")
    @classmethod
    def _are_known(cls, value: list[str]) -> list[str]:
        events = list(dict.fromkeys(event.lower() for event in value))
        if unknown := [event for event in events if event not in list(PullEvent)]:
            raise ValueError(f"{', '.join(map(repr, unknown))} is none of {', '.join(PullEvent)}")
        return events


class ForgePr(base.EventKind[PullArgs]):
    name: ClassVar[str] = "forge.pr"
    summary: ClassVar[str] = "fires when a pull request is merged, closed or has its CI verdict"
    Args = PullArgs

    def describe(self, args: PullArgs, *, now: datetime) -> str:
        return f"pull request #{args.number} in {args.place}: {', '.join(args.events)}"

    def notes(self, args: PullArgs) -> list[str]:
        unseen = [event for event in args.events if event in _UNSEEN]
        if not unseen:
            return []
        only = "" if self.resource(args) else ", so this trigger will not fire at all"
        instead = "arm a webhook trigger for that, and have its hook_url entered in the repository's webhook settings"
        return [f"polling never fires {' or '.join(unseen)}{only}: {instead}"]

    def resource(self, args: PullArgs) -> Resource | None:
        if all(event in _UNSEEN for event in args.events):
            return None
        return Resource(Scope.PULL, args.repo, args.number, checks=PullEvent.CI_STATUS in args.events)

    def matches(self, args: PullArgs, observation: Observation) -> bool:
        if not isinstance(observation, PullSeen) or observation.event not in args.events:
            return False
        # That the pull request has ended is news only to whoever does not wait for that anyway.
        return observation.verdict != Verdict.UNSETTLED or observation.state not in args.events

    def is_last(self, args: PullArgs, observation: Observation) -> bool:
        """What is merged stays so, and ends the wait for its checks; what is closed may reopen."""
        if not isinstance(observation, PullSeen):
            return False
        if observation.verdict == Verdict.UNSETTLED:
            return True
        if observation.state == PullState.MERGED:
            return observation.event == PullEvent.CI_STATUS or PullEvent.CI_STATUS not in args.events
        return observation.event == PullEvent.CLOSED and {PullEvent.CLOSED, *_UNSEEN}.issuperset(args.events)
