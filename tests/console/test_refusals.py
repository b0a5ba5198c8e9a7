"""What people see where there is nothing, or a form cannot be taken."""

from __future__ import annotations

import re
from unittest.mock import Mock
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client

from tests.console.pages import at, is_page, text
from tests.doors import error_of

UNKNOWN = ["/nothing", "/console/nothing/", "/console/triggers/no-uuid/", "/favicon.ico"]


@pytest.mark.django_db
@pytest.mark.parametrize("path", UNKNOWN)
def test_it_has_a_page_of_its_own_for_an_unknown_address(path: str) -> None:
    answer = Client().get(path)

    assert answer.status_code == 404
    assert is_page(answer)
    assert "There is nothing here" in text(answer)
    assert "console/console.css" in text(answer)
    assert "default-src 'none'" in answer["Content-Security-Policy"]


def test_it_keeps_the_way_back_for_who_is_logged_in(operator: Client) -> None:
    answer = operator.get("/console/nothing/")

    assert at("sessions") in text(answer)
    assert "Log out" in text(answer)


@pytest.mark.django_db
def test_it_says_what_to_do_about_a_form_that_is_too_old() -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user("admin", is_staff=True))

    answer = client.post(at("new_session"), {"title": "x"})

    assert answer.status_code == 403
    assert "Nothing has been done" in text(answer)
    assert "reload that page" in text(answer)
    assert "console/console.css" in text(answer)
    assert answer["Content-Security-Policy"]


@pytest.mark.parametrize(("path", "ways"), [(at("pause", UUID(int=1)), "POST"), (at("logout"), "POST, OPTIONS")])
def test_it_has_a_page_for_who_opens_what_only_a_button_does(path: str, ways: str, operator: Client) -> None:
    answer = operator.get(path)

    assert (answer.status_code, answer["Allow"]) == (405, ways)
    assert is_page(answer)
    assert "Nothing has been done" in text(answer)
    assert "default-src 'none'" in answer["Content-Security-Policy"]


@pytest.mark.django_db
def test_it_has_a_page_for_a_host_that_it_does_not_serve() -> None:
    answer = Client().get("/console/", headers={"Host": "evil.example"})

    assert answer.status_code == 400
    assert "a host that is not served here" in text(answer)


def test_it_has_a_page_for_a_fault_of_its_own_even_without_a_database(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.raise_request_exception = False
    monkeypatch.setattr(
        "django.contrib.sessions.backends.db.SessionStore.load", Mock(side_effect=OperationalError("password=hunter2"))
    )

    answer = operator.get(at("triggers"))

    assert answer.status_code == 500
    assert "Something went wrong here" in text(answer)
    assert "hunter2" not in text(answer)


@pytest.mark.django_db
def test_it_needs_nothing_but_our_own_files_for_any_of_them() -> None:
    pages = [Client().get("/nothing"), Client().get("/console/", headers={"Host": "evil.example"})]

    for page in map(text, pages):
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


@pytest.mark.parametrize("path", ["/api/nothing", "/api"])
def test_it_leaves_programs_their_json(path: str) -> None:
    assert error_of(Client().get(path))["code"] == "not_found"
