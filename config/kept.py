"""Secrets that the embedded form makes for itself once and keeps in a file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def kept(path: Path, make: Callable[[], str]) -> str:
    """Return the secret in the file at `path`, made with `make` and written first where there is none.

    1. The secret is written whole, and synced, to a file of its own with mode 0600.
    2. That file is linked to `path`. A link is made or refused as a whole, so of two processes that start
       at once one wins, and nobody ever reads half a secret.
    3. Whoever won, what is now in `path` is read.

    Raises ImproperlyConfigured for a file that cannot be read or written, and for an empty one.
    """
    try:
        if not path.exists():
            _offer(path, make())
        secret = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{path}: cannot keep a secret there: {error}") from None
    if not secret:
        raise ImproperlyConfigured(f"{path} is empty: put the secret back, or remove the file to have a new one made")
    return secret


def _offer(path: Path, secret: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its secret is the one that counts
    finally:
        draft.unlink()
