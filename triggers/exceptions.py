"""What can go wrong with triggers, a class a cause."""

from __future__ import annotations

from sessions.exceptions import Conflict, Invalid, NotFound, RewakeError, SessionTerminated

__all__ = ["Conflict", "Invalid", "NotFound", "PolicyRefused", "RewakeError", "SessionTerminated"]


class PolicyRefused(RewakeError):
    """A limit forbids it; the reason names the limit and what would be allowed."""

    code = "policy"
    status = 409
