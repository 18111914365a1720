"""Passwords, hashed with argon2."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

LENGTH_MIN, LENGTH_MAX = 8, 1024

_hasher = PasswordHasher(parallelism=1)
"""RFC 9106's second choice (64 MiB, three passes) with one lane: four would take every core from readers."""


def hashed(password: str) -> str:
    """What is kept of a password."""
    return _hasher.hash(password)


def matches(kept: str | None, password: str) -> bool:
    """Whether a password is the one kept. As slow if there is none: the time must not tell which users exist."""
    try:
        return _hasher.verify(kept or _decoy(), password) and kept is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _decoy() -> str:
    """What would be kept of a password that no user has."""
    return _hasher.hash("nobody has this password")
