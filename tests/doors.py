"""Callers of the REST doors, and the clock that the doors read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client
from django.utils import timezone

from sessions import guesses, keys

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse

    Answer = _MonkeyPatchedWSGIResponse


class Caller:
    """A client that holds an API key, or none."""

    def __init__(self, secret: str | None = None) -> None:
        self.secret = secret
        self.client = Client(headers={"Authorization": f"Bearer {secret}"} if secret else {})

    def get(self, path: str, query: dict[str, Any] | None = None, **headers: str) -> Answer:
        return self.client.get(path, query, headers=_named(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send("POST", path, body, **headers)

    def patch(self, path: str, body: Any) -> Answer:
        return self.send("PATCH", path, body)

    def delete(self, path: str) -> Answer:
        return self.send("DELETE", path, None)

    def send(self, method: str, path: str, body: Any, **headers: str) -> Answer:
        """Send a body as JSON; bytes are sent as they are, None is no body."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        type_ = headers.pop("content_type", "" if body is None else "application/json")
        return self.client.generic(method, path, data, type_, headers=_named(headers))


def key_with(*scopes: str, name: str = "tests") -> Caller:
    """Return a caller with a new key of these scopes."""
    _, secret = keys.create(name=name, scopes=scopes, now=timezone.now())  # noqa: TID251
    return Caller(secret)


@contextmanager
def as_a_server() -> Iterator[None]:
    """Let requests go straight to the WSGI application, which would close the test's own database connection."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in (request_started, request_finished):
            signal.connect(close_old_connections)


def error_of(response: Answer) -> dict[str, Any]:
    """Return an error's envelope, whose shape is checked."""
    body = json.loads(response.content)
    assert list(body) == ["error"]
    assert set(body["error"]) - {"fields"} == {"code", "reason", "retryable"}
    assert response["Content-Type"] == "application/json"
    error: dict[str, Any] = body["error"]
    return error


@pytest.fixture
def admin(db: None) -> Caller:
    return key_with("admin", name="ops")


@pytest.fixture
def stranger() -> Caller:
    return Caller()


@pytest.fixture
def now() -> datetime:
    """The doors' own now: what is armed at another one may have expired by theirs."""
    return timezone.now()  # noqa: TID251


@pytest.fixture(autouse=True)
def _no_guesses_yet() -> Iterator[None]:
    guesses.KEYS.clear()
    yield
    guesses.KEYS.clear()


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
