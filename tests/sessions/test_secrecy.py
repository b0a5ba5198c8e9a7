"""Secrets: made, kept, and masked wherever text leaves."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from sessions import ids, secrecy

KEYS = [Fernet.generate_key().decode() for _ in range(2)]


@pytest.mark.parametrize("prefix", [secrecy.KEY, secrecy.HOOK, secrecy.SIGNING, secrecy.TURN])
def test_it_makes_secrets_of_256_bits_that_tell_what_they_are(prefix: str) -> None:
    one, other = secrecy.mint(prefix), secrecy.mint(prefix)

    assert one.startswith(f"{prefix}_")
    assert len(base64.urlsafe_b64decode(one.partition("_")[2] + "=")) == 32
    assert one != other


def test_it_makes_a_secret_that_standard_webhooks_can_read() -> None:
    assert len(base64.b64decode(secrecy.mint_standard().removeprefix("whsec_"), validate=True)) == 32


def test_it_reads_what_an_older_key_wrote(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = KEYS[:1]
    token = secrecy.encrypt({"url": "x"})
    settings.ENCRYPTION_KEYS = KEYS[::-1]

    assert secrecy.decrypt(token) == {"url": "x"}


def test_it_says_that_it_cannot_read_what_an_unknown_key_wrote(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = KEYS[:1]
    token = secrecy.encrypt("x")
    settings.ENCRYPTION_KEYS = KEYS[1:]

    with pytest.raises(secrecy.Unreadable, match="ENCRYPTION_KEYS"):
        secrecy.decrypt(token)


SECRETS = [*(secrecy.mint(prefix) for prefix in ("rwk", "rwh", "rws", "rwt")), secrecy.mint_standard()]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:4])
@pytest.mark.parametrize("around", ["{}", "at /x/{}/", '"{}",', "a%2F{}%22", "={}&", "<{}>", "é{}"])
def test_it_masks_a_secret_wherever_it_stands(secret: str, around: str) -> None:
    masked = secrecy.mask({"a": [around.format(secret), (around.format(secret),)]})

    prefix = secret.partition("_")[0]
    if prefix != "whsec" or around.endswith(("}", ",", "&", ">")):  # / and % may be part of base64 itself
        assert masked == {"a": [around.format(f"{prefix}_***"), [around.format(f"{prefix}_***")]]}
    assert secret.partition("_")[2][:20] not in str(masked)


@pytest.mark.parametrize(
    "text", ["", "rwk", "rwk_short", "forwk_ards_and_backwards", "overwhelming_results_here", "hook"]
)
def test_it_leaves_what_is_no_secret(text: str) -> None:
    assert secrecy.mask(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Not Found: /api/triggers/hook/a/b", "Not Found: /api/triggers/hook/***"),
        ("Not Found: /api/triggers/hook/a/b c\nd", "Not Found: /api/triggers/hook/***"),
        ("Not Found: //API/Triggers/Hook/a/b", "Not Found: //API/Triggers/Hook/***"),
        ('"POST /api/triggers/hook/a/b%20c HTTP/1.1" 404 12', '"POST /api/triggers/hook/*** HTTP/1.1" 404 12'),
        ("GET /api/triggers/1/hook-url", "GET /api/triggers/1/hook-url"),
    ],
)
def test_it_leaves_nothing_of_a_capability_url_in_a_log(text: str, left: str) -> None:
    assert secrecy.mask_log(text) == left


class _Request:
    def __str__(self) -> str:
        return f"<WSGIRequest: POST '/api/triggers/hook/x/{SECRETS[1]}'>"


def test_it_masks_every_part_of_a_log_record() -> None:
    extra = {"request": _Request(), "count": 2, "none": None, "fields": {"a": [SECRETS[0]]}}
    record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f.py", 1, "at %s", (SECRETS[2],), None, extra=extra)
    record.exc_text = f"Traceback\n  at {SECRETS[3]}\n/api/triggers/hook/x/hunter2\nValueError"

    assert secrecy.MaskSecrets().filter(record)

    assert record.getMessage() == "at rws_***"
    assert record.exc_text == "Traceback\n  at rwt_***\n/api/triggers/hook/***\nValueError"
    shown = vars(record)
    assert shown["request"] == "<WSGIRequest: POST '/api/triggers/hook/***"
    assert (shown["count"], shown["none"], shown["fields"]) == (2, None, {"a": ["rwk_***"]})


def test_it_knows_the_lowest_id_of_an_instant() -> None:
    before = datetime.now(UTC)  # noqa: TID251 (the clock of the ids)
    made = ids.uuid7()

    assert ids.lowest_at(before) <= made < ids.lowest_at(before + timedelta(hours=1))
    assert ids.lowest_at(datetime(1900, 1, 1, tzinfo=UTC)) < made
