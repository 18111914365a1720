"""Tokens: secrets that stand for a user, or for one attempt of one job. Only digests are ever stored."""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256
from typing import NamedTuple

PREFIX = "phx_"
ATTEMPT_PREFIX = "phxa_"
_ATTEMPT = re.compile(r"phxa_([0-9]{1,18}(?:\.[0-9]{1,9})?)_([0-9]{1,9})_(?:([0-9a-f]{16})_)?([0-9a-f]{64})")


class NewToken(NamedTuple):
    """A token as its owner gets it, once, and what is kept of it."""

    id: str
    token: str
    digest: str


class AttemptToken(NamedTuple):
    """The attempt that a token stands for, and the incarnation of the store that started it; a release without
    incarnations named none.
    """

    job: str
    attempt: int
    incarnation: str = ""


def new_token() -> NewToken:
    """A token that cannot be guessed."""
    number = secrets.token_hex(6)
    token = f"{PREFIX}{number}_{secrets.token_urlsafe(32)}"
    return NewToken(number, token, digest_of(token))


def digest_of(token: str) -> str:
    """What is kept of a token. It has 256 bits of chance, so that a plain hash cannot be searched."""
    return sha256(token.encode()).hexdigest()


def attempt_token(secret: bytes, job: str, attempt: int, incarnation: str = "") -> str:
    """The token by which an attempt reports on itself. It needs no store: the signature says what it is for."""
    named = f"{incarnation}_" if incarnation else ""
    return f"{ATTEMPT_PREFIX}{job}_{attempt}_{named}{_signature(secret, job, attempt, incarnation)}"


def read_attempt_token(secret: bytes, token: str) -> AttemptToken | None:
    """The attempt that a token stands for; None for a forged one."""
    match = _ATTEMPT.fullmatch(token)
    if match is None:
        return None
    job, attempt, incarnation = match[1], int(match[2]), match[3] or ""
    if not hmac.compare_digest(match[4], _signature(secret, job, attempt, incarnation)):
        return None
    return AttemptToken(job, attempt, incarnation)


def _signature(secret: bytes, job: str, attempt: int, incarnation: str) -> str:
    named = f" of {incarnation}" if incarnation else ""
    return hmac.new(secret, f"attempt {job}/{attempt}{named}".encode(), sha256).hexdigest()
