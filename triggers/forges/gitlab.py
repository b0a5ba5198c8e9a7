"""GitLab: pipelines, merge requests and the statuses of their commits.

Sources: docs.gitlab.com, REST API, "Pipelines", "Merge requests", "Commits", "Rate limits". A pipeline does not count
its attempts: what is retried ends again, at another instant, and that instant is the attempt.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sessions.instants import iso
from triggers.forges import base
from triggers.forges.base import Ask, Context, Conversation, Reading, Reply, instant, login
from triggers.observations import Conclusion, PullState, Resource, Verdict

PAGE = "100"
OVERLAP = timedelta(minutes=10)  # of two looks
REMEMBERED = timedelta(hours=1)  # how long what has ended is remembered
FILE = ".gitlab-ci.yml"

_ENDS = {
    "success": Conclusion.SUCCESS,
    "failed": Conclusion.FAILURE,
    "canceled": Conclusion.CANCELLED,
    "skipped": Conclusion.SKIPPED,
}
_WORDS = base.Words(
    _ENDS,
    [
        "created",
        "waiting_for_resource",
        "waiting_for_callback",
        "preparing",
        "pending",
        "running",
        "scheduled",
        "manual",
        "canceling",
    ],
)
_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "closed": PullState.CLOSED, "merged": PullState.MERGED}


class GitLab(base.Forge):
    name: ClassVar[str] = "gitlab"
    label: ClassVar[str] = "GitLab"
    nested: ClassVar[bool] = True
    scopes: ClassVar[str] = "`read_api`"
    anonymous: ClassVar[str] = "only public projects with public pipelines are seen"

    def headers(self, token: str) -> dict[str, str]:
        return {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def budget(self, reply: Reply) -> base.Budget | None:
        return base.budget_of(reply, "ratelimit-")

    def runs(self, resource: Resource, context: Context) -> Conversation:
        """List pipelines by their last change, then ask for each that has ended: only there is the instant at which."""
        path = f"{_project(resource)}/pipelines"
        floor = (instant(context.memory.get("read_at")) or context.since) - OVERLAP
        pages = yield from base.listing(
            path,
            _keep_listed,
            {"order_by": "updated_at", "sort": "desc", "per_page": PAGE},
            enough=lambda item: _time(item["updated_at"]) < floor,
        )
        known = context.memory.get("ended", {})
        ended = {key: run for key, run in known.items() if _time(run["ended_at"]) >= context.now - REMEMBERED}
        for item in pages.items:
            key = f"{item['id']} {item['updated_at']}"
            if item["conclusion"] and key not in ended and _time(item["updated_at"]) >= context.since - OVERLAP:
                answer = yield Ask(f"{path}/{item['id']}", _keep_pipeline, may_be_missing=True)
                if not answer.missing:
                    ended[key] = answer.data
        runs = [base.run_of(run) for run in ended.values() if run["conclusion"]]
        left = {"read_at": iso(context.now), "ended": ended}
        return Reading(runs, memory=left, unknown=frozenset(pages.unknown))

    def run(self, resource: Resource, context: Context) -> Conversation:
        answer = yield Ask(f"{_project(resource)}/pipelines/{resource.number}", _keep_pipeline)
        return Reading([base.run_of(answer.data)], unknown=frozenset(answer.data["unknown"]))

    def pull(self, resource: Resource, context: Context) -> Conversation:
        answer = yield Ask(f"{_project(resource)}/merge_requests/{resource.number}", _keep_merge_request)
        kept, unknown = answer.data, set(answer.data["unknown"])
        checks: list[Verdict] | None = None
        if resource.checks:
            checks = [Verdict(kept["pipeline"])] if kept["pipeline"] else []
        if resource.checks and kept["sha"]:
            path = f"{_project(resource)}/repository/commits/{kept['sha']}/statuses"
            # A fork's commit may not be there.
            pages = yield from base.listing(path, _keep_statuses, {"per_page": PAGE}, may_be_missing=True)
            checks = (checks or []) + [Verdict(item) for item in pages.items]
            unknown |= pages.unknown
        return Reading(pull=base.pull_of(kept, checks), unknown=frozenset(unknown))


def _project(resource: Resource) -> str:
    return f"/api/v4/projects/{resource.repo.replace('/', '%2F')}"


def _time(text: str | None) -> datetime:
    return instant(text) or datetime.min.replace(tzinfo=UTC)


def _keep_listed(body: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    items = [
        {
            "id": pipeline["id"],
            "conclusion": _WORDS.read(pipeline["status"], unknown),
            "updated_at": pipeline["updated_at"],
        }
        for pipeline in body
    ]
    return base.page_of(items, None, unknown)


def _keep_pipeline(pipeline: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    conclusion = _WORDS.read(pipeline["status"], unknown)
    ended = (pipeline.get("finished_at") or pipeline.get("updated_at")) if conclusion else None
    return {
        "id": pipeline["id"],
        "attempt": str(ended or ""),
        "conclusion": conclusion,
        "name": pipeline.get("name"),
        "file": FILE,
        "ref": pipeline.get("ref"),
        "sha": pipeline.get("sha"),
        "event": pipeline.get("source"),
        "title": base.title(pipeline.get("name")),
        "url": pipeline.get("web_url"),
        "actor": login(pipeline.get("user"), "username"),
        "created_at": pipeline.get("created_at"),
        "started_at": pipeline.get("started_at"),
        "ended_at": ended,
        "unknown": sorted(unknown),
    }


def _keep_merge_request(request: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    ended_by = request.get("merge_user") or request.get("merged_by") or request.get("closed_by")
    pipeline = request.get("head_pipeline")
    state = _STATES.get(request["state"])
    if state is None:
        unknown.add(str(request["state"])[:60])
    return {
        "number": request["iid"],
        "state": state or PullState.OPEN,
        "sha": request.get("sha") or "",
        "title": base.title(request.get("title")),
        "url": request.get("web_url") or "",
        "author": login(request.get("author"), "username"),
        "ended_by": login(ended_by, "username"),
        "ended_at": request.get("merged_at") or request.get("closed_at"),
        "pipeline": base.verdict_of(_WORDS.read(pipeline["status"], unknown)) if pipeline else None,
        "unknown": sorted(unknown),
    }


def _keep_statuses(body: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    return base.page_of([_keep_status(status, unknown) for status in body], None, unknown)


def _keep_status(status: Any, unknown: set[str]) -> Verdict:
    """Return what a job or an external status comes to: one that is allowed to fail cannot hold anything up."""
    conclusion = _WORDS.read(status["status"], unknown)
    optional = bool(status.get("allow_failure"))
    if optional and (conclusion == Conclusion.FAILURE or status["status"] == "manual"):
        return Verdict.PASSING
    return base.verdict_of(conclusion)
