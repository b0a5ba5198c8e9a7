"""Measure polling: 1,000 triggers over 50 repositories of a forge that takes 100 ms to answer.

Run `python -m tests.benchmarks.bench_forges`; it prints JSON. The forge is a process of its own, on loopback. A round
is one ring for the poller; before each, everything is made due. The lag of a tick is that of `engine.tick` on one due
trigger, in a thread beside the poller's, as in the embedded form. Medians over runs. It runs on an SQLite file, or in
a database of its own on the PostgreSQL server that both DATABASE_URL and TEST_DATABASE_URL name.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from statistics import median
from time import perf_counter
from typing import Any

import httpx
from django.conf import settings
from django.db import connection
from django.test.utils import get_runner, setup_test_environment, teardown_test_environment

from tests.factories import arm, open_session
from tests.triggers.forges.fake import FakeGitHub, Reply, Request
from triggers import engine, polling
from triggers.models import Fire, Trigger, Watch

RUNS = 5
REPOS = 50
PER_REPO = 20
DELAY = 0.1
TICKS = 150  # of the baseline; during a round as many as fit
NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


def serve() -> None:
    """Be the forge: print its URL; `/control` answers what was asked since, and ends every run once more."""

    class Forge(FakeGitHub):
        def reply(self, request: Request) -> Reply:
            if request.path == "/control":
                return self._control(ends="end" in request.query)
            reply = super().reply(request)
            asked.append((f"{request.path}?page={request.query.get('page')}", reply.status))
            return reply

        def _control(self, *, ends: bool) -> Reply:
            told = list(asked)
            asked.clear()
            if ends:
                self.now = (self.now or NOW) + timedelta(seconds=1)
            for number in range(REPOS if ends else 0):
                run = self.runs[f"octo/repo{number}"][0]
                self.put_run(f"octo/repo{number}", id=run["id"], run_attempt=run["run_attempt"] + 1)
            return Reply(told)

    asked: list[tuple[str, int]] = []
    forge = Forge(NOW)
    for number in range(REPOS):
        for run_id in range(1, 31):
            forge.put_run(f"octo/repo{number}", id=run_id, status="completed", conclusion="success")
    forge.now = NOW + timedelta(minutes=1)
    forge.delay = DELAY
    print(forge.url, flush=True)
    sys.stdin.read()


def measure() -> dict[str, Any]:
    """Measure cold rounds, rounds in which nothing has changed, rounds in which every trigger fires, and the tick."""
    with _forge() as url, _database():
        settings.FORGE_HOSTS = {"github.com": ("github", url)}
        _arm()
        rounds = {
            "cold": [_round(url, forget=True) for _ in range(RUNS)],
            "unchanged": [_round(url) for _ in range(RUNS)],
            "all_fire": [_round(url, end=True) for _ in range(RUNS)],
        }
        pairs = [(median(_ticks(TICKS)), median(_ticks_during(lambda: _round(url)))) for _ in range(2 * RUNS)]
        vendor = connection.vendor
    return {
        "database": vendor,
        "triggers": REPOS * PER_REPO,
        "repositories": REPOS,
        "answer_takes_s": DELAY,
        "rounds": {name: _summary(runs) for name, runs in rounds.items()},
        "tick_ms": {
            "alone": round(1000 * median(alone for alone, _ in pairs), 2),
            "during_a_round": round(1000 * median(beside for _, beside in pairs), 2),
        },
        "tick_ratio": round(median(beside / alone for alone, beside in pairs), 2),
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "median_s": round(median(run["seconds"] for run in runs), 2),
        "worst_s": round(max(run["seconds"] for run in runs), 2),
        "requests": [len(run["asked"]) for run in runs],
        "not_modified": [sum(status == 304 for _, status in run["asked"]) for run in runs],
        "most_for_one_page": max(max(Counter(page for page, _ in run["asked"]).values()) for run in runs),
        "fires": [run["fires"] for run in runs],
    }


def _round(url: str, *, forget: bool = False, end: bool = False) -> dict[str, Any]:
    httpx.get(f"{url}/control", params={"end": "1"} if end else {})
    Watch.objects.update(next_poll_at=NOW, **({"memory": {}} if forget else {}))
    before, start = Fire.objects.count(), perf_counter()
    polling.poll(clock=lambda: NOW + timedelta(minutes=1))
    seconds = perf_counter() - start
    return {"seconds": seconds, "asked": httpx.get(f"{url}/control").json(), "fires": Fire.objects.count() - before}


def _ticks(count: int, *, stop: threading.Event | None = None) -> list[float]:
    """Return what ticks cost, each on one due trigger."""
    taken = []
    clocked = Trigger.objects.filter(kind="time.cron")
    for number in range(count):
        if stop and stop.is_set():
            break
        due = NOW + timedelta(minutes=number)
        clocked.update(next_fire_at=due, fires=0)
        start = perf_counter()
        engine.tick(now=due)
        taken.append(perf_counter() - start)
        Fire.objects.filter(trigger__in=clocked).delete()
    return taken


def _ticks_during(work: Callable[[], Any]) -> list[float]:
    stop = threading.Event()
    found: list[float] = []

    def tick() -> None:
        found.extend(_ticks(100_000, stop=stop))
        connection.close()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        work()
    finally:
        stop.set()
        thread.join()
    return found


def _arm() -> None:
    for number in range(REPOS):
        session = open_session(NOW)
        for place in range(PER_REPO):
            name = "ci.yml" if place % 2 else "CI"
            arm(
                session,
                NOW + timedelta(seconds=30),
                "ci.workflow",
                args={"repo": f"octo/repo{number}", "workflow": name},
            )
    arm(open_session(NOW), NOW, "time.cron", args={"cron": "* * * * *"})


@contextmanager
def _forge() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_forges", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        yield process.stdout.readline().strip()
        process.stdin.close()


@contextmanager
def _database() -> Iterator[None]:
    logging.disable(logging.WARNING)
    setup_test_environment(debug=False)
    runner = get_runner(settings)(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        yield
    finally:
        runner.teardown_databases(databases)
        teardown_test_environment()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        print(json.dumps(measure(), indent=2))
