"""Suppositions: what the policy remembers in one is what it remembers once the change is made, and no two mix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job, events_of
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import record, replay
from phalanx.engine.why import counterfactual
from phalanx.engine.why.change import Change, ChangeKind
from phalanx.engine.why.evidence import other
from phalanx.engine.why.suppose import Supposition, copied
from phalanx.engine.why.why import why
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Job


def a_world(policy: str) -> World:
    """b1 has 6 of 8 GPUs, all that b may have; n1 is drained; a1 waits for 8 GPUs."""
    queues = (Queue("a"), Queue("b", limit=Quota(6_000)))
    closing = (Maintenance("m", ("n0",), 5_000, 9_000),)
    world = World(replace(flat(2, 8), queues=queues, maintenance=closing), policy)
    world.health("n1", Health.DRAINING)
    world.run(a_job("b1", 6, queue="b"))
    world.submit(a_job("a1", 8, queue="a", duration_ms=60_000))
    return world


def fewer(gpus: int) -> Change:
    return Change(ChangeKind.GPUS, gpus, 8, role="worker", gpus=gpus)


@pytest.mark.parametrize("policy", ["volcano", "kai", "phalanx", "singularity"])
def test_the_policy_remembers_under_a_supposition_what_it_would_after_the_events(policy: str) -> None:
    world = a_world(policy)
    state, before = world.state, repr(world.state.memory)
    for change in (
        fewer(2),
        Change(ChangeKind.MAINTENANCE, names=("m",)),
        Change(ChangeKind.LIMIT, names=("b",)),
        Change(ChangeKind.REPAIR, names=("n1",)),
        Change(ChangeKind.END, ends=(other(state, "b1"),)),
    ):
        really, journal = replay(Journal(list(world.journal.records))), Journal(list(world.journal.records))
        for event in events_of(really, "a1", change):
            record(really, journal, event, world.now)
        with Supposition(state) as supposition:
            supposition.impose("a1", change)
            assert repr(state.memory) == repr(really.memory), change
        assert repr(state.memory) == before


def test_what_falls_to_a_queue_is_told_apart_by_what_is_supposed() -> None:
    state = a_world("volcano").state
    found = []
    for gpus in (2, 4):
        with Supposition(state) as supposition:
            supposition.impose("a1", fewer(gpus))
            measures = state.policy.measures("a", state.usage("a"), state)
            found.append(next(each.value for each in measures if each.name == "fair_share_gpus"))
    assert found == [2, 4]


def test_a_copy_of_the_memory_that_many_suppositions_share_is_as_it_was_after_each() -> None:
    state = a_world("volcano").state
    search = counterfactual._Search(state, state.record("a1"))
    assert search._memory is not None
    before = {**search._memory, "version": 0}
    assert before["wants"]["a"][0] == 8_000
    with Supposition(state, search._memory) as supposition:
        supposition.impose("a1", fewer(2))
        assert state.memory["wants"]["a"][0] == 2_000
    assert {**search._memory, "version": 0} == before
    assert state.memory is not search._memory


def test_a_copy_of_a_memory_shares_nothing_that_can_change() -> None:
    memory: dict[str, Any] = {"a": {"x": [1, [2]]}, "t": ("k", 1, ("A",)), "odd": ([3], {4: None}), "s": {5}}
    copy = copied(memory)
    assert copy == memory
    memory["a"]["x"][1].append(9)
    memory["odd"][0].append(9)
    memory["s"].add(9)
    assert copy == {"a": {"x": [1, [2]]}, "t": ("k", 1, ("A",)), "odd": ([3], {4: None}), "s": {5}}


def test_what_may_be_left_out_only_once_something_else_is_gets_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """n0 and n1 together would be taken by somebody before the job: with all three it starts, with n0 alone, too."""
    state = a_world("fifo").state
    search = counterfactual._Search(state, state.record("a1"))
    starting = ({"n0", "n1", "n2"}, {"n0", "n2"}, {"n0"})
    monkeypatch.setattr(search, "_starts", lambda change: set(change.names) in starting)
    assert search._needed(["n0", "n1", "n2"], counterfactual._repair) == ["n0"]


def test_where_few_would_have_to_change_no_fewer_of_them_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """No one of the four may be left out, but two of them may at once."""
    state = a_world("fifo").state
    search = counterfactual._Search(state, state.record("a1"))
    starting = ({"n0", "n1", "n2", "n3"}, {"n1", "n3"})
    monkeypatch.setattr(search, "_starts", lambda change: set(change.names) in starting)
    assert search._needed(["n0", "n1", "n2", "n3"], counterfactual._repair) == ["n1", "n3"]


def test_what_waits_next_is_told_where_the_change_would_cost_another_its_claim() -> None:
    """Without the limit `top` gets what `mid` was promised, of whose kind nobody else waits."""

    def asks(name: str, cpus_milli: int, priority: int) -> Job:
        task = {"cpus_milli": cpus_milli, "cpus_limit_milli": cpus_milli}
        return a_job(name, 2, queue="q", priority=priority, task=task)

    node = Node("n0", (), 4, cpus_milli=16_000)
    world = World(Cluster((node,), queues=(Queue("q", limit=Quota(None, 4_000)),)), "priority")
    world.run(asks("keep", 2_000, 100), asks("low", 0, 0))
    world.submit(asks("mid", 0, 5))
    world.submit(asks("top", 4_000, 10))
    world.submit(asks("last", 4_000, 0))
    assert world.reason("mid") is Reason.MAKING_ROOM
    then = why(world.state, "last").next
    assert then is not None
    assert (then.change.kind, then.reason) == (ChangeKind.LIMIT, Reason.GPUS)
