"""For whoever operates it: is it alive, is it ready, and how is it doing."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta

from celery import current_app
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from kombu.exceptions import KombuError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from triggers import metrics as measures
from triggers import selectors
from triggers.counted import COUNTED

BEAT_FRESH = timedelta(seconds=30)
OK = "ok"


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process is alive; it asks nothing of anybody else."""
    return JsonResponse({"status": OK})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer whether all is there that is needed, 503 if not; `checks` names what is not."""
    checks = _checks(timezone.now())
    ready = all(answer == OK for answer in checks.values())
    answer = JsonResponse({"status": OK if ready else "not_ready", "checks": checks}, status=200 if ready else 503)
    answer._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 (no error for each question of a probe)
    return answer


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer in Prometheus' text format.

    What is in the database is the same whichever process answers. What is counted in memory is this
    process's own, or that of all processes that share the folder PROMETHEUS_MULTIPROC_DIR.
    """
    registry = CollectorRegistry()
    registry.register(measures.Database(now=timezone.now()))
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
    text = generate_latest(registry) + generate_latest(COUNTED)
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _checks(now: datetime) -> dict[str, str]:
    checks: dict[str, Callable[[], str]] = {
        "database": _database,
        "migrations": _migrations,
        "broker": _broker,
        "beat": lambda: _beat(now),
    }
    return {name: _tried(check) for name, check in checks.items()}


def _tried(check: Callable[[], str]) -> str:
    try:
        return check()
    except (DatabaseError, KombuError, OSError) as error:  # whose texts may hold addresses and passwords
        return f"failed: {type(error).__name__}"


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return OK


_migrated = False


def _migrations() -> str:
    """Return how many migrations are missing. None can become missing while this code runs."""
    global _migrated  # noqa: PLW0603
    if not _migrated:
        executor = MigrationExecutor(connection)
        missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        if missing:
            return f"{missing} not applied: run `manage.py migrate`"
        _migrated = True
    return OK


def _broker() -> str:
    with current_app.connection_for_write() as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=2)
    return OK


def _beat(now: datetime) -> str:
    seen = selectors.last_beat()
    if seen is None:
        return "never seen: start it"
    age = now - seen
    return OK if age <= BEAT_FRESH else f"last seen {round(age.total_seconds())} s ago"
