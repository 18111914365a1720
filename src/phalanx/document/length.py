"""Lengths: whether a list of a text is longer than it may be, told by its lines or brackets before it is read.

Reading takes microseconds a value, so that a file of a million nodes would be read for many seconds only to be refused.
Here the text is looked at once, by regular expressions. What looks like an item but is part of some value may be
counted, but so many of them only make a list too long in a value that is itself far longer than any may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

CHARS_PER_ITEM_MIN = 2
"""An item takes a character and what divides it from the next."""

TOKENS_MAX = 5_000_000
"""Brackets and commas looked at: a text with more of them has too many values, too, which is noticed in time."""

KEY_CHARS = 300
"""How far before a list its key is looked for."""

_LINE = re.compile(r"^( *)(?:(-)(?:[ ]|$)|([^\s#]))", re.MULTILINE)
# What lies between is skipped without ever going back, so that the time taken grows with the text and no faster.
_TOKEN = re.compile(r'(?:[^"\[\]{},]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)*+([\[\]{},]|\Z)', re.DOTALL)
_KEY = re.compile(r"""(?:^|[\s{,-])["']?([A-Za-z_][\w.-]*)["']?\s*:\s*(?:\#.*)?$""")


class Length(NamedTuple):
    """A list that is too long: the line of its key or else of its beginning, its key, and how many items were counted.

    That is all of them, unless the text goes on and on.
    """

    line: int
    key: str
    items: int
    is_all: bool = True


def too_long(text: str, items_max: int) -> Length | None:
    """The first list of a text with more items than that; None if there is none that can be told without reading."""
    if len(text) < CHARS_PER_ITEM_MIN * items_max:
        return None
    is_flow = text.lstrip()[:1] in ("{", "[")
    return _in_brackets(text, items_max) if is_flow else _in_lines(text, items_max)


def _in_lines(text: str, items_max: int) -> Length | None:
    """Lists of which each item begins a line with a dash."""
    indents: list[int] = []
    counts: list[int] = []
    starts: list[int] = []
    for match in _LINE.finditer(text):
        indent = match.end(1) - match.start(1)
        while indents and (indents[-1] > indent or (indents[-1] == indent and match[2] is None)):
            if counts[-1] > items_max:
                return _length(text, starts[-1], counts[-1])
            del indents[-1], counts[-1], starts[-1]
        if match[2] is None:
            continue
        if indents and indents[-1] == indent:
            counts[-1] += 1
        else:
            indents.append(indent)
            counts.append(1)
            starts.append(match.start())
    return _first_long(text, zip(starts, counts, strict=True), items_max)


def _in_brackets(text: str, items_max: int) -> Length | None:
    """Lists in square brackets, as in JSON."""
    counts: list[int] = []
    starts: list[int] = []
    tokens = _TOKEN.finditer(text)
    for match in islice(tokens, TOKENS_MAX):
        token = match[1]
        if token == ",":
            if counts:
                counts[-1] += 1
        elif token in ("[", "{"):
            counts.append(1)
            starts.append(match.start(1) if token == "[" else -1)
        elif token in ("]", "}") and counts:
            count, start = counts.pop(), starts.pop()
            if count > items_max and start >= 0:
                return _length(text, start, count)
    found = _first_long(text, zip(starts, counts, strict=True), items_max)
    return found._replace(is_all=next(tokens, None) is None) if found is not None else None


def _first_long(text: str, opened: Iterable[tuple[int, int]], items_max: int) -> Length | None:
    """The first that is too long of lists that the text ends in."""
    for start, count in opened:
        if count > items_max and start >= 0:
            return _length(text, start, count)
    return None


def _length(text: str, start: int, items: int) -> Length:
    before = text[max(0, start - KEY_CHARS) : start].rstrip()
    key = _KEY.search(before.rpartition("\n")[2])
    if key is None:
        return Length(text.count("\n", 0, start) + 1, "", items)
    return Length(text.count("\n", 0, len(text[:start].rstrip())) + 1, key[1], items)
