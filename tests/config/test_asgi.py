"""The ASGI application: what it does besides passing requests on."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import httpx
import pytest
from django.test import Client
from django.utils import timezone

from config import asgi
from config.api import BODY_MAX_BYTES
from sessions import keys
from tests import live


def _exchange(scope: dict[str, Any], *messages: str) -> list[dict[str, Any]]:
    """Give the application these messages, and return what it sends."""
    sent: list[dict[str, Any]] = []
    waiting = [{"type": message} for message in messages]

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asgi.application(scope, receive, send))
    return sent


@pytest.fixture(autouse=True)
def _handlers() -> Any:
    """Put signal handlers back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_starts_and_stops_with_its_server() -> None:
    sent = _exchange({"type": "lifespan"}, "lifespan.startup", "lifespan.shutdown")

    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_it_acts_before_the_server_hears_of_a_signal() -> None:
    heard: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append("server"))

    asgi._before_stopping(lambda: heard.append("streams"))
    signal.raise_signal(signal.SIGTERM)

    assert heard == ["streams", "server"]


def test_it_closes_a_web_socket() -> None:
    assert _exchange({"type": "websocket", "path": "/mcp"}) == [{"type": "websocket.close"}]


# --- bodies that are too large ---------------------------------------------------------------------------------------

CHUNK = b" " * 256 * 1024
CHUNKED = {"transfer_encoding": "chunked"}
HOOK = "/api/triggers/hook/01936f0e-5b6c-7c1d-8a43-6d2f3b9c1e55/rwh_wrong"


class _Upload:
    """A body whose sender stalls after so many bytes, and never says that it has ended."""

    def __init__(self, size: int) -> None:
        self._left = size

    async def __call__(self) -> Any:
        if self._left <= 0:
            await asyncio.Event().wait()
        self._left -= len(CHUNK)
        return {"type": "http.request", "body": CHUNK, "more_body": True}


def _post(path: str, upload: Any, **headers: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Post to the application; return the answer's status, headers and error."""
    sent: list[Any] = []
    given = {"host": "localhost", "content-type": "application/json"} | headers
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(asgi.application(scope, upload, send), live.PATIENCE))
    start, *rest = sent
    named = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return start["status"], named, json.loads(b"".join(message["body"] for message in rest)).get("error")


@pytest.mark.parametrize(
    ("came", "headers"), [(0, {"content_length": "26214401"}), (26214401, CHUNKED), (26214401, {})]
)
def test_it_refuses_a_large_post_to_a_capability_url_as_wsgi_does(
    came: int, headers: dict[str, str], client: Client
) -> None:
    status, given, error = _post(HOOK, _Upload(came), **headers)

    same = client.generic("POST", HOOK, b" " * 26214401, "application/json")
    assert (status, error) == (same.status_code, same.json()["error"])
    assert (status, error["code"]) == (413, "too_large")
    assert given == {name.lower(): value for name, value in same.items()}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("came", "headers"), [(0, {"content_length": "3000000"}), (3000000, CHUNKED), (3000000, {})])
def test_it_refuses_a_large_body_of_the_api(came: int, headers: dict[str, str]) -> None:
    _, secret = keys.create(name="tests", scopes=[keys.Scope.ADMIN], now=timezone.now())  # noqa: TID251

    status, _, error = _post("/api/sessions", _Upload(came), x_api_key=secret, **headers)

    assert (status, error["code"]) == (413, "too_large")
    assert error["reason"] == f"the body is too large: at most {BODY_MAX_BYTES} bytes"


def test_it_takes_no_less_of_a_body_than_its_routes_do(settings: Any) -> None:
    assert settings.DATA_UPLOAD_MAX_MEMORY_SIZE >= BODY_MAX_BYTES


@pytest.mark.django_db(transaction=True)
def test_it_answers_a_large_body_over_a_real_connection() -> None:
    with live.serving() as url:
        answers = [
            httpx.post(f"{url}{HOOK}", content=content, timeout=live.PATIENCE)
            for content in (CHUNK * 120, iter([CHUNK] * 120))
        ]

    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(413, "too_large")] * 2
