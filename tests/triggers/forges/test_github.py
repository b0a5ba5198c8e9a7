"""How GitHub is asked and read, beyond what the tests of the kinds and of polling show on it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.triggers.forges import official, shapes
from tests.triggers.forges.fake import FIXTURES, fixture
from triggers.forges.base import Answer, Ask, Context, Reading, Reply, http_date, retry_after
from triggers.forges.github import GitHub
from triggers.observations import Conclusion, Resource, Scope

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
CONTEXT = Context(now=NOW, since=NOW - timedelta(minutes=5))
WHAT = {"run": "run", "pull": "pull", "check": "check", "status": "status"}


def reply(status: int = 200, body: Any = None, **headers: str) -> Reply:
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body), NOW)


def read(resource: Resource, answers: dict[str, Any], context: Context = CONTEXT) -> Reading:
    """Hold a conversation with answers by path."""
    conversation = GitHub().talk(resource, context)
    try:
        ask: Ask = next(conversation)
        while True:
            body = answers.get(ask.path)
            missing = body is None and ask.may_be_missing
            ask = conversation.send(Answer(None, missing=True) if missing else Answer(ask.keep(body)))
    except StopIteration as end:
        result: Reading = end.value
        return result


@pytest.mark.parametrize("file", sorted((FIXTURES / "github").glob("*.json")), ids=lambda file: file.stem)
def test_a_fixture_is_what_github_describes(file: Path) -> None:
    shapes.check("github", WHAT[file.stem.split("_")[0]], json.loads(file.read_text("utf-8")))


@pytest.mark.parametrize(
    ("what", "invented"),
    [("run", {"colour": "green"}), ("run", {"id": "x"}), ("check", {"conclusion": "sucess"}), ("pull", {"state": 5})],
)
def test_no_invented_field_or_word_passes(what: str, invented: dict[str, Any]) -> None:
    with pytest.raises(shapes.NotDescribed):
        shapes.check("github", what, invented)


def test_a_run_is_read() -> None:
    [run] = read(
        Resource(Scope.RUN, "octo/repo", 1001),
        {
            "/repos/octo/repo/actions/runs/1001": fixture("github/run")
            | {"status": "completed", "conclusion": "success"}
        },
    ).runs

    assert (run.key, run.conclusion, run.file, run.ref, run.owner) == (
        "1001:1",
        Conclusion.SUCCESS,
        "ci.yml",
        "main",
        "",
    )


def test_a_run_of_a_fork_that_is_gone_is_nobodys() -> None:
    body = fixture("github/run") | {"head_repository": None}
    [run] = read(Resource(Scope.RUN, "octo/repo", 1001), {"/repos/octo/repo/actions/runs/1001": body}).runs

    assert run.owner == "(deleted)"


def test_a_run_without_an_attempt_is_the_first() -> None:
    body = {name: value for name, value in fixture("github/run").items() if name != "run_attempt"}
    [run] = read(Resource(Scope.RUN, "octo/repo", 1001), {"/repos/octo/repo/actions/runs/1001": body}).runs

    assert run.key == "1001:1"


def test_a_run_under_way_that_was_deleted_is_forgotten() -> None:
    context = Context(
        NOW, NOW, {"open": [77], "read_at": "2026-12-01T09:29:00Z", "thorough_at": "2026-12-01T09:29:00Z"}
    )
    reading = read(
        Resource(Scope.RUNS, "octo/repo"),
        {"/repos/octo/repo/actions/runs": {"total_count": 0, "workflow_runs": []}},
        context,
    )

    assert reading.memory["open"] == []


def test_a_token_and_the_versions_are_sent() -> None:
    assert GitHub().headers("")["X-GitHub-Api-Version"] == "2022-11-28"
    assert "Authorization" not in GitHub().headers("")
    assert GitHub().headers("gho_x")["Authorization"] == "Bearer gho_x"


@pytest.mark.parametrize(
    ("answer", "until"),
    [
        (reply(200), None),
        (reply(403, {"message": "Resource not accessible by personal access token"}), None),
        (reply(403, {"message": "x"}, x_ratelimit_limit="60", x_ratelimit_remaining="9", x_ratelimit_reset="1"), None),
        (reply(403, {"message": "You have exceeded a secondary rate limit"}), NOW + timedelta(seconds=60)),
        (reply(403, {"message": "You have triggered an abuse detection mechanism"}), NOW + timedelta(seconds=60)),
        (reply(429, {"message": "x"}), NOW + timedelta(seconds=60)),
        (reply(429, {"message": "x"}, retry_after="9"), NOW + timedelta(seconds=9)),
        (
            reply(403, {}, x_ratelimit_limit="60", x_ratelimit_remaining="0", x_ratelimit_reset="1796124600"),
            datetime.fromtimestamp(1796124600, UTC),
        ),
    ],
)
def test_row_48_a_limit_is_told_from_a_refusal(answer: Reply, until: datetime | None) -> None:
    assert GitHub().limited(answer) == until


@pytest.mark.parametrize("broken", ["", "x", "-1", "1.5", "9" * 400])
def test_what_a_limit_says_need_not_make_sense(broken: str) -> None:
    answer = reply(429, {}, x_ratelimit_limit=broken, x_ratelimit_remaining=broken, x_ratelimit_reset="x")

    assert GitHub().budget(answer) is None
    assert GitHub().limited(answer) == NOW + timedelta(seconds=60)


def test_retry_after_is_seconds_or_a_date_and_a_day_at_most() -> None:
    assert retry_after(reply(retry_after="90")) == NOW + timedelta(seconds=90)
    assert retry_after(reply(retry_after="9" * 30)) == NOW + timedelta(days=1)
    assert retry_after(reply(retry_after="Tue, 01 Dec 2026 10:00:00 GMT")) == datetime(2026, 12, 1, 10, tzinfo=UTC)
    assert retry_after(reply(retry_after="soon")) is None
    assert http_date("Tue, 01 Dec 2026 25:00:00 GMT") is None


@pytest.mark.parametrize(
    ("what", "body", "fault"),
    [
        ("workflow-run", fixture("github/run"), ""),
        ("workflow-run", fixture("github/run") | {"status": "dreaming"}, "unknown words: dreaming"),
        ("workflow-run", {}, "KeyError: 'status'"),
        ("status", fixture("github/status_pending"), ""),
        ("status", {"state": "lost"}, "unknown words: lost"),
    ],
)
def test_the_reading_of_official_examples_can_fail(what: str, body: Any, fault: str) -> None:
    assert official.fault_of(what, body) == fault


def test_no_official_examples_at_all_are_a_fault() -> None:
    assert official.report([]) == 1
