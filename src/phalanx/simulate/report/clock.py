"""Time on an axis: a unit that suits its length, and marks that people count by where it is logarithmic."""

from __future__ import annotations

from typing import Any, NamedTuple

from phalanx.simulate.studies.table import duration_text

LEAST_S = 1.0
"""Where a logarithmic axis begins: it has no zero, and a wait of less does not matter."""

_COARSE_S = (1, 10, 60, 600, 3600, 36_000, 86_400, 864_000, 8_640_000)
_FINE_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 36_000, 86_400)


class Unit(NamedTuple):
    """A unit of time."""

    name: str
    seconds: int

    def of(self, seconds: float) -> float:
        """Seconds in this unit."""
        return seconds / self.seconds


_UNITS = (Unit("days", 86_400), Unit("hours", 3600), Unit("minutes", 60))


def unit_for(longest_s: float) -> Unit:
    """The largest unit of which there are at least three."""
    return next((unit for unit in _UNITS if longest_s >= 3 * unit.seconds), Unit("seconds", 1))


def log_axis(title: str, longest_s: float) -> dict[str, Any]:
    """A logarithmic axis of seconds from `LEAST_S` on, marked in the units people use."""
    marks = _COARSE_S if longest_s > _FINE_S[-1] / 10 else _FINE_S
    shown = [mark for mark in marks if mark <= max(longest_s, LEAST_S) * 10]
    return {
        "title": {"text": title},
        "type": "log",
        "tickmode": "array",
        "tickvals": shown,
        "ticktext": [_mark_text(mark) for mark in shown],
    }


def _mark_text(seconds: int) -> str:
    """1m for 1m 0s."""
    return duration_text(seconds).removesuffix(" 0s").removesuffix(" 0m").removesuffix(" 0h")
