"""Measure cron: the next instant, cold, against croniter's own; and the worst that an accepted expression can cost.

Run `python -m tests.benchmarks.bench_cron`; it prints JSON. Cold means that neither the expression nor the zone is
cached: the parse is counted on both sides, the loading of the zone's file on neither. Medians over runs; ratios within
one run. Processor time is counted, so that no other process is. All zones of a sweep are loaded before it and the sweep
is timed as one: timed call by call, each right after its zone was read, the ratio is about a third lower.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from time import thread_time
from zoneinfo import ZoneInfo

from croniter import croniter

from triggers import cron

Call = tuple[str, ZoneInfo, datetime]
Work = Callable[[str, ZoneInfo, datetime], object]

RUNS = 7
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata"]
TYPICAL = [
    "* * * * *",
    "*/5 * * * *",
    "30 * * * *",
    "0 9 * * *",
    "0 9 * * 1-5",
    "0 9 * * mon,thu",
    "*/15 9-17 * * mon-fri",
    "30 2 * * 0",
    "0 0 1,15 * *",
    "0 0 1 1 *",
]
NASTY = [
    "0 0 29 2 *",
    "0 0 29 2 */7",
    "0 0 29 2 1",
    "59 23 31 12 *",
    "*/5 2 29 3 *",
    "30 2 29 3 *",
    "0 0 30 2 *",
    "0 0 31 2,4,6,9,11 *",
    ",".join(str(n) for n in range(60)) + " 2-3 31 jan-dec mon",
    ",".join(["*/1"] * 47) + " * * * *",
]
MOMENTS = [datetime(2026, month, 3 * month % 28 + 1, 2 * month % 24, 7, tzinfo=UTC) for month in range(1, 13)]
FAR = [
    *MOMENTS[:2],
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2088, 3, 1, tzinfo=UTC),
    datetime(2096, 3, 1, tzinfo=UTC),
]


def ours(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    return cron.next_after(cron.parse(expression), zone, after)


def theirs(expression: str, zone: ZoneInfo, after: datetime) -> datetime:
    found: datetime = croniter(expression, after.astimezone(zone)).get_next(datetime)
    return found.astimezone(UTC)


def cold(work: Work, expression: str, zone: str, after: datetime) -> float:
    """Return the seconds that one call takes with an empty cache and a zone just loaded."""
    return sweep(work, [(expression, ZoneInfo.no_cache(zone), after)])


def sweep(work: Work, calls: Sequence[Call], *, parsed: bool = False) -> float:
    """Return the seconds for one next instant, the mean over calls, each of which parses its expression or finds it."""
    begin = thread_time()
    for call in calls:
        if not parsed:
            cron.parse.cache_clear()
        work(*call)
    return (thread_time() - begin) / len(calls)


def typical() -> list[Call]:
    """Return the calls of one sweep, each with a zone of its own, just loaded."""
    return [
        (expression, ZoneInfo.no_cache(zone), after) for expression in TYPICAL for zone in ZONES for after in MOMENTS
    ]


def run() -> tuple[float, float, float]:
    """Return the seconds for one next instant: ours, croniter's, and ours when parsed."""
    return sweep(ours, typical()), sweep(theirs, typical()), sweep(ours, typical(), parsed=True)


def worst() -> tuple[float, str]:
    """Return the seconds that the slowest next instant takes, and its expression."""
    calls = [(expression, zone, after) for expression in NASTY for zone in ZONES for after in FAR]
    return max((median(cold(ours, *call) for _ in range(RUNS)), call[0]) for call in calls)


def count_years() -> float:
    """Return the seconds that counting five years of minutes takes."""
    schedule, zone, start = cron.parse("* * * * *"), ZoneInfo("Europe/Berlin"), thread_time()
    cron.count_between(schedule, zone, MOMENTS[0], MOMENTS[0] + timedelta(days=5 * 365))
    return thread_time() - start


def widest_gap_search() -> float:
    """Return the seconds that the slowest search for a tightest gap takes."""
    return max(median(gap_search(expression) for _ in range(RUNS)) for expression in TYPICAL + NASTY)


def gap_search(expression: str) -> float:
    schedule, start = cron.parse(expression), thread_time()
    cron.tightest_gap(schedule)
    return thread_time() - start


def main() -> None:
    run()
    runs = [run() for _ in range(RUNS)]
    slowest, expression = worst()
    figures = {
        "next_cold_per_s": round(median(1 / own for own, _, _ in runs)),
        "croniter_cold_per_s": round(median(1 / peer for _, peer, _ in runs)),
        "next_parsed_per_s": round(median(1 / parsed for _, _, parsed in runs)),
        "cold_over_croniter": round(median(peer / own for own, peer, _ in runs), 1),
        "parsed_over_croniter": round(median(peer / parsed for _, peer, parsed in runs), 1),
        "worst_next_ms": round(slowest * 1000, 3),
        "worst_expression": expression[:60],
        "tightest_gap_worst_ms": round(widest_gap_search() * 1000, 3),
        "count_five_years_of_minutes_ms": round(median(count_years() for _ in range(RUNS)) * 1000, 3),
        "runs": RUNS,
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
