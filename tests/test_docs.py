"""The docs held against the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from config.settings import BASE_DIR, env
from sessions.states import TURNS, WAKES
from triggers.states import TRIGGERS

_ROW = re.compile(
    r"^\| `(?P<name>[A-Z_]+)` \| (?P<form>[^|]+) \| (?P<default>[^|]+) \| (?P<help>[^|]+) \|$", re.MULTILINE
)
_ROWS = {row["name"]: row for row in _ROW.finditer((BASE_DIR / "docs" / "settings.md").read_text("utf-8"))}


def test_it_documents_every_setting_and_no_other() -> None:
    assert set(_ROWS) == set(env.declared)


@pytest.mark.parametrize("name", sorted(_ROWS))
def test_it_states_a_setting_as_the_code_does(name: str) -> None:
    setting, row = env.declared[name], _ROWS[name]

    assert row["form"] == setting.form
    assert row["default"].replace("`", "") == (setting.default or "none")
    assert row["help"] == setting.help


_MOVES: dict[str, Mapping[Any, Iterable[Any]]] = {"Trigger": TRIGGERS.moves, "Wake": WAKES.moves, "Turn": TURNS.moves}


@pytest.mark.parametrize("what", sorted(_MOVES))
def test_its_lifecycle_page_shows_the_machine(what: str) -> None:
    page = (BASE_DIR / "docs" / "lifecycle.md").read_text("utf-8")
    section = page.split(f"\n## {what}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z]+)` \|(.*)\|$", section, re.MULTILINE)
    shown = {status: set(re.findall(r"`([a-z]+)`", following)) for status, following in rows}

    assert shown == {str(source): {str(target) for target in targets} for source, targets in _MOVES[what].items()}


def test_its_pages_link_to_files_that_exist() -> None:
    pages = [BASE_DIR / "README.md", *(BASE_DIR / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text("utf-8"))]

    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).is_file()] == []
