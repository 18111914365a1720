"""Victims that a head can do without are dropped in leaps: what is left is what dropping one by one would leave."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_pending_properties import GPUS, History, Mixed

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.decide.cycle import decide
from phalanx.engine.preempt import victims
from phalanx.engine.preempt.pruning import Pruning, Victims
from phalanx.engine.state.records import AttemptRecord
from phalanx.protocol.event import JobSubmitted
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job
from reference.pruning import PlainPruning

PREEMPTING = ("priority", "phalanx", "fair:preempt=true", "srtf", "tiresias-las", "singularity", "kai", "volcano")


class Deep(History):
    """Queues of three levels that borrow from one another, and gangs of many sizes beside many of a single GPU."""

    def __init__(self, rng: Random, policies: tuple[str, ...], quotas: bool) -> None:
        super().__init__(rng, policies, quotas=quotas)
        self.happen([self.a_submission() for _ in range(rng.choice([30, 100]))])

    def a_cluster(self, count: int, quotas: bool) -> Cluster:
        plain = super().a_cluster(2 * count, quotas=False)
        return replace(plain, queues=a_deep_tree(self.rng, 2 * count * GPUS) if quotas else ())

    def a_submission(self) -> JobSubmitted:
        rng = self.rng
        self.submitted += 1
        gpus, count = rng.choice([(1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)])
        gang = Gang((Role("worker", count, count, Task(gpus)),), Topology(rng.choice(["", "rack"])))
        return JobSubmitted(Job(str(self.submitted), gang, queue=rng.choice(self.queues), priority=rng.randrange(4)))


def a_deep_tree(rng: Random, gpus: int) -> tuple[Queue, ...]:
    """The innermost deserve an equal part of the cluster or nothing, and are guaranteed some of that or nothing."""
    tops = ["t0", "t1"]
    middles = [f"{top}/u{i}" for top in tops for i in range(2)]
    each = 1000 * gpus // 8
    queues = [Queue(path) for path in (*tops, *middles)]
    for path in [f"{middle}/v{i}" for middle in middles for i in range(2)]:
        deserved = rng.choice([0, each, each])
        queues.append(Queue(path, Quota(rng.choice([0, deserved // 4])), Quota(deserved)))
    return tuple(queues)


@pytest.mark.parametrize("policy", PREEMPTING)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_what_is_left_of_victims_is_what_dropping_them_one_by_one_would_leave(policy: str, rng: Random) -> None:
    kind = rng.choice([Deep, Deep, Mixed])
    history = kind(rng, (policy,), quotas=rng.random() < 0.8)
    for _ in range(6):
        plan = decide(history.state, history.now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(victims, "Pruning", PlainPruning)
            assert decide(history.state, history.now) == plan
        history.decide()
        history.go_on()


class Minimal(Pruning):
    """Pruning that notes down victims without any one of which the head would still fit."""

    needless: ClassVar[list[AttemptRecord]] = []

    def of(self, victims: Victims, drop_first: Victims) -> Victims:
        needed = super().of(victims, drop_first)
        if len(needed) > 1 and not self._ends():
            self.needless += [each for each in needed if self._fits([other for other in needed if other is not each])]
        return needed


@pytest.mark.parametrize("policy", PREEMPTING)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_no_job_is_preempted_that_the_job_it_leaves_for_can_do_without(policy: str, rng: Random) -> None:
    history = Deep(rng, (policy,), quotas=True)
    Minimal.needless.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "Pruning", Minimal)
        for _ in range(6):
            history.decide()
            history.go_on()
    assert not Minimal.needless
