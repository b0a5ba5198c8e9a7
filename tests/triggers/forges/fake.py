"""Forges that answer over real HTTP on loopback, by a script that the test holds; what they serve is checked first."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tests.triggers.forges import shapes

FIXTURES = Path(__file__).parent / "fixtures"


def fixture(name: str) -> Any:
    """Return a fixture, e.g. "github/run"."""
    return json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """What is answered; `raw` stands in for the JSON of `body`."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


NOT_FOUND = Reply({"message": "Not Found"}, 404)


class FakeForge:
    """A server on loopback. `faults` are answered first, one to a request; `limits` are headers of every answer."""

    etags: ClassVar[bool] = True

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now
        self.requests: list[Request] = []
        self.faults: deque[Reply] = deque()
        self.limits: Callable[[], dict[str, str]] = dict
        self.before: Callable[[Request], None] = lambda request: None
        self.latency = threading.Event()
        self.delay = 0.0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Reply:
        """Answer in the absence of faults."""
        raise NotImplementedError

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        self.before(request)
        if self.delay:
            self.latency.wait(self.delay)
        reply = self.faults.popleft() if self.faults else self.answer(request)
        return self._conditional(request, reply)

    def _conditional(self, request: Request, reply: Reply) -> Reply:
        if not self.etags or reply.status != 200 or reply.raw is not None:
            return reply
        etag = f'W/"{hashlib.sha256(json.dumps([reply.body, reply.headers]).encode()).hexdigest()}"'
        if request.headers.get("if-none-match") == etag:
            return Reply(status=304, headers={"ETag": etag}, raw=b"")
        return Reply(reply.body, 200, {**reply.headers, "ETag": etag})

    def _page(self, request: Request, items: list[Any], *, size: str, default: int) -> tuple[list[Any], dict[str, str]]:
        """Return a page of items and the Link header that leads to the next."""
        page, each = int(request.query.get("page", 1)), int(request.query.get(size, default))
        headers = {}
        if page * each < len(items):
            following = urlencode({**request.query, "page": page + 1})
            headers["Link"] = f'<{self.url}{request.path}?{following}>; rel="next"'
        return items[(page - 1) * each : page * each], headers


class FakeGitHub(FakeForge):
    """The part of GitHub's REST API that is asked. Runs are kept newest first, as it lists them."""

    def __init__(self, now: datetime | None = None) -> None:
        super().__init__(now)
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.attempts: dict[tuple[int, int], dict[str, Any]] = {}
        self.pulls: dict[tuple[str, int], dict[str, Any]] = {}
        self.checks: dict[str, list[dict[str, Any]]] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        self.moved: dict[str, str] = {}

    def put_run(self, repo: str, **changes: Any) -> dict[str, Any]:
        """Add a run, or change the one of that id. Its own instants move with the fake's clock."""
        runs = self.runs.setdefault(repo, [])
        known = next((run for run in runs if run["id"] == changes.get("id")), None)
        stamps = {"updated_at": _stamp(self.now)}
        if known is None:
            stamps |= {"created_at": _stamp(self.now), "run_started_at": _stamp(self.now)}
        run = copy.deepcopy(known or fixture("github/run")) | stamps | changes
        shapes.check("github", "run", run)
        if known and known["run_attempt"] != run["run_attempt"]:
            self.attempts[run["id"], known["run_attempt"]] = known
            run["run_started_at"] = changes.get("run_started_at", _stamp(self.now))
        if known:
            runs[runs.index(known)] = run
        else:
            runs.insert(0, run)
        return run

    def put_pull(self, repo: str, **changes: Any) -> dict[str, Any]:
        known = self.pulls.get((repo, changes.get("number", 5))) or fixture("github/pull_open")
        pull = copy.deepcopy(known) | changes
        shapes.check("github", "pull", pull)
        self.pulls[repo, pull["number"]] = pull
        return pull

    def put_check(self, sha: str, name: str, **changes: Any) -> None:
        checks = self.checks.setdefault(sha, [])
        known = next((check for check in checks if check["name"] == name), None)
        check = (known or fixture("github/check_queued")) | {"name": name, "head_sha": sha} | changes
        shapes.check("github", "check", check)
        checks[:] = [item for item in checks if item is not known] + [check]

    def put_status(self, sha: str, context: str, state: str) -> None:
        status = fixture("github/status_pending") | {"context": context, "state": state}
        shapes.check("github", "status", status)
        statuses = self.statuses.setdefault(sha, [])
        statuses[:] = [item for item in statuses if item["context"] != context] + [status]

    def answer(self, request: Request) -> Reply:
        if match := re.fullmatch(r"/repos/([^/]+/[^/]+)(/.*)", request.path):
            repo, rest = match[1], match[2]
            if repo in self.moved:
                query = f"?{urlencode(request.query)}" if request.query else ""
                return Reply(
                    {"message": "Moved Permanently"},
                    301,
                    {"Location": f"{self.url}/repositories/{self.moved[repo]}{rest}{query}"},
                )
            return self._of_repo(repo, rest, request)
        if match := re.fullmatch(r"/repositories/([^/]+/[^/]+)(/.*)", request.path):
            return self._of_repo(match[1], match[2], request)
        return NOT_FOUND

    def _of_repo(self, repo: str, rest: str, request: Request) -> Reply:
        runs = self.runs.get(repo, [])
        if rest == "/actions/runs":
            if repo not in self.runs:
                return NOT_FOUND
            wanted = [run for run in runs if request.query.get("status") in (None, run["status"])]
            page, headers = self._page(request, wanted, size="per_page", default=30)
            return Reply({"total_count": len(wanted), "workflow_runs": page}, 200, headers)
        if match := re.fullmatch(r"/actions/runs/([0-9]+)", rest):
            return next((Reply(run) for run in runs if run["id"] == int(match[1])), NOT_FOUND)
        if match := re.fullmatch(r"/actions/runs/([0-9]+)/attempts/([0-9]+)", rest):
            attempt = self.attempts.get((int(match[1]), int(match[2])))
            return Reply(attempt) if attempt else NOT_FOUND
        if match := re.fullmatch(r"/pulls/([0-9]+)", rest):
            pull = self.pulls.get((repo, int(match[1])))
            return Reply(pull) if pull else NOT_FOUND
        if match := re.fullmatch(r"/commits/([0-9a-f]+)/(check-runs|status)", rest):
            return self._of_commit(match[1], match[2], request)
        return NOT_FOUND

    def _of_commit(self, sha: str, what: str, request: Request) -> Reply:
        items = (self.checks if what == "check-runs" else self.statuses).get(sha, [])
        page, headers = self._page(request, items, size="per_page", default=30)
        if what == "check-runs":
            return Reply({"total_count": len(items), "check_runs": page}, 200, headers)
        # The combined word is "pending" also where there is nothing to combine.
        body = {"state": "pending", "sha": sha, "total_count": len(items), "statuses": page}
        shapes.check("github", "combined", body)
        return Reply(body, 200, headers)


class FakeGitea(FakeForge):
    """The part of Gitea's API that is asked; `old`: a server that does not list runs."""

    etags: ClassVar[bool] = False

    def __init__(self, now: datetime | None = None) -> None:
        super().__init__(now)
        self.old = False
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.pulls: dict[tuple[str, int], dict[str, Any]] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}

    def answer(self, request: Request) -> Reply:
        match = re.fullmatch(r"/api/v1/repos/([^/]+/[^/]+)(/.*)?", request.path)
        if match is None or match[1] not in self.runs:
            return NOT_FOUND
        runs, rest = self.runs[match[1]], match[2] or ""
        if rest == "":
            return Reply({"id": 1, "full_name": match[1]})
        if rest == "/actions/runs" and not self.old:
            page, headers = self._page(request, runs, size="limit", default=30)
            return Reply({"total_count": len(runs), "workflow_runs": page}, 200, headers)
        if found := re.fullmatch(r"/actions/runs/([0-9]+)", rest):
            return next((Reply(run) for run in runs if run["id"] == int(found[1])), NOT_FOUND)
        if found := re.fullmatch(r"/pulls/([0-9]+)", rest):
            pull = self.pulls.get((match[1], int(found[1])))
            return Reply(pull) if pull else NOT_FOUND
        if found := re.fullmatch(r"/commits/([0-9a-f]+)/status", rest):
            statuses = self.statuses.get(found[1], [])
            page, headers = self._page(request, statuses, size="limit", default=30)
            return Reply({"state": "", "sha": found[1], "total_count": len(statuses), "statuses": page}, 200, headers)
        return NOT_FOUND


class FakeGitLab(FakeForge):
    """The part of GitLab's API that is asked."""

    def __init__(self, now: datetime | None = None) -> None:
        super().__init__(now)
        self.pipelines: dict[str, list[dict[str, Any]]] = {}
        self.requests_of: dict[tuple[str, int], dict[str, Any]] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}

    def answer(self, request: Request) -> Reply:
        match = re.fullmatch(r"/api/v4/projects/([^/]+)(/.*)", request.path)
        project, rest = (unquote(match[1]), match[2]) if match else ("", "")
        pipelines = self.pipelines.get(project, [])
        if rest == "/pipelines" and project in self.pipelines:
            newest = sorted(pipelines, key=lambda item: str(item["updated_at"]), reverse=True)
            page, headers = self._page(request, newest, size="per_page", default=20)
            return Reply(
                [{name: item[name] for name in shapes.GITLAB_LISTED if name in item} for item in page], 200, headers
            )
        if found := re.fullmatch(r"/pipelines/([0-9]+)", rest):
            return next((Reply(item) for item in pipelines if item["id"] == int(found[1])), NOT_FOUND)
        if found := re.fullmatch(r"/merge_requests/([0-9]+)", rest):
            wanted = self.requests_of.get((project, int(found[1])))
            return Reply(wanted) if wanted else NOT_FOUND
        if (found := re.fullmatch(r"/repository/commits/([0-9a-f]+)/statuses", rest)) and found[1] in self.statuses:
            page, headers = self._page(request, self.statuses[found[1]], size="per_page", default=20)
            return Reply(page, 200, headers)
        return NOT_FOUND


def serving(forge: FakeForge) -> Iterator[Any]:
    """Yield a forge, and stop it: the body of a fixture."""
    try:
        yield forge
    finally:
        forge.stop()


def _stamp(instant: datetime | None) -> str:
    assert instant, "a fake that makes runs needs a clock"
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _handler_of(forge: FakeForge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = forge.reply(Request(parts.path, dict(parse_qsl(parts.query)), headers))
            body = json.dumps(reply.body).encode() if reply.raw is None else reply.raw
            self.send_response_only(reply.status)
            if forge.now:
                self.send_header("Date", format_datetime(forge.now.astimezone(UTC), usegmt=True))
            for name, value in {**forge.limits(), **reply.headers}.items():
                self.send_header(name, value)
            if reply.status != 304:
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if reply.status != 304:
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
