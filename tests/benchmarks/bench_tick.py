"""Measure what the clock costs while nothing is due: with a thousand armed triggers, and with a million.

Run `python -m tests.servers python -m tests.benchmarks.bench_tick`; it prints JSON: microseconds of `engine.tick` and
of the beat's `selectors.next_instant`, medians over runs, and the median ratio of the large world to the small.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from django.utils import timezone

from tests.benchmarks import world
from tests.benchmarks.world import Place
from triggers import engine, selectors

RUNS = 7
CALLS = 200  # in a run
FEW, MANY = 1_000, 1_000_000


def ticks() -> tuple[float, float]:
    """Return the microseconds of one tick, and of one look at the next instant."""
    return _timed(lambda: engine.tick(now=timezone.now())), _timed(selectors.next_instant)


def _timed(work: Callable[[], object]) -> float:
    work()
    start = perf_counter()
    for _ in range(CALLS):
        work()
    return (perf_counter() - start) / CALLS * 1e6


def measure(place: Place) -> dict[str, Any]:
    """Measure in both worlds, in turns, and return the medians with the median of each run's ratio."""
    pairs = world.compare(place, ticks, sizes=(FEW, MANY), runs=RUNS)
    return {
        name: _figures([(few[number], many[number]) for few, many in pairs])
        for number, name in enumerate(("tick", "next_instant"))
    }


def _figures(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {
        f"us_at_{FEW}": world.middle([few for few, _ in pairs], 0),
        f"us_at_{MANY}": world.middle([many for _, many in pairs], 0),
        "ratio": world.middle([many / few for few, many in pairs]),
    }


def main() -> None:
    figures = {"postgresql": measure(world.on_postgres), "sqlite": measure(world.on_sqlite)}
    print(json.dumps({"machine": world.machine(), "runs": RUNS, **figures}, indent=1))


if __name__ == "__main__":
    main()
