"""Tables in narrow terminals: what is cut short, what is left out, and when there can be no table."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

GAP = 2
"""Between two columns."""

COLUMNS_ELSE = 80
"""The width of a terminal that does not tell its own."""


class Fit(NamedTuple):
    """What a column of a table would take, what it can do with, and whether the table can do without it."""

    width: int
    least: int
    spare: bool = False


def fitted(columns: Sequence[Fit], room: int) -> list[int] | None:
    """The width of each column so that all fit; 0 for one that is left out, the last first. None if nothing helps."""
    shown = list(range(len(columns)))
    while (widths := _narrowed([columns[at] for at in shown], room)) is None:
        spare = [at for at in shown if columns[at].spare]
        if not spare:
            return None
        shown.remove(spare[-1])
    given = dict(zip(shown, widths, strict=True))
    return [given.get(at, 0) for at in range(len(columns))]


def _narrowed(columns: Sequence[Fit], room: int) -> list[int] | None:
    """Takes from the widest first, so that what is short stays whole."""
    room -= GAP * (len(columns) - 1)
    if sum(min(column.least, column.width) for column in columns) > room:
        return None
    widths = [column.width for column in columns]
    while sum(widths) > room:
        widest = max(
            (at for at, column in enumerate(columns) if widths[at] > column.least), key=lambda at: (widths[at], at)
        )
        widths[widest] -= 1
    return widths


def terminal_columns() -> int:
    """The width of the terminal, by COLUMNS or as it says itself; `shutil` has the same, and loads compressors."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or COLUMNS_ELSE if sys.__stdout__ else COLUMNS_ELSE
    except (OSError, ValueError):
        return COLUMNS_ELSE


def cut(text: str, width: int, tail: bool = False) -> str:
    """So much of a text, with a mark where the rest was; of a path the end, which tells more than its beginning."""
    if cells(text) <= width:
        return text
    kept = 0
    for character in reversed(text) if tail else text:
        width -= cells(character)
        if width < 1:
            break
        kept += 1
    return "…" + text[len(text) - kept :] if tail else text[:kept] + "…"


def folded(text: str, width: int) -> list[str]:
    """A text in lines of so many columns, broken between words; a word that is longer is broken where the line ends."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        wider = f"{line} {word}" if line else word
        if cells(wider) <= width:
            line = wider
            continue
        if line:
            lines.append(line)
        while cells(word) > width:
            part = _head(word, width)
            lines.append(part)
            word = word[len(part) :]
        line = word
    return [*lines, line] if line or not lines else lines


def _head(text: str, width: int) -> str:
    """As much of a text as so many columns hold, at least one character."""
    kept = 0
    for character in text:
        width -= cells(character)
        if width < 0:
            break
        kept += 1
    return text[: max(kept, 1)]


def padded(text: str, width: int, right: bool = False) -> str:
    """A text with spaces to so many columns, after it or (`right`) before it."""
    space = " " * (width - cells(text))
    return space + text if right else text + space


NARROW_BELOW, NARROW = "\u0300", "\u2026\u2013\u2014"
"""Characters before the first that may be no column or two wide, and signs beyond it that our own texts have."""


def cells(text: str) -> int:
    """How wide a text is in a terminal, where some characters are two columns wide."""
    if text.isascii() or all(character < NARROW_BELOW or character in NARROW for character in text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
