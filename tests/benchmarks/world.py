"""Worlds for benchmarks: crowds of armed triggers, and a process of its own for what works on a product's database."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import Any, ParamSpec, TypeVar
from uuid import UUID, uuid4

from django.db import connection
from django.utils import timezone

from sessions.instants import iso
from sessions.models import AgentSession
from tests import servers, stack
from triggers.models import Trigger
from triggers.nudge import clock as nudge_clock

PROBE_FILE = "probe.jsonl"
PER_SESSION = 20
FAR_AHEAD = timedelta(days=30)

P = ParamSpec("P")
T = TypeVar("T")
Place = Callable[[], AbstractContextManager[stack.Stack]]

_NEW_ID = {"postgresql": "gen_random_uuid()", "sqlite": "lower(hex(randomblob(16)))"}
_LATER = {
    "postgresql": "t.{} + numbers.n * interval '1 second'",
    "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', t.{}, '+' || numbers.n || ' seconds')",
}


@contextmanager
def process(product: stack.Stack) -> Iterator[ProcessPoolExecutor]:
    """Yield a process whose Django works on a product's database, and whose log is with the product's."""
    log = str(product.folder / "benchmark.log")
    kept = dict(os.environ)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_log_to, initargs=(log,)) as pool:
        os.environ |= product.environment
        try:
            pool.submit(_log_to, log).result()  # it is started here
        finally:
            os.environ.clear()
            os.environ |= kept
        yield pool


def start_distributed(product: stack.Stack) -> None:
    """Start a beat, a short worker and two long ones, these with the probe."""
    product.start("beat")
    product.start("short")
    for _ in range(2):
        _start_with_probe(product, "long", (*stack.ROLES["long"].split(), "--include=tests.benchmarks.probe"))


def start_embedded(product: stack.Stack) -> None:
    """Start the one process, with the probe."""
    _start_with_probe(product, "embedded", ("-m", "tests.benchmarks.probe", "serve"))
    product.wait_until_ready()


def _start_with_probe(product: stack.Stack, role: str, arguments: tuple[str, ...]) -> None:
    port = servers.free_port() if role == "embedded" else None
    more = {"PROBE_FILE": str(product.folder / PROBE_FILE)} | ({"PORT": str(port)} if port else {})
    log = product.folder / f"{role}-{len(product.processes)}.log"
    process = stack.Process(role, arguments, product.environment | more, log, port)
    product.processes.append(process)
    process.start()


def starts(product: stack.Stack) -> list[dict[str, Any]]:
    """Return what the probe has noted."""
    path = product.folder / PROBE_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def within(product: stack.Stack, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in such a process of its own."""
    with process(product) as place:
        return place.submit(work, *args, **kwargs).result()


def compare(place: Place, work: Callable[[], T], *, sizes: tuple[int, int], runs: int) -> list[tuple[T, T]]:
    """Do the same beside a small crowd and beside a large one, in turns: what else the machine does hits both alike."""
    with place() as small, place() as large, process(small) as few, process(large) as many:
        few.submit(crowd, sizes[0]).result()
        many.submit(crowd, sizes[1]).result()
        pairs = [(few.submit(work).result(), many.submit(work).result()) for _ in range(runs + 1)]
    return pairs[1:]  # the first was for warming up


@contextmanager
def on_postgres(**settings: str) -> Iterator[stack.Stack]:
    """Yield a product on PostgreSQL and Redis, with no process yet."""
    with (
        servers.given_or_own("TEST_DATABASE_URL", servers.postgres) as database,
        servers.given_or_own("TEST_REDIS_URL", servers.redis) as broker,
        stack.distributed(database, broker, **settings) as product,
    ):
        yield product


@contextmanager
def on_sqlite(**settings: str) -> Iterator[stack.Stack]:
    """Yield a product on SQLite, migrated, with no process yet."""
    with stack.embedded(**settings) as product:
        product.manage("migrate", "--verbosity=0")
        product.manage("first_start")
        yield product


def crowd(count: int) -> None:
    """Arm `count` triggers that are due far ahead, a second apart, twenty to a session. The database writes them."""
    now = timezone.now()
    owners = [
        AgentSession(title="crowd", adapter="builtin", model="rehearsal", created_at=now)
        for _ in range(max(count // PER_SESSION, 1))
    ]
    AgentSession.objects.bulk_create(owners, batch_size=5000)
    model = at(owners[0].pk, now + FAR_AHEAD)
    model.save(force_insert=True)
    columns: dict[str, str] = {
        field.column: f"t.{field.column}" for field in Trigger._meta.concrete_fields if field.column
    }
    vendor = connection.vendor
    columns |= {"id": _NEW_ID[vendor], "session_id": "s.id"}
    columns |= {name: _LATER[vendor].format(name) for name in ("next_fire_at", "expires_at")}
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %s) "
            f"INSERT INTO rewake_trigger ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
            "FROM rewake_trigger t, rewake_session s, numbers WHERE t.kind = 'time.at' AND s.title = 'crowd' LIMIT %s",
            [PER_SESSION, count],
        )
        model.delete()
        cursor.execute("ANALYZE")


def at(session_id: UUID, instant: datetime) -> Trigger:
    """Return a `time.at` trigger that is armed for an instant, not yet stored."""
    return Trigger(
        session_id=session_id,
        kind="time.at",
        wake_prompt="look whether the deployment has come to its end",
        action="message",
        args={"at": iso(instant)},
        max_fires=1,
        expires_at=instant + timedelta(days=7),
        next_fire_at=instant,
        created_at=instant,
        created_by="agent",
        turn_id=uuid4(),
        depth=0,
    )


def due(instants: Sequence[datetime], *, adapter: str = "probe") -> list[str]:
    """Arm one trigger in a new session for each of the instants, and tell the clock; return the sessions' ids."""
    sessions = [AgentSession(title="due", adapter=adapter, model="rehearsal", created_at=instants[0]) for _ in instants]
    AgentSession.objects.bulk_create(sessions, batch_size=1000)
    rows = [at(session.pk, instant) for session, instant in zip(sessions, instants, strict=True)]
    Trigger.objects.bulk_create(rows, batch_size=1000)
    nudge_clock()
    return [str(session.pk) for session in sessions]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value below which so many percent of the values lie."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def middle(values: Sequence[float], digits: int = 2) -> float:
    """Return the median, rounded for print."""
    return round(median(values), digits)


def machine() -> dict[str, object]:
    """Return what the figures depend on."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ":")
    return {
        "cpu": f"{os.cpu_count()} x {cpu.partition(':')[2].strip()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "loop_ms": _loops(),
    }


def _loops() -> list[int]:
    """Return how long a loop of a million additions takes, the shortest and the longest of ten: a guest's processor
    is as fast as its host lets it be, and every figure with it."""
    times = []
    for _ in range(10):
        start = time.process_time()
        sum(number for number in range(10**6))
        times.append((time.process_time() - start) * 1000)
    return [round(min(times)), round(max(times))]


def _log_to(path: str) -> None:
    """Write what this process logs to a file, as an operator would: a terminal is slow."""
    with Path(path).open("ab") as log:
        os.dup2(log.fileno(), 2)
