"""Tokens: secrets that stand for a user, or for one attempt of one job. Only digests are ever stored."""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256
from typing import NamedTuple

PREFIX = "phx_"
ATTEMPT_PREFIX = "phxa_"
_ATTEMPT = re.compile(r"phxa_([0-9]{1,18}(?:\.[0-9]{1,9})?)_([0-9]{1,9})_([0-9a-f]{64})")


class NewToken(NamedTuple):
    """A token as its owner gets it, once, and what is kept of it."""

    id: str
    token: str
    digest: str


class AttemptToken(NamedTuple):
    """The attempt that a token stands for."""

    job: str
    attempt: int


def new_token() -> NewToken:
    """A token nobody can guess."""
    number = secrets.token_hex(6)
    token = f"{PREFIX}{number}_{secrets.token_urlsafe(32)}"
    return NewToken(number, token, digest_of(token))


def digest_of(token: str) -> str:
    """What is kept of a token. It has 256 bits of chance, so that a plain hash cannot be searched."""
    return sha256(token.encode()).hexdigest()


def attempt_token(secret: bytes, job: str, attempt: int) -> str:
    """The token by which an attempt reports on itself. It needs no store: the signature says what it is for."""
    return f"{ATTEMPT_PREFIX}{job}_{attempt}_{_signature(secret, job, attempt)}"


def read_attempt_token(secret: bytes, token: str) -> AttemptToken | None:
    """The attempt that a token stands for; None for a forged one."""
    match = _ATTEMPT.fullmatch(token)
    if match is None:
        return None
    job, attempt = match[1], int(match[2])
    if not hmac.compare_digest(match[3], _signature(secret, job, attempt)):
        return None
    return AttemptToken(job, attempt)


def _signature(secret: bytes, job: str, attempt: int) -> str:
    return hmac.new(secret, f"attempt {job}/{attempt}".encode(), sha256).hexdigest()
