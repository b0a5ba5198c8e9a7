"""The capability URL: what it accepts, and how little it says of what it does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.test import Client

from sessions import services as session_services
from sessions import turns
from tests import factories
from tests.triggers.api.posting import Hook, everything_stored, hooked
from triggers import engine, posts, services
from triggers.api import hooks
from triggers.models import Trigger

pytestmark = pytest.mark.django_db
SIGNED: dict[str, Any] = {"args": {"hmac_header": "X-Hub-Signature-256"}}


@pytest.fixture
def hook(db: None, now: datetime) -> Hook:
    return hooked(now)


@pytest.fixture
def signed(db: None, now: datetime) -> Hook:
    return hooked(now, **SIGNED)


def test_it_fires_on_a_post(hook: Hook) -> None:
    response = hook.post(b'{"state": "success"}')

    assert (response.status_code, response.json()) == (202, {"accepted": True})
    [fire] = hook.fires()
    wake = hook.wake()
    assert fire.wake_id == wake.pk
    assert (wake.payload, wake.payload_bytes, wake.truncated) == ('{"state": "success"}', 20, False)
    assert (wake.content_type, wake.payload_source) == ("application/json", "webhook")


def test_it_fires_with_a_slash_at_the_end(hook: Hook) -> None:
    assert hook.post(path=hook.path + "/").status_code == 202


def test_it_fires_on_every_post_without_a_delivery_id(hook: Hook) -> None:
    assert [hook.post(b"same").status_code for _ in range(3)] == [202, 202, 202]
    assert len(hook.fires()) == 3


def test_it_fires_no_more_often_than_it_may(now: datetime) -> None:
    hook = hooked(now, max_fires=2)

    assert [hook.post().status_code for _ in range(4)] == [202, 202, 404, 404]
    assert len(hook.fires()) == 2
    assert Trigger.objects.get(pk=hook.trigger.pk).status == "completed"


def test_it_has_committed_the_fire_when_it_answers(hook: Hook) -> None:
    """Were anything left to the time after the answer, it would be found here: nothing else runs in this test."""
    hook.post()

    assert hook.wake().status == "pending"


def test_it_takes_a_fires_id_and_secret_together_only(now: datetime) -> None:
    one, other = hooked(now), hooked(now)
    mixed = f"/api/triggers/hook/{one.trigger.pk}/{other.path.rsplit('/', 1)[1]}"

    assert one.post(path=mixed).status_code == 404


# --- one 404 ---------------------------------------------------------------------------------------------------------


def _wrong_secret(hook: Hook, _now: datetime) -> str:
    return f"/api/triggers/hook/{hook.trigger.pk}/rwh_{'x' * 43}"


def _unknown_id(hook: Hook, _now: datetime) -> str:
    return hook.path.replace(str(hook.trigger.pk), str(uuid4()))


def _no_uuid(hook: Hook, _now: datetime) -> str:
    return hook.path.replace(str(hook.trigger.pk), "not-a-uuid")


def _odd_uuid(hook: Hook, _now: datetime) -> str:
    return hook.path.replace(str(hook.trigger.pk), f"urn:uuid:{hook.trigger.pk}")


def _non_ascii_secret(hook: Hook, _now: datetime) -> str:
    return f"/api/triggers/hook/{hook.trigger.pk}/%C3%A9%E2%98%95"


def _broken_utf8_secret(hook: Hook, _now: datetime) -> str:
    return f"/api/triggers/hook/{hook.trigger.pk}/%ff%fe%00"


def _non_ascii_id(hook: Hook, _now: datetime) -> str:
    return hook.path.replace(str(hook.trigger.pk), "%C3%A9")


def _empty_secret(hook: Hook, _now: datetime) -> str:
    return f"/api/triggers/hook/{hook.trigger.pk}/"


def _nul_id(hook: Hook, _now: datetime) -> str:
    return hook.path.replace(str(hook.trigger.pk), "%00")


def _more_after_the_secret(hook: Hook, _now: datetime) -> str:
    return f"{hook.path}/more"


def _another_kind(hook: Hook, now: datetime) -> str:
    other = factories.armed_session(now, "time.cron", args={"cron": "0 9 * * *"})
    return hook.path.replace(str(hook.trigger.pk), str(other.pk))


def _paused(hook: Hook, now: datetime) -> str:
    services.pause(hook.trigger.pk, by="test", now=now)
    return hook.path


def _cancelled(hook: Hook, now: datetime) -> str:
    services.cancel(hook.trigger.pk, by="test", now=now)
    return hook.path


def _completed(hook: Hook, now: datetime) -> str:
    Trigger.objects.filter(pk=hook.trigger.pk).update(status="completed")
    return hook.path


def _expired_and_not_yet_swept(hook: Hook, now: datetime) -> str:
    Trigger.objects.filter(pk=hook.trigger.pk).update(expires_at=now - timedelta(seconds=1))
    return hook.path


def _expired(hook: Hook, now: datetime) -> str:
    _expired_and_not_yet_swept(hook, now)
    engine.tick(now=now)
    return hook.path


def _terminated(hook: Hook, now: datetime) -> str:
    session_services.terminate(hook.trigger.session_id, now=now)
    return hook.path


def _unreadable(hook: Hook, now: datetime) -> str:
    Trigger.objects.filter(pk=hook.trigger.pk).update(secrets="gAAAA written with a key that is gone")
    return hook.path


WRONG = [
    _wrong_secret,
    _unknown_id,
    _no_uuid,
    _odd_uuid,
    _non_ascii_secret,
    _broken_utf8_secret,
    _non_ascii_id,
    _empty_secret,
    _nul_id,
    _more_after_the_secret,
    _another_kind,
    _paused,
    _cancelled,
    _completed,
    _expired_and_not_yet_swept,
    _expired,
    _terminated,
    _unreadable,
]
THE_404 = {"error": {"code": "not_found", "reason": "there is nothing to wake here", "retryable": False}}


def _is_the_404(response: Any) -> bool:
    return (response.status_code, response.json()) == (404, THE_404)


@pytest.mark.parametrize("make_wrong", WRONG, ids=lambda make: make.__name__)
@pytest.mark.parametrize("fields", [{}, SIGNED], ids=["unsigned", "signed"])
def test_it_answers_whatever_is_wrong_alike(
    make_wrong: Callable[[Hook, datetime], str], fields: dict[str, Any], now: datetime
) -> None:
    hook = hooked(now, **fields)
    usual = Client().post(f"/api/triggers/hook/{uuid4()}/x", b"{}", content_type="application/json")
    path = make_wrong(hook, now)
    before = everything_stored(hook.trigger)

    response = hook.post(path=path, X_Hub_Signature_256=hook.signature(b"{}"))

    assert _is_the_404(response)
    assert response.items() == usual.items()
    assert response.content == usual.content
    assert everything_stored(hook.trigger) == before


@pytest.mark.parametrize("header", ["sha256=" + "0" * 64, "", "sha256=\xe9", "x"])
def test_it_answers_a_wrong_signature_with_the_same_404(header: str, signed: Hook) -> None:
    before = everything_stored(signed.trigger)

    response = signed.post(X_Hub_Signature_256=header)

    assert _is_the_404(response)
    assert everything_stored(signed.trigger) == before


def test_it_answers_a_missing_signature_with_the_same_404(signed: Hook) -> None:
    assert _is_the_404(signed.post())


def test_it_answers_the_same_404_while_triggers_are_disabled(hook: Hook, settings: Any) -> None:
    hook.post(X_GitHub_Delivery="known")
    settings.TRIGGERS_ENABLED = False

    assert _is_the_404(hook.post())
    assert _is_the_404(hook.post(X_GitHub_Delivery="known"))


@pytest.mark.parametrize("make_wrong", WRONG, ids=lambda make: make.__name__)
def test_it_does_the_same_work_whatever_is_wrong(
    make_wrong: Callable[[Hook, datetime], str],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: Any,
) -> None:
    """Counted, not timed: one row with one delivery, one token, one comparison, one signature."""
    hook = hooked(now, **SIGNED)
    path = make_wrong(hook, now)
    done: list[str] = []
    for name in ("decrypt", "compare_digest", "verify"):
        _count(monkeypatch, name, done)

    with django_assert_num_queries(1):
        response = hook.post(path=path, X_Hub_Signature_256=hook.signature(b"{}"), X_GitHub_Delivery="1")

    assert response.status_code == 404
    decrypted = 2 if make_wrong is _unreadable else 1
    assert sorted(done) == ["compare_digest", *["decrypt"] * decrypted, "verify"]


def _count(monkeypatch: pytest.MonkeyPatch, name: str, done: list[str]) -> None:
    real = getattr(posts, name)

    def counting(*args: object) -> object:
        done.append(name)
        return real(*args)

    monkeypatch.setattr(posts, name, counting)


def test_it_reads_the_body_before_it_looks_at_the_url(
    monkeypatch: pytest.MonkeyPatch, hook: Hook, now: datetime
) -> None:
    read = Mock(return_value=b"x")
    monkeypatch.setattr(hooks, "read_body", read)

    hook.post(b"x" * 1000, path=_wrong_secret(hook, now))

    read.assert_called_once()


def test_it_asks_to_try_again_when_the_database_fails(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    def fail(*args: object, **more: object) -> None:
        raise OperationalError("password=hunter2")

    monkeypatch.setattr("triggers.engine.fire_all", fail)

    response = hook.post()

    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert b"hunter2" not in response.content


# --- signatures ------------------------------------------------------------------------------------------------------


def test_it_fires_on_a_signed_post(signed: Hook) -> None:
    assert signed.post(b"caf\xe9 \x00", X_Hub_Signature_256=signed.signature(b"caf\xe9 \x00")).status_code == 202


def test_it_does_not_take_the_urls_secret_for_the_signing_secret(signed: Hook) -> None:
    url_secret = signed.path.rsplit("/", 1)[1]
    forged = hmac.new(url_secret.encode(), b"{}", hashlib.sha256).hexdigest()

    assert signed.post(X_Hub_Signature_256=forged).status_code == 404


def _standard(hook: Hook, now: datetime, identity: str) -> dict[str, Any]:
    key = base64.b64decode(hook.signing.removeprefix("whsec_"))
    timestamp = str(int(now.timestamp()))
    right = hmac.new(key, f"{identity}.{timestamp}.{{}}".encode(), hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(right).decode()}"
    return {"webhook_id": identity, "webhook_timestamp": timestamp, "webhook_signature": signature}


def test_it_fires_on_a_standard_webhook(now: datetime) -> None:
    hook = hooked(now, args={"hmac_header": "webhook-signature"})

    assert hook.post(**_standard(hook, now, "msg_1")).status_code == 202
    assert hook.post(**_standard(hook, now, "msg_1")).status_code == 202
    assert [fire.occurrence for fire in hook.fires()] == ["msg_1"]


def test_it_does_not_let_an_unsigned_id_replay_a_standard_webhook(now: datetime) -> None:
    hook = hooked(now, args={"hmac_header": "Webhook-Signature"})
    hook.post(**_standard(hook, now, "msg_1"))

    assert hook.post(**_standard(hook, now, "msg_1"), X_GitHub_Delivery="another").status_code == 202
    assert len(hook.fires()) == 1


def test_it_refuses_an_old_standard_webhook(now: datetime) -> None:
    hook = hooked(now, args={"hmac_header": "webhook-signature"})

    assert hook.post(**_standard(hook, now - timedelta(minutes=10), "msg_1")).status_code == 404


# --- sizes -----------------------------------------------------------------------------------------------------------


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


def test_it_tells_the_session_that_a_payload_was_cut(hook: Hook, settings: Any, now: datetime) -> None:
    settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = 10
    hook.post(b"0123456789ab")

    [begun] = turns.begin([hook.trigger.session_id], worker="test", now=now)

    assert "only the first 10 of 12 bytes were kept" in begun.prompt


def test_it_refuses_a_body_that_is_too_large_whatever_the_url(
    hook: Hook, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "BODY_MAX_BYTES", 100)

    right, wrong = hook.post(b"x" * 101), hook.post(b"x" * 101, path=_wrong_secret(hook, now))

    assert (right.status_code, right.content) == (413, wrong.content)
    assert right.items() == wrong.items()
    assert hook.fires() == []
    assert hook.post(b"x" * 100).status_code == 202


def test_it_takes_25_mebibytes() -> None:
    assert hooks.BODY_MAX_BYTES == 25 * 1024 * 1024


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
