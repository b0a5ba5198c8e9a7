"""Kill, flush and cut while there is load; then show that nothing was lost, doubled or left behind.

A short form runs in the ordinary suite. `make chaos` runs it for minutes (CHAOS_SECONDS) and prints the counts.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import drive, stack
from tests.chaos.monkey import Broker, Load, Monkey, cut_connections
from tests.stack import Stack, wait_for

SECONDS = float(os.environ.get("CHAOS_SECONDS", "12"))
SEED = int(os.environ.get("CHAOS_SEED", "7"))
SESSIONS = 6
SETTINGS = {
    "AGENT_TURN_LEASE_SECONDS": "3",
    "AGENT_WAKE_MAX_ATTEMPTS": "100",  # here every turn may be killed, time and again
    "AGENT_MAX_TRIGGERED_TURNS_PER_HOUR": "100000",
    "TRIGGERS_MAX_FIRES_CAP": "1000000",
    "TRIGGERS_MAX_ARMED_PER_SESSION": "1000",
    "LOG_LEVEL": "WARNING",
}


pytestmark = pytest.mark.own_stack


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    own = Broker(tmp_path)
    own.start()
    yield own
    own.kill()


def test_nothing_is_lost_or_doubled_while_processes_die(postgres_url: str, broker: Broker) -> None:
    with stack.distributed(postgres_url, broker.url, **SETTINGS) as product:
        for role in ("web", "web", "short", "short", "long", "long", "beat", "beat"):
            product.start(role)
        product.wait_until_ready()
        dice = random.Random(SEED)
        acts: dict[str, Callable[[], None]] = {
            f"kill a {role}": partial(_restart_one, product, role, dice) for role in ("web", "short", "long", "beat")
        }
        acts |= {
            "flush redis": broker.flush,
            "restart redis": broker.restart,
            "cut postgresql": partial(cut_connections, product.environment["DATABASE_URL"]),
        }
        _survive(product, Monkey(acts, pause=1.0, seed=SEED))


def test_nothing_is_lost_or_doubled_while_the_one_process_dies() -> None:
    with stack.embedded(**SETTINGS) as product:
        process = product.start("embedded")
        product.wait_until_ready()
        _survive(product, Monkey({"kill the process": process.restart}, pause=3.0, seed=SEED))


def _restart_one(product: Stack, role: str, dice: random.Random) -> None:
    dice.choice(product.of(role)).restart()


def _survive(product: Stack, monkey: Monkey) -> None:
    with product.client() as client:
        paths = dict(drive.armed_webhook(client, drive.open_session(client)) for _ in range(SESSIONS))
        timers = [_armed_timers(client) for _ in range(SESSIONS)]
    load = Load(product, paths)
    threads = load.run(threads=4, pause=0.05)
    monkey.run(SECONDS)
    load.stop()
    for thread in threads:
        thread.join(60)
    product.wait_until_ready()
    wait_for(lambda: _is_settled(product), "every wake to be settled", product, seconds=120)
    report = _report(product, load, timers)
    print(json.dumps({"seconds": SECONDS, "broken": monkey.done, **report}, indent=2))
    assert not load.refused
    assert report["audit"]["faults"] == dict.fromkeys(report["audit"]["faults"], 0)
    assert report["audit"]["quarantined_wakes"] == 0
    assert report["deliveries_lost"] == report["deliveries_doubled"] == 0
    assert report["occurrences_lost"] == 0
    assert report["fires_not_delivered"] == 0


def _armed_timers(client: Any) -> str:
    """Arm in one session a schedule of every minute, and one-shots that come due while things break."""
    session_id = drive.open_session(client)
    drive.say(client, session_id, "every * * * * *: minute")
    for seconds in range(2, int(SECONDS), 3):
        drive.say(client, session_id, f"in {seconds}s: one-shot")
    return session_id


def _is_settled(product: Stack) -> bool:
    """Tell whether nothing is pending, nor about to be: some seconds before a minute, the next slot is far enough."""
    return datetime.now(UTC).second < 50 and _audit(product)["pending_wakes"] == 0


def _audit(product: Stack) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(product.manage("audit", codes=(0, 1)))
    return found


def _report(product: Stack, load: Load, timers: list[str]) -> dict[str, Any]:
    with product.client() as client:
        ledger = {trigger_id: _all_fires(client, trigger_id) for trigger_id in load.paths}
        timed = [trigger for session_id in timers for trigger in drive.triggers(client, session_id, limit="200")]
        rows = {trigger["id"]: _all_fires(client, trigger["id"]) for trigger in timed}
    posted = [fire["occurrence"] for trigger_id in ledger for fire in ledger[trigger_id]]
    accepted = sum(len(deliveries) for deliveries in load.accepted.values())
    found = sum(
        delivery in {fire["occurrence"] for fire in ledger[trigger_id]}
        for trigger_id, deliveries in load.accepted.items()
        for delivery in deliveries
    )
    every = [fire for fires in (*ledger.values(), *rows.values()) for fire in fires]
    return {
        "webhooks_accepted": accepted,
        "retries_by_the_sender": load.retries,
        "deliveries_lost": accepted - found,
        "deliveries_doubled": len(posted) - len(set(posted)),
        "occurrences_expected": sum(len(_expected(trigger)) for trigger in timed),
        "occurrences_lost": sum(len(_expected(trigger) - _covered(rows[trigger["id"]])) for trigger in timed),
        "fires_not_delivered": sum(fire["outcome"] != "delivered" for fire in every),
        "redelivered": sum(fire["attempts"] > 1 for fire in every),
        "audit": _audit(product),
    }


def _all_fires(client: Any, trigger_id: str) -> list[dict[str, Any]]:
    fires: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get(
            f"/api/triggers/{trigger_id}/fires", params={"limit": 200} | ({"cursor": cursor} if cursor else {})
        )
        body = page.json()
        fires += body["fires"]
        cursor = body["next"]
        if not cursor:
            return fires


def _expected(trigger: dict[str, Any]) -> set[str]:
    """Return the instants at which a trigger had to fire until a moment ago."""
    until = datetime.now(UTC) - timedelta(seconds=5)
    if trigger["kind"] == "time.at":
        due = trigger["args"]["at"]
        return {due} if datetime.fromisoformat(due) <= until else set()
    slot = datetime.fromisoformat(trigger["created_at"]).replace(second=0, microsecond=0) + timedelta(minutes=1)
    slots = set()
    while slot <= until:
        slots.add(slot.isoformat().replace("+00:00", "Z"))
        slot += timedelta(minutes=1)
    return slots


def _covered(fires: list[dict[str, Any]]) -> set[str]:
    return {fire["occurrence"] for fire in fires}
