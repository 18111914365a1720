"""Fields: values with their place, each read as the type the reader asks for.

Scalars are not guessed at. A value is a number, a duration or text because a reader asks for one: `on` is a key and
not a truth value, `1.10` as text keeps its zero, and what does not fit is refused with file, line and key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import TypeVar

from phalanx.document import units
from phalanx.document.error import SHOWN_MAX, DocumentError, brief
from phalanx.document.tree import Limits, List, Map, Scalar, Value, parse

TEXT_MAX = 65_536
"""Characters of one text."""

LISTED_MAX = 50
"""Known words that an error lists."""

NAME_MAX = 253
"""Characters of a name: the length of a DNS name, since nodes and jobs end up as such."""

CPUS_MAX = 100_000
MEMORY_GB_MAX = 1_000_000
MB_PER_GB = 1024

_NOTHING = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NAME = re.compile(r"[^\W_][\w.-]*")
_UNUSABLE = re.compile("[\0\ud800-\udfff]")

_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a document with its place. A method reads it as one type, or raises a DocumentError."""

    source: str
    path: str
    line: int
    value: Value

    def error(self, reason: str) -> DocumentError:
        """An error at this value."""
        return DocumentError(self.source, self.line, reason, self.path)

    def expected(self, what: str) -> DocumentError:
        """An error that says what was expected here and what is there instead."""
        return self.error(f"expected {what}, got {self.shown}")

    @property
    def is_mapping(self) -> bool:
        """Whether this holds keys and values."""
        return isinstance(self.value, Map)

    @property
    def is_list(self) -> bool:
        """Whether this is a list."""
        return isinstance(self.value, List)

    def has(self, key: str) -> bool:
        """Whether this is a mapping with that key."""
        return isinstance(self.value, Map) and key in self.value.parts

    def is_word(self, word: str) -> bool:
        """Whether this is that very word."""
        return self._scalar == word

    @property
    def shown(self) -> str:
        """The value as an error shows it."""
        if isinstance(self.value, Map):
            return "a mapping"
        if isinstance(self.value, List):
            return "a list"
        if self.value.quoted:
            return brief(repr(self.value.text))
        return "nothing" if self.value.text in _NOTHING else brief(self.value.text)

    def mapping(self, known: Collection[str]) -> Fields:
        """The fields of a mapping whose keys are all known."""
        if not isinstance(self.value, Map):
            raise self.expected(f"a mapping with keys such as {', '.join(list(known)[:3])}")
        fields = dict(self._entries(self.value))
        for key, field in fields.items():
            if key not in known:
                raise field.error(f"unknown key, {nearest(key, known)}")
        return Fields(self, fields)

    def entries(self, maximum: int) -> tuple[tuple[str, Field], ...]:
        """The fields of a mapping whose keys are free, in the order of the document."""
        if not isinstance(self.value, Map):
            raise self.expected("a mapping")
        if len(self.value.parts) > maximum:
            raise self.error(f"expected at most {maximum} keys, got {len(self.value.parts)}")
        return tuple(self._entries(self.value))

    def _entries(self, value: Map) -> Iterator[tuple[str, Field]]:
        start = f"{self.path}." if self.path else ""
        for key, entry in value.parts.items():
            yield key, Field(self.source, start + brief(key), entry.line, entry.value)

    def pairs(self, maximum: int) -> tuple[tuple[str, str], ...]:
        """A mapping of text to text, in the order of the document."""
        return tuple((field.key(key), field.text()) for key, field in self.entries(maximum))

    def key(self, key: str) -> str:
        """The free key of this value, if it is one line of printable text."""
        if not key.isprintable() or key != key.strip() or not 0 < len(key) <= NAME_MAX:
            raise self.error(f"expected a key of 1 to {NAME_MAX} printable characters")
        return key

    def items(self, minimum: int, maximum: int) -> tuple[Field, ...]:
        """The fields of a list."""
        if not isinstance(self.value, List):
            raise self.expected("a list")
        if not minimum <= len(self.value.parts) <= maximum:
            raise self.error(f"expected a list of {minimum} to {maximum} items, got {len(self.value.parts)}")
        return tuple(
            Field(self.source, f"{self.path}[{i}]", entry.line, entry.value) for i, entry in enumerate(self.value.parts)
        )

    def text(self) -> str:
        """Text, quoted or not; numbers are taken as they are written."""
        if not isinstance(self.value, Scalar) or self._is_nothing:
            raise self.expected("text")
        if len(self.value.text) > TEXT_MAX:
            raise self.error(f"expected text of at most {TEXT_MAX} characters, got {len(self.value.text)}")
        if _UNUSABLE.search(self.value.text):
            raise self.expected("text without NUL characters and broken surrogate pairs")
        return self.value.text

    def title(self) -> str:
        """One line of printable text that is not empty."""
        text = self.text()
        if not text.isprintable() or text != text.strip() or not 0 < len(text) <= NAME_MAX:
            raise self.expected(f"one line of 1 to {NAME_MAX} printable characters")
        return text

    def name(self) -> str:
        """A name that can stand in addresses and lists: letters, digits, dot, dash and underscore."""
        text = self.text()
        if not is_name(text):
            raise self.expected(
                f"a name of at most {NAME_MAX} letters, digits, '.', '-', '_', beginning with a letter or digit"
            )
        return text

    def choice(self, options: Collection[str]) -> str:
        """One of a few words."""
        if not isinstance(self.value, Scalar) or self.value.text not in options:
            raise self.expected(f"one of {', '.join(options)}")
        return self.value.text

    def boolean(self) -> bool:
        """`true` or `false`; numbers and other words are neither."""
        value = _BOOLEANS.get(self._plain)
        if value is None:
            raise self.expected("true or false")
        return value

    def integer(self, minimum: int, maximum: int) -> int:
        """A whole number in a range."""
        value = units.whole(self._plain)
        if value is None or not minimum <= value <= maximum:
            raise self.expected(f"a whole number from {minimum} to {maximum}" if minimum < maximum else f"{minimum}")
        return value

    def decimal(self, minimum: Decimal | float, maximum: Decimal | float) -> Decimal:
        """A number in a range, exactly as written. There is no infinity and no NaN."""
        value = units.decimal(self._plain)
        if value is None or not minimum <= value <= maximum:
            raise self.expected(f"a number from {minimum} to {maximum}")
        return value

    def number(self, minimum: float, maximum: float) -> float:
        """A number in a range."""
        return float(self.decimal(minimum, maximum))

    def cpus_milli(self) -> int:
        """CPUs in thousandths, rounded up for jobs and nodes alike: asking for all a node has then fits."""
        return units.ceiling(self.decimal(0, CPUS_MAX) * 1000)

    def memory_mb(self) -> int:
        """Gigabytes of memory in megabytes, rounded as CPUs are."""
        return units.ceiling(self.decimal(0, MEMORY_GB_MAX) * MB_PER_GB)

    def duration_ms(self) -> int:
        """A duration such as 90s, 1h30m or 2d; a plain number is seconds."""
        value = units.duration_ms(self._scalar)
        if value is None:
            raise self.expected("a duration such as 90s, 1h30m, 2d, 03:00:00 (hours first) or a number of seconds")
        if value > units.DURATION_MAX_MS:
            raise self.expected(f"a duration of at most {units.DURATION_MAX_MS // 86_400_000}d")
        return value

    def time_ms(self, now_ms: int) -> int:
        """A moment in milliseconds since 1970: a time with its zone, seconds since 1970, or `+2h` from now."""
        value = units.time_ms(self._scalar, now_ms)
        if value is None or not 0 <= value <= units.TIME_MAX_MS:
            raise self.expected("a time with its zone such as 2030-01-31T08:00Z, seconds since 1970, or +2h from now")
        return value

    @property
    def _is_nothing(self) -> bool:
        return isinstance(self.value, Scalar) and not self.value.quoted and self.value.text in _NOTHING

    @property
    def _scalar(self) -> str:
        return self.value.text if isinstance(self.value, Scalar) else ""

    @property
    def _plain(self) -> str:
        return self.value.text if isinstance(self.value, Scalar) and not self.value.quoted else ""


class Fields:
    """The fields of a mapping whose keys have been checked."""

    __slots__ = ("_fields", "place")

    def __init__(self, place: Field, fields: dict[str, Field]) -> None:
        self.place = place
        self._fields = fields

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def __getitem__(self, key: str) -> Field:
        return self._fields[key]

    def items(self) -> Iterator[tuple[str, Field]]:
        """All fields with their keys, in the order of the document."""
        yield from self._fields.items()

    def get(self, key: str, read: Callable[[Field], _A], default: _B) -> _A | _B:
        """What `read` makes of a field, or the default where the document leaves it out."""
        field = self._fields.get(key)
        return default if field is None else read(field)

    def need(self, key: str, read: Callable[[Field], _A]) -> _A:
        """What `read` makes of a field that must be there."""
        if key not in self._fields:
            raise self.place.error(f"the key '{key}' is missing")
        return read(self._fields[key])

    def given(self, keys: Collection[str]) -> Field | None:
        """The first field of the document with one of these keys."""
        return next((field for key, field in self._fields.items() if key in keys), None)

    def refuse(self, keys: Collection[str], reason: str) -> None:
        """Raises an error at the first of these keys that is given."""
        field = self.given(keys)
        if field is not None:
            raise field.error(reason)


def is_name(text: str) -> bool:
    """Whether the text can name a node, domain, level, role or tier."""
    return len(text) <= NAME_MAX and _NAME.fullmatch(text) is not None


def nearest(word: str, known: Collection[str]) -> str:
    """A hint for a word that is not known: the one that looks most like it, else all there are."""
    close = get_close_matches(word[:SHOWN_MAX], known, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    if len(known) > LISTED_MAX:
        return f"and none of the {len(known)} known ones looks like it"
    return f"expected one of {', '.join(known)}"


def decode(data: bytes, source: str) -> str:
    """The text of a file as it came from disk or wire."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = data[error.start]
        raise DocumentError(source, line, f"expected UTF-8 text, got the byte 0x{wrong:02x}") from None


def read_document(text: str, source: str, limits: Limits) -> Field:
    """Reads one YAML or JSON document. `source` names it in errors."""
    root = parse(text, source, limits)
    return Field(source, "", root.line, root.value)
