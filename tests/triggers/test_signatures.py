"""Signatures of webhooks, over the bytes that were sent."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import digest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.signatures import Verifier

HEADER = "X-Hub-Signature-256"
SECRET = "s3cret"
BODY = b'{"a": 1}'


def _right(secret: str = SECRET, body: bytes = BODY) -> bytes:
    return digest(secret.encode(), body, sha256)


def _verify(secret: str, headers: dict[str, str], body: bytes, header_name: str, *, now: datetime) -> bool:
    verifier = Verifier(secret, headers, header_name)
    verifier.update(body)
    return verifier.right(now)


def _holds(value: str, now: datetime, body: bytes = BODY, secret: str = SECRET) -> bool:
    return _verify(secret, {HEADER.lower(): value}, body, HEADER, now=now)


ROW_27 = {
    "a": (
        "It's a Secret to Everybody",
        b"Hello, World!",
        "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    ),
    "b": (SECRET, '{"t":"café ☕"}'.encode(), "6a81eb812e7e001801243fae173ecdc1b8bf3dd1e90a09f84c48bb455a1da65c"),
    "c": (SECRET, b'{"t":"caf\\u00e9 \\u2615"}', "08e3073b894b619a65c40baeba3085b747814a007817c4c53ae7dd961d315932"),
}


@pytest.mark.parametrize("case", ROW_27.values(), ids=ROW_27.keys())
def test_row_27_it_signs_the_bytes_that_were_sent(case: tuple[str, bytes, str], now: datetime) -> None:
    secret, body, signature = case

    assert _holds(f"sha256={signature}", now, body, secret)


def test_row_27_it_tells_two_spellings_of_one_text_apart(now: datetime) -> None:
    assert not _holds(f"sha256={ROW_27['b'][2]}", now, ROW_27["c"][1])


def test_row_28_it_signs_a_form_as_it_stands(now: datetime) -> None:
    signature = "74a6a4e35303aaf4f6822b64a1c6103aeae877120e977aa6f4ad1901346e6f3e"

    assert _holds(f"sha256={signature}", now, b"payload=%7B%22a%22%3A1%7D")


@pytest.mark.parametrize(
    "value", ["sha256=\xe9", "\xe9", "sha256=", "sha256=\u2615", "", "=", "sha256=" + "0" * 64, "\x00", "v1,\xe9"]
)
def test_row_29_it_refuses_what_is_no_signature(value: str, now: datetime) -> None:
    assert not _holds(value, now)


def test_row_29_it_refuses_when_the_header_is_absent(now: datetime) -> None:
    assert not _verify(SECRET, {"x-other": _right().hex()}, BODY, HEADER, now=now)


@pytest.mark.parametrize(
    "write",
    [
        lambda right: right.hex(),
        lambda right: right.hex().upper(),
        lambda right: f"sha256={right.hex()}",
        lambda right: f"SHA256={right.hex().upper()}",
        lambda right: f"  sha256={right.hex()} ",
        lambda right: base64.b64encode(right).decode(),
        lambda right: f"sha256={base64.b64encode(right).decode()}",
        lambda right: base64.b64encode(right).decode().rstrip("="),
    ],
    ids=["hex", "HEX", "sha256=hex", "SHA256=HEX", "blanks", "base64", "sha256=base64", "unpadded"],
)
def test_it_takes_a_signature_in_each_usual_form(write: object, now: datetime) -> None:
    assert callable(write)
    assert _holds(write(_right()), now)


@pytest.mark.parametrize("name", ["x-hub-signature-256", "X-HUB-SIGNATURE-256"])
def test_it_does_not_mind_the_case_of_a_headers_name(name: str, now: datetime) -> None:
    assert _verify(SECRET, {HEADER.lower(): _right().hex()}, BODY, name, now=now)


def test_it_does_not_take_base64_in_another_case(now: datetime) -> None:
    assert not _holds(base64.b64encode(_right()).decode().swapcase(), now)


@given(body=st.binary(max_size=200), other=st.binary(max_size=200))
def test_it_takes_a_signature_for_its_own_body_only(body: bytes, other: bytes) -> None:
    now = datetime.fromisoformat("2026-12-01T09:00:00Z")

    assert _holds(_right(body=body).hex(), now, body)
    assert _holds(_right(body=body).hex(), now, other) == (body == other)


@given(chunks=st.lists(st.binary(max_size=200)))
def test_it_takes_a_signature_of_the_chunks_together(chunks: list[bytes]) -> None:
    right = _right(body=b"".join(chunks)).hex()
    verifier = Verifier(SECRET, {HEADER.lower(): right}, HEADER)

    for chunk in chunks:
        verifier.update(chunk)

    assert verifier.right(datetime.fromisoformat("2026-12-01T09:00:00Z"))


@given(value=st.text(max_size=100))
def test_it_refuses_any_text_without_an_error(value: str) -> None:
    now = datetime.fromisoformat("2026-12-01T09:00:00Z")

    assert not _verify(SECRET, {"webhook-signature": value, "webhook-id": value}, BODY, "webhook-signature", now=now)


# --- Standard Webhooks -----------------------------------------------------------------------------------------------

KEY = b"standard webhooks, 32 bytes long"
WHSEC = "whsec_" + base64.b64encode(KEY).decode()


def _standard(now: datetime, *, key: bytes = KEY, at: datetime | None = None, **changes: Any) -> dict[str, str]:
    timestamp = str(int((at or now).timestamp()))
    right = base64.b64encode(digest(key, f"msg_1.{timestamp}.".encode() + BODY, sha256)).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": timestamp, "webhook-signature": f"v1,{right}"}
    return {name: value for name, value in (headers | changes).items() if value != "absent"}


def _signed(value: str) -> dict[str, Any]:
    return {"webhook-signature": value}


def _is_standard(headers: dict[str, str], now: datetime, secret: str = WHSEC) -> bool:
    return _verify(secret, headers, BODY, "Webhook-Signature", now=now)


def test_it_takes_the_specifications_own_example(now: datetime) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    at = datetime.fromtimestamp(1614265330, tz=now.tzinfo)

    assert _verify(secret, headers, b'{"test": 2432232314}', "webhook-signature", now=at)


def test_it_takes_a_standard_signature_whose_key_is_the_text_of_the_secret(now: datetime) -> None:
    assert _is_standard(_standard(now, key=b"rws_text"), now, "rws_text")


def test_it_takes_a_standard_signature_of_the_chunks_together(now: datetime) -> None:
    verifier = Verifier(WHSEC, _standard(now), "webhook-signature")

    for byte in BODY:
        verifier.update(bytes([byte]))

    assert verifier.right(now)


def test_it_takes_one_right_signature_among_several(now: datetime) -> None:
    right = _standard(now)["webhook-signature"]

    assert _is_standard(_standard(now, **_signed(f"v1,AAAA v1a,BBBB {right}")), now)


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_it_takes_a_standard_signature_within_its_tolerance(seconds: int, now: datetime) -> None:
    assert _is_standard(_standard(now, at=now + timedelta(seconds=seconds)), now)


@pytest.mark.parametrize("seconds", [-301, 301, 86400])
def test_it_refuses_a_standard_signature_past_its_tolerance(seconds: int, now: datetime) -> None:
    assert not _is_standard(_standard(now, at=now + timedelta(seconds=seconds)), now)


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook-id": "msg_2"},
        {"webhook-id": "absent"},
        {"webhook-timestamp": "absent"},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "１６１４２６５３３０"},
        {"webhook-signature": "absent"},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1"},
    ],
    ids=str,
)
def test_it_refuses_a_standard_signature_that_lacks_a_part(changes: dict[str, Any], now: datetime) -> None:
    assert not _is_standard(_standard(now, **changes), now)


def test_it_refuses_a_right_signature_of_another_version(now: datetime) -> None:
    right = _standard(now)["webhook-signature"]

    assert not _is_standard(_standard(now, **_signed(right.replace("v1,", "v2,"))), now)


def test_it_takes_a_standard_signature_under_its_own_header_only(now: datetime) -> None:
    headers = _standard(now)
    headers["x-sig"] = headers["webhook-signature"]

    assert not _verify(WHSEC, headers, BODY, "X-Sig", now=now)


def test_it_does_not_fail_over_a_secret_that_is_no_base64(now: datetime) -> None:
    assert not _is_standard(_standard(now), now, "whsec_???")
