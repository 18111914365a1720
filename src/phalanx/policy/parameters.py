"""Parameters of a policy, as they are given on a command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from phalanx.document.units import DURATION_MAX_MS, duration_ms

PER_QUEUE = re.compile(r"(?P<queue>[^:]+):(?P<number>[0-9]+(?:\.[0-9]+)?)(?:/(?=.)|$)")
"""One queue of `research/llm:2/prod:1`: names of queues may hold slashes, numbers do not."""

A_TIME = "a time above 0 as 7d or 90s"


class ParameterError(ValueError):
    """A parameter that a policy cannot take."""


class Parameter(NamedTuple):
    """A parameter that a policy has. The default is as it would be written; one without must be given."""

    name: str
    default: str | None
    expects: str


class Parameters:
    """key=value pairs, read by type. A key that the policy does not read is an error that names the ones there are."""

    def __init__(self, policy: str, given: Mapping[str, str]) -> None:
        self.policy = policy
        self.given = dict(given)
        self._read: dict[str, Parameter] = {}

    @property
    def read(self) -> tuple[Parameter, ...]:
        """What the policy has asked for so far: the parameters it has."""
        return tuple(self._read.values())

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        text = self._text(key, "true" if default else "false", "true|false")
        if text not in ("true", "false"):
            raise self._wrong(key, text, "true or false")
        return text == "true"

    def integer(self, key: str, default: int, least: int | None = None, most: int | None = None) -> int:
        """A whole number, at least `least` and at most `most`."""
        bounds = [f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None]
        text = self._text(key, str(default), " ".join(["a whole number", " and ".join(bounds)]).rstrip())
        try:
            value = int(text)
        except ValueError:
            raise self._wrong(key, text, "a whole number") from None
        if (least is not None and value < least) or (most is not None and value > most):
            raise self._wrong(key, text, " and ".join(bounds))
        return value

    def duration_ms(self, key: str, default: str) -> int:
        """A time above 0 as people write it: 7d, 90s."""
        return self._duration_ms(key, self._text(key, default, A_TIME))

    def duration_ms_or_off(self, key: str) -> int | None:
        """A time above 0, or `off`, which is also the default."""
        text = self._text(key, "off", f"off or {A_TIME}")
        return None if text == "off" else self._duration_ms(key, text)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words, the first if none is given."""
        text = self._text(key, choices[0], "|".join(choices))
        if text not in choices:
            raise self._wrong(key, text, f"one of {', '.join(choices)}")
        return text

    def numbers(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Whole numbers in rising order, as 3250/7200."""
        return self._numbers(key, self._text(key, "/".join(map(str, default)), "rising whole numbers as 1/2/3"))

    def needed_numbers(self, key: str, what: str) -> tuple[int, ...]:
        """Whole numbers in rising order that the policy cannot do without; `what` says what they are."""
        self._read[key] = Parameter(key, None, what)
        return self._numbers(key, self._needed(key, what))

    def number_or_off(self, key: str) -> float | None:
        """A number that is not negative, or `off`, which is also the default."""
        text = self._text(key, "off", "off or a number that is not negative")
        if text == "off":
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise self._wrong(key, text, "off or a number that is not negative")
        return value

    def per_queue(self, key: str) -> dict[str, Fraction]:
        """Numbers above 0 by queue, as research/llm:2/prod:1.5; `equal`, which names none, is the default."""
        text = self._text(key, "equal", "equal, or numbers above 0 by queue as a:2/b:1")
        found: dict[str, Fraction] = {}
        at = len(text) if text == "equal" else 0
        while at < len(text):
            entry = PER_QUEUE.match(text, at)
            if entry is None or entry["queue"] in found or not Fraction(entry["number"]):
                raise self._wrong(key, text, "a number above 0 for each queue, once, as a:2/b:1")
            found[entry["queue"]] = Fraction(entry["number"])
            at = entry.end()
        return found

    def text(self, key: str, default: str) -> str:
        """Any word."""
        return self._text(key, default, "a word")

    def check_all_read(self) -> None:
        """Raises if a key was given that the policy does not have."""
        for key in self.given:
            if key not in self._read:
                known = ", ".join(self._read) or "none"
                raise ParameterError(f"policy {self.policy} has no parameter {key!r} (it has: {known})")

    def _text(self, key: str, default: str, expects: str) -> str:
        self._read[key] = Parameter(key, default, expects)
        return self.given.get(key, default)

    def _needed(self, key: str, what: str) -> str:
        if key not in self.given:
            raise ParameterError(f"policy {self.policy}: {key}= is missing: expected {what}")
        return self.given[key]

    def _numbers(self, key: str, text: str) -> tuple[int, ...]:
        try:
            values = tuple(int(part) for part in text.split("/"))
        except ValueError:
            raise self._wrong(key, text, "whole numbers as 1/2/3") from None
        if any(later < earlier for earlier, later in pairwise(values)) or values[0] < 0:
            raise self._wrong(key, text, "rising numbers from 0 on")
        return values

    def _duration_ms(self, key: str, text: str) -> int:
        value = duration_ms(text)
        if value is None or not 0 < value <= DURATION_MAX_MS:
            raise self._wrong(key, text, A_TIME)
        return value

    def _wrong(self, key: str, text: str, expected: str) -> ParameterError:
        return ParameterError(f"policy {self.policy}: {key}={text[:40]}: expected {expected}")


class Defaults(Parameters):
    """For listing what a policy takes: nothing is given, and what it cannot do without is made up."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy, {})

    def _needed(self, key: str, what: str) -> str:
        return "1"
