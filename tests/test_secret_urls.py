"""A capability URL's secret is in nothing that the product writes or shows, whatever is posted where."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest

from tests import drive, stack
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.own_stack

WRONG = "rwh_WrongWrongWrongWrongWrongWrongWrongWrongWro"
ODD = "hunter2-that-looks-like-no-secret"


@pytest.fixture(scope="module", params=["embedded", "distributed"])
def product(request: pytest.FixtureRequest) -> Iterator[Stack]:
    if request.param == "embedded":
        with stack.embedded(LOG_LEVEL="DEBUG") as running:
            running.start("embedded")
            running.wait_until_ready()
            yield running
        return
    postgres_url, redis_url = request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url")
    with stack.distributed(postgres_url, redis_url, LOG_LEVEL="DEBUG") as running:
        for role in ("web", "short", "long", "beat"):
            running.start(role)
        running.wait_until_ready()
        yield running


def test_it_writes_and_shows_no_secret_of_a_url(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        trigger_id, path = drive.armed_webhook(client, session_id)
        secret = path.rsplit("/", 1)[1]
        paths = [path, path.replace(secret, WRONG), path.replace(secret, ODD)]
        port = int(client.base_url.port or 0)

        statuses = {what: [_status(port, request(each)) for each in paths] for what, request in REQUESTS.items()}
        cut_off = {what: [_status(port, request(each), ends=True) for each in paths] for what, request in CUT.items()}
        with _broken(product, trigger_id):
            failed = _status(port, _post(path))
        wait_for(
            lambda: all(fire["outcome"] == "delivered" for fire in drive.fires(client, trigger_id)), "delivery", product
        )
        shown = _everything_shown(client, session_id, trigger_id)

    assert statuses["right"] == [202, 404, 404]
    assert statuses["GET"] == statuses["OPTIONS"] == [405] * 3
    assert {status for each in cut_off.values() for status in each} <= {400, 0}  # who has left gets no answer
    assert set(statuses["huge"]) <= {413, 0}  # before it is sent, or cut off while it is
    assert failed == 500
    written = product.logs()
    assert "hook_refused" in written  # it does write of them
    assert "Internal Server Error" in written
    for hidden in (secret, WRONG, ODD):
        assert hidden not in written
        assert hidden not in shown


def _post(path: str, body: bytes = b"abc", *headers: str, length: int | None = None, method: str = "POST") -> bytes:
    size = [f"Content-Length: {len(body) if length is None else length}"] if length != -1 else []
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *size, *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


REQUESTS: dict[str, Callable[[str], bytes]] = {
    "right": _post,
    "slash": lambda path: _post(f"{path}/"),
    "deeper": lambda path: _post(f"{path}/more"),
    "query": lambda path: _post(f"{path}?a={'x' * 100}"),
    "GET": lambda path: _post(path, b"", method="GET"),
    "HEAD": lambda path: _post(path, b"", method="HEAD"),
    "OPTIONS": lambda path: _post(path, b"", method="OPTIONS"),
    "huge": lambda path: _post(path, b"x" * 26 * 1024 * 1024),
    "chunked": lambda path: _post(path, b"3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=-1),
    "chunks that are none": lambda path: _post(path, b"zz\r\nabc", "Transfer-Encoding: chunked", length=-1),
    "no HTTP": lambda path: f"POST {path}\r\n\r\n".encode(),
    "another HTTP": lambda path: _post(path).replace(b"HTTP/1.1", b"HTTP/9.9"),
    "a header that is none": lambda path: _post(path, b"abc", "no colon here"),
    "a header that holds it": lambda path: _post(path, b"abc", f"Referer: http://127.0.0.1{path}"),
    "another host": lambda path: _post(path).replace(b"Host: 127.0.0.1", b"Host: elsewhere.example"),
    "two lengths": lambda path: _post(path, b"abc", "Content-Length: 5"),
    "too long a line": lambda path: _post(path + "A" * 70_000),
}
CUT: dict[str, Callable[[str], bytes]] = {
    "aborted": lambda path: _post(path, b"abc", length=10),
    "chunks that break off": lambda path: _post(path, b"9\r\nabc", "Transfer-Encoding: chunked", length=-1),
}


def _status(port: int, request: bytes, *, ends: bool = False) -> int:
    """Send bytes, and nothing more if `ends`; return the answer's status, 0 if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, contextlib.suppress(OSError):
        connection.sendall(request)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
            if answer.startswith(b"HTTP/1.1 ") and len(answer) >= 12:
                return int(answer[9:12])
    return 0


@contextlib.contextmanager
def _broken(product: Stack, trigger_id: str) -> Iterator[None]:
    """Break a trigger's row, so that whoever reads it fails."""
    before = _run(product, "SELECT args FROM rewake_trigger WHERE kind = 'webhook'")
    _run(product, "UPDATE rewake_trigger SET args = '[]' WHERE kind = 'webhook'")
    yield
    args = before if isinstance(before, str) else json.dumps(before)
    _run(product, f"UPDATE rewake_trigger SET args = '{args}' WHERE kind = 'webhook'")


def _run(product: Stack, sql: str) -> object:
    url = product.environment["DATABASE_URL"]
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)) as connection, connection:
            row = connection.execute(sql).fetchone()
    else:
        with psycopg.connect(url) as postgres:
            cursor = postgres.execute(sql.encode())
            row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def _everything_shown(client: httpx.Client, session_id: str, trigger_id: str) -> str:
    paths = [
        "/metrics",
        "/readyz",
        "/api/sessions",
        f"/api/sessions/{session_id}",
        f"/api/sessions/{session_id}/events?limit=200",
        f"/api/sessions/{session_id}/triggers",
        "/api/triggers",
        f"/api/triggers/{trigger_id}",
        f"/api/triggers/{trigger_id}/fires",
    ]
    answers = [client.get(path) for path in paths]
    assert {answer.status_code for answer in answers} <= {200, 503}
    return "\n".join(answer.text for answer in answers)
