"""A job file that goes to the server as it is written, with lines added behind it.

Reading YAML costs as much as the rest of `submit`, and the server reads the file anyway. What has to be known here,
which keys a file has at its top, is told by its lines where these leave no doubt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

_KEY = re.compile(r"([a-z_]+):(?: +(.*))?")
_WORD = re.compile(r"[\w./-]+")
_INSIDE = re.compile(r"[ ]|#|$|- ")
READ_HERE = ("workdir", "inherit_env")
"""Keys of which the value is looked at, so that it has to be a plain word."""


class PlainFile:
    """A job file of plain lines; options have changed nothing in it. `source` is what people call it."""

    def __init__(self, text: str, source: str, keys: Mapping[str, str]) -> None:
        self.source = source
        self.changes: list[str] = []
        self._text = text if not text or text.endswith("\n") else f"{text}\n"
        self._keys = dict(keys)

    @property
    def text(self) -> str:
        """The file, with what was added."""
        return self._text

    @property
    def sent(self) -> str:
        """The file as the server gets it."""
        return self._text

    def has(self, key: str) -> bool:
        """Whether the file has a key."""
        return key in self._keys

    def value(self, key: str) -> str | None:
        """The value of one of the keys that are read here; None where there is none."""
        return self._keys.get(key)

    def put(self, path: list[str], value: object) -> None:
        """Adds a key that the file has not."""
        (key,) = path
        self._keys[key] = str(value)
        self._text += f"{key}: {json.dumps(value)}\n"

    def add_pairs(self, key: str, pairs: Mapping[str, str]) -> None:
        """Adds a mapping that the file has not."""
        if pairs:
            self.put([key], dict(pairs))


def plain_file(text: str, source: str) -> PlainFile | None:
    """A job file whose lines tell its keys; None where YAML has to be read for that, or it has variables."""
    keys: dict[str, str] = {}
    for line in text.splitlines():
        if not _is_whole(line):
            return None
        if _INSIDE.match(line):
            continue
        match = _KEY.fullmatch(line)
        if match is None or match[1] in keys:
            return None
        keys[match[1]] = (match[2] or "").partition(" #")[0].strip()
    is_read = all(_WORD.fullmatch(keys[key]) for key in READ_HERE if key in keys)
    return PlainFile(text, source, keys) if keys and is_read and "env" not in keys else None


def _is_whole(line: str) -> bool:
    """Whether nothing that a line opens, a text in quotes or a list, can go on in the next."""
    return line.isprintable() and not any(_unbalanced(line))


def _unbalanced(line: str) -> Iterator[bool]:
    yield from (line.count(quote) % 2 == 1 for quote in "\"'")
    yield from (line.count(left) != line.count(right) for left, right in ("[]", "{}"))
