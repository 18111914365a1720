"""The tree of a document: scalars as they are written, lists and mappings, each with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from phalanx.document.error import DocumentError, brief
from phalanx.document.length import too_long

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# What YAML 1.1 calls printable; the rest is NUL, other control characters and lone surrogates.
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a document may be: characters of text, values once every alias is expanded, nesting, items of a list.

    What is too large is refused while it is read, as soon as it is.
    """

    text: int
    values: int
    depth: int = 24
    items: int = 1_000_000


class Scalar(NamedTuple):
    """A value without parts. Quoted text is never a number."""

    text: str
    quoted: bool
    size: int = 1
    height: int = 0


class Entry(NamedTuple):
    """A value where it is used: on the line of its key, or on its own line in a list."""

    line: int
    value: Value


class List(NamedTuple):
    """A list; `size` counts all values in it, `height` the levels of nesting below and with it."""

    parts: tuple[Entry, ...]
    size: int
    height: int


class Map(NamedTuple):
    """A mapping, with what `<<` merged into it."""

    parts: Mapping[str, Entry]
    size: int
    height: int


Value = Scalar | List | Map


def parse(text: str, source: str, limits: Limits) -> Entry:
    """The tree of one YAML or JSON document."""
    if len(text) > limits.text:
        raise DocumentError(source, 1, f"expected at most {limits.text} characters, got {len(text)}")
    text = text.removeprefix("\ufeff")
    _check_lengths(text, source, limits)
    strange = _UNPRINTABLE.search(text)
    if strange:
        line = text.count("\n", 0, strange.start()) + 1
        raise DocumentError(source, line, f"the character U+{ord(strange.group()):04X} is not allowed in text")
    try:
        return _Builder(source, limits).build(_joined_surrogates(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "unreadable"
        raise DocumentError(source, mark.line + 1 if mark else 1, f"not valid YAML: {brief(problem)}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise DocumentError(source, 1, f"not valid YAML: {brief(str(error))}") from None


def _check_lengths(text: str, source: str, limits: Limits) -> None:
    found = too_long(text, limits.items)
    if found is not None:
        least = "" if found.is_all else "at least "
        reason = f"expected at most {limits.items} items in a list, got {least}{found.items}"
        raise DocumentError(source, found.line, reason, found.key)


class _Frame:
    """A list or mapping that is being read. `key` is the key whose value comes next."""

    __slots__ = ("anchor", "height", "key", "key_line", "keyed", "line", "listed", "merged", "merging", "start")

    def __init__(self, line: int, anchor: str | None, is_map: bool, start: int) -> None:
        self.line = line
        self.anchor = anchor
        self.start = start
        self.height = 1
        self.listed: list[Entry] = []
        self.keyed: dict[str, Entry] | None = {} if is_map else None
        self.key: str | None = None
        self.key_line = 0
        self.merging = False
        self.merged: list[Map] = []

    @property
    def wants_key(self) -> bool:
        return self.keyed is not None and self.key is None


class _Builder:
    """Builds the tree from parser events: no recursion, and no step that grows faster than the text.

    An alias points at the value of its anchor, so nothing is copied; what it comes to in full is counted.
    """

    def __init__(self, source: str, limits: Limits) -> None:
        self.source = source
        self.limits = limits
        self.frames: list[_Frame] = []
        self.anchors: dict[str, Value | None] = {}
        # Large files repeat few scalars, so equal ones are one object.
        self.scalars: dict[tuple[str, bool], Scalar] = {}
        self.size = 0
        self.documents = 0
        self.root: Entry | None = None

    def build(self, text: str) -> Entry:
        for event in yaml.parse(text, Loader=_LOADER):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(str(event.anchor), line)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._start(line)
        if self.root is None:
            raise self._error(1, "the document is empty")
        return self.root

    def _start(self, line: int) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._error(line, "expected one document, and here begins a second")

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if event.tag is not None:
            raise self._tag_error(event.tag, line)
        quoted = not event.implicit[0]
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and frame.keyed is not None:
            self._key(frame, event, quoted, line)
            return
        self._count(1, line)
        value = self.scalars.get((event.value, quoted))
        if value is None:
            value = self.scalars[event.value, quoted] = Scalar(event.value, quoted)
        self._add(Entry(line, value), event.anchor)

    def _key(self, frame: _Frame, event: yaml.ScalarEvent, quoted: bool, line: int) -> None:
        key = event.value
        before = frame.keyed.get(key) if frame.keyed else None
        if before is not None:
            raise self._error(line, f"the key '{brief(key)}' is given twice, first on line {before.line}")
        if event.anchor:
            raise self._error(line, f"expected an anchor on a value, got '&{brief(event.anchor)}' on a key")
        frame.key = key
        frame.key_line = line
        frame.merging = key == "<<" and not quoted

    def _open(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if event.tag is not None:
            raise self._tag_error(event.tag, line)
        if self.frames and self.frames[-1].wants_key:
            raise self._error(line, "expected a key that is text, got a list or mapping")
        self._check_depth(1, line)
        if event.anchor:
            self.anchors[event.anchor] = None
        is_map = isinstance(event, yaml.MappingStartEvent)
        self.frames.append(_Frame(line, event.anchor, is_map, self.size))
        self._count(1, line)

    def _close(self) -> None:
        frame = self.frames.pop()
        size = self.size - frame.start
        value: Value
        if frame.keyed is None:
            value = List(tuple(frame.listed), size, frame.height)
        else:
            for merged in frame.merged:
                for key, entry in merged.parts.items():
                    frame.keyed.setdefault(key, entry)
            value = Map(frame.keyed, size, frame.height)
        self._add(Entry(frame.line, value), frame.anchor)

    def _alias(self, anchor: str, line: int) -> None:
        if self.frames and self.frames[-1].wants_key:
            raise self._error(line, f"expected a key that is text, got the alias '*{brief(anchor)}'")
        if anchor not in self.anchors:
            raise self._error(line, f"the alias '*{brief(anchor)}' has no anchor before it")
        value = self.anchors[anchor]
        if value is None:
            raise self._error(line, f"the alias '*{brief(anchor)}' stands inside its own anchor")
        self._check_depth(value.height, line)
        self._count(value.size, line)
        self._add(Entry(line, value), None)

    def _add(self, entry: Entry, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = entry.value
        if not self.frames:
            self.root = entry
            return
        frame = self.frames[-1]
        if frame.height <= entry.value.height:
            frame.height = entry.value.height + 1
        if frame.keyed is None or frame.key is None:
            frame.listed.append(entry)
            if len(frame.listed) > self.limits.items:
                raise self._error(entry.line, f"expected at most {self.limits.items} items in a list, got more")
        elif frame.merging:
            self._merge(frame, entry)
        else:
            frame.keyed[frame.key] = Entry(frame.key_line, entry.value)
        frame.key = None

    def _merge(self, frame: _Frame, entry: Entry) -> None:
        value = entry.value
        for part in [part.value for part in value.parts] if isinstance(value, List) else [value]:
            if not isinstance(part, Map):
                raise self._error(entry.line, "expected a mapping or a list of mappings after '<<'")
            frame.merged.append(part)

    def _check_depth(self, height: int, line: int) -> None:
        if len(self.frames) + height > self.limits.depth:
            raise self._error(line, f"expected at most {self.limits.depth} levels of nesting, got more")

    def _count(self, size: int, line: int) -> None:
        self.size += size
        if self.size > self.limits.values:
            raise self._error(line, f"expected at most {self.limits.values} values, aliases included, got more")

    def _tag_error(self, tag: str, line: int) -> DocumentError:
        return self._error(line, f"the tag '{brief(tag)}' is not allowed: values need no tags here")

    def _error(self, line: int, reason: str) -> DocumentError:
        return DocumentError(self.source, line, reason)


def _joined_surrogates(text: str) -> str:
    """JSON writes a character beyond U+FFFF as two escapes; YAML wants it as one."""
    return _SURROGATE_PAIR.sub(_joined, text) if text.lstrip().startswith("{") else text


def _joined(pair: re.Match[str]) -> str:
    high, low = int(pair[2], 16), int(pair[3], 16)
    return f"{pair[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"
