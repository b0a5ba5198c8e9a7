"""docs/api.md held against the router, and its answers against the OpenAPI document."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator  # type: ignore[import-untyped, unused-ignore]

from config.settings import BASE_DIR
from sessions.api.feed import End, KeysStreamsFull, StreamsFull
from sessions.keys import Scope
from triggers import posts
from triggers.counted import COUNTED
from triggers.metrics import Database

PAGE = (BASE_DIR / "docs" / "api.md").read_text("utf-8")
_SECTION = re.compile(r"^### `(?P<method>[A-Z]+) (?P<path>/\S+)`$(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"^`(?P<status>\d{3})`\n\n```(?P<form>json|text)\n(?P<body>.*?)\n```$", re.MULTILINE | re.DOTALL)
SECTIONS = {f"{found['method']} {found['path']}": found["text"] for found in _SECTION.finditer(PAGE)}
DOCUMENT: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
OPERATIONS: dict[str, Any] = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}


def test_it_describes_every_route_and_no_other() -> None:
    assert set(SECTIONS) == set(OPERATIONS)


@pytest.mark.parametrize("name", SECTIONS)
def test_it_shows_how_to_call_a_route(name: str) -> None:
    method, path = name.split(" ")
    [command] = re.findall(r"```sh\n(curl .*?)\n```", SECTIONS[name], re.DOTALL)

    called = command.split('"$REWAKE', 1)[1].split('"', 1)[0].partition("?")[0]
    assert re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), called)
    assert (f"-X {method}" in command) == (method != "GET")
    assert ("Authorization" in command) == bool(OPERATIONS[name].get("security"))


@pytest.mark.parametrize("name", SECTIONS)
def test_it_names_the_scope_that_a_route_needs(name: str) -> None:
    needed = re.findall(r"Needs the scope `([a-z.]+)`", OPERATIONS[name].get("description", ""))

    assert re.findall(r"Scope:\s`([a-z.]+)`", SECTIONS[name]) == needed


@pytest.mark.parametrize("name", SECTIONS)
def test_it_shows_an_answer_that_is_true_to_the_document(name: str) -> None:
    answers = list(_ANSWER.finditer(SECTIONS[name]))

    assert answers
    for answer in answers:
        content = OPERATIONS[name]["responses"][answer["status"]]["content"]
        if answer["form"] == "json":
            schema = content["application/json"]["schema"] | {"components": DOCUMENT["components"]}
            assert not list(Draft202012Validator(schema).iter_errors(json.loads(answer["body"])))


@pytest.mark.parametrize("name", [name for name in SECTIONS if " -d '" in SECTIONS[name] and "/hook/" not in name])
def test_it_sends_a_body_that_is_true_to_the_document(name: str) -> None:
    [body] = re.findall(r" -d '(.*?)'", SECTIONS[name])

    schema = OPERATIONS[name]["requestBody"]["content"]["application/json"]["schema"]
    assert not list(Draft202012Validator(schema | {"components": DOCUMENT["components"]}).iter_errors(json.loads(body)))


def test_it_lists_why_a_stream_ends_and_why_none_begins() -> None:
    text = SECTIONS["GET /api/sessions/{session_id}/stream"]
    refusals = [f"{full.status} {full.code}" for full in (StreamsFull, KeysStreamsFull)]

    assert re.findall(r"^\| `([a-z_]+)` \| \w", text, re.MULTILINE) == list(End)
    assert re.findall(r"`(\d+ [a-z_]+)`", text) == refusals


def test_it_lists_every_scope() -> None:
    assert set(re.findall(r"^\| `([a-z.]+)` \|", PAGE, re.MULTILINE)) >= set(Scope)


def test_it_names_the_delivery_headers_in_their_order() -> None:
    listed = re.split(r"\.\s+Without any", PAGE.split("The first of these headers that is there counts:")[1])[0]

    assert tuple(name.lower() for name in re.findall(r"`([\w-]+)`", listed)) == posts.DELIVERY_HEADERS


@pytest.mark.django_db
def test_it_lists_every_metric(now: Any) -> None:
    made = {family.name for family in Database(now=now).collect()} | {family.name for family in COUNTED.collect()}
    listed = set(re.findall(r"^\| `(rewake_\w+)` \|", PAGE, re.MULTILINE))

    assert {name.removesuffix("_total") for name in listed} == made
