"""The only place that does HTTP: drives conversations with forges, side by side, and touches no database.

A token goes to its host's own scheme, name and port, and nowhere else: a redirect within them is
followed, any other is an error.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import httpx

from sessions.text import cut, storable
from triggers.forges.base import Answer, Ask, Budget, Context, Fault, ForgeError, Reading, Reply, http_date, retry_after
from triggers.hosts import Place
from triggers.observations import Resource

SIDE_BY_SIDE = 16  # requests at a time, over all hosts
PER_HOST = 4  # of one host
RESERVE = 10  # percent of a limit that are left to others
REDIRECTS = 5
BODY_MAX_BYTES = 20 * 1024 * 1024
TIMEOUT = httpx.Timeout(20, connect=5)
CLOCK_ERROR = timedelta(seconds=2)  # a difference that the Date header cannot show: it has whole seconds

Clock = Callable[[], datetime]

log = logging.getLogger("rewake.wire")


@dataclass(frozen=True)
class Job:
    """One conversation to hold. `since` is by our clock; `memory` is what the last one left."""

    watch_id: int
    resource: Resource
    since: datetime
    memory: Mapping[str, Any]


@dataclass
class Result:
    """What came of a job: a reading or an error; or neither, if there was no time for it.

    `kept` are the answers to keep for the next time, `charged` the requests that the limit counts,
    `skew` how far the forge's clock is ahead of ours.
    """

    job: Job
    reading: Reading | None = None
    error: ForgeError | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    data: list[Any] = field(default_factory=list)
    charged: int = 0
    skew: timedelta = timedelta(0)


class Visit:
    """One round's dealings with one host, shared by its lanes."""

    def __init__(self, place: Place, budget: Budget | None, *, strikes: int, clock: Clock) -> None:
        self.place = place
        self.budget = budget
        self.strikes = strikes
        self.clock = clock
        self.blocked: ForgeError | None = None  # by a limit
        self.down: ForgeError | None = None  # it cannot be reached: nothing else is tried in this round
        self.skew = timedelta(0)
        self._lock = threading.Lock()
        self._client = httpx.Client(verify=place.verify_tls, timeout=TIMEOUT, follow_redirects=False)

    def close(self) -> None:
        self._client.close()

    def hold(self, job: Job) -> Result:
        """Hold one conversation to its end."""
        result = Result(job, skew=timedelta(seconds=float(job.memory.get("skew", 0))))
        now = self.clock() + result.skew
        context = Context(now=now, since=job.since + result.skew, memory=job.memory.get("forge", {}))
        conversation = self.place.forge.talk(job.resource, context)
        try:
            ask = next(conversation)
            while True:
                ask = conversation.send(self._answer(ask, result))
        except StopIteration as end:
            result.reading = end.value
        except ForgeError as error:
            result.error = self._without_token(error)
        return result

    def _without_token(self, error: ForgeError) -> ForgeError:
        """Keep the token out of what is shown, even where the forge repeats it."""
        token = self.place.token
        if not token or token not in error.message:
            return error
        return ForgeError(error.fault, error.message.replace(token, "***"), until=error.until)

    def _answer(self, ask: Ask, result: Result) -> Answer:
        """Answer a question, from what was kept if it has not changed since."""
        name = f"{ask.path}?{urlencode(sorted(ask.query.items()))}"
        before = result.job.memory.get("kept", {}).get(name)
        reply, more = self._get(ask, before["etag"] if before else "")
        result.skew = self.skew
        if reply.status == 304 and before:
            answer = Answer(before["data"], before["more"])
            result.kept[name] = before
        else:
            result.charged += 1
            if reply.status == 404 and ask.may_be_missing:
                return Answer(None, missing=True)
            self._refuse(reply)
            answer = Answer(_read(ask, reply, self.place.name), more)
            if etag := reply.headers.get("etag"):
                result.kept[name] = {"etag": etag, "data": answer.data, "more": more}
        result.data.append(answer.data)
        return answer

    def _get(self, ask: Ask, etag: str) -> tuple[Reply, bool]:
        url = f"{self.place.base_url}{ask.path}?{urlencode(ask.query)}".rstrip("?")
        for _ in range(REDIRECTS + 1):
            self._look_at_limits()
            response, body = self._send(url, etag)
            reply = Reply(response.status_code, {k.lower(): v for k, v in response.headers.items()}, body, self.clock())
            self._note(reply)
            if response.status_code not in (301, 302, 307, 308):
                return reply, "next" in response.links
            url = self._follow(url, response.headers.get("location", ""), ask)
        raise ForgeError(Fault.LASTING, f"{self.place.name} redirects in circles")

    def _send(self, url: str, etag: str) -> tuple[httpx.Response, str]:
        headers = {"User-Agent": "rewake", **self.place.forge.headers(self.place.token)}
        if etag:
            headers["If-None-Match"] = etag
        try:
            with self._client.stream("GET", url, headers=headers) as response:
                return response, _body(response)
        except httpx.InvalidURL as error:
            raise ForgeError(Fault.LASTING, f"{self.place.name} has no usable base URL: {error}") from error
        except httpx.HTTPError as error:
            what = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "cannot be reached"
            detail = f": {error}" if str(error) else ""
            self.down = ForgeError(Fault.TRANSPORT, f"{self.place.name} {what}{detail}")
            raise self.down from error

    def _follow(self, url: str, location: str, ask: Ask) -> str:
        target = urljoin(url, location)
        ours, theirs = urlsplit(self.place.base_url), urlsplit(target)
        if not location or (ours.scheme, ours.netloc.lower()) != (theirs.scheme, theirs.netloc.lower()):
            raise ForgeError(
                Fault.LASTING,
                f"{self.place.name} redirects to another host ({theirs.netloc or 'nowhere'}), which is never asked: "
                "check the repository's name and the host's base URL",
            )
        return target if theirs.query or not ask.query else f"{target}?{urlencode(ask.query)}"

    def _look_at_limits(self) -> None:
        """Raise if a limit, or the part of it that is left to others, has been met."""
        if self.down:
            raise self.down
        budget, now = self.budget, self.clock() + self.skew
        if budget and budget.reset_at > now and budget.remaining <= budget.limit * RESERVE // 100:
            until = budget.reset_at - self.skew
            self.blocked = ForgeError(Fault.LIMITED, f"{self.place.name}'s limit is used up", until=until)
        if self.blocked:
            raise self.blocked

    def _note(self, reply: Reply) -> None:
        """Note what an answer says of the forge's clock and limits. Raises if it is that a limit was met."""
        with self._lock:
            theirs = http_date(reply.headers.get("date", ""))
            ahead = theirs - reply.at if theirs else timedelta(0)
            self.skew = ahead if abs(ahead) > CLOCK_ERROR else timedelta(0)
            if budget := self.place.forge.budget(reply):
                self.budget = budget
            until = self.place.forge.limited(reply)
            if until is None:
                return
            if retry_after(reply) is None:
                until = max(until - self.skew, reply.at + timedelta(minutes=min(60, 2**self.strikes)))
            self.strikes += 1
            self.blocked = ForgeError(Fault.LIMITED, f"{self.place.name} limits how often it may be asked", until=until)
        raise self.blocked

    def _refuse(self, reply: Reply) -> None:
        """Raise for an answer that is none, saying what would help."""
        if 200 <= reply.status < 300:
            return
        if reply.status >= 500 or reply.status in (304, 408, 425):
            message = f"{self.place.name} answered {reply.status}"
            raise ForgeError(Fault.TRANSPORT, message, until=retry_after(reply))
        raise ForgeError(Fault.LASTING, f"{self.place.name} answered {reply.status}: {self._advice(reply)}")

    def _advice(self, reply: Reply) -> str:
        place = self.place
        token = f"manage.py forge_host token {place.name}"
        scopes = f"it needs {place.forge.scopes}"
        if reply.status == 401:
            return f"its token is not accepted; give a new one ({token}); {scopes}"
        if reply.status == 403:
            why = "its token does not allow this" if place.token else "it wants a token for this"
            return f"{why}; give one that does ({token}); {scopes}. It said: {_said(reply)}"
        if reply.status == 404:
            seen = "its token may not see it" if place.token else "it is private, and there is no token"
            return f"no such thing; check repo, number or run_id, or {seen} ({token}; {scopes})"
        if reply.status == 410:
            return "it is gone, or switched off for this repository"
        return f"it refuses the question. It said: {_said(reply)}"


def ask_all(
    jobs: Mapping[int, Sequence[Job]], visits: Mapping[int, Visit], *, clock: Clock, deadline: datetime
) -> Iterator[Result]:
    """Hold all conversations, by host, and yield each result as it comes.

    Every host has its lanes; the first lane of each starts before any second one, so that a slow host
    does not keep the others waiting. After `deadline` no new conversation begins.
    """
    waiting = {host: deque(items) for host, items in jobs.items()}
    results: SimpleQueue[Result] = SimpleQueue()
    with ThreadPoolExecutor(max_workers=SIDE_BY_SIDE, thread_name_prefix="rewake-poll") as pool:
        for lane in range(PER_HOST):
            for host, items in jobs.items():
                if lane < len(items):
                    pool.submit(_run_lane, visits[host], waiting[host], results, deadline)
        for _ in range(sum(map(len, jobs.values()))):
            yield results.get()


def _run_lane(visit: Visit, waiting: deque[Job], results: SimpleQueue[Result], deadline: datetime) -> None:
    while True:
        try:
            job = waiting.popleft()
        except IndexError:
            return
        results.put(_held(visit, job) if visit.clock() <= deadline else Result(job))


def _held(visit: Visit, job: Job) -> Result:
    """Hold a conversation; a fault of our own is an error of this job, not the end of the lane."""
    try:
        return visit.hold(job)
    except Exception as error:
        log.exception("conversation broke", extra={"action": "conversation_broke", "watch_id": job.watch_id})
        return Result(job, error=ForgeError(Fault.LASTING, f"cannot be read: {type(error).__name__}: {error}"))


def _read(ask: Ask, reply: Reply, name: str) -> Any:
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise ForgeError(Fault.TRANSPORT, f"{name} answered with something that is not JSON") from error
    try:
        return storable(ask.keep(body))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ForgeError(Fault.LASTING, f"{name}'s answer to {ask.path} cannot be read ({what})") from error


def _body(response: httpx.Response) -> str:
    """Return a body as text. Raises for one that is too large, before it is read to its end."""
    chunks, size = [], 0
    for chunk in response.iter_bytes():
        size += len(chunk)
        if size > BODY_MAX_BYTES:
            raise httpx.ReadError("the answer is larger than 20 MiB")
        chunks.append(chunk)
    return b"".join(chunks).decode("utf-8", "replace")


def _said(reply: Reply) -> str:
    try:
        message = json.loads(reply.body)["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = reply.body
    return cut(repr(str(message)), 200)
