"""Gitea and Forgejo: workflow runs, pull requests and commit statuses.

Sources: Gitea's and Forgejo's OpenAPI documents. The two describe a run in different words; both are read.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from triggers.forges import base
from triggers.forges.base import Ask, Context, Conversation, Fault, ForgeError, Reading, instant, login
from triggers.observations import Conclusion, PullState, Resource, Verdict

PAGE = "50"  # a server's usual maximum
REACH = timedelta(days=1)  # how far back the list is read: what is older and not over is asked for by id
OPEN_ASKED = 30

_ENDS = {
    "success": Conclusion.SUCCESS,
    "failure": Conclusion.FAILURE,
    "cancelled": Conclusion.CANCELLED,
    "skipped": Conclusion.SKIPPED,
}
_RUNS = base.Words(
    _ENDS, ["", "queued", "in_progress", "requested", "waiting", "pending", "running", "blocked", "unknown"]
)
_STATUSES = base.Words(
    {
        "success": Conclusion.SUCCESS,
        "skipped": Conclusion.SKIPPED,
        "failure": Conclusion.FAILURE,
        "error": Conclusion.FAILURE,
        "warning": Conclusion.ACTION_REQUIRED,  # a branch's protection does not take it for a success
    },
    ["", "pending"],
)


class Gitea(base.Forge):
    name: ClassVar[str] = "gitea"
    label: ClassVar[str] = "Gitea or Forgejo"
    scopes: ClassVar[str] = "`read:repository`"
    anonymous: ClassVar[str] = "only public repositories are seen"

    def headers(self, token: str) -> dict[str, str]:
        return {"Accept": "application/json"} | ({"Authorization": f"token {token}"} if token else {})

    def runs(self, resource: Resource, context: Context) -> Conversation:
        """List runs, newest first, for a day back; then ask by id for those under way that are older."""
        root = f"/api/v1/repos/{resource.repo}"
        path, floor = f"{root}/actions/runs", context.since - REACH
        pages = yield from base.listing(
            path, _keep_runs, {"limit": PAGE}, enough=lambda run: _ended_before(run, floor), may_be_missing=True
        )
        if pages.missing:
            yield Ask(root, lambda body: None)  # if that is missing too, it is the repository
            raise ForgeError(
                Fault.LASTING,
                f"this server does not list the runs of {resource.repo}: it has no /actions/runs (update it), or "
                "Actions are switched off for the repository",
            )
        runs = {run["id"]: run for run in pages.items}
        for run_id in [known for known in context.memory.get("open", []) if known not in runs][:OPEN_ASKED]:
            answer = yield Ask(f"{path}/{run_id}", _keep_run, may_be_missing=True)
            if not answer.missing:
                runs[run_id] = answer.data
        left = {"open": [run["id"] for run in runs.values() if not run["conclusion"]]}
        return _reading(list(runs.values()), left)

    def run(self, resource: Resource, context: Context) -> Conversation:
        answer = yield Ask(f"/api/v1/repos/{resource.repo}/actions/runs/{resource.number}", _keep_run)
        return _reading([answer.data], {})

    def pull(self, resource: Resource, context: Context) -> Conversation:
        root = f"/api/v1/repos/{resource.repo}"
        answer = yield Ask(f"{root}/pulls/{resource.number}", _keep_pull)
        kept = answer.data
        checks: list[Verdict] | None = None
        unknown: set[str] = set()
        if resource.checks:
            pages = yield from base.listing(f"{root}/commits/{kept['sha']}/status", _keep_statuses, {"limit": PAGE})
            checks = [Verdict(item) for item in pages.items] + ([] if pages.whole else [Verdict.PENDING])
            unknown = pages.unknown
        return Reading(pull=base.pull_of(kept, checks), unknown=frozenset(unknown))


def _reading(runs: list[dict[str, Any]], memory: dict[str, Any]) -> Reading:
    unknown = {word for run in runs for word in run["unknown"]}
    return Reading([base.run_of(run) for run in runs], memory=memory, unknown=frozenset(unknown))


def _ended_before(run: dict[str, Any], floor: Any) -> bool:
    ended = instant(run["ended_at"])
    return ended is not None and ended < floor


def _keep_runs(body: Any) -> dict[str, Any]:
    runs = body.get("workflow_runs") or []
    return base.page_of([_keep_run(run) for run in runs], body.get("total_count"), set())


def _keep_run(run: Any) -> dict[str, Any]:
    return _keep_forgejo_run(run) if "commit_sha" in run else _keep_gitea_run(run)


def _keep_gitea_run(run: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    over = run["status"] == "completed"
    conclusion = _RUNS.read(run.get("conclusion") if over else run["status"], unknown)
    path, _, _ = str(run.get("path") or "").partition("@")
    ended = run.get("completed_at") if over else None
    return {
        "id": run["id"],
        "attempt": str(run.get("run_attempt") or ended or ""),
        "conclusion": conclusion if over else None,
        "file": path.rpartition("/")[2],
        "ref": run.get("head_branch"),
        "owner": _fork_owner(run),
        "sha": run.get("head_sha"),
        "event": run.get("event"),
        "title": base.title(run.get("display_title")),
        "url": run.get("html_url"),
        "actor": login(run.get("trigger_actor")) or login(run.get("actor")),
        "started_at": run.get("started_at"),
        "ended_at": ended,
        "unknown": sorted(unknown),
    }


def _keep_forgejo_run(run: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    conclusion = _RUNS.read(run["status"], unknown)
    ended = run.get("stopped") if conclusion else None
    return {
        "id": run["id"],
        "attempt": str(ended or ""),
        "conclusion": conclusion,
        "file": run.get("workflow_id"),
        "ref": run.get("prettyref"),
        "owner": "(fork)" if run.get("is_fork_pull_request") else "",
        "sha": run.get("commit_sha"),
        "event": run.get("trigger_event") or run.get("event"),
        "title": base.title(run.get("title")),
        "url": run.get("html_url"),
        "actor": login(run.get("trigger_user")),
        "created_at": run.get("created"),
        "started_at": run.get("started"),
        "ended_at": ended,
        "unknown": sorted(unknown),
    }


def _fork_owner(run: Any) -> str:
    head, own = run.get("head_repository"), run.get("repository")
    if not head or not own or head.get("full_name") == own.get("full_name"):
        return ""
    return login(head.get("owner"))


def _keep_pull(pull: Any) -> dict[str, Any]:
    merged = bool(pull.get("merged") or pull.get("merged_at"))
    closed = PullState.CLOSED if pull["state"] == "closed" else PullState.OPEN
    return {
        "number": pull["number"],
        "state": PullState.MERGED if merged else closed,
        "sha": pull["head"]["sha"],
        "title": base.title(pull.get("title")),
        "url": pull.get("html_url") or "",
        "author": login(pull.get("user")),
        "ended_by": login(pull.get("merged_by")),
        "ended_at": pull.get("merged_at") or pull.get("closed_at"),
    }


def _keep_statuses(body: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    statuses = body.get("statuses") or []
    checks = [base.verdict_of(_STATUSES.read(status["status"], unknown)) for status in statuses]
    return base.page_of(checks, body.get("total_count"), unknown)
