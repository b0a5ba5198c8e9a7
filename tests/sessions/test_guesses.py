"""Wrong credentials, counted by whom they come from."""

from __future__ import annotations

from sessions.guesses import Guesses


def test_it_lets_the_first_guesses_pass() -> None:
    guesses = Guesses(limit=3)

    assert [guesses.note("a", at=float(at)) for at in range(5)] == [0, 0, 0, 57, 56]


def test_it_says_how_long_to_wait_without_counting() -> None:
    guesses = Guesses(limit=1)

    before = [guesses.wait("a", at=0) for _ in range(3)]
    guesses.note("a", at=0)

    assert before == [0, 0, 0]
    assert [guesses.wait("a", at=at) for at in (0, 59, 60)] == [60, 1, 0]
    assert guesses.wait("b", at=0) == 0


def test_it_counts_each_address_by_itself() -> None:
    guesses = Guesses(limit=1)

    assert [guesses.note(address, at=0) for address in ("a", "b", "a", "b")] == [0, 0, 60, 60]


def test_it_forgets_after_its_window() -> None:
    guesses = Guesses(limit=1, window=10)
    for at in (0.0, 1.0):
        guesses.note("a", at=at)

    assert guesses.note("a", at=10) == 0


def test_it_remembers_a_bounded_number_of_addresses() -> None:
    guesses = Guesses(addresses=100)

    for number in range(1000):
        guesses.note(f"10.0.0.{number}", at=0)

    assert len(guesses._seen) == 100


def test_it_does_not_forget_who_fails_on_while_others_come_and_go() -> None:
    guesses = Guesses(limit=2, addresses=3)

    answers = [guesses.note(address, at=0) for address in ("a", "b", "a", "c", "a", "d", "a")]

    assert answers == [0, 0, 0, 0, 60, 0, 60]
