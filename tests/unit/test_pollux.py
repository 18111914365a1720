"""Goodput, the search for sizes, and what jobs that tune their batch gain by it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.policy.goodput import Goodput, best, fit, terms
from phalanx.policy.size_search import Options, search
from phalanx.protocol.event import Progress
from phalanx.simulate.world.training import BATCH_FIRST, best_batch, gets_done, next_noise, noise_scale


def test_the_time_of_a_step_is_found_from_what_was_measured() -> None:
    true = (10.0, 500.0, 20.0, 5.0, 100.0, 8.0)
    sizes = [(1, 1, 100), (1, 1, 300), (2, 1, 100), (4, 1, 100), (8, 1, 200), (8, 2, 100), (16, 2, 100), (16, 4, 400)]
    found = fit(tuple((at, sum(a * b for a, b in zip(true, terms(*at), strict=True))) for at in sizes))
    told = sum(a * b for a, b in zip(found, terms(6, 1, 100), strict=True))
    assert told == pytest.approx(sum(a * b for a, b in zip(true, terms(6, 1, 100), strict=True)), rel=0.02)


def test_what_was_measured_once_scales_perfectly() -> None:
    found = Goodput(fit((((1, 1, 100), 1500.0),)), 100, 100, None)
    assert best(found, 4, 1) == pytest.approx(4 * best(found, 1, 1))


def test_noisy_gradients_gain_by_more_gpus_and_others_do_not() -> None:
    times = (10.0, 500.0, 0.0, 0.0, 0.0, 0.0)
    noisy, clean = Goodput(times, 100, 1000, 1e6), Goodput(times, 100, 1000, 0.0)
    assert best(noisy, 4, 1) / best(noisy, 1, 1) > 3
    assert best(clean, 4, 1) / best(clean, 1, 1) == pytest.approx(2)


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=4), min_size=1, max_size=4), st.integers(0, 8))
@settings(max_examples=60)
def test_the_search_never_gives_more_than_there_is_and_nearly_finds_the_best(gains: list[list[int]], gpus: int) -> None:
    options = [
        Options(tuple(range(len(each))), tuple(float(sum(each[: i + 1])) for i in range(len(each)))) for each in gains
    ]
    picks = search(options, (0,) * len(options), gpus, seed=1)
    assert sum(picks) <= gpus
    every = product(*(range(len(each.gpus)) for each in options))
    most = max(sum(o.worth[p] for o, p in zip(options, all_, strict=True)) for all_ in every if sum(all_) <= gpus)
    assert sum(o.worth[p] for o, p in zip(options, picks, strict=True)) >= 0.8 * most


def test_the_search_is_the_same_in_every_run() -> None:
    options = [Options((0, 1, 2, 3), (0.0, 1.0 + i / 7, 1.5, 1.6 + i / 9)) for i in range(12)]
    assert search(options, (0,) * 12, 20, seed=5) == search(options, (0,) * 12, 20, seed=5)


def test_who_does_not_fit_one_node_gets_whole_nodes() -> None:
    world = World(Cluster((Node("n0", (), 4), Node("n1", (), 4), Node("n2", (), 4))), "pollux")
    world.run(a_job("wide", 1, (1, 12)), a_job("small", 1))
    for workers in (1, 2, 4, 8):
        metrics = {"workers": float(workers), "nodes": 1.0 + (workers > 4), "step_ms": 1000.0 / workers}
        world.turn(Progress("wide", 1, metrics=metrics), after_ms=60_000_000)
    assert world.job("wide").sizes == {"worker": 8}
    assert world.job("small").sizes == {"worker": 1}


def test_who_would_change_again_and_again_is_left_alone() -> None:
    world = World(Cluster((Node("n0", (), 4),)), "pollux")
    world.run(a_job("a", 1, (1, 4)))
    for workers in (1, 2, 1, 2):
        world.turn(Progress("a", 1, metrics={"workers": float(workers), "step_ms": 1000.0 / workers}), after_ms=15_000)
    # It has run for a minute and changed three times: of its speed-up nothing is left if it changes again.
    assert world.job("a").sizes == {"worker": 1}


def test_the_batch_that_suits_grows_with_gpus_and_noise() -> None:
    assert best_batch(0.25, noise_scale(0.9)) < best_batch(2.0, noise_scale(0.9)) < best_batch(4.0, noise_scale(0.9))
    assert best_batch(2.0, noise_scale(0.0)) < best_batch(2.0, noise_scale(0.9))
    assert gets_done(1.0, BATCH_FIRST, noise_scale(0.0)) == pytest.approx(1.0)


def test_noise_grows_in_thirds() -> None:
    assert [noise_scale(done) / BATCH_FIRST for done in (0.0, 0.4, 0.99, 1.0)] == [1, 4, 16, 16]
    assert (next_noise(0.0), next_noise(1 / 3), next_noise(2 / 3)) == (pytest.approx(1 / 3), pytest.approx(2 / 3), None)
