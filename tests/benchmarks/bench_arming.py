"""Measure arming and cancelling beside few and beside many armed triggers.

Run `python -m tests.servers python -m tests.benchmarks.bench_arming`; it prints JSON: microseconds of `services.arm`
and `services.cancel` from within a live turn, medians over runs, and the median ratio of the large world to the small.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from time import perf_counter
from typing import Any

from django.utils import timezone

from tests import factories
from tests.benchmarks import world
from tests.benchmarks.world import Place
from triggers import services

RUNS = 7
TIMES = 100  # in a run
FEW, MANY = 100, 100_000
KINDS: dict[str, dict[str, Any]] = {
    "time.at": {"at": (timezone.now() + timedelta(days=20)).isoformat()},
    "time.cron": {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"},
    "webhook": {},
}


def arm_and_cancel() -> tuple[float, float]:
    """Return the microseconds that arming a trigger takes, and cancelling it; all kinds in turn."""
    context = factories.context_in(factories.open_session(timezone.now()), timezone.now())
    arming = cancelling = 0.0
    for number in range(TIMES):
        kind = list(KINDS)[number % len(KINDS)]
        order = services.Order(kind=kind, args=KINDS[kind], wake_prompt="look whether it is done")
        begin = perf_counter()
        armed = services.arm(context, order, now=timezone.now())
        middle = perf_counter()
        services.cancel(armed.trigger.pk, by="agent", now=timezone.now())
        arming, cancelling = arming + middle - begin, cancelling + perf_counter() - middle
    return arming / TIMES * 1e6, cancelling / TIMES * 1e6


def measure(place: Place) -> dict[str, Any]:
    """Measure in both worlds, in turns, and return the medians with the median of each run's ratio."""
    pairs = world.compare(place, arm_and_cancel, sizes=(FEW, MANY), runs=RUNS)
    return {
        name: _figures([(few[number], many[number]) for few, many in pairs])
        for number, name in enumerate(("arm", "cancel"))
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
