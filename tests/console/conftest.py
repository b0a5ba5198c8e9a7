"""Fixtures for tests of the console."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions import guesses
from sessions.models import AgentSession
from tests.factories import open_session


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    """The doors read the clock: it stands still."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)


@pytest.fixture(autouse=True)
def _no_guesses_yet() -> Iterator[None]:
    guesses.PASSWORDS.clear()
    yield
    guesses.PASSWORDS.clear()


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which the console's user is logged in."""
    client = Client()
    client.force_login(User.objects.create_user("admin", password="correct horse", is_staff=True))
    return client


@pytest.fixture
def session(db: None, now: datetime) -> AgentSession:
    return open_session(now, title="Release 2.4", tag="release")
