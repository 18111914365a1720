"""Reports that make no sense: numbers that the API lets in and no training could have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.protocol.event import Progress

READERS = ("optimus", "pollux", "phalanx", "antman", "gandiva")
"""The policies that read what jobs report."""

NUMBERS = st.sampled_from([-1e15, -1.0, 0.0, 5e-324, 1e-300, 1e-9, 0.5, 1.0, 3.0, 1e3, 1e15])
OFTEN = ("loss", "step_ms", "workers")
SELDOM = ("epoch_steps", "epoch_drop", "servers", "nodes", "batch", "batch_first", "batch_max", "noise_scale")
REPORTS = st.fixed_dictionaries(dict.fromkeys(OFTEN, NUMBERS), optional=dict.fromkeys(SELDOM, NUMBERS))


def mixed(policy: str) -> World:
    nodes = (Node("v0", (), 8, "V100"), Node("k0", (), 8, "K80"))
    world = World(Cluster(nodes), policy)
    world.run(a_job("odd", 1, (1, 4)), a_job("sound", 1, (1, 4)), a_job("small", 1))
    return world


@pytest.mark.parametrize("policy", READERS)
@given(reports=st.lists(REPORTS, min_size=4, max_size=8))
@settings(deadline=None)
def test_a_job_that_reports_nonsense_stops_no_policy(policy: str, reports: list[dict[str, float]]) -> None:
    world = mixed(policy)
    for step, metrics in enumerate(reports):
        sound = {"loss": 1.0 / (step + 1), "step_ms": 100.0, "workers": 1.0, "epoch_steps": 10.0, "epoch_drop": 0.01}
        world.turn(Progress("sound", 1, step=step, metrics=sound), after_ms=300_000)
        world.turn(Progress("odd", 1, step=step, metrics=metrics), after_ms=300_000)


@pytest.mark.parametrize("policy", READERS)
def test_a_step_of_no_time_at_all_stops_no_policy(policy: str) -> None:
    world = mixed(policy)
    for step in range(6):
        metrics = {"loss": 2.0, "step_ms": 5e-324, "workers": 1.0, "batch": 1e15, "batch_first": 5e-324}
        world.turn(Progress("odd", 1, step=step, metrics=metrics), after_ms=900_000)
