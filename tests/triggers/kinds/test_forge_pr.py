from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sessions.models import AgentSession
from tests.factories import arm
from tests.triggers.forges.fake import FakeGitHub
from tests.triggers.forges.world import World, fired, payloads
from triggers.exceptions import Invalid
from triggers.models import Trigger, Watch
from triggers.observations import VERDICTS, Conclusion
from triggers.states import TriggerStatus

pytestmark = pytest.mark.django_db

GitHub = World[FakeGitHub]
HEAD = "2" * 40
MERGED: dict[str, Any] = {
    "state": "closed",
    "merged": True,
    "merged_at": "2026-12-01T09:10:00Z",
    "closed_at": "2026-12-01T09:10:00Z",
    "merged_by": {"login": "hubot"},
}
CLOSED: dict[str, Any] = {"state": "closed", "closed_at": "2026-12-01T09:10:00Z"}


def status_of(trigger: Trigger) -> str:
    trigger.refresh_from_db()
    return trigger.status


@pytest.mark.parametrize(("change", "event"), [(MERGED, "merged"), (CLOSED, "closed")])
def test_row_47_what_is_merged_is_not_closed_and_what_is_closed_is_not_merged(
    github: GitHub, change: dict[str, Any], event: str
) -> None:
    github.forge.put_pull("octo/repo")
    trigger = github.arm_pr("merged", "closed")
    github.poll()
    github.forge.put_pull("octo/repo", **change)
    github.later()
    github.later()

    assert fired(trigger) == [event]


def test_row_47_merged_is_told_by_the_instant_alone(github: GitHub) -> None:
    github.forge.put_pull("octo/repo", state="closed", merged=False, merged_at="2026-12-01T09:10:00Z")
    trigger = github.arm_pr("merged", "closed")
    github.poll()

    assert fired(trigger) == ["merged"]


def test_row_47_a_merge_ends_the_wait_for_checks_that_are_still_queued(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    github.forge.put_check(HEAD, "build")
    trigger = github.arm_pr("ci_status")
    github.poll()
    github.forge.put_pull("octo/repo", **MERGED)
    github.later()

    assert fired(trigger) == [f"ci_status:{HEAD}:unsettled"]
    assert payloads(trigger)[0]["state"] == "merged"
    assert status_of(trigger) == TriggerStatus.COMPLETED


def test_merged_does_not_hide_ci_status(github: GitHub) -> None:
    github.forge.put_pull("octo/repo", **MERGED)
    github.forge.put_check(HEAD, "build", status="completed", conclusion="success")
    trigger = github.arm_pr("merged", "ci_status")
    github.poll()

    assert fired(trigger) == ["merged", f"ci_status:{HEAD}:passing"]
    assert status_of(trigger) == TriggerStatus.COMPLETED


def test_who_waits_for_both_is_told_of_checks_that_end_after_the_merge(github: GitHub) -> None:
    github.forge.put_pull("octo/repo", **MERGED)
    github.forge.put_check(HEAD, "build")
    trigger = github.arm_pr("merged", "ci_status")
    github.poll()
    assert fired(trigger) == ["merged"]

    github.forge.put_check(HEAD, "build", status="completed", conclusion="failure")
    github.later()

    assert fired(trigger) == ["merged", f"ci_status:{HEAD}:failing"]


@pytest.mark.parametrize(
    ("events", "change", "status"),
    [
        (["merged"], MERGED, TriggerStatus.COMPLETED),
        (["merged", "review"], MERGED, TriggerStatus.COMPLETED),
        (["closed"], CLOSED, TriggerStatus.COMPLETED),
        (["merged", "closed"], CLOSED, TriggerStatus.ARMED),  # it may be opened again, and merged
        (["merged"], CLOSED, TriggerStatus.ARMED),
    ],
)
def test_it_is_over_when_nothing_can_follow(
    github: GitHub, events: list[str], change: dict[str, Any], status: TriggerStatus
) -> None:
    github.forge.put_pull("octo/repo", **change)
    trigger = github.arm_pr(*events)
    github.poll()

    assert status_of(trigger) == status
    assert (Watch.objects.get().next_poll_at is None) == (status == TriggerStatus.COMPLETED)


def test_row_41_the_combined_word_of_no_statuses_does_not_hold_up_check_runs(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    for number in range(20):
        github.forge.put_check(HEAD, f"build {number}", status="completed", conclusion="success")
    for number in range(3):
        github.forge.put_check(HEAD, f"extra {number}", status="completed", conclusion="skipped")
    trigger = github.arm_pr("ci_status")
    github.poll()

    assert fired(trigger) == [f"ci_status:{HEAD}:passing"]
    assert payloads(trigger)[0]["checks"] == {"passing": 23}


@pytest.mark.parametrize(("state", "verdict"), [("failure", "failing"), ("error", "failing"), ("success", "passing")])
def test_check_runs_and_legacy_statuses_count_together(github: GitHub, state: str, verdict: str) -> None:
    github.forge.put_pull("octo/repo")
    github.forge.put_check(HEAD, "build", status="completed", conclusion="success")
    github.forge.put_status(HEAD, "ci/legacy", "pending")
    trigger = github.arm_pr("ci_status")
    github.poll()
    assert fired(trigger) == []

    github.forge.put_status(HEAD, "ci/legacy", state)
    github.later()

    assert fired(trigger) == [f"ci_status:{HEAD}:{verdict}"]


def test_row_42_an_empty_set_is_never_passed_and_after_the_grace_is_reported_as_no_checks(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    trigger = github.arm_pr("ci_status")
    github.poll()
    for _ in range(9):
        github.later()
    assert fired(trigger) == []

    github.later()

    assert fired(trigger) == [f"ci_status:{HEAD}:no_checks"]
    assert payloads(trigger)[0]["verdict"] == "no_checks"


def test_row_42_checks_that_come_after_the_grace_have_their_verdict_still(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    trigger = github.arm_pr("ci_status")
    github.poll()
    github.later(600)
    github.forge.put_check(HEAD, "build", status="completed", conclusion="success")
    github.later()

    assert fired(trigger) == [f"ci_status:{HEAD}:no_checks", f"ci_status:{HEAD}:passing"]


def test_row_42_a_new_head_has_a_grace_of_its_own(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    trigger = github.arm_pr("ci_status")
    github.poll()
    github.pass_time(540)
    github.forge.put_pull("octo/repo", head={"ref": "flux", "sha": "3" * 40})
    github.poll()
    github.later(120)

    assert fired(trigger) == []


@pytest.mark.parametrize("conclusion", list(Conclusion))
def test_row_44_each_conclusion_of_a_check_has_its_verdict(github: GitHub, conclusion: Conclusion) -> None:
    github.forge.put_pull("octo/repo")
    github.forge.put_check(HEAD, "build", status="completed", conclusion="success")
    github.forge.checks[HEAD].append(github.forge.checks[HEAD][0] | {"name": "other", "conclusion": conclusion})
    trigger = github.arm_pr("ci_status")
    github.poll()

    assert fired(trigger) == [f"ci_status:{HEAD}:{VERDICTS[conclusion]}"]


def test_row_51_the_thirty_first_check_counts(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    for number in range(30):
        github.forge.put_check(HEAD, f"build {number}", status="completed", conclusion="success")
    github.forge.put_check(HEAD, "build 31", status="completed", conclusion="failure")
    trigger = github.arm_pr("ci_status")
    github.poll()

    assert fired(trigger) == [f"ci_status:{HEAD}:failing"]


def test_the_hundred_and_first_check_is_on_a_second_page_and_counts(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    for number in range(100):
        github.forge.put_check(HEAD, f"build {number}", status="completed", conclusion="success")
    github.forge.put_check(HEAD, "build 101", status="in_progress")
    trigger = github.arm_pr("ci_status")
    github.poll()

    assert fired(trigger) == []


def test_each_verdict_of_each_head_fires_once(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    trigger = github.arm_pr("ci_status")
    for conclusion in ("failure", "success", "failure"):
        github.forge.put_check(HEAD, "build", status="completed", conclusion=conclusion)
        github.later()
    github.forge.put_pull("octo/repo", head={"ref": "flux", "sha": "3" * 40})
    github.forge.put_check("3" * 40, "build", status="completed", conclusion="failure")
    github.later()

    assert fired(trigger) == [
        f"ci_status:{HEAD}:failing",
        f"ci_status:{HEAD}:passing",
        f"ci_status:{'3' * 40}:failing",
    ]


def test_a_pull_request_of_a_fork_that_is_gone_is_read(github: GitHub) -> None:
    head = {"ref": "flux", "sha": HEAD, "label": "mona:flux"}
    github.forge.put_pull("octo/repo", head=head, **MERGED)
    trigger = github.arm_pr("merged")
    github.poll()

    [payload] = payloads(trigger)
    assert (payload["actor"], payload["sha"], payload["at"]) == ("hubot", HEAD, "2026-12-01T09:10:00Z")


def test_triggers_on_one_pull_request_share_its_requests(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    github.arm_pr("merged")
    github.arm_pr("ci_status")
    github.poll()

    assert sorted(github.forge.paths) == sorted(
        ["/repos/octo/repo/pulls/5"] + [f"/repos/octo/repo/commits/{HEAD}/{what}" for what in ("check-runs", "status")]
    )


def test_who_waits_for_a_merge_alone_asks_for_no_checks(github: GitHub) -> None:
    github.forge.put_pull("octo/repo")
    github.arm_pr("merged", "closed")
    github.poll()

    assert github.forge.paths == ["/repos/octo/repo/pulls/5"]


def test_review_and_comment_are_accepted_and_the_answer_says_that_polling_never_fires_them(
    session: AgentSession, github: GitHub
) -> None:
    args = {"repo": "octo/repo", "number": 5, "events": ["review", "merged"]}
    [note, _] = arm(session, github.now, "forge.pr", args=args).notes

    assert "never fires review" in note
    assert "webhook trigger" in note


def test_what_polling_never_sees_is_not_polled(session: AgentSession, github: GitHub) -> None:
    args = {"repo": "octo/repo", "number": 5, "events": "comment, review"}
    armed = arm(session, github.now, "forge.pr", args=args)

    assert "will not fire at all" in armed.notes[0]
    assert armed.trigger.watch is None
    assert not Watch.objects.exists()


def test_what_was_so_before_arming_is_so(github: GitHub) -> None:
    github.forge.put_pull("octo/repo", **MERGED)
    github.pass_time(timedelta(days=2).total_seconds())
    trigger = github.arm_pr("merged")
    github.poll()

    assert fired(trigger) == ["merged"]


def test_what_happens_while_it_is_paused_fires_when_it_is_resumed(github: GitHub) -> None:
    from triggers import services

    github.forge.put_pull("octo/repo")
    trigger = github.arm_pr("merged")
    github.poll()
    services.pause(trigger.pk, by="operator", now=github.now)
    github.forge.put_pull("octo/repo", **MERGED)
    github.later()
    assert fired(trigger) == []

    services.resume(trigger.pk, by="operator", now=github.pass_time(60))
    github.poll()

    assert fired(trigger) == ["merged"]


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"number": 0}, "number"),
        ({"number": "five"}, "number"),
        ({"events": []}, "events"),
        ({"events": ["approved"]}, "events"),
        ({"events": None}, "events"),
    ],
)
def test_it_refuses_what_makes_no_sense_by_name(
    session: AgentSession, github: GitHub, args: dict[str, Any], field: str
) -> None:
    given = {"repo": "octo/repo", "number": 5, "events": ["merged"]} | args

    with pytest.raises(Invalid) as caught:
        arm(session, github.now, "forge.pr", args=given)

    assert list(caught.value.fields) == [field]


@pytest.mark.parametrize("number", [5, "5", "#5"])
def test_row_64_it_accepts_the_shapes_that_models_send(session: AgentSession, github: GitHub, number: object) -> None:
    args = {"repo": "octo/repo", "number": number, "events": '["merged", "ci_status"]'}
    armed = arm(session, github.now, "forge.pr", args=args)

    assert armed.describe == "pull request #5 in octo/repo on github.com: merged, ci_status"
