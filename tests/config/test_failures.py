"""Wrong keys, counted by whom they come from."""

from __future__ import annotations

from config.failures import Failures


def test_it_lets_the_first_failures_pass() -> None:
    failures = Failures(limit=3)

    assert [failures.note("a", at=float(at)) for at in range(5)] == [0, 0, 0, 57, 56]


def test_it_counts_each_address_by_itself() -> None:
    failures = Failures(limit=1)

    assert [failures.note(address, at=0) for address in ("a", "b", "a", "b")] == [0, 0, 60, 60]


def test_it_forgets_after_its_window() -> None:
    failures = Failures(limit=1, window=10)
    for at in (0.0, 1.0):
        failures.note("a", at=at)

    assert failures.note("a", at=10) == 0


def test_it_remembers_a_bounded_number_of_addresses() -> None:
    failures = Failures(addresses=100)

    for number in range(1000):
        failures.note(f"10.0.0.{number}", at=0)

    assert len(failures._seen) == 100


def test_it_does_not_forget_who_fails_on_while_others_come_and_go() -> None:
    failures = Failures(limit=2, addresses=3)

    answers = [failures.note(address, at=0) for address in ("a", "b", "a", "c", "a", "d", "a")]

    assert answers == [0, 0, 0, 0, 60, 0, 60]
