"""What a process counts in memory, since the database does not know it: `metrics` shows it beside what it does know."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

COUNTED = CollectorRegistry()

POLLS = Counter("rewake_polls", "Questions to forges, by what came of them.", ["host", "result"], registry=COUNTED)
