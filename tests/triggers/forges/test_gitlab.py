from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gitlab as python_gitlab
import pytest

from tests.triggers.forges import shapes
from tests.triggers.forges.fake import FIXTURES, FakeGitLab, Reply, fixture
from tests.triggers.forges.world import World, fired, payloads
from triggers.models import Host, Trigger
from triggers.observations import Verdict

pytestmark = pytest.mark.django_db

GitLab = World[FakeGitLab]
PROJECT = "octo/group/repo"
HEAD = "2" * 40


def arm_ci(gitlab: GitLab, **args: Any) -> Trigger:
    return gitlab.arm("ci.workflow", args={"repo": PROJECT, "workflow": ".gitlab-ci.yml"} | args)


def ended(**changes: Any) -> dict[str, Any]:
    """Return a pipeline that ends after the first poll."""
    times = {"finished_at": "2026-12-01T09:01:00.000Z", "updated_at": "2026-12-01T09:01:00.100Z"}
    pipeline: dict[str, Any] = fixture("gitlab/pipeline_failed") | times | changes
    shapes.check("gitlab", "pipeline", pipeline)
    return pipeline


@pytest.mark.parametrize("file", sorted((FIXTURES / "gitlab").glob("*.json")), ids=lambda file: file.stem)
def test_a_fixture_is_what_gitlab_documents(file: Path) -> None:
    what = file.stem if file.stem == "status" else file.stem.rpartition("_")[0]
    shapes.check("gitlab", what, json.loads(file.read_text("utf-8")))


def test_what_is_asked_is_where_gitlabs_own_client_asks(gitlab: GitLab) -> None:
    """The fake answers python-gitlab just as it answers us: so its paths are GitLab's."""
    gitlab.forge.pipelines[PROJECT] = [ended()]
    gitlab.forge.requests_of[PROJECT, 5] = fixture("gitlab/merge_request_opened")
    gitlab.forge.statuses[HEAD] = [fixture("gitlab/status")]
    with python_gitlab.Gitlab(gitlab.forge.url) as client:
        project = client.projects.get(PROJECT, lazy=True)
        [listed] = project.pipelines.list(order_by="updated_at", sort="desc", get_all=True)
        pipeline, request = project.pipelines.get(listed.id), project.mergerequests.get(5)
        statuses = project.commits.get(HEAD, lazy=True).statuses.list(get_all=True)
    theirs = set(gitlab.forge.paths)
    gitlab.forge.requests.clear()
    arm_ci(gitlab)
    gitlab.arm("forge.pr", args={"repo": PROJECT, "number": 5, "events": ["ci_status"]})
    gitlab.later()

    assert (pipeline.finished_at, request.state, len(statuses)) == ("2026-12-01T09:01:00.000Z", "opened", 1)
    assert set(gitlab.forge.paths) == theirs


def test_a_timeline_fires_for_each_end_though_no_attempt_is_counted(gitlab: GitLab) -> None:
    gitlab.forge.pipelines[PROJECT] = [fixture("gitlab/pipeline_running")]
    trigger = arm_ci(gitlab)
    gitlab.poll()
    gitlab.forge.pipelines[PROJECT] = [ended()]
    gitlab.later()
    gitlab.forge.pipelines[PROJECT] = [ended(updated_at="2026-12-01T09:01:40.000Z")]  # touched, not run again
    gitlab.later()
    gitlab.forge.pipelines[PROJECT] = [
        ended(status="success", finished_at="2026-12-01T09:02:30.000Z", updated_at="2026-12-01T09:02:30.100Z")
    ]
    gitlab.later()
    gitlab.later()

    assert fired(trigger) == ["501:2026-12-01T09:01:00.000Z", "501:2026-12-01T09:02:30.000Z"]
    assert [payload["verdict"] for payload in payloads(trigger)] == ["failing", "passing"]


def test_a_pipeline_is_asked_for_once_when_it_has_ended(gitlab: GitLab) -> None:
    gitlab.forge.pipelines[PROJECT] = [ended()]
    arm_ci(gitlab)
    gitlab.later()
    gitlab.later()

    assert [path.endswith("/501") for path in gitlab.forge.paths].count(True) == 1


def test_a_pipeline_that_had_ended_before_arming_never_fires(gitlab: GitLab) -> None:
    gitlab.forge.pipelines[PROJECT] = [fixture("gitlab/pipeline_failed")]
    gitlab.pass_time(400)
    trigger = arm_ci(gitlab)
    gitlab.poll()

    assert fired(trigger) == []


@pytest.mark.parametrize("workflow", [".gitlab-ci.yml", "Build and test"])
def test_a_workflow_is_the_file_or_the_pipelines_name(gitlab: GitLab, workflow: str) -> None:
    gitlab.forge.pipelines[PROJECT] = [ended()]
    trigger, other = arm_ci(gitlab, workflow=workflow), arm_ci(gitlab, workflow="Deploy")
    gitlab.later()

    assert (len(fired(trigger)), len(fired(other))) == (1, 0)


def test_a_pipeline_by_its_id(gitlab: GitLab) -> None:
    gitlab.forge.pipelines[PROJECT] = [ended()]
    trigger = gitlab.arm("ci.workflow", args={"repo": PROJECT, "run_id": 501})
    gitlab.later()

    assert fired(trigger) == ["501:2026-12-01T09:01:00.000Z"]


PENDING = [
    "created",
    "waiting_for_resource",
    "waiting_for_callback",
    "preparing",
    "pending",
    "running",
    "scheduled",
    "manual",
    "canceling",
]


@pytest.mark.parametrize("word", [*PENDING, "enchanted"])
def test_row_44_what_is_not_over_is_pending(gitlab: GitLab, word: str) -> None:
    gitlab.forge.pipelines[PROJECT] = [fixture("gitlab/pipeline_failed") | {"status": word}]
    trigger = arm_ci(gitlab)
    gitlab.later()

    assert fired(trigger) == []


@pytest.mark.parametrize(
    ("word", "verdict"),
    [("success", "passing"), ("failed", "failing"), ("canceled", "cancelled"), ("skipped", "passing")],
)
def test_row_44_each_word_has_its_verdict(gitlab: GitLab, word: str, verdict: str) -> None:
    gitlab.forge.pipelines[PROJECT] = [ended(status=word)]
    trigger = arm_ci(gitlab)
    gitlab.later()

    assert [payload["verdict"] for payload in payloads(trigger)] == [verdict]


@pytest.mark.parametrize(
    ("pipeline", "statuses", "verdict"),
    [
        ("success", [("success", False)], Verdict.PASSING),
        ("running", [("success", False)], None),
        ("success", [("running", False)], None),
        ("success", [("failed", False)], Verdict.FAILING),
        ("success", [("failed", True), ("success", False)], Verdict.PASSING),
        ("success", [("manual", True)], Verdict.PASSING),
        ("manual", [("manual", False)], None),
        ("failed", [("failed", False), ("skipped", False)], Verdict.FAILING),
        ("canceled", [("canceled", False)], Verdict.CANCELLED),
        (None, [("success", False)], Verdict.PASSING),
        (None, [], None),
    ],
)
def test_the_pipeline_and_the_statuses_count_together(
    gitlab: GitLab, pipeline: str | None, statuses: list[tuple[str, bool]], verdict: Verdict | None
) -> None:
    head = {"id": 502, "sha": HEAD, "status": pipeline} if pipeline else None
    gitlab.forge.requests_of[PROJECT, 5] = fixture("gitlab/merge_request_opened") | {"head_pipeline": head}
    gitlab.forge.statuses[HEAD] = [
        fixture("gitlab/status") | {"status": word, "allow_failure": optional} for word, optional in statuses
    ]
    trigger = gitlab.arm("forge.pr", args={"repo": PROJECT, "number": 5, "events": ["ci_status"]})
    gitlab.poll()

    assert fired(trigger) == ([f"ci_status:{HEAD}:{verdict}"] if verdict else [])


def test_row_51_a_status_on_the_second_page_counts(gitlab: GitLab) -> None:
    gitlab.forge.requests_of[PROJECT, 5] = fixture("gitlab/merge_request_opened") | {"head_pipeline": None}
    gitlab.forge.statuses[HEAD] = [fixture("gitlab/status")] * 100 + [fixture("gitlab/status") | {"status": "failed"}]
    trigger = gitlab.arm("forge.pr", args={"repo": PROJECT, "number": 5, "events": ["ci_status"]})
    gitlab.poll()

    assert fired(trigger) == [f"ci_status:{HEAD}:failing"]


@pytest.mark.parametrize(
    ("state", "fires"), [("merged", ["merged"]), ("closed", ["closed"]), ("locked", []), ("opened", []), ("odd", [])]
)
def test_row_47_each_state_is_told_apart(gitlab: GitLab, state: str, fires: list[str]) -> None:
    gitlab.forge.requests_of[PROJECT, 5] = fixture("gitlab/merge_request_merged") | {"state": state}
    trigger = gitlab.arm("forge.pr", args={"repo": PROJECT, "number": 5, "events": ["merged", "closed"]})
    gitlab.poll()

    assert fired(trigger) == fires


def test_a_forks_commit_that_is_not_there_has_no_statuses_of_its_own(gitlab: GitLab) -> None:
    head = {"id": 502, "sha": HEAD, "status": "success"}
    gitlab.forge.requests_of[PROJECT, 5] = fixture("gitlab/merge_request_opened") | {"head_pipeline": head}
    trigger = gitlab.arm("forge.pr", args={"repo": PROJECT, "number": 5, "events": ["ci_status"]})
    gitlab.poll()

    assert fired(trigger) == [f"ci_status:{HEAD}:passing"]


def test_a_limit_is_waited_out(gitlab: GitLab) -> None:
    gitlab.forge.pipelines[PROJECT] = []
    trigger = arm_ci(gitlab)
    gitlab.forge.faults.append(Reply({"message": "Retry later"}, 429, {"Retry-After": "30"}))
    gitlab.poll()
    trigger.refresh_from_db()

    assert trigger.consecutive_failures == 0
    until = Host.objects.get().blocked_until
    assert until
    assert (until - gitlab.now).total_seconds() == 30
