from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from pytest_django import Settings

from config import settings as product
from sessions.models import AgentSession
from sessions.secrecy import Unreadable
from tests.factories import arm
from tests.triggers.forges.fake import FakeGitHub
from tests.triggers.forges.world import World
from triggers import hosts, polling
from triggers.exceptions import Conflict, Invalid, NotFound
from triggers.forges.base import Budget
from triggers.kinds.base import ArgsError
from triggers.models import Host, Watch

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _configured(settings: Settings) -> None:
    settings.FORGE_HOSTS = product.FORGE_HOSTS


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("forge_host", *args, stdout=out)
    return out.getvalue()


def test_github_is_there_without_any_configuration() -> None:
    host = hosts.find("octo/repo", None)

    assert (host.name, host.forge, host.base_url) == ("github.com", "github", "https://api.github.com")
    assert not hosts.has_token(host)


def test_the_only_host_that_could_be_meant_is(settings: Settings) -> None:
    hosts.add("gitlab.example.org", forge="gitlab", base_url="https://gitlab.example.org", verify_tls=True)

    assert hosts.find("octo/group/repo", None).name == "gitlab.example.org"
    assert hosts.find("octo/repo", "github.com").name == "github.com"


def test_a_repository_whose_host_cannot_be_told_is_refused_with_the_choices(
    session: AgentSession, now: datetime
) -> None:
    hosts.add("git.example.org", forge="gitea", base_url="https://git.example.org", verify_tls=True)

    with pytest.raises(Invalid) as caught:
        arm(session, now, "ci.workflow", args={"repo": "octo/repo", "workflow": "ci.yml"})

    assert caught.value.fields == {"host": "octo/repo could be on any of git.example.org, github.com: say which"}
    assert not Watch.objects.exists()


@pytest.mark.parametrize(("repo", "host", "field"), [("a/b", "nowhere", "host"), ("a/b/c", "github.com", "repo")])
def test_a_host_that_cannot_have_it_is_refused(repo: str, host: str, field: str) -> None:
    with pytest.raises(ArgsError) as caught:
        hosts.find(repo, host)

    assert caught.value.field == field


def test_a_stored_token_can_be_read_with_the_keys_only(settings: Settings) -> None:
    hosts.set_token("github.com", "gho_secret")
    host = Host.objects.get()
    assert "gho_secret" not in host.token
    assert hosts.token_of(host) == "gho_secret"

    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(Unreadable):
        hosts.token_of(host)


def test_a_token_of_the_environment_goes_before_the_stored_one(settings: Settings) -> None:
    hosts.set_token("github.com", "gho_stored")
    settings.FORGE_TOKENS = {"github.com": "gho_given"}

    assert hosts.place(hosts.row("github.com")).token == "gho_given"


def test_a_token_that_cannot_be_sent_is_refused_and_not_shown() -> None:
    with pytest.raises(Invalid) as caught:
        hosts.set_token("github.com", "gho_\nsecret")

    assert "secret" not in str(caught.value)


def test_what_the_environment_says_is_followed(settings: Settings) -> None:
    assert hosts.row("github.com").verify_tls
    settings.FORGE_HOSTS = {"github.com": ("github", "https://proxy.example.org/github")}
    settings.FORGE_HOSTS_UNVERIFIED = ["github.com"]

    place = hosts.place(hosts.row("github.com"))
    assert (place.base_url, place.verify_tls) == ("https://proxy.example.org/github", False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "git.example.org",
        "ftp://git.example.org",
        "https://",
        "https://user@git.example.org",
        "https://a/?x",
        "http://[",
        "https://a:0",
    ],
)
def test_a_base_url_must_be_one(url: str) -> None:
    with pytest.raises(Invalid):
        hosts.add("git.example.org", forge="gitea", base_url=url, verify_tls=True)


def test_a_host_is_changed_where_it_was_set() -> None:
    with pytest.raises(Conflict, match="FORGE_HOSTS"):
        hosts.add("github.com", forge="github", base_url="https://x.example.org", verify_tls=True)
    with pytest.raises(Conflict, match="FORGE_HOSTS"):
        hosts.remove("github.com")


def test_a_host_that_triggers_wait_for_is_not_removed(session: AgentSession, now: datetime, settings: Settings) -> None:
    settings.FORGE_HOSTS = {}
    hosts.add("git.example.org", forge="gitea", base_url="https://git.example.org", verify_tls=True)
    trigger = arm(session, now, "ci.workflow", args={"repo": "octo/repo", "workflow": "ci.yml"}).trigger

    with pytest.raises(Conflict, match="1 resources"):
        hosts.remove("git.example.org")
    trigger.status = "cancelled"
    trigger.save(update_fields=["status"])
    hosts.remove("git.example.org")

    trigger.refresh_from_db()
    assert (trigger.watch, Watch.objects.count()) == (None, 0)
    with pytest.raises(NotFound):
        hosts.row("git.example.org")


def test_of_two_budgets_the_later_stands_and_then_the_smaller(now: datetime) -> None:
    host = hosts.row("github.com")
    for remaining, reset in ((50, 0), (40, 0), (45, 0), (60, 1), (30, 0)):
        hosts.note_budget(host.pk, Budget(60, remaining, now + timedelta(hours=reset)))
    host.refresh_from_db()

    assert (host.budget_remaining, host.budget_reset_at) == (60, now + timedelta(hours=1))
    hosts.note_budget(host.pk, Budget(60, 59, now + timedelta(hours=1)))
    host.refresh_from_db()
    assert host.budget_remaining == 59


def test_a_block_is_never_shortened(now: datetime) -> None:
    host = hosts.row("github.com")
    hosts.block(host.pk, now + timedelta(minutes=5), strikes=1)
    hosts.block(host.pk, now + timedelta(minutes=1), strikes=1)
    host.refresh_from_db()

    assert host.blocked_until == now + timedelta(minutes=5)


def test_the_command_adds_gives_a_token_lists_and_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    run("add", "Git.Example.Org", "--forge", "gitea", "--url", "https://git.example.org/", "--no-verify-tls")
    monkeypatch.setattr("sys.stdin", io.StringIO("t0ken\n"))
    said = run("token", "git.example.org")
    listed = run("list")

    assert "t0ken" not in said + listed
    assert "git.example.org  gitea  https://git.example.org  with a token  TLS NOT VERIFIED" in listed
    assert "github.com  github  https://api.github.com  without a token" in listed
    assert hosts.place(hosts.row("git.example.org")).token == "t0ken"
    run("remove", "git.example.org")
    assert "git.example.org" not in run("list")


def test_the_command_takes_a_token_away(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.set_token("github.com", "gho_secret")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    assert "removed" in run("token", "github.com")
    assert not hosts.has_token(hosts.row("github.com"))


@pytest.mark.parametrize(
    "args",
    [
        ("token", "nowhere"),
        ("remove", "github.com"),
        ("remove", "nowhere"),
        ("add", "git.example.org", "--forge", "gitea", "--url", "nowhere"),
        ("add", "not a name", "--forge", "gitea", "--url", "https://git.example.org"),
    ],
)
def test_the_command_says_what_is_wrong(args: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run(*args)


def test_the_command_shows_how_the_limit_stands(github: World[FakeGitHub]) -> None:
    reset = int(github.now.timestamp()) + 600
    github.forge.limits = lambda: {
        "x-ratelimit-limit": "60",
        "x-ratelimit-remaining": "59",
        "x-ratelimit-reset": str(reset),
    }
    github.forge.runs["octo/repo"] = []
    github.arm_ci()
    github.poll()

    assert "59/60 left" in run("list")


def test_an_unreadable_token_is_said_and_nothing_is_asked(github: World[FakeGitHub], settings: Any) -> None:
    hosts.set_token("github.com", "gho_secret")
    github.forge.runs["octo/repo"] = []
    trigger = github.arm_ci()
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    polling.poll(clock=lambda: github.now)
    trigger.refresh_from_db()

    assert "ENCRYPTION_KEYS" in trigger.last_error
    assert github.forge.requests == []
