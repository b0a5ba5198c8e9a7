"""The contract of a forge: what to ask for a resource, and how to read the answers.

Forges are pure: no ORM, no network.

A forge holds a conversation: a generator that yields one `Ask` after another, is sent an `Answer` to each,
and returns a `Reading`. Whoever drives it does the HTTP, keeps the ETags, and sends what it had kept when the
forge answers that nothing has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from sessions.text import cut
from triggers.observations import VERDICTS, Conclusion, Pull, PullState, Resource, RunSeen, Scope, Verdict

TITLE_CHARS = 300
PAGES = 10  # of one list; GitHub shows no more of it either


class Fault(StrEnum):
    """Whose turn it is: the network's to recover, the limit's to pass, a person's to act."""

    TRANSPORT = "transport"
    LIMITED = "limited"
    LASTING = "lasting"


class ForgeError(Exception):
    """A question that got no answer. `message` is for an operator; `until` is when to ask again, if the forge said."""

    def __init__(self, fault: Fault, message: str, *, until: datetime | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.until = until


@dataclass(frozen=True)
class Ask:
    """One GET. `path` is below the host's base URL; `keep` takes from the answer's JSON what is worth keeping."""

    path: str
    keep: Callable[[Any], Any]
    query: Mapping[str, str] = field(default_factory=dict)
    may_be_missing: bool = False  # 404 is an answer, not an error


@dataclass(frozen=True)
class Answer:
    """What `keep` took; `more`: the forge links to a next page."""

    data: Any
    more: bool = False
    missing: bool = False


@dataclass(frozen=True)
class Context:
    """What a conversation starts from.

    `now` and `since` are by the forge's clock: nothing that ended before `since` matters to anyone.
    `memory` is what the forge's last reading of this resource left.
    """

    now: datetime
    since: datetime
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What a conversation found: runs, or one pull request; and what to remember of it."""

    runs: list[RunSeen] = field(default_factory=list)
    pull: Pull | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()  # the forge's words that are in no table


Conversation = Generator[Ask, Answer, Reading]


@dataclass(frozen=True)
class Budget:
    """How many requests a forge grants, how many are left, and until when."""

    limit: int
    remaining: int
    reset_at: datetime


@dataclass(frozen=True)
class Reply:
    """An HTTP answer, as a forge looks at it. The names of `headers` are in lower case; `at` is our clock."""

    status: int
    headers: Mapping[str, str]
    body: str
    at: datetime


class Forge(ABC):
    """One kind of forge."""

    name: ClassVar[str]
    label: ClassVar[str]
    nested: ClassVar[bool] = False  # repositories may lie in groups of groups
    scopes: ClassVar[str]  # what a token must be allowed to
    anonymous: ClassVar[str]  # what is seen without one, and how often

    def talk(self, resource: Resource, context: Context) -> Conversation:
        """Return the conversation about a resource."""
        if resource.scope == Scope.PULL:
            return self.pull(resource, context)
        return self.run(resource, context) if resource.scope == Scope.RUN else self.runs(resource, context)

    @abstractmethod
    def runs(self, resource: Resource, context: Context) -> Conversation:
        """Ask for a repository's runs: all that may have ended since `context.since`, and all that are under way."""

    @abstractmethod
    def run(self, resource: Resource, context: Context) -> Conversation:
        """Ask for one run."""

    @abstractmethod
    def pull(self, resource: Resource, context: Context) -> Conversation:
        """Ask for one pull request, and for its head's checks if they are wanted."""

    @abstractmethod
    def headers(self, token: str) -> dict[str, str]:
        """Return the headers of a request; `token` may be empty."""

    def budget(self, reply: Reply) -> Budget | None:
        """Return what an answer says of the limit."""
        return None

    def limited(self, reply: Reply) -> datetime | None:
        """Return until when a limit forbids to ask, if that is what an answer says."""
        if reply.status != 429:
            return None
        return retry_after(reply) or reply.at + timedelta(seconds=60)


def budget_of(reply: Reply, prefix: str) -> Budget | None:
    """Return the budget that the usual three headers state."""
    try:
        limit, remaining, reset = (int(reply.headers[f"{prefix}{name}"]) for name in ("limit", "remaining", "reset"))
        return Budget(limit, remaining, datetime.fromtimestamp(reset, UTC))
    except (KeyError, ValueError, OverflowError, OSError):
        return None


def retry_after(reply: Reply) -> datetime | None:
    """Return the instant that Retry-After names: seconds or a date (RFC 9110, section 10.2.3)."""
    value = reply.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return reply.at + timedelta(seconds=min(int(value), 86400))
    return http_date(value)


def http_date(value: str) -> datetime | None:
    """Read an HTTP date."""
    try:
        return datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None


def instant(value: Any) -> datetime | None:
    """Read an instant; absent, and the zeros that are written for absent, are None."""
    if not isinstance(value, str) or not value or value.startswith(("0001-", "1970-01-01")):
        return None
    found = datetime.fromisoformat(value)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def title(value: Any) -> str:
    """Return text of others, in a length that can be kept."""
    return cut(str(value or ""), TITLE_CHARS)


def login(user: Any, name: str = "login") -> str:
    """Return a user's name; a user may be absent."""
    return str(user.get(name) or "") if isinstance(user, dict) else ""


class Words:
    """A closed table of a forge's own words: how each reads, None for "not over yet"."""

    def __init__(self, over: Mapping[str, Conclusion], pending: Iterable[str]) -> None:
        self._table: dict[str, Conclusion | None] = dict.fromkeys(pending) | dict(over)

    def read(self, word: Any, unknown: set[str]) -> Conclusion | None:
        """Return how a word reads; one that is not in the table is added to `unknown`, and not over."""
        if word is None:
            return None
        if word not in self._table:
            unknown.add(cut(str(word), 60))
        return self._table.get(word)


def verdict_of(conclusion: Conclusion | None) -> Verdict:
    """Return what a conclusion comes to; without one it is pending."""
    return VERDICTS[conclusion] if conclusion else Verdict.PENDING


def page_of(kept: list[Any], total: Any, unknown: set[str]) -> dict[str, Any]:
    """Return one page of a list, as it is kept. `total` is of the whole list, None where the forge does not say."""
    return {"items": kept, "total": total, "unknown": sorted(unknown)}


@dataclass
class Listing:
    """A list that is asked for page by page: its items so far, and whether that is all of it."""

    items: list[Any] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    whole: bool = False
    missing: bool = False


def listing(
    path: str,
    keep: Callable[[Any], Any],
    query: Mapping[str, str],
    *,
    enough: Callable[[Any], bool] = lambda last: False,
    may_be_missing: bool = False,
) -> Generator[Ask, Answer, Listing]:
    """Ask for a list's pages, to its end or until an item is `enough`.

    The end is where neither a link nor the stated total promises more: a server may give shorter
    pages than were asked for.
    """
    found = Listing()
    for page in range(1, PAGES + 1):
        answer = yield Ask(path, keep, {**query, "page": str(page)}, may_be_missing)
        if answer.missing:
            return Listing(missing=True)
        items = answer.data["items"]
        found.items += items
        found.unknown.update(answer.data["unknown"])
        total = answer.data["total"]
        promised = answer.more or (total is not None and len(found.items) < total)
        if not items or not promised:
            found.whole = True
            return found
        if enough(items[-1]):
            return found
    return found


def run_of(kept: Mapping[str, Any]) -> RunSeen:
    """Return a run that was kept as JSON."""
    conclusion = Conclusion(kept["conclusion"]) if kept.get("conclusion") else None
    names = ("name", "file", "ref", "owner", "sha", "event", "title", "url", "actor")
    texts = {name: str(kept.get(name) or "") for name in names}
    return RunSeen(
        run_id=int(kept["id"]),
        attempt=str(kept["attempt"]),
        conclusion=conclusion,
        created_at=instant(kept.get("created_at")),
        started_at=instant(kept.get("started_at")),
        ended_at=instant(kept.get("ended_at")),
        **texts,
    )


def pull_of(kept: Mapping[str, Any], checks: list[Verdict] | None) -> Pull:
    """Return a pull request that was kept as JSON, with its head's checks."""
    texts = {name: str(kept.get(name) or "") for name in ("sha", "title", "url", "author", "ended_by")}
    return Pull(
        number=int(kept["number"]),
        state=PullState(kept["state"]),
        ended_at=instant(kept.get("ended_at")),
        checks=checks,
        **texts,
    )
