"""Measure a burst: ten thousand triggers of as many sessions, all due at one instant, in the running product.

Run `python -m tests.servers python -m tests.benchmarks.bench_burst [distributed | embedded]`; it prints JSON: medians
over runs, each on a database of its own. The workers run the turns meanwhile, on the same machine.

- recorded_s: from the due instant until the fire, wake and event of every one is committed, seen from outside
- newcomers_recorded_s: the worst lag of triggers of other sessions that come due while the burst is recorded
- newcomers_started_s: the worst of these until the adapter starts, None if it had not when the burst was recorded
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from sessions.models import Event
from tests.benchmarks import world
from tests.benchmarks.world import Place
from tests.stack import Stack, wait_for
from triggers.audit import audit
from triggers.models import Trigger
from triggers.states import TriggerStatus

RUNS = 5
BURST = 10_000
NEWCOMERS = [timedelta(seconds=seconds) for seconds in (0.3, 0.6, 1.0, 1.5)]  # after the burst's instant
LEAD = timedelta(seconds=25)  # to write the rows in
LOOK = 0.02  # seconds between two looks from outside
PATIENCE = 120.0  # seconds

Starter = Callable[[Stack], None]
FORMS: dict[str, tuple[Place, Starter]] = {
    "distributed": (world.on_postgres, world.start_distributed),
    "embedded": (world.on_sqlite, world.start_embedded),
}


@dataclass(frozen=True)
class Seen:
    """What was seen from outside, in seconds after the instants."""

    recorded: float
    newcomers: list[float]


def run(place: Place, start: Starter) -> dict[str, Any]:
    """Have one burst in a product of its own."""
    with place() as stack:
        start(stack)
        _warm_up(stack)
        instant = timezone.now() + LEAD
        world.within(stack, world.due, [instant] * BURST)
        newcomers = world.within(stack, world.due, [instant + later for later in NEWCOMERS])
        assert timezone.now() < instant, "the rows were not written in time"
        seen = world.within(stack, watch, newcomers, instant)
        started = {line["session"]: line["started"] for line in world.starts(stack)}
        for process in stack.of("long", "embedded", "beat", "short"):
            process.stop()
        world.within(stack, check)
    lags = [
        started[session] - (instant + later).timestamp()
        for session, later in zip(newcomers, NEWCOMERS, strict=True)
        if session in started
    ]
    return {
        "recorded_s": seen.recorded,
        "newcomers_recorded_s": max(seen.newcomers),
        "newcomers_started_s": max(lags) if len(lags) == len(NEWCOMERS) else None,
    }


def watch(newcomers: list[str], instant: datetime) -> Seen:
    """Look on, from outside, until everything is recorded."""
    armed = Trigger.objects.filter(status=TriggerStatus.ARMED)
    due_at = dict(zip(newcomers, [instant + later for later in NEWCOMERS], strict=True))
    waiting, lags = set(newcomers), []
    time.sleep(max((instant - timezone.now()).total_seconds(), 0))
    until = time.monotonic() + PATIENCE
    recorded = 0.0
    while (waiting or not recorded) and time.monotonic() < until:
        still = {
            str(pk) for pk in armed.filter(session_id__in=list(map(UUID, waiting))).values_list("session_id", flat=True)
        }
        lags += [(timezone.now() - due_at[session]).total_seconds() for session in waiting - still]
        waiting = still
        if not recorded and not armed.filter(next_fire_at=instant).exists():
            recorded = (timezone.now() - instant).total_seconds()
        time.sleep(LOOK)
    assert not waiting, "newcomers were not recorded in time"
    assert recorded, "the burst was not recorded in time"
    return Seen(recorded, lags)


def check() -> None:
    """Make sure that nothing was lost or doubled: every trigger has one fire, one wake, one event."""
    found = audit(now=timezone.now())
    events = Event.objects.filter(type="trigger_fired").count()
    assert found.clean, found
    assert found.triggers == found.fires == found.wakes == events, (found, events)
    assert found.triggers >= BURST + len(NEWCOMERS)


def _warm_up(stack: Stack) -> None:
    sessions = world.within(stack, world.due, [timezone.now()] * 50)
    wait_for(lambda: {line["session"] for line in world.starts(stack)} >= set(sessions), "a first turn", stack)


def main() -> None:
    figures: dict[str, Any] = {}
    for form in sys.argv[1:] or list(FORMS):
        runs = [run(*FORMS[form]) for _ in range(RUNS)]
        figures[form] = {name: _figure([one[name] for one in runs]) for name in runs[0]}
    print(json.dumps({"machine": world.machine(), "due": BURST, "runs": RUNS, **figures}, indent=1))


def _figure(values: list[float | None]) -> float | None:
    return None if None in values else world.middle([value for value in values if value is not None])


if __name__ == "__main__":
    main()
