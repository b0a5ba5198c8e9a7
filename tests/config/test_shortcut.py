"""Capability URLs pass by what only pages need, and by nothing that guards."""

from __future__ import annotations

from datetime import datetime
from unittest.mock import patch

import pytest
from django.contrib.sessions.middleware import SessionMiddleware
from django.test import Client

from sessions.secrecy import decrypt
from tests.factories import armed_session
from triggers import services

pytestmark = pytest.mark.django_db

NOWHERE = "/api/triggers/hook/01a22fc1-57cf-738a-8a64-8003859d54a1/rwh_wrong"


@pytest.mark.parametrize("path", [NOWHERE, "/api/triggers/hook/a/b/c/", "/api/triggers/hook/a/%0A"])
def test_they_open_no_browser_session(client: Client, path: str) -> None:
    with patch.object(SessionMiddleware, "process_request", side_effect=KeyError("asked")):
        assert client.post(path).status_code == 404


def test_other_paths_do(client: Client) -> None:
    with patch.object(SessionMiddleware, "process_request", side_effect=KeyError("asked")), pytest.raises(KeyError):
        client.post("/api/triggers/hook")


def test_their_answers_have_the_headers_of_all_others(client: Client, now: datetime) -> None:
    trigger = armed_session(now)
    right = services.hook_url(trigger, decrypt(trigger.secrets)).split("/", 3)[3]

    for path, status in ((NOWHERE, 404), (f"/{right}", 202)):
        answer = client.post(path, data=b"{}", content_type="application/json")
        other = client.get("/healthz")
        guards = ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy")
        assert answer.status_code == status
        assert {name: answer.get(name) for name in guards} == {name: other.get(name) for name in guards}
        assert int(answer["Content-Length"]) == len(answer.content)


def test_a_host_that_is_not_ours_is_refused_there_too(client: Client) -> None:
    assert client.post(NOWHERE, headers={"host": "evil.example"}).status_code == 400
