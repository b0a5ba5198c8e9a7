"""The ASGI application: what it does besides passing requests on."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from config import asgi


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
