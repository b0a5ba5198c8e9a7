"""A plug-in is one new file and its test: the suite fails while a file has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import BASE_DIR

# Where plug-ins lie, and where their tests do.
_FOLDERS = {
    "sessions/runtime/adapters": "tests/sessions/adapters",
    "triggers/kinds": "tests/triggers/kinds",
    "triggers/forges": "tests/triggers/forges",
}
_NO_PLUGINS = {"__init__.py", "base.py"}


def _plugins() -> list[tuple[Path, Path]]:
    return [
        (path.relative_to(BASE_DIR), Path(tests) / f"test_{path.name}")
        for folder, tests in _FOLDERS.items()
        for path in sorted((BASE_DIR / folder).glob("*.py"))
        if path.name not in _NO_PLUGINS
    ]


@pytest.mark.parametrize(("plugin", "test"), _plugins(), ids=str)
def test_it_has_a_test_file(plugin: Path, test: Path) -> None:
    assert (BASE_DIR / test).is_file(), f"{plugin} has no test: write {test}"


def test_it_looks_into_folders_that_exist() -> None:
    assert [folder for folder in _FOLDERS if not (BASE_DIR / folder).is_dir()] == []
