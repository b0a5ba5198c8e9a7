"""`webhook`: fires when somebody posts to the trigger's capability URL."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from sessions.secrecy import HOOK, SIGNING, mint, mint_standard
from triggers.kinds import base
from triggers.signatures import STANDARD_HEADER

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")  # a header's name: RFC 9110, section 5.6.2


class WebhookArgs(base.Args):
    hmac_header: Annotated[
        str | None,
        Field(
            description="Name of the header that will carry an HMAC-SHA256 signature of the body, "
            'e.g. "X-Hub-Signature-256"; only signed posts then count, and a signing_secret is returned.'
        ),
    ] = None

    @field_validator("hmac_header")
    @classmethod
    def _is_a_header(cls, value: str | None) -> str | None:
        if value is not None and not _TOKEN.match(value):
            raise ValueError('must be the name of an HTTP header, e.g. "X-Hub-Signature-256"')
        return value


class Webhook(base.Kind[WebhookArgs]):
    name: ClassVar[str] = "webhook"
    summary: ClassVar[str] = "fires on each POST to the hook_url that arming returns"
    Args = WebhookArgs

    def describe(self, args: WebhookArgs, *, now: datetime) -> str:
        return f"a POST to its URL, signed in {args.hmac_header}" if args.hmac_header else "a POST to its URL"

    def secrets(self, args: WebhookArgs) -> dict[str, str]:
        return {"url": mint(HOOK)} | ({"signing": _signing_secret(args.hmac_header)} if args.hmac_header else {})


def _signing_secret(header: str) -> str:
    return mint_standard() if header.lower() == STANDARD_HEADER else mint(SIGNING)
