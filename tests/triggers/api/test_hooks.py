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
from sessions.api import bodies
from tests import factories
from tests.triggers.api.posting import Hook, everything_stored, hooked
from triggers import engine, posts, services, signatures
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
    """Counted, not timed: one row with one delivery, one token, one comparison, one signature of all that came."""
    hook = hooked(now, **SIGNED)
    path = make_wrong(hook, now)
    done: list[str] = []
    for name in ("decrypt", "compare_digest", "Verifier"):
        _count(monkeypatch, name, done)

    with django_assert_num_queries(1):
        response = hook.post(path=path, X_Hub_Signature_256=hook.signature(b"{}"), X_GitHub_Delivery="1")

    assert response.status_code == 404
    decrypted = 2 if make_wrong is _unreadable else 1
    assert sorted(done) == ["Verifier", "compare_digest", *["decrypt"] * decrypted]


def _count(monkeypatch: pytest.MonkeyPatch, name: str, done: list[str]) -> None:
    real = getattr(posts, name)

    def counting(*args: object) -> object:
        done.append(name)
        return real(*args)

    monkeypatch.setattr(posts, name, counting)


@pytest.mark.parametrize("make_wrong", [*WRONG, lambda hook, _now: hook.path])
@pytest.mark.parametrize("fields", [{}, SIGNED], ids=["unsigned", "signed"])
def test_it_signs_the_whole_body_once_whatever_the_url(
    make_wrong: Callable[[Hook, datetime], str],
    fields: dict[str, Any],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = hooked(now, **fields)
    path = make_wrong(hook, now)
    macs = _count_macs(monkeypatch)
    monkeypatch.setattr(bodies, "CHUNK_BYTES", 4)

    hook.post(b"all of it", path=path)

    [mac] = macs
    assert [call.args for call in mac.update.call_args_list] == [(b"all ",), (b"of i",), (b"t",)]


def test_it_does_not_tell_a_wrong_secret_by_the_work_of_a_standard_webhook(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = hooked(now, args={"hmac_header": "webhook-signature"})
    macs = _count_macs(monkeypatch)

    for make_wrong in (_wrong_secret, _unknown_id):
        hook.post(path=make_wrong(hook, now), **_standard(hook, now, "msg_1"))

    assert len(macs) == 2


def _count_macs(monkeypatch: pytest.MonkeyPatch) -> list[Mock]:
    macs: list[Mock] = []

    def counting(*args: Any, **more: Any) -> Mock:
        macs.append(Mock(wraps=hmac.new(*args, **more)))
        return macs[-1]

    monkeypatch.setattr(signatures, "new", counting)
    return macs


def test_it_asks_to_try_again_when_the_database_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    monkeypatch.setattr(posts, "_find", Mock(side_effect=OperationalError("password=hunter2")))

    response = hook.post()

    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert b"hunter2" not in response.content


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
