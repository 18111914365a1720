"""Variations: the same run for several values of one thing, and the curves that come out of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from phalanx.document.error import brief
from phalanx.document.units import decimal
from phalanx.errors import PhalanxError
from phalanx.simulate.figures.confidence import Interval, interval
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.studies.table import MEASURES, Measure

LOAD, NODES = "load", "nodes"
KEYS = (LOAD, NODES)
"""What can be varied."""

VALUES_MAX = 1000
_FORM = "KEY=START:STOP:STEP, such as load=0.5:1.2:0.1 or nodes=8:16"


class VariationError(PhalanxError):
    """A `--vary` that cannot be read."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Variation:
    """What is varied, and the values it takes, in order."""

    key: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Variation:
        """Reads `load=0.5:1.2:0.1` or `nodes=8:16`, in steps of 1. The stop is included where the steps reach it."""
        key, equals, span = text.partition("=")
        parts = span.split(":")
        if key == NODES and len(parts) == 2:
            parts.append("1")
        if not equals or len(parts) != 3:
            raise VariationError(f"--vary {brief(text)}: expected {_FORM}")
        if key not in KEYS:
            raise VariationError(f"--vary {brief(text)}: expected one of {', '.join(KEYS)} before '='")
        start, stop, step = (_number(*pair, text) for pair in zip(("start", "stop", "step"), parts, strict=True))
        if key == NODES and any(number != int(number) for number in (start, stop, step)):
            raise VariationError(f"--vary {brief(text)}: expected whole numbers of nodes; {_FORM}")
        return cls(key, _values(start, stop, step, text))


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure of one policy for every value of what is varied. A value without figures has no point."""

    key: str
    policy: str
    measure: Measure
    points: tuple[tuple[float, Interval], ...]

    def data(self) -> dict[str, Any]:
        """Plain data, for programs."""
        return {
            "key": self.key,
            "policy": self.policy,
            "metric": self.measure.name,
            "points": [
                {
                    "at": at,
                    "mean": rounded(point.mean),
                    "low": rounded(point.low),
                    "high": rounded(point.high),
                    "seeds": point.count,
                }
                for at, point in self.points
            ],
        }


def curves(key: str, runs: Iterable[tuple[float, Mapping[str, Any]]]) -> list[Curve]:
    """The curves of runs, each given as the value of `key` and its summary; runs of one value differ by their seed.

    There is a curve for each policy and column of the comparison, policies in the order in which they come; for columns
    that are not in every comparison, only where they say something.
    """
    by_policy: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for at, summary in runs:
        by_policy.setdefault(summary["policy"], []).append((at, summary))
    found = [
        Curve(key, policy, measure, tuple(_points(measure, own)))
        for measure in MEASURES
        for policy, own in by_policy.items()
    ]
    return [curve for curve in found if curve.points or not curve.measure.optional]


def _points(measure: Measure, runs: Iterable[tuple[float, Mapping[str, Any]]]) -> Iterable[tuple[float, Interval]]:
    values: dict[float, list[float]] = {}
    for at, summary in runs:
        value = measure.of(summary)
        if value is not None:
            values.setdefault(at, []).append(value)
    return ((at, interval(values[at])) for at in sorted(values))


def _number(name: str, part: str, text: str) -> Decimal:
    number = decimal(part.strip())
    if number is None:
        raise VariationError(f"--vary {brief(text)}: {name} {brief(part)!r}: expected a number; {_FORM}")
    if number <= 0:
        raise VariationError(f"--vary {brief(text)}: {name} {brief(part)}: expected more than 0")
    return number


def _values(start: Decimal, stop: Decimal, step: Decimal, text: str) -> tuple[float, ...]:
    if start > stop:
        raise VariationError(f"--vary {brief(text)}: expected a start of at most {stop}, found {start}")
    # In decimals, since 0.5 + 7 · 0.1 in floats is more than 1.2.
    steps = (stop - start) / step
    if steps >= VALUES_MAX:
        raise VariationError(f"--vary {brief(text)}: expected at most {VALUES_MAX} values; take a larger step")
    return tuple(float(start + step * index) for index in range(int(steps) + 1))
