"""Is it alive, is it ready, how is it doing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from celery import current_app
from django.db import OperationalError
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from config import ops
from tests import factories
from tests.doors import Caller
from triggers import services
from triggers.metrics import LEDGER

GOOD = {"database": "ok", "migrations": "ok", "broker": "ok", "beat": "ok"}


@pytest.fixture
def alive(db: None) -> None:
    services.note_beat(now=timezone.now())  # noqa: TID251


def _ready(stranger: Caller) -> tuple[int, Any]:
    response = stranger.get("/readyz")
    return response.status_code, response.json()


def test_it_is_alive_without_a_database(stranger: Caller) -> None:
    response = stranger.get("/healthz")

    assert (response.status_code, response.content) == (200, b'{"status": "ok"}')


@pytest.mark.usefixtures("alive")
def test_it_is_ready(stranger: Caller) -> None:
    assert _ready(stranger) == (200, {"status": "ok", "checks": GOOD})


@pytest.mark.django_db
def test_it_names_a_beat_that_was_never_seen(stranger: Caller) -> None:
    assert _ready(stranger) == (503, {"status": "not_ready", "checks": GOOD | {"beat": "never seen: start it"}})


@pytest.mark.django_db
def test_it_names_a_beat_that_has_stopped(stranger: Caller) -> None:
    services.note_beat(now=timezone.now() - timedelta(seconds=95))  # noqa: TID251

    assert _ready(stranger) == (503, {"status": "not_ready", "checks": GOOD | {"beat": "last seen 95 s ago"}})


@pytest.mark.usefixtures("alive")
def test_it_names_a_broker_that_cannot_be_reached(stranger: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_app, "connection_for_write", Mock(side_effect=BrokerError("redis://:hunter2@x")))

    assert _ready(stranger) == (
        503,
        {"status": "not_ready", "checks": GOOD | {"broker": "failed: OperationalError"}},
    )


@pytest.mark.usefixtures("alive")
def test_it_names_migrations_that_are_missing(stranger: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_migrated", False)
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: [1, 2])

    missing = "2 not applied: run `manage.py migrate`"
    assert _ready(stranger) == (503, {"status": "not_ready", "checks": GOOD | {"migrations": missing}})


def test_it_names_a_database_that_cannot_be_reached(stranger: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "connection", Mock(cursor=Mock(side_effect=OperationalError("password=hunter2"))))
    monkeypatch.setattr(ops, "_migrated", True)
    monkeypatch.setattr("triggers.selectors.last_beat", Mock(side_effect=OperationalError("password=hunter2")))

    status, body = _ready(stranger)

    assert (status, body["checks"]["database"]) == (503, "failed: OperationalError")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_it_is_only_read(path: str, stranger: Caller) -> None:
    assert stranger.post(path).status_code == 405


@pytest.mark.django_db
def test_it_shows_metrics_without_a_key(stranger: Caller) -> None:
    now = timezone.now()  # noqa: TID251
    trigger = factories.armed_session(now)
    LEDGER.forget()
    stranger.post(f"/api/triggers/hook/{trigger.pk}/wrong")

    response = stranger.get("/metrics")

    text = response.content.decode()
    assert response["Content-Type"].startswith("text/plain")
    assert 'rewake_triggers{kind="webhook",status="armed"} 1.0' in text
    assert 'rewake_hook_answers_total{code="404"}' in text
    assert str(trigger.pk) not in text
