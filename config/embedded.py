"""The embedded form: web server, workers and beat as threads of one process, with no services around it."""

from __future__ import annotations

import fcntl
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn
from celery import Celery
from celery.beat import Service
from celery.worker import WorkController
from django.conf import settings
from django.core.management.base import CommandError

from config.celery import app
from sessions.api.feed import FEED
from sessions.tasks import KEEPER
from triggers import nudge
from triggers.beat import DueScheduler

SHORT_THREADS = 2
LONG_THREADS = 16  # each message may run up to `doorbell.BATCH` turns, `runner.TURNS_AT_ONCE` in all
POLL_THREADS = 2
STOP_SECONDS = 5  # for running turns to be given back, and for open requests

log = logging.getLogger("rewake.embedded")


def run(host: str, port: int, *, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; then give running turns back, and stop every thread.

    `ready` is called once requests are accepted.
    """
    with ExitStack() as stack:
        stack.enter_context(_workers())
        stack.enter_context(_beat())
        _ignore_stop_signals()
        _Server(_web(host, port), ready).run()
        KEEPER.stop_all()
        if not KEEPER.wait_until_idle(STOP_SECONDS):
            log.warning("turns still run and will be found lost", extra={"action": "stop_with_turns"})


@contextmanager
def alone() -> Iterator[bool]:
    """Keep a second embedded process off the same SQLite file; raise `CommandError` where there is one.

    Yields whether this process is now known to be the only one: on another database it is not.
    """
    database = settings.DATABASES["default"]
    if not database["ENGINE"].endswith("sqlite3"):
        yield False
        return
    with Path(f"{database['NAME']}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"another Rewake already runs on {database['NAME']}; stop it first") from None
        yield True


class _Server(uvicorn.Server):
    """Tells when it is ready, and ends streams before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        FEED.stop()  # streams would be waited for
        await super().shutdown(sockets)


def _ignore_stop_signals() -> None:
    """Leave stop signals to uvicorn, which sends itself each again once it has stopped: we are not done by then."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _web(host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        "config.asgi:application",
        host=host,
        port=port,
        log_config=None,
        access_log=False,  # its lines would hold capability URLs
        lifespan="off",
        timeout_graceful_shutdown=STOP_SECONDS,
    )


@contextmanager
def _workers() -> Iterator[None]:
    """Run a worker for each queue: long turns must never keep the clock's short work waiting."""
    workers = [_worker("short", SHORT_THREADS), _worker("long", LONG_THREADS), _worker("poll", POLL_THREADS)]
    threads = [
        threading.Thread(target=worker.start, name=f"rewake-{n}", daemon=True) for n, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(STOP_SECONDS)


def _worker(queue: str, threads: int) -> WorkController:
    """Return a worker of one queue, with an app of its own: which queues to consume is the app's, not the worker's."""
    app.loader.import_default_modules()
    tasks = {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}
    own = Celery(f"rewake.{queue}", tasks=tasks, fixups=[], set_as_current=False)  # type: ignore[arg-type]
    own.config_from_object("django.conf:settings", namespace="CELERY")
    return WorkController(
        app=own,
        hostname=f"{queue}@embedded",
        pool_cls="threads",
        concurrency=threads,
        queues=[queue],
        without_heartbeat=True,
        without_mingle=True,
        without_gossip=True,
    )


@contextmanager
def _beat() -> Iterator[None]:
    """Run the beat as a thread, so that a nudge in this process wakes it."""
    service = Service(app, scheduler_cls=DueScheduler)
    thread = threading.Thread(target=service.start, name="rewake-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        service.stop()
        nudge.here.set()
        thread.join(STOP_SECONDS)
