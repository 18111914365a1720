"""Upper bounds under random histories of jobs that stop and move one another: they change no decision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.bench.tenants.borrowing import Crowd, a_node, tree
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.decide.cycle import decide
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.stops import Stopping
from phalanx.engine.preempt.upper_bound import UpperBound, UpperBounds
from phalanx.engine.state.journal import Count
from phalanx.engine.state.records import JobRecord, Phase
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.protocol.action import ActionId
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Event, JobSubmitted, Outcome, Progress
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Checkpointing, Job
from phalanx.workload.share import fraction_ask

POLICIES = ("priority", "priority", "fair:preempt=true", "kai", "volcano", "phalanx")
GPUS = 4


class History:
    """An engine that is always crowded, with nodes of unlike CPUs, whose actions are carried out sooner or later."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        count = rng.choice([4, 8, 12])
        nodes = tuple(
            Node(f"n{i}", (f"r{i // 4}",), GPUS, cpus_milli=rng.choice([4_000, 16_000])) for i in range(count)
        )
        self.saves = rng.choice([0.0, 0.5, 1.0])
        self.shares = rng.choice([0.0, 0.0, 0.2])
        self.state, self.journal = State(), Count()
        self.asked: dict[ActionId, None] = {}
        self.now = self.submitted = 0
        record(self.state, self.journal, ClusterDefined(Cluster(nodes, ("rack", "node")), rng.choice(POLICIES)), 0)
        self.happen([self.a_submission() for _ in range(rng.choice([15, 40]))])

    def a_submission(self) -> JobSubmitted:
        rng = self.rng
        self.submitted += 1
        gpus, count = rng.choice([(1, 1), (1, 1), (2, 1), (4, 1), (4, 2), (2, 3), (4, 4)])
        task = Task(gpus, cpus_milli=rng.choice([0, 1_000]) * gpus)
        if rng.random() < self.shares:
            task, count = Task(1, share=fraction_ask(500)), 1
        roles = [Role("worker", count, count, task)]
        if rng.random() < 0.25:
            roles.append(Role("server", 1, rng.choice([1, 2]), Task(rng.choice([0, 1, 2]))))
        gang = Gang(tuple(roles), Topology(rng.choice(["", "", "rack", "node"]) if gpus * count <= GPUS else ""))
        saves = Checkpointing(saves=rng.random() < self.saves)
        priority = rng.choice([0, 0, 100, 200])
        return JobSubmitted(Job(str(self.submitted), gang, queue=rng.choice("ab"), priority=priority, checkpoint=saves))

    def happen(self, events: list[Event]) -> None:
        for event in events:
            record(self.state, self.journal, event, self.now)

    def go_on(self) -> None:
        """A decision; then some actions are done, some jobs end or save their work, others come."""
        rng = self.rng
        self.asked.update((action.id, None) for action in turn(self.state, self.journal, [], self.now).actions)
        self.now += 1_000
        done = [action for action in self.asked if rng.random() < 0.6]
        for action in done:
            del self.asked[action]
        self.happen([*map(Done, done)])
        running = [attempt for attempt in self.state.attempts_present() if attempt.phase is Phase.RUNNING]
        ending = rng.sample(running, min(len(running), rng.choice([0, 1, 3])))
        saving = rng.sample(running, min(len(running), rng.choice([0, 0, 1])))
        self.happen([Progress(each.job.id, each.number, durable_step=each.durable_step + 1) for each in saving])
        self.happen([AttemptEnded(each.job.id, each.number, Outcome.SUCCEEDED) for each in ending])
        self.happen([self.a_submission() for _ in range(rng.choice([0, 1, 4]))])


@contextmanager
def nobody_is_counted_out() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpperBound, "fits_beside", lambda *_: True)
        patch.setattr(UpperBound, "fits_without", lambda *_: True)
        yield


@contextmanager
def nothing_is_remembered() -> Iterator[None]:
    def anew(builder: PlanBuilder, job: JobRecord) -> UpperBound:
        return UpperBound(builder.state, job, builder.leaving)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlanBuilder, "upper_bound", anew)
        yield


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_what_is_decided_is_the_same_as_if_everybody_were_tried(rng: Random) -> None:
    history = History(rng)
    for _ in range(8):
        plan = decide(history.state, history.now)
        with nobody_is_counted_out():
            assert decide(history.state, history.now) == plan
        with nothing_is_remembered():
            assert decide(history.state, history.now) == plan
        history.go_on()


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_those_who_save_are_known(rng: Random) -> None:
    history = History(rng)
    for _ in range(8):
        history.go_on()
        state = history.state
        saving = [attempt.key for attempt in state.attempts() if state.jobs[attempt.job.id].saves]
        assert sorted(state.saving) == sorted(saving)


def test_some_heads_are_counted_out_and_others_share_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    shared: list[bool] = []
    usual, usual_of = UpperBound.fits_without, UpperBounds.of

    def watched(upper_bound: UpperBound, up_to: int, fresh: int | None) -> bool:
        found.append(usual(upper_bound, up_to, fresh))
        return found[-1]

    def watched_of(upper_bounds: UpperBounds, *arguments: object) -> UpperBound:
        known = list(upper_bounds._known.values())
        upper_bound = usual_of(upper_bounds, *arguments)  # type: ignore[arg-type]
        shared.append(any(each is upper_bound for each in known))
        return upper_bound

    monkeypatch.setattr(UpperBound, "fits_without", watched)
    monkeypatch.setattr(UpperBounds, "of", watched_of)
    for seed in range(8):
        history = History(Random(seed))
        for _ in range(6):
            history.go_on()
    assert any(found)
    assert not all(found)
    assert any(shared)
    assert not all(shared)


@pytest.mark.parametrize("policy", ["kai", "volcano", "phalanx"])
@pytest.mark.parametrize("seed", range(3))
def test_groups_that_are_not_asked_about_would_not_have_yielded(policy: str, seed: int) -> None:
    nodes = tuple(a_node(number) for number in range(8))
    cluster = Cluster(nodes, ("rack", "node"), queues=tree((3, 3), 8 * len(nodes)))
    crowd = Crowd(cluster, policy, seed, 12)
    events: list[Event] = [JobSubmitted(crowd.job(priorities=2)) for _ in range(60)]
    asked = 0
    for _ in range(8):
        for event in events:
            record(crowd.state, crowd.journal, event, crowd.now)
        plan = decide(crowd.state, crowd.now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Stopping, "groups", lambda way: way.state.runs)
            assert decide(crowd.state, crowd.now) == plan
        pending = crowd.answers(crowd.take([]))
        asked += len(pending)
        crowd.now += 1_000
        events = [*pending, *crowd.ends(3), *(JobSubmitted(crowd.job(priorities=2)) for _ in range(3))]
    assert asked
