"""The docs held against the code."""

from __future__ import annotations

import re

import pytest

from config.settings import BASE_DIR, env

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
