"""Maxima: what is kept of blocks gives the greatest of every stretch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.engine.maxima import BLOCK, Maxima


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=80), st.integers(1, 3 * BLOCK), st.data())
def test_the_greatest_of_a_stretch_is_what_going_through_it_gives(
    few: list[int], times: int, data: st.DataObject
) -> None:
    things = [thing * (1 + i % 7) for i, thing in enumerate(few * times)]
    maxima: Maxima[int] = Maxima()
    for thing in things:
        maxima.append(thing)
    begin = data.draw(st.integers(0, len(things) - 1))
    end = data.draw(st.integers(begin + 1, len(things)))
    assert maxima.greatest(begin, end) == max(things[begin:end])


def test_a_stretch_of_whole_blocks_is_looked_up_only() -> None:
    maxima: Maxima[tuple[int, str]] = Maxima()
    for number in range(BLOCK * BLOCK):
        maxima.append((number, "a"))
    assert maxima.greatest(0, BLOCK * BLOCK) == (BLOCK * BLOCK - 1, "a")
    assert maxima.greatest(BLOCK, 3 * BLOCK) == (3 * BLOCK - 1, "a")
