"""Streams and MCP: the ASGI application."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from functools import cache, partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_finished
from django.db import connections
from django.dispatch import receiver

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from triggers.mcp import Door

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

django_application: Any = get_asgi_application()


@receiver(request_finished, sender=ASGIHandler)
def _close_connections(**_kwargs: Any) -> None:
    """Close what a request has opened: under ASGI each has a thread of its own, and would lose its connection with it.

    CONN_MAX_AGE = 0 would do the same to the workers that share the process in the embedded form.
    """
    connections.close_all()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve MCP on /mcp and Django on every other path; streams begin and end with the server."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})
    elif scope["path"].rstrip("/") == "/mcp":
        door = await asyncio.to_thread(_mcp)
        await door(scope, receive, send)
    else:
        await _serve(scope, receive, send)


async def _serve(scope: Scope, receive: Receive, send: Send) -> None:
    from sessions.api.feed import VISIT, Visit

    visit = Visit()
    try:
        await django_application({**scope, VISIT: visit}, receive, send)
    finally:
        visit.end()


async def _live(receive: Receive, send: Send) -> None:
    from sessions.api.feed import FEED

    await receive()
    FEED.start()
    _before_stopping(FEED.stop)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    FEED.stop()
    await send({"type": "lifespan.shutdown.complete"})


def _before_stopping(act: Callable[[], None]) -> None:
    """Act on a signal to stop before the server does: it tells the application only once all streams have ended."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        servers = signal.getsignal(number)
        if callable(servers):
            signal.signal(number, partial(_acting_first, act, servers))


def _acting_first(act: Callable[[], None], then: Callable[..., Any], number: int, frame: FrameType | None) -> None:
    act()
    then(number, frame)


@cache
def _mcp() -> Door:
    """Import the MCP SDK when it is first called for: that takes half a second, which a start need not."""
    from triggers.mcp import Door

    return Door()
