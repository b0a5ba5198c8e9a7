"""Fixtures for tests of triggers."""

from __future__ import annotations

from datetime import datetime

import pytest

from sessions.models import AgentSession
from tests.factories import open_session


@pytest.fixture
def session(db: None, now: datetime) -> AgentSession:
    return open_session(now)
