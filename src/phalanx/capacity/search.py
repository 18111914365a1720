"""The search for the least number of nodes that holds, several numbers at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Holds = Callable[[Sequence[int]], Sequence[bool]]
"""Tells of several numbers of nodes whether each holds."""


def least_holding(floor: int, most: int, guess: int, holds: Holds, width: int = 2) -> int:
    """The least number from `floor` to `most`, which is known to hold; more nodes are taken to do no worse.

    It begins at a guess, and tries `width` numbers at a time: so many processes have work.
    """
    below, holding = floor - 1, most
    tried = [number for number in (guess, guess + max(guess // 2, 1)) if below < number < holding][:width]
    while holding - below > 1:
        tried = tried or _between(below, holding, width)
        for number, holds_there in zip(tried, holds(tried), strict=True):
            if holds_there:
                holding = number
                break
            below = number
        tried = []
    return holding


def least_near(floor: int, most: int, start: int, holds: Holds, width: int = 2) -> int | None:
    """The same where the answer is near `start`, and every try costs much. None if not even `most` holds."""
    step, last = 1, start
    if holds([start])[0]:
        while last > floor:
            lower = max(last - step, floor)
            if not holds([lower])[0]:
                return least_holding(lower + 1, last, lower + 1, holds, width)
            last, step = lower, step * 2
        return floor
    while last < most:
        higher = min(last + step, most)
        if holds([higher])[0]:
            return least_holding(last + 1, higher, last + 1, holds, width)
        last, step = higher, step * 2
    return None


def _between(below: int, holding: int, width: int) -> list[int]:
    """Numbers strictly between two: in equal ratios where these are far apart, else in equal steps."""
    if holding > 2 * max(below, 1):
        low = max(below, 1)
        found = [round(low * (holding / low) ** (part / (width + 1))) for part in range(1, width + 1)]
    else:
        found = [below + round((holding - below) * part / (width + 1)) for part in range(1, width + 1)]
    return sorted(dict.fromkeys(number for number in found if below < number < holding)) or [below + 1]
