"""The ASGI application on a real server, in a thread of the test's own process, and readers of what it streams."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from django.db import connections

from config.asgi import application
from sessions.api.feed import FEED

PATIENCE = 10.0  # seconds, on a machine that is busy


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        FEED.stop()
        await super().shutdown(sockets)


@contextmanager
def serving() -> Iterator[str]:
    """Serve the ASGI application on a port of loopback; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(application, log_config=None, lifespan="on", timeout_graceful_shutdown=3))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="live")
    thread.start()
    try:
        assert server.ready.wait(PATIENCE)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
        assert not thread.is_alive()


def is_quiet() -> bool:
    """Return whether, within a bounded time, the last stream has left and its reader has let go of the database."""
    return eventually(lambda: FEED.open_streams == 0) and FEED.join(PATIENCE)


def eventually(holds: Callable[[], bool]) -> bool:
    """Return whether something comes to hold within a bounded time."""
    pause, until = threading.Event(), time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            return False
        pause.wait(0.01)
    return True


class Frames:
    """The frames of an open stream, each as a dict of its fields; a comment line is `{"": its text}`."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[dict[str, str]]:
        frame: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                frame[name] = value.strip()
            elif frame:
                yield frame
                frame = {}

    def take(self, count: int) -> list[dict[str, Any]]:
        """Return the next events, passing over comments and `retry`."""
        taken: list[dict[str, Any]] = []
        for frame in self:
            if "id" in frame:
                taken.append(frame | {"data": json.loads(frame["data"])})
            if len(taken) == count:
                break
        return taken

    def until_end(self) -> tuple[list[dict[str, Any]], str]:
        """Return all events to come and why the stream ended."""
        events, reason = [], ""
        for frame in self:
            if "id" in frame:
                events.append(frame | {"data": json.loads(frame["data"])})
            if frame.get("event") == "end":
                reason = json.loads(frame["data"])["reason"]
        return events, reason


@contextmanager
def stream(url: str, secret: str, after: int | None = None, **headers: str) -> Iterator[Frames]:
    """Open a stream; `after` is sent as `Last-Event-ID`."""
    sent = {"Authorization": f"Bearer {secret}"} | headers
    if after is not None:
        sent["Last-Event-ID"] = str(after)
    with httpx.Client(timeout=PATIENCE) as client, client.stream("GET", url, headers=sent) as response:
        yield Frames(response)


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    """Do something in a thread for as long as the block lasts, with database connections of its own."""

    def closing() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=closing)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE)
        assert not thread.is_alive()
