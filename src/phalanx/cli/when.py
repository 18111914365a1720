"""Times for people: how long, how long ago, and until when."""

from __future__ import annotations

import time

import click

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
LEAST_MS = 10**12
"""In 2001: no server has records from before."""


def span(duration_ms: float | None) -> str | None:
    """A duration in its two largest units: `3d4h`, `12m5s`, `0s`."""
    if duration_ms is None:
        return None
    left_ms = max(int(duration_ms), 0)
    for i, (unit, unit_ms) in enumerate(UNITS):
        if left_ms >= unit_ms:
            text = f"{left_ms // unit_ms}{unit}"
            if i + 1 < len(UNITS):
                smaller, smaller_ms = UNITS[i + 1]
                rest = left_ms % unit_ms // smaller_ms
                text += f"{rest}{smaller}" if rest else ""
            return text
    return "0s"


def now_ms() -> int:
    """The time."""
    return int(time.time() * 1000)


def moment(said: str | None, option: str) -> int:
    """A moment as an option says it; now if it says nothing."""
    from phalanx.document.units import time_ms

    at_ms = now_ms() if said is None else time_ms(said, now_ms())
    if at_ms is None:
        raise click.UsageError(f"{option} {said}: expected a time such as 2030-01-31T08:00Z, +2h or seconds since 1970")
    return at_ms


def past(said: str, option: str) -> int:
    """A moment in the past: so long ago (`24h`), a time with its zone, or seconds since 1970.

    A small number is refused: five seconds, five minutes and five seconds past 1970 are each as likely meant.
    """
    from phalanx.document.units import decimal, duration_ms, time_ms

    length_ms = duration_ms(said) if decimal(said.strip()) is None else None
    at_ms = now_ms() - length_ms if length_ms is not None else time_ms(said, now_ms())
    if at_ms is None or not (0 if length_ms is not None else LEAST_MS) <= at_ms <= now_ms():
        raise click.UsageError(
            f"{option} {said}: expected how long ago, with its unit, such as 5m or 24h, or a past time with its zone, "
            "such as 2026-01-31T08:00Z"
        )
    return at_ms


def ago(at_ms: int | None) -> str | None:
    """How long ago something was."""
    return None if at_ms is None else span(now_ms() - at_ms)


def clock(at_ms: int | None) -> str | None:
    """A moment as local date and time."""
    return None if at_ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
