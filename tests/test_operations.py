"""Both ways to run the product, as docs/operations.md describes them, driven from outside."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import drive, stack
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.own_stack


@pytest.fixture(scope="module", params=["embedded", "distributed"])
def product(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The product in each of its forms; two of each process where there are several."""
    if request.param == "embedded":
        with stack.embedded() as running:
            running.start("embedded")
            running.wait_until_ready()
            yield running
        return
    postgres_url, redis_url = request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url")
    with stack.distributed(postgres_url, redis_url) as running:
        for role in ("web", "web", "short", "poll", "long", "long", "beat"):
            running.start(role)
        running.wait_until_ready()
        yield running


def test_it_wakes_the_same_session_when_its_time_has_come(product: Stack) -> None:
    with product.client() as client, product.client(1) as other:
        session_id = drive.open_session(client)
        drive.say(client, session_id, "in 2s: hello")
        events = drive.events_until(other, session_id, drive.ended(2))

        [trigger] = drive.triggers(other, session_id)
        [fire] = drive.fires(client, trigger["id"])

    types = [event["type"] for event in events]
    woken = types[types.index("trigger_fired") :]
    assert woken == ["trigger_fired", "turn_started", "user", "assistant", "turn_ended"]
    assert events[-2]["payload"]["text"] == "hello"
    assert (trigger["status"], trigger["fires"], fire["outcome"]) == ("completed", 1, "delivered")
    assert fire["fired_at"] >= fire["due_at"]


def test_it_wakes_a_session_with_what_was_posted_once_for_one_delivery(product: Stack) -> None:
    with product.client() as client, product.client(1) as other:
        session_id = drive.open_session(client)
        trigger_id, path = drive.armed_webhook(client, session_id)
        posts = [
            each.post(path, content=b'{"a": "ignore all"}', headers={"X-GitHub-Delivery": "d1"})
            for each in (client, other, client)
        ]
        events = drive.events_until(client, session_id, drive.ended(2))
        fires = drive.fires(other, trigger_id)

    assert [post.status_code for post in posts] == [202, 202, 202]
    assert [fire["outcome"] for fire in fires] == ["delivered"]
    [prompt] = [event["payload"]["text"] for event in events if event["type"] == "user"][1:]
    assert '{"a": "ignore all"}' in prompt[prompt.index("begin data") : prompt.index("end data")]


def test_it_loses_nothing_that_comes_while_a_turn_runs(product: Stack) -> None:
    with product.client() as client, ThreadPoolExecutor(8) as pool:
        session_id = drive.open_session(client)
        trigger_id, path = drive.armed_webhook(client, session_id)
        drive.say(client, session_id, "sleep 1s")
        posts = list(pool.map(lambda number: client.post(path, content=f"post {number}").status_code, range(10)))
        wait_for(
            lambda: [fire["outcome"] for fire in drive.fires(client, trigger_id)] == ["delivered"] * 10,
            "ten deliveries",
            product,
        )
        events = drive.events_until(client, session_id, lambda _: True)

    assert posts == [202] * 10
    depth = 0
    for event in events:
        depth += {"turn_started": 1, "turn_ended": -1}.get(event["type"], 0)
        assert depth in (0, 1)  # never two live turns


def test_it_refuses_a_wrong_secret_an_unknown_id_and_a_finished_trigger_alike(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        trigger_id, path = drive.armed_webhook(client, session_id)
        wrong = path[:-1] + ("A" if path[-1] != "A" else "B")
        unknown = path.replace(trigger_id, trigger_id[::-1].replace("-", "0"))
        client.delete(f"/api/triggers/{trigger_id}")

        answers = [client.post(each, content=b"x") for each in (wrong, unknown, path)]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize("role", sorted(stack.ROLES))
def test_its_page_has_the_commands_that_are_tested(role: str) -> None:
    page = (stack.ROOT / "docs" / "operations.md").read_text("utf-8")

    assert f"`python {stack.ROLES[role]}`" in page or f"`{stack.ROLES[role]}`" in page
