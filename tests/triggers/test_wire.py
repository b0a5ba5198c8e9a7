from __future__ import annotations

import threading

import pytest
from pytest_django import Settings

from tests.triggers.forges.fake import FakeGitHub, Reply, Request
from tests.triggers.forges.world import World, again, fired, waiting
from triggers import hosts, wire
from triggers.models import Host, Trigger

pytestmark = pytest.mark.django_db

GitHub = World[FakeGitHub]


@pytest.fixture
def trigger(github: GitHub) -> Trigger:
    """A trigger that waits for ci.yml, and a first poll in which nothing had ended."""
    return waiting(github)


# --- Where a token goes ----------------------------------------------------------------------------------------------


def test_a_token_is_sent_to_its_host(github: GitHub, trigger: Trigger) -> None:
    hosts.set_token("github.com", "gho_secret")
    github.later()

    assert github.forge.requests[-1].headers["authorization"] == "Bearer gho_secret"
    assert "gho_secret" not in Host.objects.get().token


def test_a_renamed_repository_is_followed_on_its_host(github: GitHub, trigger: Trigger) -> None:
    hosts.set_token("github.com", "gho_secret")
    github.forge.runs["octo/renamed"] = github.forge.runs.pop("octo/repo")
    github.forge.moved["octo/repo"] = "octo/renamed"
    github.forge.put_run("octo/renamed", id=1001, status="completed", conclusion="success")
    github.later()

    assert fired(trigger) == ["1001:1"]
    assert github.forge.paths[-1] == "/repositories/octo/renamed/actions/runs"
    assert github.forge.requests[-1].query["per_page"] == "100"


def test_a_redirect_to_another_host_is_never_asked(github: GitHub, trigger: Trigger) -> None:
    asked: list[Request] = []
    other = FakeGitHub(github.now)
    other.before = asked.append
    try:
        for target in (other.url, "https://github.com.evil.example", github.forge.url.replace("http:", "https:"), ""):
            github.forge.faults.append(Reply({}, 301, {"Location": f"{target}/repos/octo/repo/actions/runs"}))
            github.forge.faults.extend([Reply({}, 302, {"Location": "//evil.example/"})] * (not target))
            github.later(3600)
    finally:
        other.stop()

    assert asked == []
    assert "redirects to another host" in again(trigger).last_error


def test_redirects_in_circles_end(github: GitHub, trigger: Trigger) -> None:
    github.forge.faults.extend([Reply({}, 301, {"Location": "/repos/octo/repo/actions/runs"})] * 50)
    github.later()

    assert "in circles" in again(trigger).last_error
    assert len(github.forge.requests) < 10


def test_a_token_that_a_forge_repeats_is_shown_nowhere(
    github: GitHub, trigger: Trigger, caplog: pytest.LogCaptureFixture
) -> None:
    hosts.set_token("github.com", "gho_secret")
    github.forge.faults.append(Reply({"message": "gho_secret is not allowed"}, 403))
    github.later()

    assert "gho_secret" not in again(trigger).last_error + caplog.text
    assert "*** is not allowed" in trigger.last_error


def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    github: GitHub, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "BODY_MAX_BYTES", 1000)
    github.forge.faults.append(Reply(raw=b" " * 5000))
    github.later()

    assert "larger" in again(trigger).last_error


# --- Side by side ----------------------------------------------------------------------------------------------------


def test_hosts_are_asked_side_by_side(github: GitHub, settings: Settings) -> None:
    """Each host answers only once the other has been asked."""
    other = FakeGitHub(github.now)
    meeting = threading.Barrier(2, timeout=20)
    for forge in (github.forge, other):
        forge.runs["octo/repo"] = []
        forge.before = lambda request: _meet(meeting)
    settings.FORGE_HOSTS = {"a.example": ("github", github.forge.url), "b.example": ("github", other.url)}
    try:
        for host in settings.FORGE_HOSTS:
            github.arm_ci(host=host)
        github.poll()
    finally:
        other.stop()

    assert {trigger.last_error for trigger in Trigger.objects.all()} == {""}


def _meet(meeting: threading.Barrier) -> None:
    meeting.wait()


def test_a_slow_host_keeps_no_other_waiting(github: GitHub, settings: Settings) -> None:
    """The slow one answers only when all of the other's resources have been asked for."""
    other, done, asked = FakeGitHub(github.now), threading.Event(), []

    def note(request: Request) -> None:
        asked.append(request)
        if len(asked) == 12:
            done.set()

    other.before = note
    github.forge.before = lambda request: _hear(done)
    settings.FORGE_HOSTS = {"slow.example": ("github", github.forge.url), "quick.example": ("github", other.url)}
    try:
        for number in range(12):
            for host, forge in (("slow.example", github.forge), ("quick.example", other)):
                forge.runs[f"octo/repo{number}"] = []
                github.arm_ci(host=host, repo=f"octo/repo{number}")
        github.poll()
    finally:
        other.stop()

    assert len(asked) == 12


def _hear(event: threading.Event) -> None:
    assert event.wait(20)
