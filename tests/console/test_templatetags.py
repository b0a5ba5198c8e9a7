"""How instants, statuses, identifiers, JSON and long text are shown."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from console.templatetags import console as tags


@pytest.mark.parametrize(
    ("ahead", "shown"),
    [
        (timedelta(0), "now"),
        (timedelta(milliseconds=-900), "now"),
        (timedelta(seconds=1), "in 1 s"),
        (timedelta(seconds=-59), "59 s ago"),
        (timedelta(seconds=90), "in 1 min"),
        (timedelta(hours=2, minutes=5), "in 2 h 5 min"),
        (timedelta(hours=2), "in 2 h"),
        (timedelta(hours=-15, minutes=-5), "15 h ago"),
        (timedelta(days=6, hours=23), "in 6 d 23 h"),
        (timedelta(days=400), "in 400 d"),
    ],
)
def test_it_shows_how_far_off_an_instant_is(ahead: timedelta, shown: str) -> None:
    assert tags.distance(ahead) == shown


def test_it_shows_an_instant_in_utc_with_its_distance(now: datetime) -> None:
    berlin = (now + timedelta(minutes=5)).astimezone(timezone(timedelta(hours=1)))

    full = 'datetime="2026-12-01T09:05:00Z" title="Tue 2026-12-01 09:05:00 UTC">in 5 min<'
    assert full in tags.when(berlin, now)
    assert 'title="in 5 min">Tue 2026-12-01 09:05:00 UTC<' in tags.instant(berlin, now)
    assert ">09:05:00<" in tags.clock(berlin, now)
    assert ">2026-11-30 09:00:00<" in tags.clock(now - timedelta(days=1), now)


def test_it_shows_a_dash_for_no_instant(now: datetime) -> None:
    assert (tags.when(None, now), tags.instant(None, now)) == ("–", "–")


def test_it_shows_a_status_as_a_word() -> None:
    assert tags.pill("paused") == '<span class="pill warn">paused</span>'
    assert tags.pill("<b>") == '<span class="pill quiet">&lt;b&gt;</span>'


def test_it_shortens_an_identifier_to_what_tells_it_apart() -> None:
    assert tags.short("01a22d70-139f-7ad5-bbe9-bf16fce57b21") == "…fce57b21"


def test_it_shows_json_for_reading_and_cuts_what_is_endless() -> None:
    assert tags.pretty({"ä": [1]}) == '{\n  "ä": [\n    1\n  ]\n}'
    assert tags.pretty("as it is") == "as it is"
    assert len(tags.pretty("x" * 100_000)) == tags.WHOLE_CHARS


def test_it_puts_the_beginning_of_a_text_on_one_line() -> None:
    assert tags.excerpt("one\n\n  two") == "one two"
    assert len(tags.excerpt("x" * 8000)) == 200


def test_it_folds_a_long_text_only() -> None:
    assert tags.prose("short", "a")["whole"] == ""
    folded = tags.prose("x" * 8000, "line", 7, 1)
    assert (len(folded["head"]), len(folded["whole"]), folded["size"]) == (tags.EXCERPT_CHARS, 8000, 8000)
    assert folded["identifier"] == "line-7-1"
