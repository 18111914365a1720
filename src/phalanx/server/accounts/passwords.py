"""Passwords, hashed with argon2."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

LENGTH_MIN, LENGTH_MAX = 8, 1024

_hasher = PasswordHasher(parallelism=1)
"""RFC 9106's second choice (64 MiB, three passes) with one lane: four would take every core from those who read."""


def hashed(password: str) -> str:
    """What is kept of a password."""
    return _hasher.hash(password)


def matches(kept: str | None, password: str) -> bool:
    """Whether a password is the one that was kept. Takes as long if there is none: time tells nobody who exists."""
    try:
        return _hasher.verify(kept or _nobodys(), password) and kept is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobodys() -> str:
    """What would be kept of a password that nobody has."""
    return _hasher.hash("nobody has this password")
