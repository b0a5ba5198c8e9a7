"""Fixtures for tests of sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from sessions import services
from sessions.models import AgentSession
from sessions.runtime.adapters.base import TurnRequest, TurnResult
from tests.factories import StillKeeper, open_session


@pytest.fixture
def session(db: None, now: datetime) -> AgentSession:
    return open_session(now)


@pytest.fixture
def keeper() -> StillKeeper:
    return StillKeeper()


@dataclass
class Scripted:
    """An adapter that does what a test says."""

    act: Callable[[TurnRequest], TurnResult]
    name: str = "scripted"

    def warm(self) -> None: ...

    def run(self, request: TurnRequest) -> TurnResult:
        return self.act(request)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[TurnRequest], Any]], None]:
    """Have every turn run by a function."""

    def install(act: Callable[[TurnRequest], TurnResult]) -> None:
        monkeypatch.setattr(services.ADAPTERS, "by_name", {"builtin": Scripted(act)})

    return install
