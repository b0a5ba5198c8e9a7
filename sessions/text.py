"""Text that every database can store."""

from __future__ import annotations

import math
from typing import Any

_REPLACEMENT = "�"
_UNSTORABLE = {0: _REPLACEMENT} | dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)


def storable(value: Any) -> Any:
    """Return `value` with each NUL and lone surrogate, at any depth, replaced by U+FFFD.

    PostgreSQL refuses NUL in text and jsonb, and UTF-8 has no surrogates; SQLite takes both, so
    only a shared rule keeps the two alike. Infinite and not-a-number floats, which JSON columns
    refuse, become their text.
    """
    if isinstance(value, str):
        return value.translate(_UNSTORABLE) if not value.isascii() or "\0" in value else value
    if isinstance(value, dict):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis where some were left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
