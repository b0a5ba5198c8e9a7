"""Text from outside is shown as text: on every page and in every fragment, within attributes too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from django.test import Client

from sessions import transcript, turns
from sessions.models import AgentSession, Wake
from sessions.states import EventType, WakeStatus
from sessions.transcript import Entry
from sessions.turns import Fate
from tests.console.pages import at, fragment, press
from tests.factories import arm, end_turn, live_turn, open_session
from triggers import engine
from triggers.ledger import Occurrence
from triggers.models import Trigger

if TYPE_CHECKING:
    from tests.console.pages import Answer

EVIL = "<img src=x onerror=alert(1)>"
# Closes whatever it may stand in: an attribute of either quote, a script, a style, a text box, a comment.
BREAKOUT = f"""'">--></textarea></script></style>{EVIL}<script>alert(2)</script>{{{{ 7 }}}}"""


class _Reader(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts = 0
        self.images: set[str | None] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.attributes.update(given)
        self.scripts += tag == "script" and "src" not in given
        if tag == "img":
            self.images.add(given.get("src"))


@dataclass(frozen=True)
class _World:
    """One of everything, with hostile text in each place that others can write to."""

    session: AgentSession
    trigger: Trigger
    on_branch: Trigger
    wake: Wake


@pytest.fixture
def world(db: None, now: datetime) -> _World:
    session = open_session(now, title=BREAKOUT, tag=f"tag {BREAKOUT}", model=f"model {BREAKOUT}")
    begun = live_turn(session, now, BREAKOUT)
    trigger = arm(session, now, "webhook", args={"hmac_header": "X-Signature"}, wake_prompt=BREAKOUT).trigger
    branch = {"repo": "owner/name", "workflow": "ci.yml", "ref": BREAKOUT}
    on_branch = arm(session, now, "ci.workflow", args=branch).trigger
    entries = [
        Entry(session.pk, EventType.ASSISTANT, {"text": BREAKOUT * 30}),
        Entry(session.pk, EventType.TOOL_CALL, {"tool": BREAKOUT, "args": {BREAKOUT: BREAKOUT}}),
        Entry(
            session.pk,
            EventType.TOOL_RESULT,
            {"tool": BREAKOUT, "result": {"error": {"code": BREAKOUT, "message": BREAKOUT}}},
        ),
        Entry(
            session.pk,
            EventType.TRIGGER_STATUS,
            dict.fromkeys(("trigger_id", "kind", "from", "to", "reason"), BREAKOUT),
        ),
        Entry(session.pk, EventType.WAKE_REQUEUED, {"wakes": [1], "reason": BREAKOUT, "next_attempt_at": BREAKOUT}),
    ]
    transcript.append(entries, now=now)
    end_turn(begun.turn, now, usage={BREAKOUT: 1})
    payload = f'{{"ref": "refs/heads/{BREAKOUT}"}}'
    delivery = Occurrence(
        key=BREAKOUT, due_at=now, payload=payload, payload_source=BREAKOUT, content_type=BREAKOUT, note=BREAKOUT
    )
    engine.fire(trigger.pk, delivery, now=now)
    [begun] = turns.begin([session.pk], worker="test", now=now)
    end_turn(begun.turn, now, status="failed", fate=Fate.QUARANTINED, reason=BREAKOUT)
    AgentSession.objects.filter(pk=session.pk).update(held_until=now.replace(hour=23), hold_reason=BREAKOUT)
    Trigger.objects.filter(pk=trigger.pk).update(last_error=BREAKOUT, created_by=EVIL)
    return _World(session, trigger, on_branch, Wake.objects.get(status=WakeStatus.QUARANTINED))


def _assert_harmless(answer: Answer, *, shows: bool = True) -> None:
    page = answer.content.decode()
    reader = _Reader()
    reader.feed(page)
    assert reader.images <= {"/static/console/favicon.svg"}
    assert "onerror" not in reader.attributes
    assert reader.scripts == 0
    assert EVIL not in page
    assert not shows or "&lt;img src=x onerror=alert(1)&gt;" in page


def test_it_shows_hostile_text_as_text_on_every_page(operator: Client, world: _World) -> None:
    session, trigger = world.session.pk, world.trigger.pk
    pages = [
        at("triggers"),
        f"{at('triggers')}?session={EVIL}",
        at("trigger", trigger),
        at("sessions"),
        at("session", session),
        f"{at('session', session)}?from=1",
        at("terminate", session),
    ]

    for path in pages:
        _assert_harmless(operator.get(path))
    _assert_harmless(operator.get(at("trigger", world.on_branch.pk)))
    _assert_harmless(operator.get(at("cancel", world.on_branch.pk)))
    _assert_harmless(operator.get(f"{at('triggers')}?status={EVIL}"))
    _assert_harmless(operator.get(f"{at('triggers')}?before={EVIL}"))
    _assert_harmless(operator.get(f"{at('login')}?next={EVIL}"))
    _assert_harmless(operator.post(at("new_session"), {"title": EVIL * 20}))


def test_it_shows_hostile_text_as_text_in_every_fragment(operator: Client, world: _World) -> None:
    session, trigger, wake = world.session.pk, world.trigger.pk, world.wake.pk

    for path in [
        at("triggers"),
        at("trigger", trigger),
        at("sessions"),
        at("session", session),
        f"{at('events', session)}?after=0",
        f"{at('events', session)}?before=100",
    ]:
        _assert_harmless(fragment(operator, path))
    _assert_harmless(press(operator, at("hook", trigger)), shows=False)
    for path in [
        f"{at('pause', trigger)}?shape=row",
        f"{at('resume', trigger)}?shape=beside",
        at("pause", trigger),
        at("interrupt", session),
        at("retry_wake", session, wake),
        at("retry_fire", trigger, wake),
        f"{at('cancel', trigger)}?shape=row",
        f"{at('pause', trigger)}?shape=row",
        at("terminate", session),
    ]:
        _assert_harmless(press(operator, path))


def test_it_shows_hostile_text_as_text_in_what_it_says_back(operator: Client, world: _World) -> None:
    _assert_harmless(press(operator, at("say", world.session.pk), text=BREAKOUT * 1200, key=f'"{EVIL}'))
