"""A post to a capability URL: whether it is right, and the fire that it is."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hmac import compare_digest
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError

from sessions.ids import uuid7
from sessions.reads import Read
from sessions.secrecy import HOOK, SIGNING, Unreadable, decrypt, encrypt, mint
from sessions.together import Together
from triggers import engine, ledger
from triggers.engine import Fired
from triggers.ledger import Occurrence
from triggers.models import Trigger
from triggers.signatures import STANDARD_HEADER, Verifier
from triggers.states import TriggerStatus

SOURCE = "webhook"
# The first that is there names the delivery. A forge that imitates GitHub sends one id under several names; GitLab's
# event UUID is the same for events that follow from one another, so it comes last.
DELIVERY_HEADERS = ("x-github-delivery", "x-gitea-delivery", "webhook-id", "idempotency-key", "x-gitlab-event-uuid")
AT_ONCE = 100  # posts in one transaction
DATABASE_GONE = (OperationalError, InterfaceError)
_NOBODY = UUID(int=0)

log = logging.getLogger("rewake.hook")


@dataclass(frozen=True)
class Post:
    """What is posted. `body` is read once; the names of `headers` are in lower case, their values latin-1."""

    body: Iterable[bytes]
    headers: Mapping[str, str]


def receive(trigger_id: str, secret: str, post: Post, *, clock: Callable[[], datetime]) -> bool:
    """Record a post as a fire, committed; return whether it was right, and new or known.

    1. Look the trigger up and compare the secret, so that the body need not be held until its signature is known.
    2. Read the body. Whatever it raises on the way goes to the caller, with nothing told or recorded.
    3. Read the clock, compare the signature and record the fire, if the trigger is still armed.

    Whatever is wrong, the same is done: one row looked for, one token decrypted, one secret compared, the whole
    body signed and one signature compared, one delivery looked for. Only the log says which it was.
    """
    usual, signed_id = _delivery(post.headers), _delivery(post.headers, first="webhook-id")
    trigger = _find((_uuid(trigger_id), {usual, signed_id}))
    secrets = _secrets_of(trigger)
    right = compare_digest(_bytes(secret), _bytes(secrets["url"])) & (trigger is not None)
    # Standard Webhooks signs a body more than once, which a wrong secret must not show.
    header = str(trigger.args.get("hmac_header") or "") if trigger and right else ""
    verifier = Verifier(secrets["signing"], post.headers, header or "x-signature")
    body = _read(post.body, verifier)
    now = clock()
    signed = verifier.right(now) | (not header)
    # Standard Webhooks signs its own id: there, no other that could be changed on the way may stand in for it.
    delivery = signed_id if header.lower() == STANDARD_HEADER else usual
    if trigger and right and signed and settings.TRIGGERS_ENABLED:
        if trigger.knows_some and ledger.recorded([(trigger.pk, delivery)]):
            return True
        if _is_ready(trigger, now):
            occurrence = _occurrence(body, post.headers, delivery or str(uuid7()), now)
            return _fire((trigger.pk, occurrence)) != Fired.REFUSED
    log.info("hook_refused", extra={"action": "hook_refused", **_why(trigger, right, signed, now)})
    return False


_FIND = Read(
    Trigger,
    "SELECT t.id, t.session_id, t.status, t.expires_at, t.args, t.secrets, EXISTS ("
    "  SELECT 1 FROM rewake_fire f WHERE f.trigger_id = t.id AND f.occurrence IN ({keys})"
    ") AS knows_some FROM rewake_trigger t WHERE t.id IN ({ids})",
)


def _find_all(wanted: Sequence[tuple[UUID, set[str]]]) -> list[Any]:
    """Return triggers, None where there is none, that say whether they may have recorded any of some occurrences."""
    ids = {trigger_id for trigger_id, _ in wanted}
    keys = set[str]().union(*(keys for _, keys in wanted))
    found = {row.pk: row for row in _FIND(keys=keys, ids=ids)}
    return [found.get(trigger_id) for trigger_id, _ in wanted]


def _fire_all(posted: Sequence[tuple[UUID, Occurrence]]) -> list[Fired]:
    return engine.fire_all(posted, now=max(occurrence.due_at for _, occurrence in posted))


# A query and a transaction each for all posts that wait for one at the same moment.
_find = Together(_find_all, most=AT_ONCE, hopeless=DATABASE_GONE)
_fire = Together(_fire_all, most=AT_ONCE, hopeless=DATABASE_GONE)


def _uuid(text: str) -> UUID:
    """Return an id in its one usual form; any other is nobody's."""
    try:
        found = UUID(text)
    except ValueError:
        return _NOBODY
    return found if str(found) == text.lower() else _NOBODY


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _secrets_of(trigger: Trigger | None) -> dict[str, str]:
    """Return a trigger's secrets; where it has none, those that nobody knows, found with the same work."""
    decoy = _decoy(tuple(settings.ENCRYPTION_KEYS))
    try:
        secrets: dict[str, str] = decrypt(trigger.secrets if trigger and trigger.secrets else decoy)
    except Unreadable as error:
        log.error("secrets_unreadable", extra={"action": "secrets_unreadable", "error": str(error)})
        secrets = decrypt(decoy)
    return {"url": secrets["url"], "signing": secrets.get("signing") or mint(SIGNING)}


@lru_cache(maxsize=4)
def _decoy(_keys: tuple[str, ...]) -> str:
    return encrypt({"url": mint(HOOK), "signing": mint(SIGNING)})


@dataclass(frozen=True)
class _Body:
    """What is left of a body that came whole."""

    head: bytes
    size: int


def _read(chunks: Iterable[bytes], verifier: Verifier) -> _Body:
    most, head, size = settings.TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES, bytearray(), 0
    for chunk in chunks:
        verifier.update(chunk)
        head += chunk[: most - len(head)]
        size += len(chunk)
    return _Body(bytes(head), size)


def _delivery(headers: Mapping[str, str], *, first: str = "") -> str:
    """Return the sender's delivery id as an occurrence, "" if it gave none."""
    given = (headers.get(name, "").strip() for name in (first, *DELIVERY_HEADERS))
    return ledger.key_of(next((value for value in given if value), ""))


def _is_ready(trigger: Trigger, now: datetime) -> bool:
    return trigger.status == TriggerStatus.ARMED and trigger.expires_at > now


def _occurrence(body: _Body, headers: Mapping[str, str], key: str, now: datetime) -> Occurrence:
    truncated = body.size > len(body.head)
    return Occurrence(
        key=key,
        due_at=now,
        payload=_text(body.head, whole=not truncated),
        payload_source=SOURCE,
        content_type=headers.get("content-type", ""),
        payload_bytes=body.size,
        truncated=truncated,
    )


def _text(body: bytes, *, whole: bool) -> str:
    """Return bytes as text. A character that a cut has halved is left out; what else is not UTF-8 becomes U+FFFD."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(body, final=whole)


def _why(trigger: Trigger | None, right: bool, signed: bool, now: datetime) -> dict[str, str]:
    if trigger is None:
        return {"reason": "no such trigger"}
    about = {"trigger_id": str(trigger.pk), "session_id": str(trigger.session_id)}
    if not right:
        return {**about, "reason": "wrong secret"}
    if not signed:
        return {**about, "reason": "wrong or missing signature"}
    if not settings.TRIGGERS_ENABLED:
        return {**about, "reason": "triggers are disabled"}
    expired = trigger.status == TriggerStatus.ARMED and trigger.expires_at <= now
    return {**about, "reason": f"it is {'expired' if expired else trigger.status}"}
