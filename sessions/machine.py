"""State machines: a table of legal moves, and the compare-and-set that makes one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet

S = TypeVar("S", bound=StrEnum)
M = TypeVar("M", bound=Model)


class Machine(Generic[S]):
    """Which status may follow which, for rows with a `status` column.

    `moves` maps each status to those that may follow it. A status that nothing follows is terminal.
    """

    def __init__(self, moves: Mapping[S, Iterable[S]]) -> None:
        self.moves: dict[S, frozenset[S]] = {source: frozenset(targets) for source, targets in moves.items()}

    @property
    def terminal(self) -> frozenset[S]:
        """The statuses that nothing leaves."""
        return frozenset(source for source, targets in self.moves.items() if not targets)

    def sources(self, target: S) -> frozenset[S]:
        """Return the statuses from which `target` may be reached in one move."""
        return frozenset(source for source, targets in self.moves.items() if target in targets)

    def move(self, rows: QuerySet[M], target: S, **fields: Any) -> int:
        """Move those of `rows` that may go to `target`, setting `fields` with it; return how many did.

        One UPDATE with the legal sources in its WHERE: whoever loses a race writes nothing.
        """
        return rows.filter(status__in=self.sources(target)).update(status=target, **fields)
