"""Bodies posted to the capability URL: how much is kept of them, and how little is held while they come."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from unittest.mock import Mock

import pytest
from django.test import RequestFactory

from sessions import turns
from sessions.api import bodies
from tests.triggers.api.posting import Hook, hooked
from triggers import posts, services
from triggers.api import hooks

pytestmark = pytest.mark.django_db
MEBIBYTE = 1024 * 1024


@pytest.fixture
def hook(db: None, now: datetime) -> Hook:
    return hooked(now)


@pytest.fixture
def signed(db: None, now: datetime) -> Hook:
    return hooked(now, args={"hmac_header": "X-Hub-Signature-256"})


def test_it_keeps_the_first_bytes_of_a_large_body_and_says_so(hook: Hook, settings: Any) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = 10

    assert hook.post(b"0123456789ab").status_code == 202
    wake = hook.wake()
    assert (wake.payload, wake.payload_bytes, wake.truncated) == ("0123456789", 12, True)


def test_it_keeps_a_body_of_just_the_largest_size_whole(hook: Hook, settings: Any) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = 10

    hook.post(b"0123456789")

    assert not hook.wake().truncated


@pytest.mark.parametrize("cut_at", [1, 2, 3, 4, 5])
def test_it_does_not_halve_a_character(cut_at: int, hook: Hook, settings: Any) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = cut_at

    hook.post("a😀bc".encode())

    assert hook.wake().payload == ("a" if cut_at < 5 else "a😀")


def test_it_keeps_a_character_that_the_sender_halved_as_a_replacement(hook: Hook) -> None:
    hook.post(b"a\xf0\x9f")

    assert hook.wake().payload == "a\ufffd"


def test_it_verifies_the_whole_body_of_which_it_keeps_a_part(signed: Hook, settings: Any) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = 10
    body = b"x" * 5000

    assert signed.post(body, X_Hub_Signature_256=signed.signature(body)).status_code == 202
    assert signed.post(body, X_Hub_Signature_256=signed.signature(body[:10])).status_code == 404


def test_it_verifies_a_large_body_chunk_by_chunk(signed: Hook, settings: Any, now: datetime) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = 100
    body = b"0123456789abcde\n" * (hooks.BODY_MAX_BYTES // 16)
    wrong = body[:-1] + b"x"

    assert signed.post(wrong, X_Hub_Signature_256=signed.signature(body)).status_code == 404
    assert signed.post(body, X_Hub_Signature_256=signed.signature(body)).status_code == 202
    wake = signed.wake()
    assert (wake.payload, wake.payload_bytes, wake.truncated) == (body[:100].decode(), 25 * MEBIBYTE, True)
    [begun] = turns.begin([signed.trigger.session_id], worker="test", now=now)
    assert "only the first 100 of 26214400 bytes were kept" in begun.prompt


@pytest.mark.parametrize("chunk", range(1, 8))
@pytest.mark.parametrize("most", range(1, 12))
def test_it_cuts_alike_wherever_a_chunk_ends(
    chunk: int, most: int, hook: Hook, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = most
    monkeypatch.setattr(bodies, "CHUNK_BYTES", chunk)
    body = "é😀☕b".encode()

    hook.post(body)

    wake = hook.wake()
    assert (wake.payload, wake.payload_bytes) == (body[:most].decode(errors="ignore"), 10)
    assert wake.truncated == (most < 10)


def test_it_holds_little_of_a_large_body(hook: Hook) -> None:
    body = _Endless()
    environ: dict[str, Any] = {"wsgi.input": body, "CONTENT_LENGTH": str(24 * MEBIBYTE)}
    request = RequestFactory().post("/", **environ)

    tracemalloc.start()
    response = hooks.hook(request, *_credential(hook))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (response.status_code, body.came) == (202, 24 * MEBIBYTE)
    assert peak < 2 * MEBIBYTE


def _credential(hook: Hook) -> tuple[str, str]:
    trigger_id, secret = hook.path.split("/")[-2:]
    return trigger_id, secret


class _Endless(io.BytesIO):
    """As many bytes as are asked for."""

    came = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size
        self.came += size
        return b"x" * size


def _post_while(hook: Hook, act: Callable[[], object], *, clock: Callable[[], datetime], delivery: str = "") -> bool:
    """Post a body in the midst of which something else happens."""

    def body() -> Iterator[bytes]:
        yield b"one half"
        act()
        yield b"the other"

    post = posts.Post(body(), {"idempotency-key": delivery})
    return posts.receive(*_credential(hook), post, clock=clock)


def test_it_reads_the_clock_once_the_body_has_come(hook: Hook, now: datetime) -> None:
    clock = Mock(return_value=now)

    assert _post_while(hook, clock.assert_not_called, clock=clock)
    clock.assert_called_once_with()


def test_it_records_nothing_if_the_trigger_is_paused_while_the_body_comes(hook: Hook, now: datetime) -> None:
    assert not _post_while(hook, lambda: services.pause(hook.trigger.pk, by="test", now=now), clock=lambda: now)
    assert hook.fires() == []


def test_it_knows_a_delivery_that_completes_the_trigger_while_its_body_comes_again(now: datetime) -> None:
    hook = hooked(now, max_fires=1)

    assert _post_while(hook, lambda: hook.post(Idempotency_Key="1"), clock=lambda: now, delivery="1")
    assert len(hook.fires()) == 1


def test_it_tells_the_session_that_a_payload_was_cut(hook: Hook, settings: Any, now: datetime) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = 10
    hook.post(b"0123456789ab")

    [begun] = turns.begin([hook.trigger.session_id], worker="test", now=now)

    assert "only the first 10 of 12 bytes were kept" in begun.prompt


def test_it_refuses_a_body_that_is_too_large_whatever_the_url(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "BODY_MAX_BYTES", 100)

    right, wrong = hook.post(b"x" * 101), hook.post(b"x" * 101, path="/api/triggers/hook/x/y")

    assert (right.status_code, right.content) == (413, wrong.content)
    assert right.items() == wrong.items()
    assert hook.fires() == []
    assert hook.post(b"x" * 100).status_code == 202


def test_it_takes_25_mebibytes() -> None:
    assert hooks.BODY_MAX_BYTES == 25 * MEBIBYTE


def test_it_takes_a_body_larger_than_django_would(hook: Hook, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10

    assert hook.post(b"x" * 1000).status_code == 202


@pytest.mark.parametrize(
    "type_",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "no/such; x=\xe9"],
)
def test_it_takes_any_content_type(type_: str, hook: Hook) -> None:
    assert hook.post(b"--x\r\nhalf a part", content_type=type_).status_code == 202
    assert hook.wake().payload == "--x\r\nhalf a part"
