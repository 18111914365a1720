"""Series: long rows of figures, made short enough to draw without changing what one sees."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

POINTS_MAX = 2000

Points = tuple[list[float], list[float]]


def thin(xs: Sequence[float], ys: Sequence[float], points_max: int = POINTS_MAX) -> Points:
    """At most `points_max` of the points, in order: of each of equal stretches of x the first, last, lowest, highest.

    A line drawn from them looks as if drawn from all (M4, Jugel et al., VLDB 2014). `xs` must not fall.
    """
    if len(xs) <= points_max:
        return [short(x) for x in xs], [short(y) for y in ys]
    stretches = points_max // 4
    width = (xs[-1] - xs[0]) / stretches
    kept: list[int] = []
    begin = 0
    for stretch in range(stretches):
        end = len(xs)
        if stretch + 1 < stretches:
            edge = xs[0] + (stretch + 1) * width
            end = bisect_left(xs, edge, begin)
        if begin < end:
            inside = range(begin, end)
            extremes = {begin, min(inside, key=ys.__getitem__), max(inside, key=ys.__getitem__), end - 1}
            kept.extend(sorted(extremes))
        begin = end
    return [short(xs[index]) for index in kept], [short(ys[index]) for index in kept]


def cumulative(values: Sequence[float], least: float, points_max: int = POINTS_MAX) -> Points:
    """The share of values that are at most x, at up to `points_max` ranks. What is below `least` counts as `least`."""
    ordered = sorted(max(value, least) for value in values)
    count = len(ordered)
    shown = min(count, points_max)
    ranks = (index * (count - 1) // max(shown - 1, 1) for index in range(shown))
    shares = {short(ordered[rank]): (rank + 1) / count for rank in ranks}
    return list(shares), [short(share) for share in shares.values()]


def short(value: float) -> float:
    """Six digits: more than a screen can show."""
    return float(f"{value:.6g}")
