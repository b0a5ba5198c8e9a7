"""One reader for all open streams of a process: it asks the database once for everybody, and hands each what is new."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from django.db import connections

from sessions.api.shapes import EventShape
from sessions.exceptions import RewakeError
from sessions.models import AgentSession, ApiKey, Event

PLACES = 200  # open streams in one process
PAUSE = 0.25  # seconds between two looks: how late an event can be
PAGE = 100  # events handed over at a time
KEYS_EVERY = 20  # looks between two at the keys: a revoked key's streams end within five seconds

# JSON leaves these as they are and they end no line of a stream, but many a client splits lines at them.
_LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}

log = logging.getLogger("rewake.streams")


class End(StrEnum):
    """Why a stream ends."""

    TERMINATED = "session_terminated"
    REVOKED = "key_revoked"
    TOO_LONG = "max_duration"
    STOPPING = "server_stopping"
    NO_STREAMING = "no_streaming"  # this server cannot keep a stream open: come again


class StreamsFull(RewakeError):
    """This process has as many open streams as it takes."""

    code: ClassVar[str] = "too_many_streams"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True


class KeysStreamsFull(StreamsFull):
    """One key has as many open streams as it may: the other places are for other keys."""

    code: ClassVar[str] = "too_many_streams_of_key"
    status: ClassVar[int] = 429


@dataclass(frozen=True)
class Page:
    """What is new for a stream: frames ready to be sent, the last one's number, and whether it ends after them."""

    text: bytes = b""
    last: int = 0
    more: bool = False
    end: End | None = None


class Place:
    """One stream's place in the feed. `after` is the last number that the stream took over: it alone moves it on.

    It is taken until `leave`; the request's `Visit` sees to that, since a client may be gone before its stream begins.
    """

    def __init__(self, feed: Feed, session_id: UUID, *, key_id: UUID, after: int) -> None:
        self.session_id, self.key_id, self.after = session_id, key_id, after
        self.hungry = True  # there may be something already: no need to wait for the next look
        self._feed = feed

    async def next(self) -> Page:
        """Wait for what follows `after`. It can be cancelled at any time: what was not taken over comes again."""
        page = await self._feed.wait(self)
        self.after, self.hungry = max(self.after, page.last), page.more
        return page

    def leave(self) -> None:
        """Give the place back; idempotent."""
        self._feed.leave(self)


class Visit:
    """One request, and the place it may take. Both end together, whether or not a stream ever began.

    A client may go while the view still runs in its thread: the answer is then dropped unseen, and sits in a
    reference cycle of the view's. And the view may take its place only after the end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._place: Place | None = None

    def hold(self, place: Place) -> None:
        with self._lock:
            self._place = place
            over = self._over
        if over:
            place.leave()

    def end(self) -> None:
        with self._lock:
            self._over = True
            place = self._place
        if place:
            place.leave()


@dataclass(frozen=True)
class _Waiting:
    after: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Page]


class Feed:
    """The reader. Its thread, with its one database connection, lives while there are open streams."""

    def __init__(self, *, places: int = PLACES, pause: float = PAUSE) -> None:
        self.places, self.pause = places, pause
        self._open: set[Place] = set()
        self._stopping = False
        self._waiting: dict[Place, _Waiting] = {}
        self._thread: threading.Thread | None = None
        self._reading = False
        self._lock = threading.RLock()  # re-entrant: a signal handler may call `stop` anywhere
        self._look = threading.Event()

    @property
    def open_streams(self) -> int:
        return len(self._open)

    @property
    def places_of_key(self) -> int:
        """How many streams one key may have open: half, so that none shuts out all others by going astray."""
        return max(1, self.places // 2)

    def enter(self, session_id: UUID, *, key_id: UUID, after: int) -> Place:
        """Take a place. Raises `StreamsFull`, or `KeysStreamsFull`."""
        with self._lock:
            self._admit(key_id)
            if not self._reading:
                thread = threading.Thread(target=self._run, name="rewake-streams", daemon=True)
                thread.start()
                self._thread, self._reading = thread, True
            place = Place(self, session_id, key_id=key_id, after=after)
            self._open.add(place)
        return place

    def leave(self, place: Place) -> None:
        """Give a place back; idempotent."""
        with self._lock:
            self._open.discard(place)
            last = not self._open
        if last:
            self._look.set()

    async def wait(self, place: Place) -> Page:
        """Wait until there is something for a place."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(place.after, loop, loop.create_future())
        with self._lock:
            if self._stopping:
                return Page(end=End.STOPPING)
            self._waiting[place] = waiting
        if place.hungry:
            self._look.set()
        try:
            return await waiting.answer
        finally:
            with self._lock:
                self._waiting.pop(place, None)

    def start(self) -> None:
        """Take streams, after a `stop` too."""
        self._stopping = False

    def stop(self) -> None:
        """End all streams politely, and take no more."""
        with self._lock:
            self._stopping = True
            waiting = list(self._waiting.values())
        for one in waiting:
            _hand_over(one, Page(end=End.STOPPING))

    def join(self, timeout: float) -> bool:
        """Wait until the last stream has left and the reader has let go of its connection; return whether it has."""
        thread = self._thread
        if thread:
            thread.join(timeout)
        return not (thread and thread.is_alive())

    def _admit(self, key_id: UUID) -> None:
        if self._stopping:
            raise StreamsFull("this server is stopping; come again in a moment")
        if self.open_streams >= self.places:
            raise StreamsFull(f"{self.places} streams are open, which is all that this process takes; come again")
        if sum(place.key_id == key_id for place in self._open) >= self.places_of_key:
            raise KeysStreamsFull(
                f"this key has {self.places_of_key} streams open here, which is all that one key may have: "
                "close one, or give each client a key of its own"
            )

    def _run(self) -> None:
        looks = 0
        try:
            while self._is_needed():
                self._look_once(at_keys=looks % KEYS_EVERY == 0)
                looks += 1
                self._look.wait(self.pause)
                self._look.clear()
        finally:
            connections.close_all()

    def _is_needed(self) -> bool:
        with self._lock:
            self._reading = bool(self._open)  # if not, whoever enters next starts another reader
            return self._reading

    def _look_once(self, *, at_keys: bool) -> None:
        with self._lock:
            waiting = dict(self._waiting)
        try:
            pages = _pages(waiting, at_keys=at_keys)
        except Exception:  # the loop must go on: the streams wait, and say by heartbeats that they do
            log.exception("the streams' reader failed and will try again", extra={"action": "streams_failed"})
            connections.close_all()
            return
        for place, page in pages.items():
            _hand_over(waiting[place], page)


def frame(event: Event) -> bytes:
    """Return an event as it is sent: one JSON line, without a character that any reader takes for a line's end."""
    data = json.dumps(EventShape(event).data, ensure_ascii=False, separators=(",", ":")).translate(_LINE_ENDS)
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode()


FEED = Feed()
VISIT = "rewake.visit"  # where the ASGI application puts a request's `Visit` in its scope


def _pages(waiting: Mapping[Place, _Waiting], *, at_keys: bool) -> dict[Place, Page]:
    """Return what there is for those who wait; those for whom there is nothing are left out."""
    if not waiting:
        return {}
    revoked = _revoked({place.key_id for place in waiting}) if at_keys else set()
    heads = _heads({place.session_id for place in waiting})
    read: dict[tuple[UUID, int], Page | None] = {}
    pages: dict[Place, Page] = {}
    for place, one in waiting.items():
        if place.key_id in revoked:
            pages[place] = Page(end=End.REVOKED)
            continue
        wanted = (place.session_id, one.after)
        if wanted not in read:
            read[wanted] = _page(*wanted, *heads.get(place.session_id, (0, None)))
        if page := read[wanted]:
            pages[place] = page
    return pages


def _page(session_id: UUID, after: int, last_seq: int, terminated_at: datetime | None) -> Page | None:
    """Read what follows a number. Events become visible in the order of their numbers, so none is passed over."""
    if last_seq <= after:
        return Page(end=End.TERMINATED) if terminated_at else None
    events = list(Event.objects.filter(session_id=session_id, seq__gt=after).order_by("seq")[:PAGE])
    last = events[-1].seq
    more = last < last_seq
    end = End.TERMINATED if terminated_at and not more else None
    return Page(b"".join(frame(event) for event in events), last, more, end)


def _heads(session_ids: Iterable[UUID]) -> dict[UUID, tuple[int, datetime | None]]:
    rows = AgentSession.objects.filter(pk__in=session_ids).values_list("pk", "last_seq", "terminated_at")
    return {pk: (last_seq, terminated_at) for pk, last_seq, terminated_at in rows}


def _revoked(key_ids: set[UUID]) -> set[UUID]:
    live = ApiKey.objects.filter(pk__in=key_ids, revoked_at=None)
    return key_ids - set(live.values_list("pk", flat=True))


def _hand_over(waiting: _Waiting, page: Page) -> None:
    try:
        waiting.loop.call_soon_threadsafe(_answer, waiting.answer, page)
    except RuntimeError:
        pass  # its event loop has been closed, and the stream with it


def _answer(answer: asyncio.Future[Page], page: Page) -> None:
    if not answer.done():
        answer.set_result(page)
