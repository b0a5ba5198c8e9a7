"""Celery's door to sessions: tasks take ids, call one function, carry no state and never retry."""

from __future__ import annotations

import os
import socket
import threading
from uuid import UUID

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.utils import timezone

from sessions import doorbell, garbage, services
from sessions.runtime import runner
from sessions.runtime.keeper import Keeper

KEEPER = Keeper(timezone.now)


@shared_task(name=doorbell.RUN)
def run(session_ids: list[str]) -> None:
    """Run a turn in each of these sessions that has something to run."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    runner.run([UUID(item) for item in session_ids], worker=worker, clock=timezone.now, keeper=KEEPER)


@shared_task(name="sessions.rescue")
def rescue() -> None:
    """Find lost turns, and ring again for wakes that nobody has taken."""
    services.rescue(now=timezone.now())


@worker_ready.connect
def warm_adapters(**_: object) -> None:
    """Load the adapters beside the worker's start, so that neither it nor the first turn waits for them."""
    threading.Thread(target=_warm, name="rewake-warm", daemon=True).start()


def _warm() -> None:
    for adapter in services.ADAPTERS.by_name.values():
        adapter.warm()
    garbage.freeze()


@worker_shutting_down.connect
def stop_turns(**_: object) -> None:
    """Give running turns back when the worker is asked to stop, rather than hold it up for hours."""
    KEEPER.stop_all()
