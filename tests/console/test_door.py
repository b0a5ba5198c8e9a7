"""Who may enter the console, and what every page of it forbids the browser."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, reverse

from console import urls
from sessions.guesses import GUESSES_A_MINUTE
from sessions.models import AgentSession, Wake
from tests.console.pages import at, fragment, is_page, text
from tests.factories import armed_session

if TYPE_CHECKING:
    from tests.console.pages import Answer

_PUBLIC = {"login", "logout"}
_GUARDED = [route for route in urls.urlpatterns if route.name not in _PUBLIC]


def _path(route: URLPattern) -> str:
    names = re.findall(r"<uuid:(\w+)>", str(route.pattern))
    return reverse(f"console:{route.name}", kwargs={name: uuid4() for name in names})


@pytest.mark.django_db
@pytest.mark.parametrize("route", _GUARDED, ids=lambda route: route.name)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_it_asks_a_stranger_to_log_in(route: URLPattern, method: str) -> None:
    answer = Client().generic(method, _path(route))

    assert answer.status_code == 302
    assert answer["Location"].startswith("/console/login/?next=/console/")
    assert answer["Content-Security-Policy"]


@pytest.mark.django_db
@pytest.mark.parametrize("route", _GUARDED, ids=lambda route: route.name)
def test_it_refuses_a_user_who_is_not_staff(route: URLPattern) -> None:
    client = Client()
    client.force_login(User.objects.create_user("guest"))

    assert client.get(_path(route))["Location"].startswith("/console/login/")


@pytest.mark.django_db
def test_it_sends_a_stranger_on_to_the_page_that_was_asked_for() -> None:
    answer = Client().get("/console/?status=armed")

    assert answer["Location"] == "/console/login/?next=/console/%3Fstatus%3Darmed"


@pytest.mark.django_db
def test_it_sends_a_live_page_to_the_login_when_its_user_is_gone() -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/console/?status=armed"}

    answer = Client().get("/console/", headers=headers)

    assert answer.status_code == 200
    assert answer["HX-Redirect"] == "/console/login/?next=/console/%3Fstatus%3Darmed"
    assert answer.content == b""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("target", "landed"),
    [
        ("/console/sessions/", "/console/sessions/"),
        ("", "/console/"),
        ("https://elsewhere.example/", "/console/"),
        ("//elsewhere.example/", "/console/"),
        ("javascript:alert(1)", "/console/"),
    ],
)
def test_it_logs_staff_in_and_leads_nowhere_else(target: str, landed: str) -> None:
    User.objects.create_user("admin", password="correct horse", is_staff=True)

    answer = Client().post(at("login"), {"username": "admin", "password": "correct horse", "next": target})

    assert (answer.status_code, answer["Location"]) == (302, landed)


@pytest.mark.django_db
def test_it_tells_a_user_who_is_not_staff_no_more_than_a_wrong_password() -> None:
    User.objects.create_user("guest", password="correct horse")
    User.objects.create_user("admin", password="correct horse", is_staff=True)

    guest = Client().post(at("login"), {"username": "guest", "password": "correct horse"})
    wrong = Client().post(at("login"), {"username": "admin", "password": "wrong"})

    alert = re.compile(r'role="alert">([^<]+)<')
    assert guest.status_code == wrong.status_code == 200
    assert alert.findall(text(guest)) == alert.findall(text(wrong)) != []


def _log_in(password: str, address: str = "127.0.0.1") -> Answer:
    return Client(REMOTE_ADDR=address).post(at("login"), {"username": "admin", "password": password, "next": "/x"})


@pytest.mark.django_db
def test_it_looks_at_no_password_while_an_address_that_guesses_must_wait() -> None:
    User.objects.create_user("admin", password="correct horse", is_staff=True)

    guesses = [_log_in("wrong").status_code for _ in range(GUESSES_A_MINUTE)]
    held_up = _log_in("correct horse")

    assert set(guesses) == {200}
    assert held_up.status_code == 429
    assert 0 < int(held_up["Retry-After"]) <= 60
    assert "Too many wrong passwords from this address" in text(held_up)
    assert 'name="next" value="/x"' in text(held_up)
    assert _log_in("correct horse", "192.0.2.7").status_code == 302


@pytest.mark.django_db
def test_it_counts_as_a_guess_only_what_names_a_password() -> None:
    User.objects.create_user("admin", password="correct horse", is_staff=True)

    for _ in range(GUESSES_A_MINUTE * 2):
        _log_in("")
        _log_in("correct horse")

    assert _log_in("wrong").status_code == 200


@pytest.mark.django_db
def test_it_locks_nobody_out_for_wrong_keys_from_the_same_address() -> None:
    User.objects.create_user("admin", password="correct horse", is_staff=True)
    for number in range(GUESSES_A_MINUTE * 2):
        Client(headers={"X-API-KEY": f"rwk_{number}"}).get("/api/sessions")

    assert _log_in("correct horse").status_code == 302


def test_it_logs_out_by_post_only(operator: Client) -> None:
    assert operator.get(at("logout")).status_code == 405

    assert operator.post(at("logout"))["Location"] == at("login")
    assert operator.get(at("triggers")).status_code == 302


def test_it_refuses_a_post_without_the_token_of_its_own_pages(session: AgentSession) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user("admin", is_staff=True))

    assert client.post(at("say", session.pk), {"text": "hello", "key": "1"}).status_code == 403
    assert not Wake.objects.exists()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "name", ["trigger", "pause", "resume", "cancel", "hook", "session", "say", "interrupt", "terminate"]
)
def test_it_has_a_page_for_what_does_not_exist(operator: Client, name: str, method: str) -> None:
    path = at(name, uuid4())

    answer = operator.get(path) if method == "GET" else operator.post(path, {"text": "hello", "key": "1"})

    assert answer.status_code in {404, 405}
    assert answer.status_code == 405 or "there is no" in text(answer)


def test_it_lets_the_browser_run_and_load_only_its_own_files(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    trigger = armed_session(now)
    paths = [
        at("login"),
        at("triggers"),
        at("trigger", trigger.pk),
        at("cancel", trigger.pk),
        at("sessions"),
        at("new_session"),
        at("session", session.pk),
        at("terminate", session.pk),
    ]

    for answer in [*(operator.get(path) for path in paths), fragment(operator, at("triggers"))]:
        page = answer.content.decode()
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in answer["Content-Security-Policy"]
        assert "no-store" in answer["Cache-Control"]
        assert "HX-Request" in answer["Vary"]
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


def test_it_answers_htmx_with_a_fragment_and_anyone_else_with_a_page(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    paths = [at("triggers"), at("trigger", armed_session(now).pk), at("sessions"), at("session", session.pk)]

    assert all(is_page(operator.get(path)) for path in paths)
    assert not any(is_page(fragment(operator, path)) for path in paths)
