"""Victims that are spared together are those that would be spared one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.bench.borrowing import GPUS, Crowd, tree
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.preempt import victims
from phalanx.engine.preempt.pruning import WillDo, spare_one_by_one, spare_together
from phalanx.engine.state.records import AttemptRecord
from phalanx.protocol.event import Event, JobSubmitted


def attempts_of(count: int) -> list[AttemptRecord]:
    return [cast("AttemptRecord", SimpleNamespace(key=f"j{i}/1")) for i in range(count)]


@given(st.data(), st.integers(1, 40), st.sets(st.frozensets(st.integers(0, 39), max_size=6), min_size=1, max_size=4))
def test_victims_are_spared_alike(data: st.DataObject, count: int, enough: set[frozenset[int]]) -> None:
    """The head fits once all of one of several sets are gone; what is spared together is refused now and then."""
    some = attempts_of(count)
    order = data.draw(st.permutations(some))
    sets = [{f"j{i}/1" for i in each if i < count} for each in enough]

    def fits(fewer: list[AttemptRecord], spared: list[AttemptRecord]) -> bool:
        return any(each <= {victim.key for victim in fewer} for each in sets)

    def fits_sometimes(fewer: list[AttemptRecord], spared: list[AttemptRecord]) -> bool:
        return fits(fewer, spared) and (len(spared) == 1 or data.draw(st.booleans()))

    plainly = spare_one_by_one(some, order, fits)
    wills: list[WillDo] = [fits, fits_sometimes]
    for will_do in wills:
        assert spare_together(some, order, will_do) == plainly


def test_a_head_that_needs_few_of_many_is_tried_seldom() -> None:
    some, tries = attempts_of(100), []

    def will_do(fewer: list[AttemptRecord], spared: list[AttemptRecord]) -> bool:
        tries.append(spared)
        return some[50] in fewer

    assert spare_together(some, some, will_do) == [some[50]]
    assert len(tries) < 25


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_jobs_are_stopped_as_if_each_was_spared_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together, pruned = digest_of_a_crowd(seed), []

    def one_by_one(some: list[AttemptRecord], order: list[AttemptRecord], will_do: WillDo) -> list[AttemptRecord]:
        pruned.append(len(some))
        return spare_one_by_one(some, order, will_do)

    monkeypatch.setattr(victims, "spare_together", one_by_one)
    assert digest_of_a_crowd(seed) == together
    assert max(pruned) > 8


def digest_of_a_crowd(seed: int) -> str:
    """Jobs of many queues, of which some are stopped for others as jobs come and end."""
    nodes = tuple(Node(f"n{i}", (f"r{i // 4}",), GPUS, memory_mb=100_000) for i in range(32))
    queues = tree((4, 3, 2, 2), GPUS * len(nodes))
    crowd = Crowd(Cluster(nodes, ("rack", "node"), queues=queues), "fair", seed)
    pending: list[Event] = [JobSubmitted(crowd.job(10)) for _ in range(300)]
    for _ in range(8):
        crowd.now += 60_000
        pending = crowd.answers(
            crowd.take([*pending, *crowd.ends(8), *(JobSubmitted(crowd.job(10)) for _ in range(8))])
        )
    assert crowd.stopped
    return str(crowd.state.digest)
