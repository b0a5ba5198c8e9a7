"""The two signals by which other apps follow sessions. Both are sent inside the transaction.

`wake_settled` (sender `Wake`): `wakes`, rows that have just become done, quarantined or pending
again by an operator's retry, with their new status; `now`.
`session_terminated` (sender `AgentSession`): `session`, `reason`, `now`; a receiver returns how
many things of its own it ended.
"""

from __future__ import annotations

from django.dispatch import Signal

wake_settled = Signal()
session_terminated = Signal()
