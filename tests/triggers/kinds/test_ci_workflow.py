from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from sessions.models import AgentSession
from tests.factories import arm
from tests.triggers.forges.fake import FakeGitHub
from tests.triggers.forges.world import World, fired, payloads
from triggers.exceptions import Invalid
from triggers.models import Trigger

pytestmark = pytest.mark.django_db


def test_a_timeline_fires_for_each_attempt_that_ends_and_for_nothing_else(github: World[FakeGitHub]) -> None:
    github.forge.put_run("octo/repo", id=1000, status="completed", conclusion="success")
    github.pass_time(60)
    trigger = github.arm_ci()
    github.poll()
    github.forge.put_run("octo/repo", id=1001, status="queued")
    github.later()
    github.forge.put_run("octo/repo", id=1001, status="in_progress")
    github.later()
    assert fired(trigger) == []

    github.forge.put_run("octo/repo", id=1001, status="completed", conclusion="failure")
    github.later()
    assert fired(trigger) == ["1001:1"]

    github.forge.put_run("octo/repo", id=1001, status="in_progress", conclusion=None, run_attempt=2)
    github.later()
    github.forge.put_run("octo/repo", id=1001, status="completed", conclusion="success", run_attempt=2)
    github.later()
    github.later()

    assert fired(trigger) == ["1001:1", "1001:2"]
    assert [payload["verdict"] for payload in payloads(trigger)] == ["failing", "passing"]
