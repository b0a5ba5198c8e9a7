"""The kind that docs/adding-a-kind.md writes, put into the folder of kinds and used."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

import triggers.kinds
from sessions.models import AgentSession
from tests.factories import context_in
from triggers import engine, tool
from triggers.models import Fire
from triggers.registry import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-kind.md"


@pytest.fixture
def moon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the file, as if it lay in the folder."""
    code = PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "time_moon.py").write_text(code)
    monkeypatch.setattr(triggers.kinds, "__path__", [*triggers.kinds.__path__, str(tmp_path)])
    monkeypatch.delitem(KINDS.__dict__, "by_name", raising=False)
    for cached in (tool._schema, tool._description):  # made once from the kinds there are
        monkeypatch.setattr(tool, cached.__name__, cached.__wrapped__)


@pytest.mark.django_db
@pytest.mark.usefixtures("moon")
def test_one_file_is_a_kind(session: AgentSession, now: datetime) -> None:
    schedule = tool.ScheduleTrigger()
    order = {"kind": "time.moon", "every": "2", "wake_prompt": "howl"}

    answer = schedule.call(context_in(session, now), order, now=now)
    due = datetime.fromisoformat(answer["next_fire_at"])

    assert "time.moon" in schedule.schema()["properties"]["kind"]["enum"]
    assert "every" in schedule.schema()["properties"]
    assert answer["describe"].startswith("full moon; next 20")
    assert engine.tick(now=due - timedelta(seconds=1)).fired == 0
    assert engine.tick(now=due).fired == 1
    assert Fire.objects.get().due_at == due


@pytest.mark.django_db
@pytest.mark.usefixtures("moon")
def test_its_args_are_checked_like_any_other(session: AgentSession, now: datetime) -> None:
    order = {"kind": "time.moon", "every": 13, "wake_prompt": "howl"}

    answer = tool.ScheduleTrigger().call(context_in(session, now), order, now=now)

    assert "every" in answer["error"]["message"]
