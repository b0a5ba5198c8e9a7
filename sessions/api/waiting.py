"""The long poll: wait for a transcript to go on, without holding up more threads than a few."""

from __future__ import annotations

import time
from threading import BoundedSemaphore, Event
from uuid import UUID

from sessions import selectors

PAUSE = 0.2  # seconds between two looks
PLACES = 16  # waits at a time in one process: the others are answered at once, so that threads are left for all else

_places = BoundedSemaphore(PLACES)


def wait_for_events(session_id: UUID, *, after: int, seconds: float) -> None:
    """Wait until a transcript goes on after a sequence number, its session has ended, or the time is over."""
    if seconds <= 0 or not _places.acquire(blocking=False):
        return
    try:
        _wait(session_id, after, time.monotonic() + seconds)
    finally:
        _places.release()


def _wait(session_id: UUID, after: int, until: float) -> None:
    pause = Event()
    while not selectors.has_events_after(session_id, after) and not selectors.session(session_id).terminated_at:
        left = until - time.monotonic()
        if left <= 0:
            return
        pause.wait(min(PAUSE, left))
