"""Slurm's lists of names: `n[1-3,07],login` stands for n1, n2, n3, n07 and login."""

from __future__ import annotations

import re
from itertools import product

NAMES_MAX = 1 << 20
_GROUP = re.compile(r"\[([^\]]*)\]")
_COMMA = re.compile(r",(?![^\[]*\])")


class HostlistError(ValueError):
    """No list of names."""


def expand(text: str) -> tuple[str, ...]:
    """The names of a list, in its order."""
    if text in ("", "(null)", "None assigned"):
        return ()
    return tuple(name for part in _COMMA.split(text) for name in _names(part))


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
    return ["".join(_woven(pieces, chosen)) for chosen in product(*groups)]


def _woven(pieces: list[str], chosen: tuple[str, ...]) -> list[str]:
    return [pieces[0], *(text for pair in zip(chosen, pieces[1:], strict=True) for text in pair)]


def _range(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise HostlistError(f"{part!r}: expected a number, or a range such as 1-8")
        end = int(last) if dash else int(first)
        if end - int(first) >= NAMES_MAX:
            raise HostlistError(f"{part!r}: more names than any cluster has")
        found += [str(number).zfill(len(first)) for number in range(int(first), end + 1)]
    return found
