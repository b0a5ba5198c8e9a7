from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from celery import current_app

from config import web
from sessions import garbage, tasks
from triggers.beat import DueScheduler


@pytest.fixture(autouse=True)
def thaw() -> Iterator[None]:
    """Leave the test run's own garbage collection as it was."""
    yield
    gc.unfreeze()


def _warm() -> None:
    tasks._warm()


def _begin_beat() -> None:
    DueScheduler(app=current_app).setup_schedule()


def _begin_web() -> None:
    web.post_worker_init(Mock())


def test_what_is_there_is_looked_through_no_more() -> None:
    objects = len(gc.get_objects())

    garbage.freeze()

    assert gc.get_freeze_count() > objects // 2
    assert len(gc.get_objects()) < objects // 2


@pytest.mark.parametrize("begin", [_warm, _begin_beat, _begin_web])
def test_each_process_does_so_once_all_is_there(begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(garbage, "freeze", lambda: done.append(True))

    begin()

    assert done
