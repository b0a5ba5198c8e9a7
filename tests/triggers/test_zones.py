from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from triggers.zones import ZoneError, gap_readings, load_zone, resolve_wall

BERLIN = ZoneInfo("Europe/Berlin")

wall = datetime.fromisoformat


@pytest.mark.parametrize(
    "name",
    ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "EST5EDT", "US/Eastern", "GMT", "Etc/GMT+1", "EST"],
)
def test_it_loads_iana_keys(name: str) -> None:
    assert load_zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        "IST",
        "http://bla.com",
        "Mars/Phobos",
        "",
        " ",
        "/etc/localtime",
        "/usr/share/zoneinfo/Europe/Berlin",
        "../..",
        "../zoneinfo/Europe/Berlin",
        "Europe/../Europe/Berlin",
        "Europe/Berlin\x00",
        "Europe/Berlin\n",
        " Europe/Berlin",
        "Europe/Berlín",
        "localtime",
        "posixrules",
        "Factory",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "America",
        "America/",
        "Europe//Berlin",
        "America/Argentina",
        "leapseconds",
        "zone.tab",
        "+02:00",
        "UTC+2",
        "Z",
        "CEST",
        "America/New_Yrok",
        "A" * 5000,
        None,
        5,
        ["UTC"],
        b"UTC",
    ],
)
def test_it_refuses_what_is_no_iana_key(name: object) -> None:
    with pytest.raises(ZoneError, match="IANA") as caught:
        load_zone(name)

    assert '"Europe/Berlin"' in caught.value.message
    assert len(caught.value.message) < 250


def test_it_suggests_the_spelling_of_iana() -> None:
    with pytest.raises(ZoneError, match='Did you mean "America/New_York"'):
        load_zone("america/new_york")


def test_it_resolves_an_ordinary_time_to_one_instant() -> None:
    assert resolve_wall(wall("2026-07-01T09:00"), BERLIN) == [datetime(2026, 7, 1, 7, tzinfo=UTC)]


def test_it_resolves_a_repeated_time_to_both_instants() -> None:
    assert resolve_wall(wall("2026-10-25T02:30"), BERLIN) == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    ("naive", "zone", "early", "late"),
    [
        ("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T00:30Z", "2026-03-29T01:30Z"),
        ("2026-10-04T02:15", "Australia/Lord_Howe", "2026-10-03T15:15Z", "2026-10-03T15:45Z"),
        ("2018-11-04T00:00", "America/Sao_Paulo", "2018-11-04T02:00Z", "2018-11-04T03:00Z"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-29T22:00Z", "2011-12-30T22:00Z"),
    ],
)
def test_it_gives_both_readings_of_a_time_that_does_not_exist(naive: str, zone: str, early: str, late: str) -> None:
    assert resolve_wall(wall(naive), ZoneInfo(zone)) == []
    assert gap_readings(wall(naive), ZoneInfo(zone)) == (wall(early), wall(late))


def test_it_counts_the_edges_of_a_gap_and_of_a_fold() -> None:
    edges = ["2026-03-29T02:00", "2026-03-29T03:00", "2026-10-25T02:00", "2026-10-25T03:00"]

    assert [len(resolve_wall(wall(edge), BERLIN)) for edge in edges] == [0, 1, 2, 1]


def test_it_gives_no_readings_of_a_time_that_exists() -> None:
    with pytest.raises(ZoneError, match="exists"):
        gap_readings(wall("2026-07-01T09:00"), BERLIN)


def test_it_refuses_a_time_with_an_offset_already() -> None:
    with pytest.raises(ZoneError, match="offset already"):
        resolve_wall(datetime(2026, 7, 1, 9, tzinfo=UTC), BERLIN)


@pytest.mark.parametrize(
    ("naive", "zone"), [("9999-12-31T23:59", "America/New_York"), ("0001-01-01T00:00", "Asia/Tokyo")]
)
def test_it_refuses_what_is_outside_the_calendar(naive: str, zone: str) -> None:
    with pytest.raises(ZoneError, match="years 1 to 9999"):
        resolve_wall(wall(naive), ZoneInfo(zone))
