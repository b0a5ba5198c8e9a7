from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from pytest_django import Settings

from tests.triggers.forges.fake import FakeGitHub, Reply
from tests.triggers.forges.world import World, again, end_run, fired, waiting
from triggers import polling, services
from triggers.counted import COUNTED
from triggers.models import Host, Trigger, Watch
from triggers.states import TriggerStatus

pytestmark = pytest.mark.django_db

GitHub = World[FakeGitHub]


@pytest.fixture
def trigger(github: GitHub) -> Trigger:
    """A trigger that waits for ci.yml, and a first poll in which nothing had ended."""
    return waiting(github)


# --- Faults ----------------------------------------------------------------------------------------------------------


def test_row_49_faults_among_good_polls_neither_fire_nor_end_anything(github: GitHub, trigger: Trigger) -> None:
    for fault in (Reply({"message": "Bad Gateway"}, 502), Reply({"message": "Bad credentials"}, 401)):
        github.forge.faults.append(fault)
        github.later(120)
        assert again(trigger).last_error
        github.later(600)
        assert (again(trigger).last_error, trigger.consecutive_failures) == ("", 0)
    end_run(github)
    github.later(120)

    assert fired(trigger) == ["1001:1"]
    assert again(trigger).status == TriggerStatus.ARMED


@pytest.mark.parametrize(
    "fault",
    [
        Reply({"message": "Bad Gateway"}, 502),
        Reply({"message": "Unavailable"}, 503),
        Reply(raw=b"<html>Sign in to the hotel's network</html>"),
        Reply(raw=b'{"total_count": 1, "workflow_r'),
        Reply(raw=b"[" * 100_000),
    ],
)
def test_a_forges_outage_of_an_hour_ends_nothing_and_shows_the_next_try(
    github: GitHub, trigger: Trigger, fault: Reply
) -> None:
    github.forge.faults.extend([fault] * 100)
    asked = len(github.forge.requests)
    for _ in range(60):
        github.later()

    assert again(trigger).status == TriggerStatus.ARMED
    assert trigger.consecutive_failures == 0
    due = Watch.objects.get().next_poll_at
    assert due
    assert f"next try {due:%Y-%m-%dT%H:%M:%SZ}" in trigger.last_error
    assert len(github.forge.requests) - asked < 15  # it backs off

    github.forge.faults.clear()
    end_run(github)
    github.later(600)
    assert fired(trigger) == ["1001:1"]
    assert again(trigger).last_error == ""


def test_a_forge_that_cannot_be_reached_is_tried_once_a_round(github: GitHub, settings: Settings) -> None:
    for number in range(8):
        github.arm_ci(repo=f"octo/repo{number}")
    settings.FORGE_HOSTS = {"github.com": ("github", "http://127.0.0.1:9")}
    github.poll()

    assert all("cannot be reached" in trigger.last_error for trigger in Trigger.objects.all())
    assert {trigger.consecutive_failures for trigger in Trigger.objects.all()} == {0}


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, ["token is not accepted", "manage.py forge_host token github.com", "Actions"]),
        (403, ["wants a token", "manage.py forge_host token github.com", "no entry"]),
        (404, ["check repo", "private", "manage.py forge_host token github.com"]),
        (410, ["gone"]),
        (451, ["refuses the question", "no entry"]),
    ],
)
def test_a_lasting_fault_says_what_an_operator_must_do_and_ends_the_trigger_at_the_ceiling(
    github: GitHub, trigger: Trigger, settings: Settings, status: int, says: list[str]
) -> None:
    github.forge.faults.extend([Reply({"message": "no entry"}, status)] * 20)
    for count in range(1, settings.TRIGGERS_MAX_CONSECUTIVE_FAILURES + 1):
        github.later(3600)
        assert again(trigger).consecutive_failures == count

    assert trigger.status == TriggerStatus.FAILED
    assert [word for word in says if word not in trigger.last_error] == []
    asked = len(github.forge.requests)
    github.later(86400)
    assert len(github.forge.requests) == asked


def test_an_answer_that_cannot_be_read_is_a_lasting_fault(github: GitHub, trigger: Trigger) -> None:
    github.forge.faults.append(Reply({"total_count": 1, "workflow_runs": [{"id": 7}]}))
    github.later()

    assert "cannot be read (KeyError" in again(trigger).last_error
    assert trigger.consecutive_failures == 1


def test_a_good_poll_forgets_the_failures_of_a_paused_trigger_too(github: GitHub, trigger: Trigger) -> None:
    paused = github.arm_ci()
    github.forge.faults.append(Reply({"message": "Not Found"}, 404))
    github.later()
    services.pause(paused.pk, by="operator", now=github.now)
    assert again(paused).consecutive_failures == 1
    github.later()

    assert (again(paused).consecutive_failures, paused.last_error) == (0, "")


def test_a_good_poll_does_not_forget_quarantined_wakes(github: GitHub, trigger: Trigger) -> None:
    Trigger.objects.update(consecutive_failures=2, last_error="the adapter broke")
    github.later()

    assert (again(trigger).consecutive_failures, trigger.last_error) == (2, "the adapter broke")


def test_a_host_that_is_no_longer_configured_says_so(github: GitHub, trigger: Trigger, settings: Settings) -> None:
    settings.FORGE_HOSTS = {"git.example.org": ("gitea", "https://git.example.org")}
    github.later()

    assert "there is no host 'github.com'" in again(trigger).last_error


# --- Limits ----------------------------------------------------------------------------------------------------------


def blocked_for(github: GitHub) -> float:
    until = Host.objects.get().blocked_until
    assert until
    return (until - github.now).total_seconds()


SECONDARY = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}


def _primary(github: GitHub) -> dict[str, str]:
    return {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(int(github.now.timestamp()) + 1800),
    }


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (lambda github: Reply(SECONDARY, 403, {"x-ratelimit-remaining": "4000"}), 60),
        (lambda github: Reply(SECONDARY, 429), 60),
        (lambda github: Reply({"message": "API rate limit exceeded"}, 403, _primary(github)), 1800),
        (lambda github: Reply(SECONDARY, 403, {"Retry-After": "120"}), 120),
        (lambda github: Reply(SECONDARY, 403, {"Retry-After": "7"}), 7),
        (lambda github: Reply({"message": "slow down"}, 429, {"Retry-After": "300"}), 300),
    ],
)
def test_row_48_a_limit_is_waited_out_and_is_no_failure(
    github: GitHub, trigger: Trigger, reply: Callable[[GitHub], Reply], seconds: int
) -> None:
    github.pass_time(60)
    github.forge.faults.append(reply(github))
    github.poll()

    assert blocked_for(github) == seconds
    assert (again(trigger).consecutive_failures, trigger.last_error) == (0, "")
    asked = len(github.forge.requests)
    github.later(seconds - 1)
    assert len(github.forge.requests) == asked
    end_run(github)
    github.later(max(1, 60 - seconds))
    assert fired(trigger) == ["1001:1"]


def test_row_48_a_plain_403_is_shown_and_not_retried_at_once(github: GitHub, trigger: Trigger) -> None:
    github.forge.faults.append(Reply({"message": "Resource not accessible"}, 403, {"x-ratelimit-remaining": "4000"}))
    github.later()
    asked = len(github.forge.requests)
    github.later(30)

    assert "Resource not accessible" in again(trigger).last_error
    assert len(github.forge.requests) == asked
    assert trigger.status == TriggerStatus.ARMED


def test_a_limit_that_does_not_say_how_long_is_waited_out_longer_each_time(github: GitHub, trigger: Trigger) -> None:
    waits = []
    github.forge.faults.extend([Reply(SECONDARY, 403)] * 4)
    github.pass_time(60)
    for _ in range(4):
        github.poll()
        waits.append(blocked_for(github))
        github.pass_time(waits[-1])

    assert waits == [60, 120, 240, 480]
    github.poll()
    assert Host.objects.get().strikes == 0


def test_a_limit_holds_for_all_of_its_host_and_for_every_poller(github: GitHub, trigger: Trigger) -> None:
    github.arm_ci(repo="octo/other")
    github.forge.faults.append(Reply(SECONDARY, 403, {"Retry-After": "600"}))
    github.pass_time(60)
    github.poll()
    asked = len(github.forge.requests)
    github.arm_ci(repo="octo/third")
    github.later(300)

    assert len(github.forge.requests) == asked
    assert polling.next_poll_at() == github.now + timedelta(seconds=300)


def test_it_leaves_a_part_of_the_limit_to_others(github: GitHub, trigger: Trigger) -> None:
    reset = int(github.now.timestamp()) + 900
    left = iter(range(504, 0, -1))
    github.forge.limits = lambda: {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": str(next(left)),
        "x-ratelimit-reset": str(reset),
    }
    for number in range(10):
        github.forge.put_run(f"octo/repo{number}", id=number + 1, status="queued")
        github.arm_ci(repo=f"octo/repo{number}")
    for _ in range(10):
        github.later(60)

    assert next(left) >= 495  # asked side by side, it may overshoot by those that are under way
    assert again(trigger).last_error == ""


def test_what_is_left_of_a_limit_is_spread_over_the_time_until_its_renewal(github: GitHub) -> None:
    reset = int(github.now.timestamp()) + 3600
    github.forge.limits = lambda: {
        "x-ratelimit-limit": "60",
        "x-ratelimit-remaining": str(60 - len(github.forge.requests)),
        "x-ratelimit-reset": str(reset),
    }
    for number in range(9):
        github.forge.put_run(f"octo/repo{number}", id=number + 1, status="queued")
        github.arm_ci(repo=f"octo/repo{number}")
    github.poll()
    dues = [watch.next_poll_at for watch in Watch.objects.all() if watch.next_poll_at]

    assert len(dues) == 9
    assert min(dues) - github.now > timedelta(minutes=8)


# --- Counts ----------------------------------------------------------------------------------------------------------


def test_it_counts_what_came_of_each_question(github: GitHub, trigger: Trigger) -> None:
    def counts() -> list[float]:
        results = ("answered", "transport", "lasting", "limited")
        found = [
            COUNTED.get_sample_value("rewake_polls_total", {"host": "github.com", "result": one}) for one in results
        ]
        return [count or 0 for count in found]

    before = counts()
    github.later(120)
    for fault in (Reply({}, 502), Reply({"message": "Bad credentials"}, 401), Reply({}, 429)):
        github.forge.faults.append(fault)
        github.later(3600)

    assert [after - count for after, count in zip(counts(), before, strict=True)] == [1, 1, 1, 1]
