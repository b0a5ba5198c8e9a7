from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from config.celery import app
from sessions.models import AgentSession, Event, Wake
from tests.factories import arm, armed_session, open_session
from tests.triggers.forges.fake import FakeGitHub
from tests.triggers.forges.world import World, again, end_run, fired, waiting
from triggers import engine, hosts, polling, services, tasks, wire
from triggers.beat import DueScheduler
from triggers.exceptions import PolicyRefused
from triggers.forges.base import Reading
from triggers.models import Fire, Trigger, Watch
from triggers.states import TriggerStatus
from triggers.tasks import POLL

pytestmark = pytest.mark.django_db

GitHub = World[FakeGitHub]


@pytest.fixture
def trigger(github: GitHub) -> Trigger:
    """A trigger that waits for ci.yml, and a first poll in which nothing had ended."""
    return waiting(github)


# --- One poll for all that watch it ----------------------------------------------------------------------------------


def test_it_asks_once_for_all_that_look_at_the_same_resource(github: GitHub) -> None:
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    for workflow in ("ci.yml", "CI", "deploy.yml"):
        github.arm_ci(workflow)
    github.arm("ci.workflow", args={"repo": "Octo/Repo", "workflow": "ci.yml"})
    github.poll()

    assert len(github.forge.requests) == 1
    assert Watch.objects.count() == 1


def test_it_asks_whether_something_has_changed_and_takes_not_modified_for_no(github: GitHub, trigger: Trigger) -> None:
    github.later()

    assert "if-none-match" not in github.forge.requests[0].headers
    assert github.forge.requests[1].headers["if-none-match"].startswith("W/")
    end_run(github)
    github.later()
    assert fired(trigger) == ["1001:1"]


def test_a_trigger_armed_later_is_fired_by_what_had_been_read_before(github: GitHub, trigger: Trigger) -> None:
    """Nothing has changed since the poll that it missed, so that the forge answers 304."""
    github.pass_time(10)
    late = github.arm_ci()
    github.pass_time(1)
    end_run(github)
    Watch.objects.update(next_poll_at=github.now)
    polling.poll(clock=lambda: github.now)
    Fire.objects.filter(trigger=late).delete()  # as if that poll had not seen it
    github.later()

    assert fired(late) == ["1001:1"]


def test_it_never_asks_sooner_than_the_interval_whatever_is_armed(github: GitHub, trigger: Trigger) -> None:
    for _ in range(5):
        github.pass_time(10)
        github.arm_ci()
        github.poll()
    assert len(github.forge.requests) == 1

    github.later(10)
    assert len(github.forge.requests) == 2


def test_it_asks_less_often_when_nothing_changes_for_long_and_at_the_interval_again_after_a_change(
    github: GitHub, trigger: Trigger
) -> None:
    pauses = []
    for _ in range(90):
        due = Watch.objects.get().next_poll_at
        assert due
        pauses.append((due - github.now).total_seconds())
        github.later(pauses[-1])

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (60, 600)
    end_run(github, 1002)
    github.forge.put_run("octo/repo", id=1003, status="queued")
    github.later(600)
    due = Watch.objects.get().next_poll_at
    assert due
    assert due - github.now == timedelta(seconds=60)


def test_it_asks_no_more_when_nobody_waits(github: GitHub, trigger: Trigger) -> None:
    services.cancel(trigger.pk, by="operator", now=github.now)
    github.later()
    asked = len(github.forge.requests)
    github.later(600)

    assert len(github.forge.requests) == asked
    assert polling.next_poll_at() is None


def test_a_paused_trigger_is_not_asked_for_and_a_resumed_one_picks_up_where_it_left_off(
    github: GitHub, trigger: Trigger
) -> None:
    services.pause(trigger.pk, by="operator", now=github.now)
    github.later()
    end_run(github)
    github.later()
    assert fired(trigger) == []

    services.resume(trigger.pk, by="operator", now=github.pass_time(60))
    github.poll()

    assert fired(trigger) == ["1001:1"]


def test_it_follows_pages_only_as_far_as_is_needed(github: GitHub) -> None:
    for number in range(250):
        github.forge.put_run("octo/repo", id=number + 1, status="completed", conclusion="success")
    github.pass_time(86400 * 2)
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    github.arm_ci()
    github.poll()

    pages = [request.query["page"] for request in github.forge.requests if "status" not in request.query]
    assert pages == ["1"]


def test_what_a_first_page_pushes_to_the_second_is_found(github: GitHub) -> None:
    github.forge.put_run("octo/repo", id=1, status="in_progress")
    github.pass_time(5)
    trigger = github.arm_ci()
    github.poll()
    end_run(github, 1)
    for number in range(2, 130):
        github.forge.put_run("octo/repo", id=number, status="queued")
    github.later()

    assert fired(trigger) == ["1:1"]


# --- Neither lost nor doubled ----------------------------------------------------------------------------------------


def test_a_restart_forgets_nothing_and_fires_nothing_twice(github: GitHub, trigger: Trigger) -> None:
    end_run(github)
    github.later()
    Watch.objects.update(memory={})  # not even this would do harm
    github.later()

    assert fired(trigger) == ["1001:1"]
    assert Wake.objects.filter(fire__trigger=trigger).count() == 1


def test_a_crash_between_asking_and_firing_asks_again(
    github: GitHub, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_run(github)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "fire_all", _crash)
        with pytest.raises(SystemExit):
            github.later()
    assert fired(trigger) == []

    github.later(polling.LEASE.total_seconds())

    assert fired(trigger) == ["1001:1"]


def test_a_crash_after_firing_and_before_the_end_undoes_both(
    github: GitHub, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_run(github)
    with monkeypatch.context() as patched:
        patched.setattr(polling, "_pause", _crash)
        with pytest.raises(SystemExit):
            github.later()
    github.later(polling.LEASE.total_seconds())

    assert fired(trigger) == ["1001:1"]


def _crash(*args: Any, **kwargs: Any) -> None:
    raise SystemExit("killed")


def test_two_pollers_do_not_claim_the_same(github: GitHub, trigger: Trigger) -> None:
    second = []
    github.forge.before = lambda request: second.append(1)
    github.pass_time(60)
    first = polling._claim(github.now, 10)

    assert polling.poll(clock=lambda: github.now) == 0
    assert (len(first.watches), second) == (1, [])


def test_two_pollers_that_read_the_same_fire_it_once(
    github: GitHub, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is so slow that its lease ends: the second asks, fires and stores before it does."""
    end_run(github)
    settle = polling._settle
    slow: list[Any] = []

    def late(work: Any, result: Any, now: Any) -> None:
        if not slow:
            slow.append(result)
            github.later(polling.LEASE.total_seconds())
        settle(work, result, now)

    monkeypatch.setattr(polling, "_settle", late)
    github.later()

    assert fired(trigger) == ["1001:1"]
    assert len(slow) == 1


@pytest.mark.parametrize("reading", [Reading(), None])
def test_a_poller_whose_lease_has_ended_does_not_overwrite_what_the_next_one_stored(
    github: GitHub, trigger: Trigger, reading: Reading | None
) -> None:
    github.pass_time(60)
    work = polling._claim(github.now, 10)
    watch = Watch.objects.get()
    Watch.objects.update(claim=uuid4(), memory={"kept": {"by": "another"}})
    polling._settle(work, wire.Result(wire.Job(watch.pk, polling._NOTHING, github.now, {}), reading), github.now)

    assert Watch.objects.get().memory == {"kept": {"by": "another"}}
    assert Watch.objects.get().claim is not None


def test_a_trigger_that_is_armed_takes_the_claim_from_a_poll_that_cannot_have_seen_it(
    github: GitHub, trigger: Trigger
) -> None:
    services.cancel(trigger.pk, by="operator", now=github.now)
    github.pass_time(60)
    work = polling._claim(github.now, 10)
    late = github.arm_ci()
    asleep = polling._store  # what a poll does that has found nobody waiting
    result = wire.Result(wire.Job(Watch.objects.get().pk, polling._NOTHING, github.now, {}), Reading())
    asleep(work, Watch.objects.get(), {"print": ""}, asleep=True, result=result, now=github.now)

    github.pass_time(1)
    end_run(github)
    github.later()
    assert fired(late) == ["1001:1"]


def test_a_trigger_that_is_armed_while_a_poll_is_under_way_has_a_look_of_its_own(
    github: GitHub, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = wire.ask_all
    late: list[Trigger] = []

    def asked(*args: Any, **kwargs: Any) -> Any:
        yield from hold(*args, **kwargs)

    def armed_meanwhile(*args: Any, **kwargs: Any) -> Any:
        late.append(github.arm_ci())
        return asked(*args, **kwargs)

    monkeypatch.setattr(wire, "ask_all", armed_meanwhile)
    github.later()
    monkeypatch.setattr(wire, "ask_all", hold)
    github.pass_time(1)
    end_run(github)
    github.later()

    assert fired(late[0]) == ["1001:1"]


@pytest.mark.django_db(transaction=True)
def test_it_holds_no_transaction_open_while_it_asks(github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    github.arm_ci()
    hold, seen = wire.ask_all, []

    def asked(*args: Any, **kwargs: Any) -> Any:
        for result in hold(*args, **kwargs):
            seen.append(connection.in_atomic_block)
            yield result

    monkeypatch.setattr(wire, "ask_all", asked)
    github.poll()

    assert seen == [False]


def test_one_bad_row_stops_nothing_else(github: GitHub, trigger: Trigger) -> None:
    broken, removed = github.arm_ci(), github.arm_ci()
    Trigger.objects.filter(pk=broken.pk).update(args={"repo": "octo/repo", "number": "?"})
    Trigger.objects.filter(pk=removed.pk).update(kind="ci.gone")
    end_run(github)
    github.later()

    assert fired(trigger) == ["1001:1"]
    assert "cannot be fired" in again(broken).last_error
    assert "ci.gone" in again(removed).last_error
    assert again(trigger).last_error == ""


def test_a_bad_row_alone_ends_at_the_ceiling(github: GitHub, trigger: Trigger, settings: Settings) -> None:
    Trigger.objects.update(args={})
    for _ in range(settings.TRIGGERS_MAX_CONSECUTIVE_FAILURES):
        github.later(3600)

    assert again(trigger).status == TriggerStatus.FAILED


# --- What arming says ------------------------------------------------------------------------------------------------


def test_arming_says_that_there_is_no_token(session: AgentSession, github: GitHub) -> None:
    args = {"repo": "octo/repo", "workflow": "ci.yml"}
    [note] = arm(session, github.now, "ci.workflow", args=args).notes
    assert "without a token" in note
    assert "60 requests an hour" in note

    hosts.set_token("github.com", "gho_secret")
    assert arm(session, github.now, "ci.workflow", args=args).notes == []


def test_the_transcript_holds_the_host_that_was_meant(session: AgentSession, github: GitHub) -> None:
    armed = arm(session, github.now, "ci.workflow", args={"repo": "octo/repo", "workflow": "ci.yml"})

    assert armed.trigger.args["host"] == "github.com"
    assert Event.objects.filter(type="trigger_armed").get().payload["args"]["host"] == "github.com"


def test_a_refused_trigger_leaves_no_watch(github: GitHub, settings: Settings) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 1
    session = open_session(github.now)
    arm(session, github.now, "webhook")
    with pytest.raises(PolicyRefused):
        arm(session, github.now, "ci.workflow", args={"repo": "octo/repo", "workflow": "ci.yml"})

    assert not Watch.objects.exists()
    assert armed_session(github.now, "webhook").watch is None


# --- The clock and the queue -----------------------------------------------------------------------------------------


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> Callable[[GitHub], list[str]]:
    """Have a beat look once, and return what it rang for in all."""
    scheduler = DueScheduler(app=app)
    tasks: list[str] = []
    monkeypatch.setattr(scheduler, "_ring", tasks.append)

    def look(github: GitHub) -> list[str]:
        scheduler._ring_poll(github.now)
        return tasks

    return look


def test_the_beat_rings_for_what_is_due_and_no_more_once_it_is_claimed(
    github: GitHub, trigger: Trigger, rung: Callable[[GitHub], list[str]]
) -> None:
    assert rung(github) == []
    github.pass_time(60)
    assert rung(github) == [POLL]
    github.pass_time(0.5)
    assert rung(github) == [POLL]
    github.pass_time(0.5)
    assert rung(github) == [POLL, POLL]  # nobody has answered
    polling._claim(github.now, 10)
    github.pass_time(5)
    assert rung(github) == [POLL, POLL]


def test_polls_have_a_queue_of_their_own(settings: Settings) -> None:
    assert settings.CELERY_TASK_ROUTES[POLL] == {"queue": "poll"}
    assert "poll" in {queue.name for queue in settings.CELERY_TASK_QUEUES}


def test_the_task_asks_nothing_while_triggers_are_disabled(
    github: GitHub, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def poll(**fields: Any) -> int:
        asked.append(fields)
        return 0

    monkeypatch.setattr(polling, "poll", poll)
    settings.TRIGGERS_ENABLED = False
    tasks.poll()
    assert asked == []

    settings.TRIGGERS_ENABLED = True
    tasks.poll()
    assert len(asked) == 1
