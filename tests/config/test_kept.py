"""Secrets in files: made once, whole, and for their owner only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.kept import kept


def test_it_makes_a_secret_once(tmp_path: Path) -> None:
    path = tmp_path / "var" / "secret"

    made = kept(path, lambda: "first")

    assert made == kept(path, lambda: "second") == "first"


def test_it_lets_only_the_owner_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    kept(path, lambda: "first")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_it_takes_the_secret_of_a_process_that_was_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    def make_while_another_does() -> str:
        kept(path, lambda: "theirs")
        return "ours"

    assert kept(path, make_while_another_does) == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_it_refuses_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch()

    with pytest.raises(ImproperlyConfigured, match=r"secret is empty: put the secret back"):
        kept(path, lambda: "first")


def test_it_says_where_it_could_not_write(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file, not a folder")

    with pytest.raises(ImproperlyConfigured, match="cannot keep a secret there"):
        kept(tmp_path / "var" / "secret", lambda: "first")
