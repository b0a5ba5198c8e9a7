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

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_finished
from django.db import connections
from django.dispatch import receiver

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

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
    body = _Body(scope, receive)
    try:
        if not body.is_too_large:
            await django_application({**scope, VISIT: visit}, body.receive, send)
        if body.is_too_large:
            await django_application({**scope, VISIT: visit, "headers": body.length_alone()}, body.withhold, send)
    finally:
        visit.end()


class _Body:
    """A body on its way to Django, which puts the whole of it on disk before a view can refuse it.

    One that is larger than its route takes is kept from Django: it hears of a length, and of no body. So each route
    refuses it as it would under WSGI, be it in chunks or not.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._headers = scope["headers"]
        self._receive = receive
        self._limit = self._left = _most(scope["path"])
        self._withheld = False
        self.is_too_large = any(
            name == b"content-length" and value.isdigit() and int(value) > self._limit for name, value in self._headers
        )

    async def receive(self) -> Message:
        """Pass on what comes. Past the limit Django is told that the client has gone: it lets go of what it holds."""
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        self.is_too_large = self._left < 0
        return {"type": "http.disconnect"} if self.is_too_large else message

    async def withhold(self) -> Message:
        """Pass on an empty body, then nothing but that the client has gone."""
        if not self._withheld:
            self._withheld = True
            return {"type": "http.request"}
        while (message := await self._receive())["type"] != "http.disconnect":
            pass
        return message

    def length_alone(self) -> list[tuple[bytes, bytes]]:
        """Return the headers with a length that is too large, whatever they tell of the body's."""
        kept = [item for item in self._headers if item[0] not in (b"content-length", b"transfer-encoding")]
        return [*kept, (b"content-length", str(self._limit + 1).encode())]


def _most(path: str) -> int:
    """Return how many bytes of a body the routes at a path take at most."""
    from config.shortcut import PREFIX
    from triggers.api import hooks

    return hooks.BODY_MAX_BYTES if path.startswith(PREFIX) else int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


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
