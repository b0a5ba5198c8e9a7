"""GitHub, github.com and Enterprise Server: workflow runs, pull requests, check runs and commit statuses.

Sources: docs.github.com, REST API, "Workflow runs", "Check runs", "Commit statuses", "Rate limits for the REST API".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sessions.instants import iso
from triggers.forges import base
from triggers.forges.base import Answer, Ask, Context, Conversation, Reading, Reply, instant, login
from triggers.observations import Conclusion, PullState, Resource, Verdict

PAGE = "100"
REACH = timedelta(days=1)  # how far back a thorough look goes: runs that are old and may yet end, or be re-run
THOROUGH = timedelta(minutes=10)  # between two thorough looks
OVERLAP = timedelta(minutes=10)  # of two other looks
REMEMBERED = timedelta(hours=1)  # how long what has ended and is on no page is remembered
OPEN_ASKED = 30  # runs that are under way and on no page, asked for one by one

_ENDS = {str(word): word for word in Conclusion}
_WORDS = base.Words(_ENDS, ["queued", "in_progress", "requested", "waiting", "pending"])
_STATUSES = base.Words(
    {"success": Conclusion.SUCCESS, "failure": Conclusion.FAILURE, "error": Conclusion.FAILURE}, ["pending"]
)


class GitHub(base.Forge):
    name: ClassVar[str] = "github"
    label: ClassVar[str] = "GitHub"
    scopes: ClassVar[str] = "read access to Actions, Checks, Commit statuses and Pull requests (classic: `repo`)"
    anonymous: ClassVar[str] = "only public repositories are seen, within 60 requests an hour"

    def headers(self, token: str) -> dict[str, str]:
        shared = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        return shared | ({"Authorization": f"Bearer {token}"} if token else {})

    def budget(self, reply: Reply) -> base.Budget | None:
        return base.budget_of(reply, "x-ratelimit-")

    def limited(self, reply: Reply) -> datetime | None:
        """Tell a limit from a refusal: GitHub answers 403 to both, to the secondary limit often without a header."""
        if reply.status not in (403, 429):
            return None
        if until := base.retry_after(reply):
            return until
        budget = self.budget(reply)
        if budget and budget.remaining == 0:
            return budget.reset_at
        if reply.status == 429 or "rate limit" in reply.body.lower() or "abuse detection" in reply.body.lower():
            return reply.at + timedelta(seconds=60)
        return None

    def runs(self, resource: Resource, context: Context) -> Conversation:
        """List runs, newest first, then look for those that may still end but are on no page that was read.

        The list is ordered by creation, so an old run that ends, or is re-run, keeps its place: runs
        under way are remembered and asked for by id, and every ten minutes the look goes a day back.
        """
        memory, path = context.memory, f"/repos/{resource.repo}/actions/runs"
        thorough = _is_older(memory.get("thorough_at"), context.now - THOROUGH)
        last = instant(memory.get("read_at")) or context.since
        floor = min(context.since, last) - REACH if thorough else last - OVERLAP
        pages = yield from base.listing(
            path, _keep_runs, {"per_page": PAGE}, enough=lambda run: _is_older(run["created_at"], floor)
        )
        runs = {run["id"]: run for run in pages.items}
        if thorough and not pages.whole:
            for status in ("in_progress", "queued", "waiting"):
                answer = yield Ask(path, _keep_runs, {"status": status, "per_page": PAGE, "page": "1"})
                runs |= {run["id"]: run for run in answer.data["items"] if run["id"] not in runs}
        listed = {_key(run) for run in pages.items}
        for run_id in [int(text) for text in memory.get("open", []) if int(text) not in runs][:OPEN_ASKED]:
            answer = yield Ask(f"{path}/{run_id}", _keep_run, may_be_missing=True)
            if not answer.missing:
                runs[run_id] = answer.data
        return (yield from self._reading(runs, context, path=path, listed=listed, thorough=thorough))

    def run(self, resource: Resource, context: Context) -> Conversation:
        path = f"/repos/{resource.repo}/actions/runs"
        answer = yield Ask(f"{path}/{resource.number}", _keep_run)
        runs = {answer.data["id"]: answer.data}
        listed = {_key(answer.data)}
        return (yield from self._reading(runs, context, path=path, listed=listed, thorough=True))

    def pull(self, resource: Resource, context: Context) -> Conversation:
        answer = yield Ask(f"/repos/{resource.repo}/pulls/{resource.number}", _keep_pull)
        kept = answer.data
        unknown: set[str] = set()
        checks: list[Verdict] | None = None
        if resource.checks:
            checks = yield from self._checks(resource.repo, kept["sha"], unknown)
        return Reading(pull=base.pull_of(kept, checks), unknown=frozenset(unknown))

    def _checks(self, repo: str, sha: str, unknown: set[str]) -> Generator[Ask, Answer, list[Verdict]]:
        """Return the check runs and the legacy statuses of a commit together; its combined `state` says nothing."""
        found: list[Verdict] = []
        for name, keep in (("check-runs", _keep_checks), ("status", _keep_statuses)):
            pages = yield from base.listing(f"/repos/{repo}/commits/{sha}/{name}", keep, {"per_page": PAGE})
            found += [Verdict(item) for item in pages.items]
            unknown |= pages.unknown
            if not pages.whole:
                found.append(Verdict.PENDING)  # more than can be read: nothing can be said of all of them
        return found

    def _reading(
        self, runs: Mapping[int, dict[str, Any]], context: Context, *, path: str, listed: set[str], thorough: bool
    ) -> Conversation:
        """Add the attempts that a re-run has covered up, and what had ended on no page; say what to remember."""
        memory = context.memory
        horizon = context.now - REMEMBERED
        past = {key: run for key, run in memory.get("past", {}).items() if not _is_older(run["ended_at"], horizon)}
        known = set(memory.get("over", [])) | set(past)
        for run in list(runs.values()):
            past |= yield from self._covered(path, run, known, context)
        past |= {_key(run): run for run in runs.values() if run["conclusion"] and _key(run) not in listed}
        everything = {**past, **{_key(run): run for run in runs.values()}}
        left = {
            "open": [run["id"] for run in runs.values() if not run["conclusion"]],
            "over": [key for key, run in everything.items() if run["conclusion"]],
            "past": past,
            "read_at": iso(context.now),
            "thorough_at": iso(context.now) if thorough else memory.get("thorough_at"),
        }
        unknown = frozenset(word for run in everything.values() for word in run["unknown"])
        return Reading([base.run_of(run) for run in everything.values()], memory=left, unknown=unknown)

    def _covered(
        self, path: str, run: Mapping[str, Any], known: set[str], context: Context
    ) -> Generator[Ask, Answer, dict[str, Any]]:
        """Return the earlier attempts of a run that were never seen to end and may have ended since."""
        found: dict[str, Any] = {}
        while int(run["attempt"]) > 1 and not _is_older(run["started_at"], context.since):
            attempt = int(run["attempt"]) - 1
            if f"{run['id']}:{attempt}" in known:
                break
            answer = yield Ask(f"{path}/{run['id']}/attempts/{attempt}", _keep_run, may_be_missing=True)
            if answer.missing or not answer.data["conclusion"]:
                break
            run = answer.data
            found[_key(run)] = run
        return found


def _key(run: Mapping[str, Any]) -> str:
    return f"{run['id']}:{run['attempt']}"


def _is_older(text: str | None, than: datetime) -> bool:
    return (instant(text) or datetime.min.replace(tzinfo=UTC)) < than


def _keep_runs(body: Any) -> dict[str, Any]:
    return base.page_of([_keep_run(run) for run in body["workflow_runs"]], body["total_count"], set())


def _keep_run(run: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    over = run["status"] == "completed"
    conclusion = _WORDS.read(run["conclusion"] if over else run["status"], unknown)
    return {
        "id": run["id"],
        "attempt": str(run.get("run_attempt") or 1),
        "conclusion": conclusion if over else None,
        "name": run.get("name"),
        "file": str(run.get("path") or "").partition("@")[0].rpartition("/")[2],
        "ref": run.get("head_branch"),
        "owner": _fork_owner(run),
        "sha": run.get("head_sha"),
        "event": run.get("event"),
        "title": base.title(run.get("display_title")),
        "url": run.get("html_url"),
        "actor": login(run.get("triggering_actor")) or login(run.get("actor")),
        "created_at": run["created_at"],
        "started_at": run.get("run_started_at") or run["created_at"],
        "ended_at": run["updated_at"] if over else None,
        "unknown": sorted(unknown),
    }


def _fork_owner(run: Any) -> str:
    """Return whose fork a run's branch is in, "" for the repository's own; a fork that is gone is nobody's."""
    head = run.get("head_repository", {})
    if head is None:
        return "(deleted)"
    same = head.get("full_name") in (None, (run.get("repository") or {}).get("full_name"))
    return "" if same else login(head.get("owner"))


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


def _keep_checks(body: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    checks = []
    for check in body["check_runs"]:
        over = check["status"] == "completed"
        conclusion = _WORDS.read(check["conclusion"] if over else check["status"], unknown)
        checks.append(base.verdict_of(conclusion if over else None))
    return base.page_of(checks, body["total_count"], unknown)


def _keep_statuses(body: Any) -> dict[str, Any]:
    unknown: set[str] = set()
    checks = [base.verdict_of(_STATUSES.read(status["state"], unknown)) for status in body["statuses"]]
    return base.page_of(checks, body["total_count"], unknown)
