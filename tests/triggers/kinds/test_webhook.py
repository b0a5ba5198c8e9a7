from __future__ import annotations

from datetime import datetime

import pytest
from pydantic import ValidationError

from triggers.kinds.webhook import Webhook

KIND = Webhook()


def test_it_has_a_secret_of_its_own_for_its_url() -> None:
    first, second = (KIND.secrets(KIND.read({})) for _ in range(2))
    assert set(first) == {"url"}
    assert first != second


def test_it_signs_with_another_secret_than_the_urls() -> None:
    secrets = KIND.secrets(KIND.read({"hmac_header": "X-Hub-Signature-256"}))
    assert set(secrets) == {"url", "signing"}
    assert secrets["url"] != secrets["signing"]


@pytest.mark.parametrize("header", ["X Sig", "X-Sig:", "", "é", "a\r\nb", "x" * 101])
def test_it_refuses_what_cannot_be_a_header(header: str) -> None:
    with pytest.raises(ValidationError):
        KIND.read({"hmac_header": header})


def test_it_says_whether_posts_must_be_signed(now: datetime) -> None:
    assert KIND.describe(KIND.read({}), now=now) == "a POST to its URL"
    assert "signed in X-Sig" in KIND.describe(KIND.read({"hmac_header": "X-Sig"}), now=now)
