"""A lean HTTP client for benchmarks: connections that are kept, requests made beforehand, one at a time on each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

PATIENCE = 30.0  # seconds for the last answers


@dataclass
class Load:
    """What came of it. `latencies` in seconds."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request's bytes."""
    named = {"host": "127.0.0.1", "content-length": str(len(body))} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def send(port: int, requests: Iterator[bytes], *, connections: int, seconds: float) -> Load:
    """Send requests to a port of loopback for so many seconds, then wait for the last answers."""
    return asyncio.run(_send(port, requests, connections, seconds))


async def _send(port: int, requests: Iterator[bytes], connections: int, seconds: float) -> Load:
    load = Load()
    loop = asyncio.get_running_loop()
    start = perf_counter()
    senders = [_Sender(requests, load, start + seconds) for _ in range(connections)]
    for sender in senders:
        await loop.create_connection(lambda sender=sender: sender, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.wait_for(asyncio.gather(*(sender.done for sender in senders)), seconds + PATIENCE)
    load.seconds = perf_counter() - start
    return load


class _Sender(asyncio.Protocol):
    def __init__(self, requests: Iterator[bytes], load: Load, until: float) -> None:
        self._requests, self._load, self._until = requests, load, until
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return
        self._received = b""
        self._load.latencies.append(perf_counter() - self._sent)
        self._load.statuses[int(head[9:12])] += 1
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed a connection"))

    def _next(self) -> None:
        self._sent = perf_counter()
        if self._sent < self._until:
            self._transport.write(next(self._requests))
            return
        self.done.set_result(None)
        self._transport.close()


def _length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.index(b"content-length:") + 15
    return int(lowered[start:].partition(b"\r\n")[0])
