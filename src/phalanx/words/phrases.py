"""Phrases of which sentences are made: names, numbers, moments and lengths of time, GPU time."""

from __future__ import annotations

from phalanx.simulate.studies.table import duration_text

NAMES_MAX = 4
"""Names that are listed in a line before the rest is counted."""

MS_PER_S = 1_000
GPU_TIME_UNITS = (("GPU-hours", 3_600_000), ("GPU-minutes", 60_000), ("GPU-seconds", 1_000))


def listed(names: tuple[str, ...]) -> str:
    """Names, and how many more there are than a line holds."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def counted(count: int, thing: str) -> str:
    """A number of things: "1 GPU", "2 GPUs"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def moment(at_ms: int | None, now_ms: int) -> str:
    """When something comes, from now on, to the second; empty if that is unknown."""
    if at_ms is None:
        return ""
    left_ms = max(at_ms - now_ms, 0)
    return "in under 1s" if 0 < left_ms < MS_PER_S else f"in {duration_text(round(left_ms / MS_PER_S))}"


def how_long(until_ms: int | None, since_ms: int) -> str:
    """The time between two moments; none, if the later one is unknown or has passed."""
    return duration_text(max((since_ms if until_ms is None else until_ms) - since_ms, 0) / 1000)


def gpu_time(*amounts_gpu_ms: int) -> tuple[list[str], str]:
    """Amounts of GPU time in one unit, in which the largest of them is no small fraction."""
    most = max(amounts_gpu_ms)
    unit, per_unit = next(((unit, ms) for unit, ms in GPU_TIME_UNITS if 10 * most >= ms), GPU_TIME_UNITS[-1])
    if not most:
        unit, per_unit = GPU_TIME_UNITS[0]
    return [_in_unit(each / per_unit) for each in amounts_gpu_ms], unit


def _in_unit(amount: float) -> str:
    return f"{amount:.1f}" if not amount or abs(amount) >= 0.1 else f"{amount:.1g}"


def queue_words(queue: str) -> str:
    """A queue, or the root of them all."""
    return f"queue {queue}" if queue else "the whole cluster"
