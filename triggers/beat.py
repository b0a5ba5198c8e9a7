"""A Celery beat scheduler without a schedule: it sleeps until the next row is due, then rings for it.

It keeps nothing in memory that a restart would lose: what is due is read from the database.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
from celery.beat import Scheduler
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone
from kombu.exceptions import OperationalError

from sessions import garbage
from sessions import services as session_services
from triggers import nudge, polling, selectors, services
from triggers.tasks import POLL, TICK

RESCUE = "sessions.rescue"
RESCUE_PAUSE = timedelta(seconds=1)  # between two rings for a rescue, or for a poll: one may be under way
BUSY_PAUSE = timedelta(seconds=5)  # between two for a rescue while rows are due: recording goes before running
HEARTBEAT = timedelta(seconds=5)  # between two notes that the beat is alive
EXPIRES = 30  # seconds after which nobody need answer a ring: others have followed

log = logging.getLogger("rewake.beat")


class DueScheduler(Scheduler):
    """Rings `triggers.tick` at each due instant, `triggers.poll` for what is to be asked, `sessions.rescue`.

    `tick` itself waits, on PostgreSQL's LISTEN or on an event of this process, and returns 0: were
    it to return seconds, beat's own sleep could not be cut short by a trigger armed for now.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._upcoming: datetime | None = None
        self._rung_until: datetime | None = None
        self._rung_at: datetime | None = None
        self._rescued_at: datetime | None = None
        self._polled_at: datetime | None = None
        self._beat_at: datetime | None = None
        self._ear = _Ear()
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Have no entries: the database is the schedule. All is loaded by now."""
        garbage.freeze()

    def tick(self, *args: Any, **kwargs: Any) -> int:
        """Wait until something is due, for one interval at most, and ring for it."""
        try:
            self._ear.open()
            self._wait()
            self._ring_due()
        except (DatabaseError, InterfaceError, psycopg.Error) as error:  # it will come back; so will we
            log.warning("database unreachable", extra={"action": "beat_without_database", "error": str(error)})
            connection.close()
            self._ear.close()
            self._ear.pause(settings.TRIGGERS_TICK_INTERVAL_SECONDS)
        return 0

    def close(self) -> None:
        self._ear.close()
        super().close()

    def _wait(self) -> None:
        now = timezone.now()
        interval = timedelta(seconds=settings.TRIGGERS_TICK_INTERVAL_SECONDS)
        until = now + interval
        self._upcoming = None
        if settings.TRIGGERS_ENABLED:
            upcoming = self._upcoming = selectors.next_instant(after=self._rung_until)
            until = min(until, upcoming) if upcoming else until
            poll = polling.next_poll_at()
            if poll and self._polled_at:
                poll = max(poll, self._polled_at + RESCUE_PAUSE)
            until = min(until, poll) if poll else until
        if self._rung_at and self._rung_until:  # what was rung for and is still due is rung for again
            until = min(until, self._rung_at + interval)
        self._ear.wait_until(until, timezone.now)

    def _ring_due(self) -> None:
        now = timezone.now()
        if settings.TRIGGERS_ENABLED:
            self._ring_tick(now)
            self._ring_poll(now)
        pause = BUSY_PAUSE if self._rung_until else RESCUE_PAUSE
        if self._is_time(self._rescued_at, pause, now) and session_services.needs_rescue(now=now):
            self._rescued_at = now
            self._ring(RESCUE)
        if self._is_time(self._beat_at, HEARTBEAT, now):
            self._beat_at = now
            services.note_beat(now=now)

    def _ring_tick(self, now: datetime) -> None:
        """Ring for rows that have newly come due, and for any that are still due an interval after the last ring."""
        interval = timedelta(seconds=settings.TRIGGERS_TICK_INTERVAL_SECONDS)
        stale = self._is_time(self._rung_at, interval, now)
        due = self._upcoming  # what was waited for need not be asked for again: that would be a part of its lag
        if due is None or due > now:
            due = selectors.next_instant(after=None if stale else self._rung_until)
        if due and due <= now:
            self._rung_at = self._rung_until = now
            self._ring(TICK)
        elif stale:
            self._rung_at = self._rung_until = None

    def _ring_poll(self, now: datetime) -> None:
        """Ring for resources that are due: a poller that answers claims them, and they are due no longer."""
        if not self._is_time(self._polled_at, RESCUE_PAUSE, now):
            return
        due = polling.next_poll_at()
        if due and due <= now:
            self._polled_at = now
            self._ring(POLL)

    @staticmethod
    def _is_time(last: datetime | None, pause: timedelta, now: datetime) -> bool:
        return last is None or now - last >= pause or now < last  # a clock that went back must not silence us

    def _ring(self, task: str) -> None:
        try:
            self.app.send_task(task, expires=EXPIRES)
        except (OperationalError, OSError) as error:
            log.warning("broker unreachable", extra={"action": "ring_lost", "task": task, "error": str(error)})


class _Ear:
    """Hears nudges while it waits: on a connection of its own that LISTENs, or on this process's event."""

    def __init__(self) -> None:
        self._listener: psycopg.Connection[Any] | None = None

    def open(self) -> None:
        if connection.vendor == "postgresql" and self._listener is None:
            parameters = connection.get_connection_params()
            wanted = ("host", "port", "user", "password", "dbname", "connect_timeout", "sslmode")
            self._listener = psycopg.connect(
                **{name: parameters[name] for name in wanted if parameters.get(name) is not None}, autocommit=True
            )
            self._listener.execute(f"LISTEN {nudge.CHANNEL}")

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def wait_until(self, until: datetime, clock: Callable[[], datetime]) -> None:
        """Wait until an instant or a nudge, whichever comes first; never return early otherwise."""
        while (seconds := (until - clock()).total_seconds()) > 0:
            if self.pause(seconds):
                return

    def pause(self, seconds: float) -> bool:
        """Wait that long; return true at once when a nudge comes."""
        if self._listener is None:
            heard = nudge.here.wait(seconds)
            nudge.here.clear()
            return heard
        readable, _, _ = select.select([self._listener.fileno()], [], [], seconds)
        if readable:
            self._listener.pgconn.consume_input()
            while self._listener.pgconn.notifies():
                pass
        return bool(readable)
