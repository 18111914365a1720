"""Slurm's lists of names: `n[1-3,07],login` stands for n1, n2, n3, n07 and login."""

from __future__ import annotations

import re
from itertools import product
from math import prod

NAMES_MAX = 200_000
"""As many nodes as a cluster may have."""

DIGITS_MAX, SHOWN_MAX = 9, 80
_GROUP = re.compile(r"\[([^\]]*)\]")
_COMMA = re.compile(r",(?![^\[]*\])")


class HostlistError(ValueError):
    """No list of names."""


def expand(text: str) -> tuple[str, ...]:
    """The names of a list, in its order."""
    if text in ("", "(null)", "None assigned"):
        return ()
    names: list[str] = []
    for part in _COMMA.split(text):
        names += _names(part)
        if len(names) > NAMES_MAX:
            raise HostlistError(_too_many(text))
    return tuple(names)


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a list such as `0-2,5`; none for `N/A`."""
    if text in ("", "N/A", "(null)"):
        return ()
    return tuple(int(each) for each in _range(text))


def _names(part: str) -> list[str]:
    groups = [_range(group) for group in _GROUP.findall(part)]
    pieces = _GROUP.split(part)[::2]
    if any("[" in piece or "]" in piece for piece in pieces):
        raise HostlistError(f"{part!r}: a bracket is not closed")
    if prod(map(len, groups)) > NAMES_MAX:
        raise HostlistError(_too_many(part))
    return ["".join(_woven(pieces, chosen)) for chosen in product(*groups)]


def _too_many(text: str) -> str:
    return f"{text[:SHOWN_MAX]!r}: more names than any cluster has"


def _woven(pieces: list[str], chosen: tuple[str, ...]) -> list[str]:
    return [pieces[0], *(text for pair in zip(chosen, pieces[1:], strict=True) for text in pair)]


def _range(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers_ = [first, last] if dash else [first]
        if not all(each.isdecimal() and each.isascii() and len(each) <= DIGITS_MAX for each in numbers_):
            raise HostlistError(f"{part[:SHOWN_MAX]!r}: expected a number, or a range such as 1-8")
        end = int(numbers_[-1])
        if end - int(first) >= NAMES_MAX:
            raise HostlistError(_too_many(part))
        found += [str(number).zfill(len(first)) for number in range(int(first), end + 1)]
    return found
