"""A fake forge, a clock that both it and the poller read, and rounds of polling by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sessions.models import Wake
from tests.factories import armed_session
from tests.triggers.forges.fake import FakeForge, FakeGitHub
from triggers import polling
from triggers.models import Fire, Trigger

F = TypeVar("F", bound=FakeForge)
MINUTE = 60


@dataclass
class World(Generic[F]):
    """`now` is our clock; the forge's is `ahead` of it."""

    forge: F
    now: datetime
    ahead: timedelta = timedelta(0)

    def pass_time(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        self.forge.now = self.now + self.ahead
        return self.now

    def poll(self) -> int:
        """Ask for what is due now."""
        return polling.poll(clock=lambda: self.now)

    def later(self, seconds: float = MINUTE) -> int:
        """Let time pass, and ask for what is due then."""
        self.pass_time(seconds)
        return self.poll()

    def arm(self, kind: str, **fields: Any) -> Trigger:
        """Arm a trigger in a session of its own."""
        return armed_session(self.now, kind, **fields)

    def arm_ci(self, workflow: str = "ci.yml", **args: Any) -> Trigger:
        return self.arm("ci.workflow", args={"repo": "octo/repo", "workflow": workflow} | args)

    def arm_pr(self, *events: str, number: int = 5) -> Trigger:
        return self.arm("forge.pr", args={"repo": "octo/repo", "number": number, "events": list(events)})


def fired(trigger: Trigger) -> list[str]:
    """Return what has fired, oldest first."""
    return list(Fire.objects.filter(trigger=trigger).order_by("pk").values_list("occurrence", flat=True))


def payloads(trigger: Trigger) -> list[dict[str, Any]]:
    """Return what the wakes carry, oldest first."""
    wakes = Wake.objects.filter(fire__trigger=trigger).order_by("pk")
    return [json.loads(wake.payload) for wake in wakes]


def again(trigger: Trigger) -> Trigger:
    """Return a trigger as it is now."""
    trigger.refresh_from_db()
    return trigger


def waiting(github: World[FakeGitHub]) -> Trigger:
    """Return a trigger that waits for ci.yml, after a first poll in which nothing had ended."""
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    github.pass_time(5)
    armed = github.arm_ci()
    github.poll()
    return armed


def end_run(github: World[FakeGitHub], run_id: int = 1001, conclusion: str = "success") -> None:
    """Have a run end now."""
    github.forge.put_run("octo/repo", id=run_id, status="completed", conclusion=conclusion)
