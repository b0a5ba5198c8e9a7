"""Keeps this process's turns alive: renews their leases, hears when one should stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from sessions import turns
from sessions.models import Turn

LISTEN_SECONDS = 0.5  # how often it asks whether a turn should stop
LOST = "the turn was lost: its lease ran out, or its session was terminated"
SHUTDOWN = "the process that ran it was stopped"

log = logging.getLogger("rewake.keeper")


class Watch:
    """One turn under watch. `reason` says why it should stop, "" while it may go on."""

    def __init__(self, turn: Turn) -> None:
        self.turn_id = turn.pk
        self.renewed = time.monotonic()
        self._stopped = threading.Event()
        self._reason = ""

    @property
    def reason(self) -> str:
        return self._reason

    def stop(self, reason: str) -> None:
        """Ask the turn to stop; the first reason stands."""
        if not self._stopped.is_set():
            self._reason = reason
            self._stopped.set()

    def interrupted(self) -> bool:
        return self._stopped.is_set()


class Keeper:
    """One thread a process for all its turns, started with the first, in a few queries a second.

    A turn whose lease could not be renewed in time is stopped from here too: by then another
    worker may have been given its wakes.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._watches: dict[UUID, Watch] = {}
        self._changed = threading.Condition()
        self._pause = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = ""

    @property
    def stopping(self) -> bool:
        """Whether the process is being stopped, and should begin nothing more."""
        return bool(self._stopping)

    @contextmanager
    def watch(self, turn: Turn) -> Iterator[Watch]:
        """Watch a turn for as long as the context lasts."""
        watch = Watch(turn)
        with self._changed:
            self._watches[turn.pk] = watch
            if self._stopping:
                watch.stop(self._stopping)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="rewake-keeper", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield watch
        finally:
            with self._changed:
                self._watches.pop(turn.pk, None)

    def stop_all(self, reason: str = SHUTDOWN) -> None:
        """Ask every turn of this process to stop, those that begin later included."""
        with self._changed:
            self._stopping = reason
            for watch in self._watches.values():
                watch.stop(reason)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no turn is left; return whether that was within `seconds`."""
        until = time.monotonic() + seconds
        while self._watches and time.monotonic() < until:
            with self._changed:
                self._changed.wait(0.05)
        return not self._watches

    def look(self) -> None:
        """Renew what is due, and pass on the requests to stop. One round of the thread."""
        watches = dict(self._watches)
        third = settings.AGENT_TURN_LEASE_SECONDS / 3
        due = [turn_id for turn_id, watch in watches.items() if time.monotonic() - watch.renewed >= third]
        asked_at = time.monotonic()
        ask = turns.renew if due else turns.stop_requests
        requests = ask(list(watches), now=self._clock())
        for turn_id, watch in watches.items():
            if turn_id not in requests:
                watch.stop(LOST)
            elif requests[turn_id]:
                watch.stop(requests[turn_id])
            if due:
                watch.renewed = asked_at

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._watches:
                    close_connection()
                    self._changed.wait()
            self._pause.wait(LISTEN_SECONDS)  # no new turn cuts it short: most are over before they need a look
            if self._watches:
                self.look_safely()

    def look_safely(self) -> None:
        """Look, and live through a database that is out of reach: it will come back, or the leases run out."""
        try:
            close_old_connections()
            self.look()
        except (DatabaseError, InterfaceError) as error:
            log.warning("cannot renew leases", extra={"action": "renew_failed", "error": str(error)})
            close_connection()
            self._stop_the_expired()

    def _stop_the_expired(self) -> None:
        for watch in list(self._watches.values()):
            if time.monotonic() - watch.renewed >= settings.AGENT_TURN_LEASE_SECONDS:
                watch.stop(LOST)


def close_connection() -> None:
    """Close this thread's connection: an idle one is of no use, and a dead one must not be kept."""
    connection.close()
