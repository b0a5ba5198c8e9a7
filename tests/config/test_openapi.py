"""The OpenAPI document: valid, complete, and kept to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
import schemathesis
from django.contrib.staticfiles import finders
from django.core.handlers.wsgi import WSGIHandler
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from sessions import guesses, turns
from sessions.models import Wake
from tests import factories
from tests.doors import Caller, as_a_server
from triggers.services import note_beat

pytestmark = pytest.mark.django_db
EXAMPLES = 8  # of each route, right and wrong ones: the suite is bounded, not the doors
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
METHODS = ("get", "post", "patch", "put", "delete")
PLAIN = {"/healthz", "/readyz", "/metrics", "/api/schema", "/api/docs", "/api/triggers/hook/{trigger_id}/{secret}"}


@pytest.fixture(scope="module")
def document() -> Any:
    from drf_spectacular.generators import SchemaGenerator

    return json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True)))  # type: ignore[no-untyped-call]


def _operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def test_it_is_served_without_a_key(document: Any, stranger: Caller) -> None:
    response = stranger.get("/api/schema")

    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response.json() == document


def test_it_is_valid_openapi(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(document).validate()


def test_it_is_made_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    call_command("spectacular", "--validate", "--fail-on-warn", "--file", "/dev/null")

    assert capsys.readouterr().err == ""


def _routes(patterns: Any, prefix: str = "/") -> Iterator[str]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern) and not path.startswith("/console"):
            yield path


def test_it_describes_every_route_and_no_other(document: Any) -> None:
    routes = {re.sub(r"<\w+:(\w+)>", r"{\1}", route) for route in _routes(get_resolver().url_patterns)}
    routes = {"/api/triggers/hook/{trigger_id}/{secret}" if "triggers/hook" in route else route for route in routes}

    assert set(document["paths"]) == routes - {"/"}


def test_it_says_of_each_route_who_may_and_what_comes_back(document: Any) -> None:
    for path, method, operation in _operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["operationId"], where
        for status, answer in operation["responses"].items():
            assert answer["description"], f"{where} {status}"
            for media, content in answer.get("content", {}).items():
                assert "schema" in content, f"{where} {status}"
                plain = media != "application/json" or path.endswith("/stream")
                assert plain or content["examples"], f"{where} {status}"
        if path not in PLAIN:
            assert operation["security"], where
            assert "Needs the" in operation["description"], where
            assert {"401", "403", "429", "503"} <= set(operation["responses"]), where


def test_it_gives_an_example_of_each_body(document: Any) -> None:
    for path, method, operation in _operations(document):
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            if operation["operationId"] not in ("interruptSession", "terminateSession", "retryWake", "showHookUrl"):
                assert content["examples"], f"{method} {path} {media}"


def test_it_has_examples_that_are_true_to_their_schemas(document: Any) -> None:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped, unused-ignore]

    checked = 0
    for path, method, operation in _operations(document):
        for side in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in side.get("content", {}).values():
                for example in content.get("examples", {}).values():
                    validator = Draft202012Validator(content["schema"] | {"components": document["components"]})
                    assert not list(validator.iter_errors(example["value"])), f"{method} {path}: {example}"
                    checked += 1
    assert checked > 100


def test_it_is_shown_without_anything_from_elsewhere(stranger: Caller) -> None:
    response = stranger.get("/api/docs")

    page = response.content.decode()
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert response.status_code == 200
    assert len(sources) >= 3
    assert not re.findall(r"https?://", page)
    assert "default-src 'none'" in response["Content-Security-Policy"]
    assert "connect-src 'self'" in response["Content-Security-Policy"]
    for source in sources:
        assert finders.find(source.removeprefix("/static/")), source


# --- kept to ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(db: None, admin: Caller, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Rows for the ids in paths, so that not everything is 404; and who asks."""
    now = timezone.now()  # noqa: TID251
    note_beat(now=now)
    monkeypatch.setattr("sessions.api.views.wait_for_events", lambda *_args, **_more: None)
    return {"admin": admin.secret, **_rows(now)}


def _rows(now: datetime) -> dict[str, Any]:
    idle = factories.open_session(now)
    begun = factories.live_turn(factories.open_session(now), now)
    failed = factories.live_turn(factories.open_session(now), now)
    factories.end_turn(failed.turn, now, status="failed", fate=turns.Fate.QUARANTINED, reason="broken")
    return {
        "session_id": str(idle.pk),
        "turn_id": str(begun.turn.pk),
        "turn_token": begun.token,
        "trigger_id": str(factories.armed_session(now).pk),
        "wake_id": str(Wake.objects.get(status="quarantined").pk),
        "tool": "schedule_trigger",
    }


def _all_operations() -> list[str]:
    from drf_spectacular.generators import SchemaGenerator

    document: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    # A stream has no end to wait for: it has tests of its own.
    return [f"{method} {path}" for path, method, _ in _operations(document) if not path.endswith("/stream")]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", _all_operations())
def test_it_answers_as_the_document_says(name: str, mode: GenerationMode, document: Any, world: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_dict(document)
    schema.app = WSGIHandler()
    method, path = name.split(" ")
    operation = schema[path][method]
    token = world["turn_token"] if operation.path.startswith("/api/turns") else world["admin"]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def answers(case: Any) -> None:
        if len(answered) % 2:
            case.path_parameters = dict(case.path_parameters or {}) | {
                name: world[name] for name in case.path_parameters or {} if name in world
            }
        guesses.KEYS.clear()
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)
        answered.append(case)

    answered: list[Any] = []
    with as_a_server(), suppress(*([Unsatisfiable] if mode == GenerationMode.NEGATIVE else [])):
        answers()  # nothing can be wrong about a route that takes nothing, or anything: it has no negative examples
    assert answered or mode == GenerationMode.NEGATIVE
