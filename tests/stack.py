"""The product as operators run it: web, worker and beat processes on PostgreSQL and Redis, or one embedded process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import httpx
import psycopg
from psycopg import sql

from tests.servers import free_port

ROOT = Path(__file__).resolve().parent.parent
KEY = "rwk_" + "only-for-tests-" * 3
PATIENCE = 40.0  # seconds for a process to be ready on a busy machine
SECRETS = {
    "SECRET_KEY": "only-for-tests-" + "0123456789" * 4,
    "ENCRYPTION_KEYS": "dGVzdHMgb25seSwgbm90IGEgcmVhbCBrZXksIDMyYnk=",
    "REWAKE_API_KEY": KEY,
    "REWAKE_ADMIN_PASSWORD": "only-for-tests",
}

_CELERY = "-m celery -A config"
_WORKER = f"{_CELERY} worker --pool=threads --without-gossip --without-mingle"
ROLES = {  # as docs/operations.md has them; a test holds the two together
    "web": "-m gunicorn --config=python:config.web config.wsgi",
    "short": f"{_WORKER} --queues=short --concurrency=2",
    "poll": f"{_WORKER} --queues=poll --concurrency=2",
    "long": f"{_WORKER} --queues=long --concurrency=16",
    "beat": f"{_CELERY} beat --pidfile=",
    "embedded": "manage.py serve",
}


@dataclass
class Process:
    """One process of the product, in a process group of its own, its output in a file."""

    role: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    port: int | None = None
    _popen: subprocess.Popen[bytes] | None = None
    _output: IO[bytes] | None = None

    def start(self) -> None:
        self._output = self.log.open("ab")
        self._popen = subprocess.Popen(
            [sys.executable, *self.arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End the whole group at once, as the OOM killer or a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the process to stop, and return its exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.kill()
        self.start()

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        assert self._popen
        return self._popen.pid

    def _end(self, number: signal.Signals) -> int:
        assert self._popen
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        try:
            code = self._popen.wait(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._output:
            self._output.close()
        return code


@dataclass
class Stack:
    """All processes of one product, and how to reach it."""

    folder: Path
    environment: dict[str, str]
    processes: list[Process] = field(default_factory=list)

    def start(self, role: str, **settings: str) -> Process:
        port = free_port() if role in ("web", "embedded") else None
        environment = self.environment | settings | ({"PORT": str(port)} if port else {})
        arguments = tuple(ROLES[role].split())
        log = self.folder / f"{role}-{len(self.processes)}.log"
        process = Process(role, arguments, environment, log, port)
        self.processes.append(process)
        process.start()
        return process

    def of(self, *roles: str) -> list[Process]:
        return [process for process in self.processes if process.role in roles]

    def wait_until_ready(self) -> None:
        for process in self.of("web", "embedded"):
            wait_for(lambda process=process: self._answers(process), f"{process.role} on port {process.port}", self)

    def client(self, number: int = 0) -> httpx.Client:
        """Return a client with an admin key to one of the web processes."""
        web = self.of("web", "embedded")
        process = web[number % len(web)]
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{process.port}", headers=headers, timeout=60)

    def manage(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')}" for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        for process in self.processes:
            if process.running:
                process.kill()

    @staticmethod
    def _answers(process: Process) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{process.port}/healthz", timeout=2).status_code == 200
        assert process.running, process.log.read_text(errors="replace")[-4000:]
        return False


@contextlib.contextmanager
def distributed(postgres_url: str, redis_url: str, **settings: str) -> Iterator[Stack]:
    """Yield a product on a new database of a PostgreSQL server and on Redis, migrated, with no process yet."""
    with _database(postgres_url) as url, tempfile.TemporaryDirectory(prefix="rewake-stack-") as folder:
        stack = Stack(Path(folder), _environment(DATABASE_URL=url, BROKER_URL=redis_url, **settings))
        stack.manage("migrate", "--verbosity=0")
        stack.manage("first_start")
        try:
            yield stack
        finally:
            stack.close()


@contextlib.contextmanager
def embedded(**settings: str) -> Iterator[Stack]:
    """Yield a product in its embedded form on a new SQLite file, with no process yet."""
    with tempfile.TemporaryDirectory(prefix="rewake-stack-") as folder:
        url = f"sqlite:///{folder}/rewake.sqlite3"
        stack = Stack(Path(folder), _environment(DATABASE_URL=url, BROKER_URL="memory://", **settings))
        try:
            yield stack
        finally:
            stack.close()


def wait_for(condition: Any, what: str, stack: Stack, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; fail with the product's logs if it does not in time."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError(f"{what}: not within {seconds} s\n{stack.logs()[-8000:]}")


def _environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TZ", "TMPDIR")}
    return kept | SECRETS | {"DJANGO_SETTINGS_MODULE": "config.settings", "TRIGGERS_ENABLED": "true"} | settings


@contextlib.contextmanager
def _database(server_url: str) -> Iterator[str]:
    name = f"rewake_stack_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield server_url.rsplit("/", 1)[0] + f"/{name}"
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
