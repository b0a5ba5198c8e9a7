"""Measure whether an idle beat and worker grow over a day, by a clock that is driven as fast as they can go.

Run `python -m tests.servers python -m tests.benchmarks.bench_memory [seconds]`; it prints JSON: the resident
memory, on PostgreSQL, of

- day: a process that does what both do, by a simulated clock: the beat's passes, a tick and a rescue after each, and
  one trigger an hour that fires and begins and ends a turn. Rings go nowhere.
- worker: for so many seconds a run, a real short worker that answers ticks and rescues with nothing to do, as fast as
  it can
- beat: beside it, a real beat with the shortest interval there may be, which rings at each pass, since nobody answers

`growth_kib` is that of the last half of each, by the median slope between any two of its samples.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock
from uuid import UUID

import redis
from celery import current_app
from django.utils import timezone

from sessions import doorbell, services, turns
from sessions.states import TurnStatus
from tests import servers
from tests.benchmarks import world
from tests.stack import Process, wait_for
from triggers import beat, engine
from triggers.tasks import TICK

RUNS = 5
DAY = timedelta(hours=24)
PASS = timedelta(seconds=60)  # from one pass of the beat to the next, in the day that is lived through
SAMPLES = 48
SECONDS = 60.0  # of a run of the real processes, unless told otherwise
INTERVAL = 0.01  # seconds between two passes of the real beat: the least that it may be told
QUEUE = 50  # messages that may wait for the real worker when more are sent
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
                gc.collect()
                samples.append(_resident(os.getpid()))
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


@dataclass
class Real:
    """A real process, how much it has done, and its resident memory in KiB after each part of that."""

    process: Process
    done: int = 0
    samples: list[int] = field(default_factory=list)

    def sample(self) -> None:
        assert self.process.running
        self.samples.append(_resident(self.process.pid))


def processes(seconds: float) -> tuple[Real, Real]:
    """Keep a real worker and a real beat busy with nothing, side by side, each with a database and a broker."""
    with (
        world.on_postgres(LOG_LEVEL="WARNING") as working,
        world.on_postgres(LOG_LEVEL="WARNING", TRIGGERS_TICK_INTERVAL_SECONDS=str(INTERVAL)) as beating,
        servers.redis() as rung,
        servers.redis() as ringing,
        current_app.connection_for_write(rung) as connection,
        redis.Redis.from_url(rung) as inward,
        redis.Redis.from_url(ringing) as outward,
    ):
        world.within(beating, world.due, [timezone.now()])  # with no worker to answer, it is rung for at each pass
        worker = Real(working.start("short", BROKER_URL=rung))
        clock = Real(beating.start("beat", BROKER_URL=ringing))
        producer = current_app.amqp.Producer(connection)
        current_app.send_task(TICK, producer=producer)
        wait_for(lambda: not inward.llen("short"), "the worker to answer", working)
        wait_for(lambda: outward.llen("short"), "the beat to ring", beating)
        start = time.monotonic()
        for number in range(1, SAMPLES + 1):
            while time.monotonic() < start + seconds * number / SAMPLES:
                wait_for(lambda: inward.llen("short") < QUEUE, "the worker to go on", working)
                for task in (TICK, beat.RESCUE) * 10:
                    current_app.send_task(task, expires=beat.EXPIRES, producer=producer)
                    worker.done += 1
            worker.sample()
            clock.sample()
        worker.done -= inward.llen("short")
        clock.done = outward.llen("short")
    return worker, clock


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE // 1024


def growth(samples: list[int]) -> float:
    """Return by how many KiB the last half of the samples grew, by the median slope (Theil and Sen's)."""
    half = samples[len(samples) // 2 :]
    slopes = [(half[b] - half[a]) / (b - a) for a, b in combinations(range(len(half)), 2)]
    return median(slopes) * len(half)


def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else SECONDS
    days: list[list[int]] = []
    for _ in range(RUNS):
        with world.on_postgres(LOG_LEVEL="WARNING") as stack:
            days.append(world.within(stack, day))
    workers, beats = zip(*(processes(seconds) for _ in range(RUNS)), strict=True)
    figures = {
        "day": {"passes": DAY // PASS, **_figures(days)},
        "worker": {"messages": _done(workers), **_figures([real.samples for real in workers])},
        "beat": {"rings": _done(beats), **_figures([real.samples for real in beats])},
    }
    print(json.dumps({"machine": world.machine(), "runs": RUNS, **figures}, indent=1))


def _done(reals: Sequence[Real]) -> float:
    return world.middle([real.done for real in reals], 0)


def _figures(runs: Sequence[list[int]]) -> dict[str, Any]:
    return {
        "start_kib": world.middle([samples[0] for samples in runs], 0),
        "noon_kib": world.middle([samples[len(samples) // 2] for samples in runs], 0),
        "end_kib": world.middle([samples[-1] for samples in runs], 0),
        "growth_kib": world.middle([growth(samples) for samples in runs], 0),
    }


if __name__ == "__main__":
    main()
