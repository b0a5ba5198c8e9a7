"""Measure whether an idle beat and worker grow over a day, by a clock that is driven as fast as they can go.

Run `python -m tests.servers python -m tests.benchmarks.bench_memory`; it prints JSON: the resident memory of a process
that does what both do, on PostgreSQL: the beat's passes, a tick and a rescue after each, and one trigger an hour that
fires and begins and ends a turn. Rings go nowhere. `growth_kib` is that of the last half of the day, by the median
slope between any two of its samples.
"""

from __future__ import annotations

import gc
import json
import os
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock
from uuid import UUID

from celery import current_app
from django.utils import timezone

from sessions import doorbell, services, turns
from sessions.states import TurnStatus
from tests.benchmarks import world
from triggers import beat, engine

RUNS = 5
DAY = timedelta(hours=24)
PASS = timedelta(seconds=60)  # from one pass of the beat to the next, in the day that is lived through
SAMPLES = 48
PAGE = os.sysconf("SC_PAGE_SIZE")


def day() -> list[int]:
    """Live through a day, and return the resident memory in KiB after each of its parts."""
    now = [timezone.now()]
    samples = []

    def clock() -> datetime:
        return now[0]

    with mock.patch.object(timezone, "now", clock), mock.patch.object(current_app, "send_task", _nowhere):
        scheduler = beat.DueScheduler(app=current_app)
        scheduler._ear.wait_until = lambda until, clock: None  # type: ignore[method-assign]
        for number in range(DAY // PASS):
            now[0] += PASS
            scheduler.tick()
            engine.tick(now=now[0])
            services.rescue(now=now[0])
            if number % (timedelta(hours=1) // PASS) == 0:
                _fire_and_run(now[0])
            if (number + 1) % (DAY // PASS // SAMPLES) == 0:
                samples.append(_resident())
        scheduler.close()
    return samples


def _nowhere(*_args: object, **_options: object) -> None:
    """Take the place of sending: a mock would remember each call."""


def _fire_and_run(now: datetime) -> None:
    with doorbell.held():
        [session_id] = world.due([now], adapter="builtin")
        engine.tick(now=now)
        [begun] = turns.begin([UUID(session_id)], worker="bench", now=now)
        turns.end(begun.turn, turns.Ending(TurnStatus.COMPLETED, turns.Fate.DONE), now=now)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE // 1024


def growth(samples: list[int]) -> float:
    """Return by how many KiB the last half of a day grew, by the median slope (Theil and Sen's)."""
    half = samples[len(samples) // 2 :]
    slopes = [(half[b] - half[a]) / (b - a) for a, b in combinations(range(len(half)), 2)]
    return median(slopes) * len(half)


def main() -> None:
    days: list[list[int]] = []
    for _ in range(RUNS):
        with world.on_postgres(LOG_LEVEL="WARNING") as stack:
            days.append(world.within(stack, day))
    figures: dict[str, Any] = {
        "passes_a_day": DAY // PASS,
        "start_kib": world.middle([samples[0] for samples in days], 0),
        "noon_kib": world.middle([samples[len(samples) // 2] for samples in days], 0),
        "end_kib": world.middle([samples[-1] for samples in days], 0),
        "growth_kib": world.middle([growth(samples) for samples in days], 0),
    }
    print(json.dumps({"machine": world.machine(), "runs": RUNS, **figures}, indent=1))


if __name__ == "__main__":
    main()
