"""Fixtures that any test may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests import servers


@pytest.fixture
def now() -> datetime:
    """A Tuesday morning: the one instant of tests that need no other."""
    return datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server's URL, whichever database the suite itself runs on."""
    with servers.given_or_own("TEST_DATABASE_URL", servers.postgres) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url(worker_id: str) -> Iterator[str]:
    """The URL of a Redis database that no other test process uses."""
    number = int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 0
    with servers.given_or_own("TEST_REDIS_URL", servers.redis) as url:
        yield f"{url.rstrip('/')}/{number}"
