"""End to end on the rehearsal model: from a line that arms, over a poll, to the woken turn."""

from __future__ import annotations

import json

import pytest

from sessions import services as session_services
from sessions.models import AgentSession, Event, Wake
from sessions.runtime import runner
from sessions.states import EventType, WakeStatus
from tests.factories import StillKeeper, clock_at, history_of, open_session
from tests.triggers.forges.fake import FakeGitHub, fixture
from tests.triggers.forges.world import World
from triggers.models import Trigger
from triggers.states import TriggerStatus

pytestmark = pytest.mark.django_db(transaction=True)

GitHub = World[FakeGitHub]
HEAD = "2" * 40


def take_turn(session: AgentSession, github: GitHub) -> str:
    """Run what waits, and return what the agent said last."""
    assert runner.run([session.pk], worker="w", clock=clock_at(github.now), keeper=StillKeeper()) == 1
    said = Event.objects.filter(session=session, type=EventType.ASSISTANT).latest("seq")
    return str(said.payload["text"])


def say(github: GitHub, line: str) -> tuple[AgentSession, str]:
    session = open_session(github.now)
    session_services.say(session.pk, line, now=github.now)
    return session, take_turn(session, github)


def test_on_ci_wakes_the_session_when_the_run_ends(github: GitHub) -> None:
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    github.pass_time(5)
    session, said = say(github, "on ci octo/repo ci.yml: read the log, then mend it")
    assert "each run of ci.yml in octo/repo on github.com completes" in said

    github.poll()
    github.forge.put_run("octo/repo", id=1001, status="completed", conclusion="failure")
    github.later()
    said = take_turn(session, github)

    assert said == "read the log, then mend it"
    wake = Wake.objects.exclude(payload="").get()
    assert wake.status == WakeStatus.DONE
    history = json.dumps(history_of(session))
    assert r"\"conclusion\": \"failure\"" in history
    assert "github.com octo/repo" in history


def test_on_ci_takes_a_run_by_its_id(github: GitHub) -> None:
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    session, _ = say(github, "on ci octo/repo 1001: go on")
    github.poll()
    github.pass_time(5)
    github.forge.put_run("octo/repo", id=1001, status="completed", conclusion="success")
    github.later()

    assert take_turn(session, github) == "go on"


def test_on_pr_wakes_the_session_for_its_checks_and_for_its_merge(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    github.forge.put_check(HEAD, "build")
    session, said = say(github, "on pr octo/repo#5 merged,ci_status: look at it")
    assert "pull request #5 in octo/repo on github.com: merged, ci_status" in said

    github.poll()
    github.forge.put_check(HEAD, "build", status="completed", conclusion="success")
    github.later()
    assert take_turn(session, github) == "look at it"

    github.forge.put_pull("octo/repo", **(fixture("github/pull_open") | {"state": "closed", "merged": True}))
    github.later()
    assert take_turn(session, github) == "look at it"
    assert Trigger.objects.get().status == TriggerStatus.ARMED  # its checks may yet be run again


def test_a_wake_can_arm_the_next_one(github: GitHub) -> None:
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    github.forge.put_pull("octo/repo")
    github.pass_time(5)
    session, _ = say(github, "on ci octo/repo ci.yml: on pr octo/repo#5 merged: it is merged")
    github.poll()
    github.forge.put_run("octo/repo", id=1001, status="completed", conclusion="success")
    github.later()
    take_turn(session, github)
    github.forge.put_pull("octo/repo", state="closed", merged=True)
    github.later()

    assert take_turn(session, github) == "it is merged"


def test_it_says_what_is_wrong_with_a_line(github: GitHub) -> None:
    _, said = say(github, "on pr octo/repo#5 approved: look")

    assert "events: 'approved' is none of merged, closed, ci_status, review, comment" in said
