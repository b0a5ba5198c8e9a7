"""Fixtures for tests of triggers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from pytest_django import Settings

from sessions.models import AgentSession
from tests.factories import open_session
from tests.triggers.forges.fake import FakeGitea, FakeGitHub, FakeGitLab, serving
from tests.triggers.forges.world import World


@pytest.fixture
def session(db: None, now: datetime) -> AgentSession:
    return open_session(now)


@pytest.fixture
def github(db: None, now: datetime, settings: Settings) -> Iterator[World[FakeGitHub]]:
    """A GitHub on loopback, configured as github.com."""
    for forge in serving(FakeGitHub(now)):
        settings.FORGE_HOSTS = {"github.com": ("github", forge.url)}
        yield World(forge, now)


@pytest.fixture
def gitea(db: None, now: datetime, settings: Settings) -> Iterator[World[FakeGitea]]:
    """A Gitea on loopback, configured as git.example.org."""
    for forge in serving(FakeGitea(now)):
        settings.FORGE_HOSTS = {"git.example.org": ("gitea", forge.url)}
        yield World(forge, now)


@pytest.fixture
def gitlab(db: None, now: datetime, settings: Settings) -> Iterator[World[FakeGitLab]]:
    """A GitLab on loopback, configured as gitlab.example.org."""
    for forge in serving(FakeGitLab(now)):
        settings.FORGE_HOSTS = {"gitlab.example.org": ("gitlab", forge.url)}
        yield World(forge, now)
