"""What every REST route shares: keys and scopes, the error envelope, JSON bodies."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from sessions import keys
from sessions.guesses import GUESSES_A_MINUTE
from sessions.models import AgentSession
from tests.doors import Caller, error_of, key_with

pytestmark = pytest.mark.django_db
SESSIONS = "/api/sessions"


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [lambda key: {"Authorization": f"Bearer {key}"}, lambda key: {"X-API-KEY": key}])
def test_it_takes_a_key_in_either_header(write: Any, admin: Caller) -> None:
    assert Client(headers=write(admin.secret)).get(SESSIONS).status_code == 200


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
def test_it_takes_the_bearer_scheme_as_people_write_it(scheme: str, admin: Caller) -> None:
    assert Client(headers={"Authorization": f"{scheme} {admin.secret}"}).get(SESSIONS).status_code == 200


def test_it_takes_the_other_header_where_a_proxy_has_taken_the_first(admin: Caller) -> None:
    headers = {"Authorization": "Basic b3BzOm9wcw==", "X-API-KEY": str(admin.secret)}

    assert Client(headers=headers).get(SESSIONS).status_code == 200


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer  "}, {"X-API-KEY": " "}]
)
def test_it_says_that_a_key_is_missing(headers: dict[str, str]) -> None:
    response = Client(headers=headers).get(SESSIONS)

    assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="rewake"')
    assert error_of(response)["code"] == "unauthorized"
    assert "Authorization: Bearer" in error_of(response)["reason"]


@pytest.mark.parametrize("secret", ["rwk_wrong", "\xe9", "x" * 10000, "a b", "' OR 1=1", "%00"])
def test_it_says_that_a_key_is_wrong(secret: str) -> None:
    response = Client(headers={"Authorization": f"Bearer {secret}"}).get(SESSIONS)

    assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="rewake"')
    assert error_of(response)["reason"] == "this API key is not known"


def test_it_says_that_a_key_has_been_revoked() -> None:
    row, secret = keys.create(name="old", scopes=["admin"], now=timezone.now())  # noqa: TID251
    keys.revoke(row.pk, now=timezone.now())  # noqa: TID251

    response = Caller(secret).get(SESSIONS)

    assert (response.status_code, error_of(response)["reason"]) == (401, "this API key has been revoked")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/api/sessions", "sessions.read"),
        ("HEAD", "/api/sessions", "sessions.read"),
        ("POST", "/api/sessions", "sessions.write"),
        ("GET", "/api/triggers", "triggers.read"),
        ("DELETE", "/api/triggers/019acf2e-7c40-7abc-8def-0123456789ab", "triggers.manage"),
        ("GET", "/api/keys", "admin"),
        ("POST", "/api/keys", "admin"),
    ],
)
def test_it_names_the_scope_that_a_key_lacks(method: str, path: str, scope: str) -> None:
    others = {"sessions.read", "sessions.write", "triggers.read", "triggers.manage"} - {scope}

    response = key_with(*others).send(method, path, None)

    assert response.status_code == 403
    if method != "HEAD":
        assert error_of(response) == {
            "code": "forbidden",
            "reason": f"this API key lacks the scope {scope}",
            "retryable": False,
        }


def test_it_lets_in_who_has_just_the_scope() -> None:
    assert key_with("sessions.read").get(SESSIONS).status_code == 200
    assert key_with("sessions.write").post(SESSIONS).status_code == 201


# --- wrong keys are slowed -------------------------------------------------------------------------------------------


def test_it_asks_who_goes_on_with_wrong_keys_to_wait() -> None:
    guesses = [Caller(f"rwk_{number}").get(SESSIONS) for number in range(GUESSES_A_MINUTE + 1)]

    assert {guess.status_code for guess in guesses[:-1]} == {401}
    assert guesses[-1].status_code == 429
    assert 0 < int(guesses[-1]["Retry-After"]) <= 60
    assert error_of(guesses[-1]) == {
        "code": "throttled",
        "reason": "too many wrong keys from this address",
        "retryable": True,
    }


def test_it_never_holds_up_a_key_that_is_right(admin: Caller) -> None:
    for number in range(GUESSES_A_MINUTE * 3):
        Caller(f"rwk_{number}").get(SESSIONS)

    assert admin.get(SESSIONS).status_code == 200


def test_it_does_not_count_a_missing_key_as_a_guess(stranger: Caller) -> None:
    for _ in range(GUESSES_A_MINUTE * 2):
        assert stranger.get(SESSIONS).status_code == 401


def test_it_counts_wrong_turn_tokens_too() -> None:
    path = "/api/turns/019acf2e-7c40-7abc-8def-0123456789ab/tools/schedule_trigger"

    answers = [Caller("rwt_wrong").post(path, {}) for _ in range(GUESSES_A_MINUTE + 1)]

    assert answers[-1].status_code == 429


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/nothing", "/api", "/api/sessions/no-uuid", "/api/sessions/", "/api/%ff"])
def test_it_answers_an_unknown_path_as_json(path: str, admin: Caller) -> None:
    response = admin.get(path)

    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE", "DELETE", "PATCH"])
def test_it_answers_a_method_that_a_route_does_not_have(method: str, admin: Caller) -> None:
    response = admin.send(method, SESSIONS, None)

    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD, POST")
    assert error_of(response)["code"] == "method_not_allowed"


def test_it_answers_a_failure_of_its_own_as_json(admin: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.selectors.views", Mock(side_effect=RuntimeError("the secret is hunter2")))
    admin.client.raise_request_exception = False

    response = admin.get(SESSIONS)

    assert (response.status_code, error_of(response)["code"]) == (500, "server_error")
    assert b"hunter2" not in response.content


def test_it_asks_to_try_again_when_the_database_fails(admin: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.selectors.views", Mock(side_effect=OperationalError("password=hunter2")))

    response = admin.get(SESSIONS)

    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert error_of(response)["retryable"] is True
    assert b"hunter2" not in response.content


def test_it_answers_a_host_that_it_does_not_serve_as_json(admin: Caller) -> None:
    response = admin.get(SESSIONS, Host="evil.example")

    assert (response.status_code, error_of(response)["code"]) == (400, "bad_request")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/json; indent=4", "no", ""])
def test_it_answers_json_whatever_is_asked_for(accept: str, admin: Caller) -> None:
    response = admin.get(SESSIONS, Accept=accept)

    assert (response.status_code, response["Content-Type"]) == (200, "application/json")


def test_it_redirects_the_root_to_the_console(stranger: Caller) -> None:
    assert stranger.get("/")["Location"] == "/console/"


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", ""),
        (b"{}", ""),
        (b"[]", "the body must be a JSON object"),
        (b"null", "the body must be a JSON object"),
        (b"42", "the body must be a JSON object"),
        (b'"x"', "the body must be a JSON object"),
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        ('{"tag":"é"}'.encode("utf-16"), "the body is not JSON"),
        (b'{"tag":NaN}', "the body is not JSON: NaN is no JSON number"),
        (b'{"tag":-Infinity}', "the body is not JSON: -Infinity is no JSON number"),
        (b'{"tag":1e999}', "the body is not JSON: the number 1e999 is too large"),
        (b'{"tag":' + b"9" * 5000 + b"}", "the body is not JSON"),
        (b'{"tag":' + b"9" * 4000 + b"}", "tag: must be a text"),
        (b"[" * 20000 + b"]" * 20000, "the JSON is nested too deeply"),
        (b'{"tag":' * 20000 + b"1" + b"}" * 20000, "the JSON is nested too deeply"),
        (b"[" * 70 + b"]" * 70, "the JSON is nested too deeply"),
        (b'{"tag":1}', "tag: must be a text"),
        (b'{"tag":true}', "tag: must be a text"),
        (b'{"tag":["x"]}', "tag: must be a text"),
        (b'{"tag":{"x":1}}', "tag: must be a text"),
        (b'{"nope":1}', "nope: is not known here; what is known: tag, title, adapter, model"),
        (b'{"\\ud800":1}', "\ufffd: is not known here"),
        (b'{"a\\u0000b":1}', "a\ufffdb: is not known here"),
        (b'{"rwk_0123456789abcdef":1}', "rwk_***: is not known here"),
        (b'{"' + b"x" * 5000 + b'":1}', "x" * 1000),
    ],
)
def test_it_reads_a_body_strictly(body: bytes, reason: str, admin: Caller) -> None:
    response = admin.post(SESSIONS, body, content_type="application/json")

    assert response.status_code == (400 if reason else 201)
    if reason:
        assert error_of(response)["reason"].startswith(reason)
        assert error_of(response)["code"] in ("bad_request", "validation")


def test_it_names_each_field_that_is_wrong(admin: Caller) -> None:
    response = admin.post(SESSIONS, {"tag": 1, "title": "x" * 201})

    assert error_of(response)["fields"] == {
        "tag": "must be a text",
        "title": "Ensure this field has no more than 200 characters.",
    }


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "😀", "\u202e", "a\r\n b"])
def test_it_keeps_any_text_that_a_database_can_store(text: str, admin: Caller) -> None:
    response = admin.post(SESSIONS, {"title": text})

    kept = text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
    assert (response.status_code, response.json()["title"]) == (201, kept)
    assert AgentSession.objects.get().title == kept


@pytest.mark.parametrize(
    "type_", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_it_takes_json_only(type_: str, admin: Caller) -> None:
    response = admin.post(SESSIONS, b"tag=x", content_type=type_)

    assert (response.status_code, error_of(response)["code"]) == (415, "unsupported_media_type")


def test_it_bounds_a_body(admin: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.api.BODY_MAX_BYTES", 100)

    response = admin.post(SESSIONS, {"title": "x" * 100})

    assert (response.status_code, error_of(response)["code"]) == (413, "too_large")


def test_it_bounds_a_body_that_is_too_large_for_django(admin: Caller, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100

    response = admin.post(SESSIONS, {"title": "x" * 100})

    assert (response.status_code, error_of(response)["code"]) == (413, "too_large")


def test_it_does_not_take_a_chunked_body_for_an_empty_one(admin: Caller) -> None:
    response = admin.post(SESSIONS, Transfer_Encoding="chunked")

    assert (response.status_code, error_of(response)["code"]) == (411, "length_required")


@pytest.mark.parametrize("path", [SESSIONS, "/api/triggers/hook/x/y", "/api/nothing", "/metrics", "/api/schema"])
def test_it_tells_browsers_to_be_careful(path: str, admin: Caller) -> None:
    response = admin.get(path)

    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"
    assert response["Cross-Origin-Opener-Policy"] == "same-origin"


def test_it_keeps_answers_out_of_caches(admin: Caller, stranger: Caller) -> None:
    session_id = admin.post(SESSIONS).json()["id"]
    answers = [
        admin.get(SESSIONS),
        admin.post("/api/keys", {"name": "x", "scopes": ["admin"]}),
        admin.get(f"{SESSIONS}/{session_id}/events"),
        stranger.get(SESSIONS),
    ]

    assert [answer["Cache-Control"] for answer in answers] == ["no-store"] * 4
