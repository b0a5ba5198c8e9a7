from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.triggers.forges import shapes
from tests.triggers.forges.fake import FIXTURES, FakeGitea, fixture
from tests.triggers.forges.world import World, fired, payloads
from triggers.models import Trigger, Watch
from triggers.observations import Verdict

pytestmark = pytest.mark.django_db

Gitea = World[FakeGitea]
HEAD = "2" * 40


def later_run(**changes: Any) -> dict[str, Any]:
    """Return a run that ends a minute after the first poll."""
    run: dict[str, Any] = fixture("gitea/run_completed") | {"completed_at": "2026-12-01T09:01:00Z"} | changes
    shapes.check("gitea", "run", run)
    return run


@pytest.mark.parametrize("file", sorted((FIXTURES / "gitea").glob("*.json")), ids=lambda file: file.stem)
def test_a_fixture_is_what_gitea_or_forgejo_describes(file: Path) -> None:
    forge = "forgejo" if "forgejo" in file.stem else "gitea"
    shapes.check(forge, file.stem.split("_")[0], json.loads(file.read_text("utf-8")))


def test_a_timeline_fires_for_each_end_though_no_attempt_is_counted(gitea: Gitea) -> None:
    gitea.forge.runs["octo/repo"] = [fixture("gitea/run_queued")]
    trigger = gitea.arm_ci()
    gitea.poll()
    gitea.forge.runs["octo/repo"] = [later_run()]
    gitea.later()
    gitea.forge.runs["octo/repo"] = [fixture("gitea/run_queued") | {"status": "in_progress"}]
    gitea.later()
    gitea.forge.runs["octo/repo"] = [later_run(conclusion="success", completed_at="2026-12-01T09:02:30Z")]
    gitea.later()
    gitea.later()

    assert fired(trigger) == ["71:2026-12-01T09:01:00Z", "71:2026-12-01T09:02:30Z"]
    assert [payload["verdict"] for payload in payloads(trigger)] == ["failing", "passing"]


def test_a_server_that_counts_attempts_is_believed(gitea: Gitea) -> None:
    gitea.forge.runs["octo/repo"] = [later_run(run_attempt=2)]
    trigger = gitea.arm_ci()
    gitea.later()

    assert fired(trigger) == ["71:2"]


def test_a_run_that_had_ended_before_arming_never_fires(gitea: Gitea) -> None:
    gitea.forge.runs["octo/repo"] = [fixture("gitea/run_completed")]
    gitea.pass_time(600)
    trigger = gitea.arm_ci()
    gitea.poll()

    assert fired(trigger) == []


@pytest.mark.parametrize("nothing", [None, "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_run_that_does_not_say_when_it_ended_did_so_when_that_was_seen(gitea: Gitea, nothing: str | None) -> None:
    old = fixture("gitea/run_completed") | {"id": 70, "completed_at": nothing}
    gitea.forge.runs["octo/repo"] = [fixture("gitea/run_queued"), old]
    gitea.pass_time(600)
    trigger = gitea.arm_ci()
    gitea.poll()
    gitea.forge.runs["octo/repo"] = [later_run(completed_at=nothing, run_attempt=1), old]
    gitea.later()

    assert fired(trigger) == ["71:1"]


def test_row_53_a_run_that_waits_for_a_runner_is_pending(gitea: Gitea) -> None:
    """One runner, two workflows: the one that waits is listed too, and is neither over nor absent."""
    waiting = fixture("gitea/run_queued") | {"id": 73, "path": "deploy.yml@refs/heads/main", "status": "waiting"}
    gitea.forge.runs["octo/repo"] = [waiting, fixture("gitea/run_queued") | {"status": "in_progress"}]
    trigger = gitea.arm_ci("deploy.yml")
    gitea.later()

    assert fired(trigger) == []
    assert not any("tasks" in path for path in gitea.forge.paths)


def test_row_53_a_server_without_the_endpoint_says_so(gitea: Gitea) -> None:
    gitea.forge.runs["octo/repo"] = []
    gitea.forge.old = True
    trigger = gitea.arm_ci()
    gitea.poll()
    trigger.refresh_from_db()

    assert "no /actions/runs (update it)" in trigger.last_error
    assert trigger.consecutive_failures == 1


def test_row_53_a_repository_that_is_not_there_says_that_instead(gitea: Gitea) -> None:
    trigger = gitea.arm_ci()
    gitea.poll()
    trigger.refresh_from_db()

    assert "answered 404" in trigger.last_error
    assert "read:repository" in trigger.last_error


def test_a_forks_branch_is_not_ours(gitea: Gitea) -> None:
    fork = fixture("gitea/run_fork") | {"completed_at": "2026-12-01T09:01:00Z"}
    gitea.forge.runs["octo/repo"] = [fork]
    ours, theirs, any_ = gitea.arm_ci(ref="main"), gitea.arm_ci(ref="mona:main"), gitea.arm_ci()
    gitea.later()

    assert [len(fired(trigger)) for trigger in (ours, theirs, any_)] == [0, 1, 1]


def test_forgejos_own_words_are_read(gitea: Gitea) -> None:
    run = fixture("gitea/run_forgejo") | {"stopped": "2026-12-01T09:01:00Z"}
    waiting = run | {"id": 82, "status": "blocked", "stopped": "1970-01-01T00:00:00Z"}
    gitea.forge.runs["octo/repo"] = [waiting, run]
    trigger = gitea.arm_ci(ref="main")
    gitea.later()

    assert fired(trigger) == ["81:2026-12-01T09:01:00Z"]
    [payload] = payloads(trigger)
    assert (payload["actor"], payload["file"], payload["verdict"]) == ("mona", "ci.yml", "passing")


def test_an_older_run_on_the_second_page_fires_when_it_ends(gitea: Gitea) -> None:
    newer = [later_run(id=number, completed_at="2026-11-01T09:00:00Z") for number in range(200, 140, -1)]
    gitea.forge.runs["octo/repo"] = [*newer, fixture("gitea/run_queued")]
    trigger = gitea.arm_ci()
    Watch.objects.update(memory={"forge": {"open": [71]}})
    gitea.poll()
    gitea.forge.runs["octo/repo"] = [*newer, later_run()]
    gitea.later()

    assert fired(trigger) == ["71:2026-12-01T09:01:00Z"]


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("success", Verdict.PASSING),
        ("skipped", Verdict.PASSING),
        ("failure", Verdict.FAILING),
        ("error", Verdict.FAILING),
        ("warning", Verdict.ACTION_REQUIRED),
        ("pending", None),
        ("glowing", None),
    ],
)
def test_row_44_each_word_of_a_status_has_its_verdict(gitea: Gitea, word: str, verdict: Verdict | None) -> None:
    trigger = armed_pull(gitea, [word])
    gitea.poll()

    assert fired(trigger) == ([f"ci_status:{HEAD}:{verdict}"] if verdict else [])


def test_row_51_the_fifty_first_status_counts(gitea: Gitea) -> None:
    trigger = armed_pull(gitea, ["success"] * 50 + ["failure"])
    gitea.poll()

    assert fired(trigger) == [f"ci_status:{HEAD}:failing"]


def test_row_47_a_merged_pull_request_fires_merged(gitea: Gitea) -> None:
    gitea.forge.runs["octo/repo"] = []
    gitea.forge.pulls["octo/repo", 5] = fixture("gitea/pull_merged")
    trigger = gitea.arm_pr("merged", "closed")
    gitea.poll()

    assert fired(trigger) == ["merged"]
    assert payloads(trigger)[0]["actor"] == "hubot"


def test_a_token_is_sent_in_giteas_way(gitea: Gitea, settings: Any) -> None:
    settings.FORGE_TOKENS = {"git.example.org": "t0ken"}
    gitea.forge.runs["octo/repo"] = []
    gitea.arm_ci()
    gitea.poll()

    assert gitea.forge.requests[-1].headers["authorization"] == "token t0ken"


def armed_pull(gitea: Gitea, words: list[str]) -> Trigger:
    gitea.forge.runs["octo/repo"] = []
    gitea.forge.pulls["octo/repo", 5] = fixture("gitea/pull_open")
    gitea.forge.statuses[HEAD] = [
        fixture("gitea/status") | {"status": word, "context": f"ci {number}"} for number, word in enumerate(words)
    ]
    return gitea.arm_pr("ci_status")
