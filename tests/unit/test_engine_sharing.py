"""Jobs that share devices, through the whole engine: fractions, MPS, turns, and MIG with its re-partitions."""

from __future__ import annotations

from dataclasses import replace

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.device import Mode
from phalanx.cluster.mig import Instance
from phalanx.engine.action import Action, Repartition, Start
from phalanx.engine.event import AttemptEnded, ClusterDefined, Done, Event, Failed, JobSubmitted, Outcome
from phalanx.engine.journal import Journal
from phalanx.engine.plan import Plan, Reason
from phalanx.engine.records import JobState
from phalanx.engine.state import State
from phalanx.engine.turn import record, turn, verify
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job
from phalanx.workload.share import ShareAsk, fraction_ask, mig_ask, mps_ask, turn_ask


class Desk:
    """A cluster of two H100 nodes of two GPUs and one V100 node of one, with every turn checked."""

    def __init__(self, policy: str = "fifo:skip=true") -> None:
        self.state, self.journal = State(), Journal()
        nodes = (
            Node("h0", ("r0",), 2, "H100", 80.0),
            Node("h1", ("r0",), 2, "H100", 80.0),
            Node("v0", ("r1",), 1, "V100", 16.0),
        )
        record(self.state, self.journal, ClusterDefined(Cluster(nodes, ("rack", "node")), policy), 0)

    def turn(self, *events: Event) -> Plan:
        plan = turn(self.state, self.journal, events, self.state.now)
        self.state.capacity.check()
        return plan

    def submit(self, *jobs: Job) -> Plan:
        return self.turn(*(JobSubmitted(job) for job in jobs))

    def do(self, *actions: Action) -> Plan:
        return self.turn(*(Done(action.id) for action in actions))

    def where(self, job: str) -> tuple[str, int]:
        attempt = self.state.record(job).attempt
        assert attempt is not None
        (slot,) = attempt.placement.slots
        return slot.node, slot.devices[0]


def job(name: str, share: ShareAsk | None, replicas: int = 1, gpu_type: str = "H100", required: str = "") -> Job:
    task = Task(gpus=1, gpu_types=(gpu_type,) if gpu_type else (), share=share)
    return Job(name, Gang((Role("w", replicas, replicas, task),), Topology(required)))


def test_fractions_fill_one_device_before_they_open_another() -> None:
    desk = Desk()
    desk.submit(job("a", fraction_ask(400)), job("b", fraction_ask(600)), job("c", fraction_ask(600)))
    assert desk.where("a") == desk.where("b")
    assert desk.where("c") != desk.where("a")


def test_a_fraction_goes_to_the_fullest_device_that_has_room() -> None:
    desk = Desk()
    desk.submit(job("a", fraction_ask(300)), job("b", fraction_ask(800)), job("c", fraction_ask(200)))
    assert desk.where("c") == desk.where("b")


def test_compute_beyond_a_whole_device_is_not_given() -> None:
    desk = Desk()
    desk.submit(*(job(str(i), fraction_ask(600)) for i in range(5)))
    assert [desk.state.record(str(i)).state for i in range(5)] == [JobState.STARTING] * 4 + [JobState.WAITING]
    assert desk.state.reason("4") is Reason.GPUS


def test_memory_that_is_asked_for_counts_as_well_as_compute() -> None:
    desk = Desk()
    desk.submit(job("a", fraction_ask(100, memory_mb=50_000)), job("b", fraction_ask(100, memory_mb=50_000)))
    assert desk.where("a") != desk.where("b")


def test_a_whole_device_is_never_one_that_is_shared() -> None:
    desk = Desk()
    desk.submit(job("part", fraction_ask(100)), job("w0", None), job("w1", None), job("w2", None), job("w3", None))
    assert desk.state.reason("w3") is Reason.GPUS
    assert len({desk.where(name) for name in ("part", "w0", "w1", "w2")}) == 4


def test_modes_do_not_mix_on_a_device() -> None:
    desk = Desk()
    desk.submit(job("f", fraction_ask(100)), job("m", mps_ask(10)), job("t", turn_ask(2)))
    assert len({desk.where(name) for name in "fmt"}) == 3


def test_two_jobs_take_a_device_in_turns() -> None:
    desk = Desk()
    desk.submit(job("a", turn_ask(2)), job("b", turn_ask(2)), job("c", turn_ask(2)))
    assert desk.where("a") == desk.where("b") != desk.where("c")


def test_a_device_given_back_is_whole_again() -> None:
    desk = Desk()
    (start,) = desk.submit(job("a", fraction_ask(500))).actions
    desk.do(start)
    desk.turn(AttemptEnded("a", 1, Outcome.SUCCEEDED))
    assert desk.state.capacity.idle == desk.state.topology.everything


def test_a_mig_instance_is_cut_before_its_job_starts() -> None:
    desk = Desk()
    (cut,) = desk.submit(job("a", mig_ask("3g.40gb"))).actions
    assert isinstance(cut, Repartition)
    assert cut.layout is not None
    assert [instance.profile for instance in cut.layout] == ["3g.40gb"]
    assert desk.state.reason("a") is Reason.PREPARING
    (start,) = desk.do(cut).actions
    assert isinstance(start, Start)
    portion = start.placement.slots[0].portion
    assert portion is not None
    assert (portion.mode, portion.mig_profile) == (Mode.MIG, "3g.40gb")


def test_instances_stand_only_at_legal_offsets_beside_each_other() -> None:
    desk = Desk()
    plan = desk.submit(*(job(str(i), mig_ask("3g.40gb")) for i in range(3)))
    cuts = [action for action in plan.actions if isinstance(action, Repartition)]
    assert desk.where("0") == desk.where("1") != desk.where("2")
    assert cuts[1].layout == (Instance(0, "3g.40gb"), Instance(4, "3g.40gb"))


def test_an_idle_instance_of_the_profile_is_used_without_a_cut() -> None:
    desk = Desk()
    (cut,) = desk.submit(job("a", mig_ask("2g.20gb"))).actions
    (start,) = desk.do(cut).actions
    desk.do(start)
    desk.turn(AttemptEnded("a", 1, Outcome.SUCCEEDED))
    (start,) = desk.submit(job("b", mig_ask("2g.20gb"))).actions
    assert isinstance(start, Start)


def test_a_whole_device_that_was_cut_is_made_whole_first() -> None:
    desk = Desk()
    (cut,) = desk.submit(job("a", mig_ask("2g.20gb"))).actions
    (start,) = desk.do(cut).actions
    desk.do(start)
    desk.turn(AttemptEnded("a", 1, Outcome.SUCCEEDED))
    plan = desk.submit(*(job(f"w{i}", None) for i in range(4)))
    uncuts = [action for action in plan.actions if isinstance(action, Repartition)]
    assert [action.layout for action in uncuts] == [None]
    (start,) = desk.do(*uncuts).actions
    assert isinstance(start, Start)


def test_a_cut_that_fails_returns_the_whole_claim() -> None:
    desk = Desk()
    (cut,) = desk.submit(job("a", mig_ask("3g.40gb"))).actions
    desk.turn(Failed(cut.id, "the driver says no"))
    assert desk.state.record("a").attempt is None
    assert desk.state.reason("a") is Reason.BACKOFF
    assert desk.state.capacity.idle == desk.state.topology.everything


def test_a_profile_that_no_device_has_never_fits() -> None:
    desk = Desk()
    desk.submit(job("a", mig_ask("1g.5gb")), job("b", mig_ask("3g.40gb"), gpu_type="V100"))
    assert desk.state.reason("a") is Reason.NEVER_FITS
    assert desk.state.reason("b") is Reason.NEVER_FITS


def test_a_gang_of_shares_keeps_to_the_level_it_requires() -> None:
    desk = Desk()
    desk.submit(job("a", fraction_ask(700), replicas=3, required="node"))
    assert desk.state.reason("a") is Reason.NEVER_FITS
    desk.submit(job("b", fraction_ask(700), replicas=2, required="node"))
    attempt = desk.state.record("b").attempt
    assert attempt is not None
    assert len(attempt.placement.nodes) == 1


def test_a_share_makes_room_by_stopping_a_cheaper_one() -> None:
    desk = Desk("priority")
    lows = [replace(job(f"low{i}", None), priority=0, grace_ms=1000) for i in range(4)]
    plan = desk.submit(*lows)
    desk.do(*plan.actions)
    plan = desk.submit(replace(job("high", fraction_ask(500)), priority=100))
    (claim,) = plan.claims
    assert claim.waits
    assert len(claim.victims) == 1
    (start,) = desk.do(*plan.actions).actions
    assert isinstance(start, Start)
    assert start.id.job == "high"


def test_a_history_of_shares_replays_to_the_same_plans() -> None:
    desk = Desk("priority")
    plan = desk.submit(job("a", mig_ask("3g.40gb")), job("b", fraction_ask(500)), job("c", mps_ask(30)))
    while plan.actions:
        plan = desk.do(*plan.actions)
    desk.turn(AttemptEnded("b", 1, Outcome.SUCCEEDED))
    assert verify(desk.journal).fingerprint() == desk.state.fingerprint()
