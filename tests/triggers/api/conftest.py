"""Fixtures for tests of doors."""

from __future__ import annotations

from tests.doors import _no_failures_yet, admin, now, stranger

__all__ = ["_no_failures_yet", "admin", "now", "stranger"]
