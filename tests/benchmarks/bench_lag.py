"""Measure lag: from a trigger's due instant to the start of its session's adapter, in real processes.

Run `python -m tests.servers python -m tests.benchmarks.bench_lag [distributed | embedded]`; it prints JSON, in
milliseconds: the medians over runs of each run's percentiles. The adapter is `tests.benchmarks.probe`, which notes the
time first thing when it is run. The clocks compared are one: everything runs on this machine.

- one: single triggers, one after another
- hundred: a hundred triggers of as many sessions, due at the same instant
- now: a turn arms a trigger for the instant of its own call and ends; counted from there, the end of that turn included
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from sessions import services
from sessions.models import AgentSession
from tests import drive
from tests.benchmarks import probe, world
from tests.stack import Stack, wait_for

RUNS = 5
SINGLES = 40  # in a run
APART = timedelta(milliseconds=230)  # no divisor of the beat's interval: what the beat does between falls anywhere
TOGETHER = 100
NOWS = 20
LEAD = timedelta(seconds=6)  # from arming to the first instant
QUIET = timedelta(seconds=1)  # from the last instant to the first look at what has started
ARMED = {"distributed": 100_000, "embedded": 1_000}


def distributed() -> dict[str, Any]:
    """Beat, a short worker and two long ones on PostgreSQL and Redis."""
    with world.on_postgres() as stack:
        world.within(stack, world.crowd, ARMED["distributed"])
        world.start_distributed(stack)
        _warm_up(stack)
        return _measure(stack) | {"now": _nows(stack, lambda count: world.within(stack, ask, count))}


def embedded() -> dict[str, Any]:
    """One process on SQLite."""
    with world.on_sqlite() as stack:
        world.within(stack, world.crowd, ARMED["embedded"])
        world.start_embedded(stack)
        _warm_up(stack)
        return _measure(stack) | {"now": _nows(stack, lambda count: _ask_by_http(stack, count))}


def ask(count: int) -> None:
    """Say to a new session that it is to arm a trigger for now, and again to another, in good time."""
    for _ in range(count):
        session = AgentSession.objects.create(adapter="probe", model="rehearsal", created_at=timezone.now())
        services.say(session.pk, probe.ARM, now=timezone.now())
        time.sleep(APART.total_seconds())


def _ask_by_http(stack: Stack, count: int) -> None:
    with stack.client() as client:
        for _ in range(count):
            drive.say(client, drive.open_session(client, adapter="probe"), probe.ARM)
            time.sleep(APART.total_seconds())


def _warm_up(stack: Stack) -> None:
    """Have every worker run some turns, so that what is loaded and connected once is."""
    for _ in range(4):
        _lags(stack, [timezone.now() + LEAD] * TOGETHER)


def _measure(stack: Stack) -> dict[str, Any]:
    ones, hundreds = [], []
    for _ in range(RUNS):
        first = timezone.now() + LEAD
        ones.append(_lags(stack, [first + APART * number for number in range(SINGLES)]))
        hundreds.append(_lags(stack, [timezone.now() + LEAD] * TOGETHER))
    return {"one": _figures(ones), "hundred": _figures(hundreds)}


def _lags(stack: Stack, instants: list[datetime]) -> list[float]:
    """Arm triggers for these instants, wait until all have started, and return their lags in milliseconds."""
    sessions = world.within(stack, world.due, instants)
    assert timezone.now() < min(instants), "the rows were not written in time"
    due = dict(zip(sessions, (instant.timestamp() for instant in instants), strict=True))
    time.sleep((max(instants) - timezone.now() + QUIET).total_seconds())  # whoever looks takes processor time
    wait_for(lambda: sum(line["session"] in due for line in world.starts(stack)) >= len(due), "all to start", stack, 60)
    started = [line for line in world.starts(stack) if line["session"] in due]
    assert len(started) == len(due), "a wake started twice"
    return [(line["started"] - due[line["session"]]) * 1000 for line in started]


def _nows(stack: Stack, asking: Any) -> dict[str, float]:
    return _figures([_now_lags(stack, asking) for _ in range(RUNS)])


def _now_lags(stack: Stack, asking: Any) -> list[float]:
    known = len(world.starts(stack))
    asking(NOWS)
    wait_for(lambda: len(world.starts(stack)) >= known + 2 * NOWS, "all to start", stack, 60)
    lines = world.starts(stack)[known:]
    due = {line["session"]: line["due"] for line in lines if "due" in line}
    return [(line["started"] - due[line["session"]]) * 1000 for line in lines if "started" in line]


def _figures(runs: Sequence[Sequence[float]]) -> dict[str, float]:
    return {
        "p50_ms": world.middle([world.percentile(run, 50) for run in runs]),
        "p95_ms": world.middle([world.percentile(run, 95) for run in runs]),
        "earliest_ms": round(min(min(run) for run in runs), 2),
        "latest_ms": round(max(max(run) for run in runs), 2),
    }


def main() -> None:
    forms = {"distributed": distributed, "embedded": embedded}
    wanted = sys.argv[1:] or list(forms)
    figures = {form: {"armed": ARMED[form], **forms[form]()} for form in wanted}
    print(json.dumps({"machine": world.machine(), "runs": RUNS, **figures}, indent=1))


if __name__ == "__main__":
    main()
