"""Measure the capability URL: against a bare Django view, refused against accepted, one hot trigger against a thousand.

Run `python -m tests.servers python -m tests.benchmarks.bench_hook`; it prints JSON: requests a second, latencies in
milliseconds and ratios, medians of five runs, in each of which all are measured in turns. PostgreSQL, two server
processes, loopback. Every post carries a delivery id of its own, as those of forges do.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from django.utils import timezone

from sessions.models import AgentSession
from sessions.secrecy import encrypt
from tests.benchmarks import load, world
from tests.benchmarks.load import Load
from tests.servers import free_port
from tests.stack import Process, Stack, wait_for
from triggers import services
from triggers.models import Trigger
from triggers.registry import KINDS

RUNS = 5
SECONDS = 2.0  # for each figure in each run
CONNECTIONS = (1, 16, 64)
TRIGGERS = 1000
BODY = json.dumps({"ref": "refs/heads/main", "commits": [{"id": uuid4().hex, "message": "x" * 200}] * 4}).encode()

Figures = dict[str, dict[str, float]]


def arm(count: int) -> list[str]:
    """Arm webhook triggers, each in a session of its own; return the paths of their URLs."""
    now = timezone.now()
    sessions = [AgentSession(adapter="builtin", model="rehearsal", created_at=now) for _ in range(count)]
    AgentSession.objects.bulk_create(sessions)
    kind = KINDS.get("webhook")
    secrets = kind.secrets(kind.read({}))
    rows = [
        Trigger(
            session=session,
            kind="webhook",
            wake_prompt="look at what was pushed",
            action="message",
            args={},
            max_fires=10**6,
            expires_at=now + timedelta(days=1),
            created_at=now,
            created_by="agent",
            turn_id=uuid4(),
            depth=0,
            secrets=encrypt(secrets),
        )
        for session in sessions
    ]
    Trigger.objects.bulk_create(rows)
    return [urlsplit(services.hook_url(row, secrets)).path for row in rows]


@contextmanager
def serving(product: Stack, application: str, settings: str = "config.settings") -> Iterator[int]:
    """Run a WSGI application under the product's own server, in two processes; yield its port."""
    port = free_port()
    environment = product.environment | {"DJANGO_SETTINGS_MODULE": settings, "PORT": str(port)}
    process = Process(
        role="web",
        arguments=("-m", "gunicorn", "--config=python:config.web", "--workers=2", application),
        environment=environment,
        log=product.folder / f"{application}.log",
        port=port,
    )
    process.start()
    try:
        wait_for(lambda: _answers(port), f"{application} on port {port}", product)
        yield port
    finally:
        process.stop()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code < 500
    except httpx.HTTPError:
        return False


def targets(paths: list[str], ports: tuple[int, int]) -> dict[str, tuple[int, list[str], int]]:
    """Return what is measured: the port, the paths and the answer that is right."""
    hook, bare = ports
    return {
        "bare": (bare, [f"/bare/{path.split('/')[4]}" for path in paths], 202),
        "accepted": (hook, paths, 202),
        "refused": (hook, [path[:-4] + "AAAA" for path in paths], 404),
        "hot": (hook, paths[:1], 202),
    }


def run(port: int, paths: list[str], right: int, connections: int) -> Load:
    requests = (
        load.request("POST", path, BODY, content_type="application/json", x_github_delivery=str(uuid4()))
        for path in itertools.cycle(paths)
    )
    done = load.send(port, requests, connections=connections, seconds=SECONDS)
    assert set(done.statuses) == {right}, done.statuses
    return done


def measure(product: Stack, runs: int) -> dict[str, Any]:
    paths = world.within(product, arm, TRIGGERS)
    with (
        serving(product, "config.wsgi:application") as hook,
        serving(product, "tests.benchmarks.bare:application", "tests.benchmarks.bare") as bare,
    ):
        wanted = targets(paths, (hook, bare))
        for target in wanted.values():
            run(*target, 16)  # to warm up
        found = {
            connections: [{name: run(*target, connections) for name, target in wanted.items()} for _ in range(runs)]
            for connections in CONNECTIONS
        }
    return {str(connections): _figures(loads) for connections, loads in found.items()}


def _figures(runs: list[dict[str, Load]]) -> dict[str, Any]:
    rates = {name: [each[name].rate for each in runs] for name in runs[0]}
    return {
        "a_second": {name: world.middle(values, 0) for name, values in rates.items()},
        "p50_ms": _latencies(runs, 50),
        "p99_ms": _latencies(runs, 99),
        "accepted_to_bare": _ratio(rates["accepted"], rates["bare"]),
        "refused_to_accepted": _ratio(rates["refused"], rates["accepted"]),
        "hot_to_accepted": _ratio(rates["hot"], rates["accepted"]),
    }


def _latencies(runs: list[dict[str, Load]], percent: int) -> dict[str, float]:
    return {
        name: world.middle([world.percentile(each[name].latencies, percent) * 1000 for each in runs])
        for name in runs[0]
    }


def _ratio(values: list[float], floor: list[float]) -> float:
    return world.middle([value / least for value, least in zip(values, floor, strict=True)])


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    with world.on_postgres(LOG_LEVEL="INFO") as product:
        figures = measure(product, runs)
    print(json.dumps({"machine": world.machine(), "runs": runs, "connections": figures}, indent=1))


if __name__ == "__main__":
    main()
