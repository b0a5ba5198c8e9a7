"""What a poll has found, as occurrences: which observations count, and what to remember of them. Touches nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sessions.instants import iso
from sessions.text import storable
from triggers.forges.base import Reading, instant
from triggers.ledger import Occurrence
from triggers.observations import Observation, RunSeen, as_json
from triggers.wire import Result

GRACE = timedelta(minutes=10)  # for which a commit is without any check before that is reported


def memory_of(before: Mapping[str, Any], result: Result, *, now: datetime) -> dict[str, Any]:
    """Return what to keep of a reading.

    That is: answers by their ETags, the forge's own notes, how far its clock is ahead, when each run ended,
    and since when the head has had no check. A run's own last change may come later than its end (its logs
    deleted, say); what was first seen stands.
    """
    assert result.reading
    earlier = before.get("ended", {})
    ended = {
        run.key: earlier.get(run.key) or iso(run.ended_at or _guess(run, before, now + result.skew))
        for run in result.reading.runs
        if run.conclusion
    }
    memory: dict[str, Any] = {
        "kept": result.kept,
        "forge": result.reading.memory,
        "skew": result.skew.total_seconds(),
        "print": hashlib.sha256(json.dumps(result.data, sort_keys=True).encode()).hexdigest(),
        "ended": ended,
    }
    pull = result.reading.pull
    if pull and pull.checks == []:
        quiet = before.get("quiet", {})
        memory["quiet"] = quiet if quiet.get("sha") == pull.sha else {"sha": pull.sha, "since": iso(now)}
    return memory


def _guess(run: RunSeen, before: Mapping[str, Any], now: datetime) -> datetime:
    """Return when a run ended whose forge does not say: since the last look; at the first look, as early as can be."""
    return now if before else run.started_at or run.created_at or now


def observations(reading: Reading, memory: Mapping[str, Any], *, now: datetime) -> list[Observation]:
    """Return what was seen, the runs in the order in which they ended."""
    ended = memory["ended"]
    runs = [replace(run, ended_at=instant(ended[run.key])) for run in reading.runs if run.conclusion]
    found: list[Observation] = [*sorted(runs, key=lambda run: (ended[run.key], run.run_id))]
    if reading.pull:
        since = instant(memory.get("quiet", {}).get("since"))
        found += reading.pull.seen(quiet=since is not None and now - since >= GRACE)
    return found


def counts(observation: Observation, armed_at: datetime) -> bool:
    """Return whether it came about after a trigger was armed, both by the forge's clock, which has whole seconds."""
    return observation.counts_from is None or observation.counts_from >= armed_at.replace(microsecond=0)


def occurrence(observation: Observation, *, key: str, host: str, repo: str, last: bool, now: datetime) -> Occurrence:
    """Return the occurrence that an observation is: due now, when it was seen."""
    payload = json.dumps(storable({"host": host, "repo": repo} | as_json(observation)), ensure_ascii=False, indent=1)
    return Occurrence(
        key=key,
        due_at=now,
        payload=payload,
        payload_source=f"{host} {repo}",
        content_type="application/json",
        payload_bytes=len(payload.encode()),
        last=last,
    )
