"""The doorbell: tells a worker that sessions have wakes. It carries nothing, so it may be lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from uuid import UUID

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

RUN = "sessions.run"  # the task that answers
BATCH = 20  # sessions a message: publishing is dearer than taking several at once
TOGETHER = 0.05  # seconds between two rounds of the ringer: what comes meanwhile shares messages
LINGER = 1.0  # seconds for which the ringer waits for more before its thread ends

log = logging.getLogger("rewake.doorbell")

_held = threading.local()


def ring(session_ids: Iterable[UUID]) -> None:
    """Ring for the sessions once the current transaction has committed.

    A broker that cannot be reached costs latency only, since the beat rings again for every
    session that has waited for longer than a moment.
    """
    ids = [str(session_id) for session_id in dict.fromkeys(session_ids)]
    if ids:
        transaction.on_commit(partial(_send, ids))


def ring_soon(session_ids: Iterable[UUID]) -> None:
    """Ring for the sessions after the commit too, but from a thread of its own: nobody waits for the broker."""
    ids = [str(session_id) for session_id in dict.fromkeys(session_ids)]
    if ids:
        transaction.on_commit(partial(RINGER.add, ids))


class Ringer:
    """Rings for all that was added since it last rang. Its thread starts when there is something, and ends after it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ids: dict[str, None] = {}
        self._ringing = False
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()

    def add(self, ids: Iterable[str]) -> None:
        with self._changed:
            self._ids |= dict.fromkeys(ids)
            self._changed.notify()
            if self._thread is None or not self._thread.is_alive():  # the latter after a fork
                self._thread = threading.Thread(target=self._run, name="rewake-ringer", daemon=True)
                self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until all is rung; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._ids and not self._ringing, timeout)

    def _run(self) -> None:
        while ids := self._taken():
            _send(ids)
            self._pause.wait(TOGETHER)

    def _taken(self) -> list[str]:
        with self._changed:
            self._ringing = False
            self._changed.notify_all()
            self._ringing = self._changed.wait_for(lambda: bool(self._ids), LINGER)
            if not self._ringing:
                self._thread = None
            ids, self._ids = self._ids, {}
            return list(ids)


RINGER = Ringer()


@contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Hold back this thread's rings until the block ends, or lets them go by the function that it is given."""
    _held.ids = []
    try:
        yield _let_go
    finally:
        _let_go()
        del _held.ids


def _let_go() -> None:
    ids, _held.ids = _held.ids, []
    _publish(list(dict.fromkeys(ids)))


def _send(ids: list[str]) -> None:
    if hasattr(_held, "ids"):
        _held.ids += ids
    else:
        _publish(ids)


def _publish(ids: list[str]) -> None:
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        try:
            current_app.send_task(RUN, args=[batch], queue="long")
        except (OperationalError, OSError) as error:
            about = {"action": "ring_lost", "error": str(error)}
            log.warning("broker unreachable, the beat will ring again", extra=about)
            return
