"""Measure lists of 100 triggers with 100 in the table, and with 100,000.

Run `python -m tests.servers python -m tests.benchmarks.bench_lists`; it prints JSON: milliseconds of a list in each of
its forms, its queries, and the ratio of the second world to the first, medians of five runs. PostgreSQL; the WSGI
application is called in the measuring process, so that no server blurs the ratio.
"""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions import keys
from tests.benchmarks import world

RUNS = 5
CALLS = 30  # in a run
FEW, MANY = 100, 100_000
LISTS = {
    "all": "/api/triggers?limit=100",
    "status": "/api/triggers?limit=100&status=armed",
    "kind": "/api/triggers?limit=100&kind=time.at",
    "next page": "/api/triggers?limit=50&cursor={cursor}",
}

Figures = dict[str, tuple[float, int]]


def lists() -> Figures:
    """Return the milliseconds and the queries of each list."""
    _, secret = keys.create(name="benchmark", scopes=["triggers.read"], now=timezone.now())
    client = Client(headers={"Authorization": f"Bearer {secret}"}, SERVER_NAME="127.0.0.1")
    cursor = client.get("/api/triggers?limit=50").json()["next"]
    return {name: _measured(client, path.format(cursor=cursor)) for name, path in LISTS.items()}


def _measured(client: Client, path: str) -> tuple[float, int]:
    assert client.get(path).status_code == 200
    with CaptureQueriesContext(connection) as queries:
        client.get(path)
        asked = len(queries)
    start = perf_counter()
    for _ in range(CALLS):
        client.get(path)
    return (perf_counter() - start) / CALLS * 1000, asked


def _figures(pairs: list[tuple[Figures, Figures]], name: str) -> dict[str, Any]:
    times = [(few[name][0], many[name][0]) for few, many in pairs]
    return {
        f"ms_at_{FEW}": world.middle([few for few, _ in times]),
        f"ms_at_{MANY}": world.middle([many for _, many in times]),
        "ratio": world.middle([many / few for few, many in times]),
        "queries": sorted({figures[name][1] for pair in pairs for figures in pair}),
    }


def main() -> None:
    pairs = world.compare(world.on_postgres, lists, sizes=(FEW, MANY), runs=RUNS)
    figures = {name: _figures(pairs, name) for name in LISTS}
    print(json.dumps({"machine": world.machine(), "runs": RUNS, **figures}, indent=1))


if __name__ == "__main__":
    main()
