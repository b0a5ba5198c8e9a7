"""The kinds and the forges there are, found by scanning their folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessions.registry import Registry, UnknownName

if TYPE_CHECKING:
    from typing import Any

    from triggers.forges.base import Forge
    from triggers.kinds.base import Kind

__all__ = ["FORGES", "KINDS", "UnknownName"]

KINDS: Registry[Kind[Any]] = Registry("triggers.kinds", "kind")
FORGES: Registry[Forge] = Registry("triggers.forges", "forge")
