"""Fixtures for tests of doors."""

from __future__ import annotations

from tests.doors import _no_guesses_yet, admin, stranger

__all__ = ["_no_guesses_yet", "admin", "stranger"]
