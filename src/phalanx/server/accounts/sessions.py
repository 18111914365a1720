"""Sessions of browsers: how long they last, and what a page shows to be the one that opened its session."""

from __future__ import annotations

import hmac
from hashlib import sha256

IDLE_MS = 2 * 3_600_000
"""A session that is not used for so long has ended."""

MOST_MS = 12 * 3_600_000
"""A session lasts no longer, however much it is used."""

RENEW_MS = 300_000
"""So long after it was last renewed a session that is used is renewed: not with every request."""

SESSIONS_MAX = 32
"""Sessions that a user may have open; one more ends the oldest."""


def end_ms(now: int, until_ms: int) -> int:
    """When a session ends that is used now and lasts until then at most."""
    return min(now + IDLE_MS, until_ms)


def is_due(now: int, expires_ms: int, until_ms: int) -> bool:
    """Whether a session that is used now should be renewed."""
    return expires_ms < until_ms and end_ms(now, until_ms) - expires_ms >= RENEW_MS


def csrf_of(token: str) -> str:
    """What a page sends beside the cookie with every change. Only a page that could read an answer of ours has it, and
    nothing about the cookie follows from it.
    """
    return hmac.new(token.encode(), b"phalanx csrf", sha256).hexdigest()


def is_csrf_of(token: str, given: str) -> bool:
    """Whether it is what belongs to a session, in a time that tells nothing."""
    return hmac.compare_digest(csrf_of(token).encode(), given.encode(errors="replace"))
