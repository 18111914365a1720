"""Elastic jobs grow into what nobody waits for, and shrink before anybody is stopped."""

from __future__ import annotations

from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import JobState, Phase
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn, verify
from phalanx.protocol.action import Resize, Start, Stop
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Event, Failed, JobSubmitted, Outcome
from phalanx.protocol.plan import Plan
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job, Kind
from phalanx.workload.parallel import ParallelPlan


class Desk:
    """Four nodes of two GPUs in two racks, with every turn checked."""

    def __init__(self, policy: str = "priority") -> None:
        self.state, self.journal = State(), Journal()
        nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 2) for i in range(4))
        record(self.state, self.journal, ClusterDefined(Cluster(nodes, ("rack", "node")), policy), 0)

    def turn(self, *events: Event) -> Plan:
        plan = turn(self.state, self.journal, events, self.state.now)
        self.state.capacity.check()
        return plan

    def submit(self, *jobs: Job) -> Plan:
        return self.turn(*(JobSubmitted(job) for job in jobs))

    def run(self, *jobs: Job) -> None:
        """Submits and carries out whatever is asked for until nothing is."""
        plan = self.submit(*jobs)
        while plan.actions:
            plan = self.turn(*(Done(action.id) for action in plan.actions))

    def end(self, job: str) -> Plan:
        return self.turn(AttemptEnded(job, self.state.record(job).attempts, Outcome.SUCCEEDED))

    def size(self, job: str) -> int:
        attempt = self.state.record(job).attempt
        return attempt.placement.gpus if attempt is not None else 0


def job(name: str, least: int, most: int, gpus: int = 2, priority: int = 0, kind: Kind = Kind.TRAINING) -> Job:
    role = Role("w", least, most, Task(gpus=gpus))
    return Job(name, Gang((role,)), priority=priority, kind=kind, min_available=least if kind is Kind.SERVICE else 0)


def test_an_elastic_job_starts_as_large_as_fits() -> None:
    desk = Desk()
    desk.run(job("fixed", 1, 1), job("elastic", 1, 4))
    assert desk.size("elastic") == 6


def test_it_grows_when_devices_come_free_and_nobody_waits() -> None:
    desk = Desk()
    desk.run(job("fixed", 1, 1), job("elastic", 1, 4))
    (grow,) = desk.end("fixed").actions
    assert isinstance(grow, Resize)
    assert desk.state.record("elastic").state is JobState.RUNNING
    desk.turn(Done(grow.id))
    assert desk.size("elastic") == 8
    assert desk.state.capacity.idle == 0


def test_it_does_not_grow_past_somebody_who_waits() -> None:
    desk = Desk("fifo:skip=true")
    desk.run(job("a", 1, 1), job("elastic", 1, 3))
    desk.submit(job("waits", 4, 4))
    assert desk.end("a").actions == ()


def test_it_shrinks_before_anybody_is_stopped() -> None:
    desk = Desk()
    desk.run(job("fixed", 1, 1), job("elastic", 1, 3))
    plan = desk.submit(job("urgent", 1, 1, priority=10))
    (shrink,) = plan.actions
    assert isinstance(shrink, Resize)
    assert plan.claims[0].waits
    assert plan.claims[0].victims == ()
    (start,) = desk.turn(Done(shrink.id)).actions
    assert isinstance(start, Start)
    assert (desk.size("elastic"), desk.size("urgent")) == (4, 2)


def test_it_gives_no_more_than_is_needed_and_never_its_minimum() -> None:
    desk = Desk()
    desk.run(job("elastic", 2, 4))
    plan = desk.submit(job("one", 1, 1, gpus=1, priority=10))
    (shrink,) = plan.actions
    assert isinstance(shrink, Resize)
    assert shrink.placement.gpus == 6
    desk.turn(Done(shrink.id))
    plan = desk.submit(job("big", 3, 3, priority=10))
    assert any(isinstance(action, Stop) for action in plan.actions)
    assert not any(isinstance(action, Resize) for action in plan.actions)


def test_a_service_shrinks_to_its_minimum_but_is_never_stopped() -> None:
    desk = Desk()
    desk.run(job("service", 2, 4, kind=Kind.SERVICE))
    plan = desk.submit(job("urgent", 2, 2, priority=10))
    (shrink,) = plan.actions
    assert isinstance(shrink, Resize)
    desk.turn(Done(shrink.id))
    assert desk.size("service") == 4
    plan = desk.submit(job("more", 1, 1, priority=5))
    assert plan.actions == ()


def test_a_growth_that_fails_is_given_back_and_tried_again_later() -> None:
    desk = Desk()
    desk.run(job("fixed", 1, 1), job("elastic", 1, 4))
    (grow,) = desk.end("fixed").actions
    assert desk.turn(Failed(grow.id, "no image")).actions == ()
    assert desk.size("elastic") == 6
    assert desk.state.record("elastic").state is JobState.RUNNING
    again = desk.state.next_wakeup()
    assert again is not None
    (grow,) = turn(desk.state, desk.journal, [], again).actions
    assert isinstance(grow, Resize)


def test_a_shrink_that_fails_is_had_by_a_stop() -> None:
    desk = Desk()
    desk.run(job("elastic", 1, 4))
    (shrink,) = desk.submit(job("urgent", 1, 1, priority=10)).actions
    (stop,) = desk.turn(Failed(shrink.id, "would not let go")).actions
    assert isinstance(stop, Stop)
    plan = desk.turn(Done(stop.id))
    assert sorted(action.id.job for action in plan.actions) == ["elastic", "urgent"]


def test_an_attempt_that_ends_while_it_is_resized_gives_everything_back() -> None:
    desk = Desk()
    desk.run(job("fixed", 1, 1), job("elastic", 1, 4))
    desk.end("fixed")
    attempt = desk.state.record("elastic").attempt
    assert attempt is not None
    assert attempt.phase is Phase.RESIZING
    desk.end("elastic")
    assert desk.state.capacity.idle == desk.state.topology.everything


def test_growth_keeps_to_the_domain_the_gang_requires() -> None:
    desk = Desk()
    role = Role("w", 1, 4, Task(gpus=2))
    desk.run(Job("other", Gang((Role("w", 1, 1, Task(gpus=2)),))), Job("e", Gang((role,), Topology("rack"))))
    assert desk.size("e") == 4
    assert desk.end("other").actions == ()


def test_with_a_parallel_plan_the_mesh_follows_the_size() -> None:
    desk = Desk()
    role = Role("w", 1, 4, Task(gpus=2))
    elastic = Job("e", Gang((role,)), parallel=ParallelPlan(tp=2, dp=4))
    desk.run(job("fixed", 1, 1), elastic)
    attempt = desk.state.record("e").attempt
    assert attempt is not None
    assert len(attempt.placement.mesh) == 6
    (grow,) = desk.end("fixed").actions
    assert isinstance(grow, Resize)
    assert len(grow.placement.mesh) == 8


def test_a_history_with_resizes_replays_to_the_same_plans() -> None:
    desk = Desk()
    desk.run(job("fixed", 1, 1), job("elastic", 1, 4))
    plan = desk.end("fixed")
    desk.turn(*(Done(action.id) for action in plan.actions))
    desk.run(job("urgent", 1, 1, priority=10))
    assert verify(desk.journal).fingerprint() == desk.state.fingerprint()
