"""Slow ranks are named once, by how long they compute."""

from __future__ import annotations

from phalanx.train.launch.stragglers import LOOKS, Stragglers

HOSTS = dict.fromkeys(range(4), "n1")
EVEN = {0: 0.1, 1: 0.11, 2: 0.1, 3: 0.12}
SLOW = {**EVEN, 3: 0.5}


def test_a_rank_that_computes_much_longer_than_the_others_is_named_once() -> None:
    stragglers = Stragglers()
    said = [[str(word) for word in stragglers.look(SLOW, HOSTS)] for _ in range(LOOKS + 5)]
    assert said[: LOOKS - 1] == [[]] * (LOOKS - 1)
    assert said[LOOKS - 1] == [
        "rank 3 on n1 is slow: it computes 0.500 s a step, the others 0.100 s (5.0 times); it is left alone"
    ]
    assert said[LOOKS:] == [[]] * 5
    assert [str(word) for word in stragglers.look(EVEN, HOSTS)] == [
        "rank 3 on n1 is as fast as the others again: 0.120 s a step"
    ]


def test_a_rank_that_is_slow_now_and_then_is_not_named() -> None:
    stragglers = Stragglers()
    assert not [word for _ in range(5) for now in (SLOW, SLOW, EVEN) for word in stragglers.look(now, HOSTS)]


def test_one_rank_alone_and_ranks_that_tell_nothing_are_not_slow() -> None:
    stragglers = Stragglers()
    assert not [word for _ in range(5) for word in stragglers.look({0: 9.0}, HOSTS) + stragglers.look({}, HOSTS)]


def test_milliseconds_are_no_slowness() -> None:
    stragglers = Stragglers()
    assert not [word for _ in range(5) for word in stragglers.look({0: 0.0001, 1: 0.04}, HOSTS)]
