"""Celery's door to the engine: short work, which carries no state and never retries."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from sessions import doorbell
from triggers import engine, polling

TICK = "triggers.tick"
POLL = "triggers.poll"
TICKS, POLLS = 40, 20  # batches of one ring; the next ring goes on


@shared_task(name=TICK)
def tick() -> None:
    """Record what is due, batch by batch, each at its own now; then have it run."""
    if not settings.TRIGGERS_ENABLED:
        return
    with doorbell.held() as let_go:
        for _ in range(TICKS):
            if not engine.tick(now=timezone.now(), recorded=let_go).more:
                return


@shared_task(name=POLL)
def poll() -> None:
    """Ask the forges for what is due, batch by batch."""
    if not settings.TRIGGERS_ENABLED:
        return
    for _ in range(POLLS):
        if polling.poll(clock=timezone.now) < polling.BATCH:
            return
