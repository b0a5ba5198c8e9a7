"""REST and command: API keys."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from sessions.models import ApiKey
from sessions.secrecy import digest
from tests.doors import Caller, error_of

pytestmark = pytest.mark.django_db
KEYS = "/api/keys"
ADMINS = {"name": "ci", "scopes": ["sessions.read", "triggers.read"]}


def test_it_shows_a_new_key_once(admin: Caller) -> None:
    response = admin.post(KEYS, ADMINS)

    body = response.json()
    row = ApiKey.objects.get(name="ci")
    assert response.status_code == 201
    assert body["key"].startswith("rwk_")
    assert (row.hash, row.hint) == (digest(body["key"]), body["key"][:8])
    for shown in (admin.get(KEYS), admin.delete(f"{KEYS}/{row.pk}")):
        assert body["key"][8:] not in shown.content.decode()


def test_it_makes_a_key_that_works_within_its_scopes(admin: Caller) -> None:
    key = Caller(admin.post(KEYS, ADMINS).json()["key"])

    assert (key.get("/api/sessions").status_code, key.post("/api/sessions").status_code) == (200, 403)


def test_it_lists_keys_newest_first(admin: Caller) -> None:
    admin.post(KEYS, ADMINS)

    keys = admin.get(KEYS).json()["keys"]

    assert [key["name"] for key in keys] == ["ci", "ops"]
    assert set(keys[0]) == {"id", "name", "hint", "scopes", "created_at", "last_used_at", "revoked_at"}
    assert (keys[0]["last_used_at"], bool(keys[1]["last_used_at"])) == (None, True)


def test_it_revokes_a_key_at_once_and_for_good(admin: Caller) -> None:
    body = admin.post(KEYS, ADMINS).json()

    first, second = (admin.delete(f"{KEYS}/{body['id']}") for _ in range(2))

    assert first.json()["revoked_at"]
    assert (second.status_code, second.content) == (200, first.content)
    assert Caller(body["key"]).get("/api/sessions").status_code == 401


def test_it_does_not_find_a_key_that_is_not_there(admin: Caller) -> None:
    assert admin.delete(f"{KEYS}/{uuid4()}").status_code == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes.0"),
        ({"scopes": "admin"}, "scopes"),
        ({"scopes": [["admin"]]}, "scopes.0"),
        ({"scopes": None}, "scopes"),
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": 1}, "name"),
        ({"expires": "never"}, "expires"),
    ],
)
def test_it_refuses_a_key_of_another_shape(change: dict[str, Any], field: str, admin: Caller) -> None:
    response = admin.post(KEYS, ADMINS | change)

    assert response.status_code == 400
    assert field in error_of(response)["fields"]
    assert ApiKey.objects.count() == 1


# --- the command -----------------------------------------------------------------------------------------------------


def test_it_makes_a_key_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_key", name="ci", scopes=["sessions.read", "triggers.read"])

    secret = capsys.readouterr().out.strip()
    assert Caller(secret).get("/api/sessions").status_code == 200
    assert ApiKey.objects.get().scopes == ["sessions.read", "triggers.read"]


def test_it_makes_an_admins_key_where_no_scope_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_key", name="ops")

    assert Caller(capsys.readouterr().out.strip()).get(KEYS).status_code == 200


def test_it_refuses_an_unknown_scope_on_the_command_line() -> None:
    with pytest.raises(CommandError, match="unknown scope 'root'"):
        call_command("create_key", name="ci", scopes=["root"])
