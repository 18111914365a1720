"""What a record may not say is refused with a clear error, and nothing changes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job, after, everything, of_roles, racked, within, workers
from phalanx.cluster.cluster import NODE, Cluster, Health, Node, Overcommit, flat
from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.check import check
from phalanx.engine.state.journal import Record, decode, encode
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start, Stop
from phalanx.protocol.event import (
    Advice,
    AttemptEnded,
    ClusterDefined,
    DeviceHealthChanged,
    Done,
    Event,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeHealthChanged,
    Outcome,
    Progress,
    TimerDue,
)
from phalanx.protocol.plan import Claim, Plan, Verdict
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Checkpointing, Job
from phalanx.workload.parallel import ParallelPlan
from phalanx.workload.share import fraction_ask
from phalanx.workload.toleration import Toleration


@pytest.fixture
def world() -> World:
    """Two racks of one node with two GPUs; `a` runs, `over` has ended, `waits` waits."""
    world = World(racked(2, 1, gpus=2))
    world.run(a_job("over"))
    world.end("over")
    world.run(a_job("a", 2))
    world.submit(a_job("waits", 2, 2))
    return world


ILL_SIZED = Job("new", Gang((Role("w", 3, 2, Task(1)),)))
TWINS = of_roles("new", Role("w", task=Task(1, cpus_milli=1)), Role("w", task=Task(1, cpus_milli=7)))
INNER_TWINS = of_roles("new", Role("r", members=(Role("w", task=Task(1)), Role("w", task=Task(2)))))
SUBGANG = of_roles("new", Role("r", members=(workers(1, 1, within("pod")),)))

REFUSED: list[tuple[Event, str]] = [
    (JobSubmitted(a_job("a")), "there is a job 'a' already"),
    (JobSubmitted(a_job("over")), "there is a job 'over' already"),
    (JobSubmitted(a_job("")), "a job needs an id"),
    (JobSubmitted(a_job(7)), "a job needs an id, which is text, got 7"),  # type: ignore[arg-type]
    (JobSubmitted(a_job("new", kind="training")), "job new: kind must be a Kind, got 'training'"),
    *(
        (JobSubmitted(a_job("new", **{name: values})), f"job new: {name} must be a tuple")
        for name, values in (
            ("node_selector", {"disk": "ssd"}),
            ("tolerations", [Toleration("spot")]),
            ("after", [after("a")]),
            ("labels", [("team", "x")]),
        )
    ),
    (
        JobSubmitted(a_job("new", 2, task={"share": fraction_ask(500)})),
        "job new, role worker: a share is a part of one GPU, and a task asks for 2",
    ),
    (JobSubmitted(a_job("new", after=(after("ghost"),))), "job new waits for job 'ghost', which does not exist"),
    (JobSubmitted(a_job("new", after=(after("new"),))), "job new waits for job 'new', which does not exist"),
    (JobSubmitted(a_job("new", required="pod")), "job new asks for the level 'pod'; this cluster has rack, node"),
    (JobSubmitted(a_job("new", preferred="pod")), "job new asks for the level 'pod'"),
    (JobSubmitted(SUBGANG), "job new asks for the level 'pod'"),
    (
        JobSubmitted(a_job("new", task={"storage_gb": (("tape", 1),)})),
        "job new, role worker asks for storage of the tier 'tape'; this cluster has none",
    ),
    (
        JobSubmitted(a_job("new", 3, (2, 3), parallel=ParallelPlan(4, 1, 2))),
        "job new: no size of the gang from 6 to 9 GPUs is whole replicas of its parallel plan",
    ),
    (JobSubmitted(Job("new", Gang(()))), "job new has no roles"),
    (JobSubmitted(ILL_SIZED), "job new, role w: replicas 3 to 2"),
    (JobSubmitted(a_job("new", 1, 0)), "job new, role worker: replicas 0 to 0"),
    (
        JobSubmitted(a_job("new", task={"cpus_milli": 2000, "cpus_limit_milli": 1000})),
        "job new, role worker: cpus_limit_milli is 1000, less than the 2000 asked for",
    ),
    (
        JobSubmitted(a_job("new", task={"memory_mb": 2000, "memory_limit_mb": 1000})),
        "job new, role worker: memory_limit_mb is 1000, less than the 2000 asked for",
    ),
    (JobSubmitted(a_job("new", grace_ms=-1)), "job new: grace_ms must be a whole number of at least 0, got -1"),
    (JobSubmitted(a_job("new", duration_ms=-5)), "job new: duration_ms must be a whole number of at least 0, got -5"),
    (JobSubmitted(a_job("new", duration_ms=1.5)), "job new: duration_ms must be .* got 1.5"),
    (JobSubmitted(a_job("new", max_run_ms=-1)), "job new: max_run_ms must be"),
    (JobSubmitted(a_job("new", max_wait_ms=-1)), "job new: max_wait_ms must be"),
    (JobSubmitted(a_job("new", begin_ms="noon")), "job new: begin_ms must be .* got 'noon'"),
    (JobSubmitted(a_job("new", deadline_ms=0.5)), "job new: deadline_ms must be"),
    (JobSubmitted(a_job("new", retry_limit=True)), "job new: retry_limit must be .* got True"),
    (JobSubmitted(a_job("new", min_available=-1)), "job new: min_available must be"),
    (JobSubmitted(a_job("new", checkpoint=Checkpointing(-1))), "job new: checkpoint.interval_ms must be"),
    (JobSubmitted(a_job("new", checkpoint=Checkpointing(cost_ms=-1))), "job new: checkpoint.cost_ms must be"),
    (JobSubmitted(a_job("new", priority=1.0)), "job new: priority must be a whole number, got 1.0"),
    *(
        (JobSubmitted(a_job("new", queue=queue)), f"job new: queue must be names with '/' between.*'{queue}'")
        for queue in ("a//b", "/a", "a/", "/")
    ),
    (JobChanged(a_job("waits", 2, 2, grace_ms=-1)), "job waits: grace_ms must be"),
    (Progress("a", 1, step=-5), "progress of job a: .* of at least 0, got -5"),
    (Progress("a", 1, step=1.5), "progress of job a: .* whole numbers of at least 0, got 1.5"),  # type: ignore[arg-type]
    (Progress("a", 1, durable_step=-1), "progress of job a"),
    (Progress("a", 1, stop_cost_ms=-1), "progress of job a"),
    (Progress("a", 1, samples_per_s=-1.0), "progress of job a: expected numbers of at least 0, got -1.0"),
    (Progress("a", 1, gpu_busy=-0.1), "progress of job a: expected numbers of at least 0"),
    (Progress("a", 1, memory_gb=-1.0), "progress of job a: expected numbers of at least 0"),
    (JobSubmitted(TWINS), "job new.*w"),
    (JobSubmitted(INNER_TWINS), "job new.*w"),
    (
        JobSubmitted(a_job("new", 1, 4, parallel=ParallelPlan(2, 2, 2))),
        "job new: tp·pp·dp is 8, but the gang has 4 GPUs",
    ),
    (JobCancelled("ghost"), "there is no job 'ghost'"),
    (JobHeld("ghost"), "there is no job 'ghost'"),
    (JobReleased("ghost"), "there is no job 'ghost'"),
    (JobCancelled("over"), "job over has already succeeded"),
    (JobHeld("over"), "job over has already succeeded"),
    (JobReleased("over"), "job over has already succeeded"),
    (NodeHealthChanged("n9", Health.FAILED), "there is no node 'n9'"),
    (DeviceHealthChanged("n9", 0, Health.FAILED), "there is no node 'n9'"),
    (DeviceHealthChanged("n0", 2, Health.FAILED), "node n0 has devices 0 to 1, not 2"),
    (DeviceHealthChanged("n0", -1, Health.FAILED), "node n0 has devices 0 to 1, not -1"),
    (ClusterDefined(flat(1, 1), "fifo"), "a cluster is defined once, by the first record"),
    (Progress("a", 1, samples_per_s=math.nan), "a"),
    (Progress("a", 1, metrics={"loss": math.inf}), "a"),
    (Advice("fifo", {"x": math.nan}), "fifo"),
]


def test_a_cancelled_job_has_been_cancelled(world: World) -> None:
    world.turn(JobCancelled("waits"))
    with pytest.raises(ValueError, match=r"^job waits has already been cancelled$"):
        check(world.state, JobCancelled("waits"))


@pytest.mark.parametrize(("event", "message"), REFUSED, ids=[f"{type(e).__name__}-{m}" for e, m in REFUSED])
def test_an_event_that_contradicts_the_state_is_refused_and_changes_nothing(
    world: World, event: Event, message: str
) -> None:
    before, length = everything(world.state), len(world.journal.records)
    with pytest.raises(ValueError, match=message):
        world.turn(event)
    assert everything(world.state) == before
    assert len(world.journal.records) == length


HERE = Placement((Slot(0, "worker", "n1", (0, 1)),))


def fold(state: State, entry: Record) -> None:
    apply(state, entry, encode(entry))


CONTRADICTIONS = {
    "a claim for a job nobody knows": Plan(claims=(Claim("ghost", 1, HERE),)),
    "a claim for a job that runs": Plan(claims=(Claim("a", 2, HERE),)),
    "a claim for a job that has ended": Plan(claims=(Claim("over", 2, HERE),)),
    "a claim with the number of another attempt": Plan(claims=(Claim("waits", 7, HERE),)),
    "a claim on a node nobody knows": Plan(claims=(Claim("waits", 1, Placement((Slot(0, "worker", "n9", (0,)),))),)),
    "a claim on a device nobody has": Plan(claims=(Claim("waits", 1, Placement((Slot(0, "worker", "n1", (7,)),))),)),
    "a claim on a device that is held": Plan(claims=(Claim("waits", 1, Placement((Slot(0, "worker", "n0", (0,)),))),)),
    "a claim that has a device twice": Plan(claims=(Claim("waits", 1, Placement((Slot(0, "worker", "n1", (0, 0)),))),)),
    "a claim of two tasks on one device": Plan(
        claims=(Claim("waits", 1, Placement((Slot(0, "worker", "n1", (0, 1)), Slot(1, "worker", "n1", (1,))))),)
    ),
    "a promise of one device to two tasks": Plan(
        claims=(
            Claim("waits", 1, Placement((Slot(0, "worker", "n1", (0,)), Slot(1, "worker", "n1", (0,)))), waits=True),
        )
    ),
    "a claim for a role nobody knows": Plan(claims=(Claim("waits", 1, Placement((Slot(0, "ps", "n1", (0,)),))),)),
    "a start of an attempt there is not": Plan(actions=(Start(ActionId(1, "waits", 1, 0), HERE),)),
    "a stop of an attempt there is not": Plan(actions=(Stop(ActionId(1, "a", 9, 0), 0, "cancelled"),)),
    "a stop for a reason nobody knows": Plan(actions=(Stop(ActionId(1, "a", 1, 1), 0, "boredom"),)),
    "a verdict on a job nobody knows": Plan(verdicts=(Verdict("ghost", Reason.GPUS),)),
    "a verdict on a job that does not wait": Plan(verdicts=(Verdict("a", Reason.GPUS),)),
}


@pytest.mark.parametrize("plan", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_decision_that_contradicts_the_state_is_refused_and_changes_nothing(world: World, plan: Plan) -> None:
    before = everything(world.state)
    with pytest.raises(ValueError, match=r"\w"):
        fold(world.state, Record(world.state.seq + 1, world.now, plan))
    assert everything(world.state) == before


@pytest.mark.parametrize("seq", [-1, 0, 4, 99])
def test_a_record_out_of_order_is_refused(world: World, seq: int) -> None:
    before = everything(world.state)
    with pytest.raises(ValueError, match=f"record {seq} does not follow record {world.state.seq}"):
        fold(world.state, Record(seq, world.now, TimerDue()))
    assert everything(world.state) == before


def test_time_never_goes_back(world: World) -> None:
    world.turn(after_ms=1_000)
    world.submit(a_job("later"))
    before = everything(world.state)
    with pytest.raises(ValueError, match="is of 999 ms, before 1000 ms: time never goes back"):
        fold(world.state, Record(world.state.seq + 1, 999, TimerDue()))
    assert everything(world.state) == before


def test_a_turn_of_an_earlier_moment_happens_now(world: World) -> None:
    world.turn(JobHeld("waits"), after_ms=1_000)
    world.now = 0
    world.turn(JobReleased("waits"))
    assert world.state.now == 1_000


def test_the_first_record_must_define_the_cluster() -> None:
    state = State()
    with pytest.raises(ValueError, match="first record"):
        fold(state, Record(0, 0, JobSubmitted(a_job("a"))))
    assert not state.jobs
    assert state.seq == -1


@pytest.mark.parametrize(
    ("cluster", "policy", "message"),
    [
        (Cluster((Node("a"), Node("a"))), "fifo", "two nodes of the cluster have one name"),
        (Cluster((Node("a", ("x",)),), ("rack", "rack", NODE)), "fifo", "two levels of the cluster have one name"),
        (
            Cluster((Node("a", gpus=6, split=(("socket", 4),)),), (NODE, "socket")),
            "fifo",
            "6 GPUs cannot be split into 4",
        ),
        (
            replace(flat(1, 1), overcommit=Overcommit(cpus=0.5)),
            "fifo",
            "overcommit of cpus must be .* at least 1, got 0.5",
        ),
        (replace(flat(1, 1), overcommit=Overcommit(memory=math.nan)), "fifo", "overcommit of memory must be a finite"),
        (flat(1, 1), "lottery", "unknown policy 'lottery'"),
        (flat(1, 1), "fifo:skip=1", "expected true or false"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(cluster: Cluster, policy: str, message: str) -> None:
    state = State()
    with pytest.raises(ValueError, match=message):
        fold(state, Record(0, 0, ClusterDefined(cluster, policy)))
    assert state.seq == -1


def test_an_elastic_gang_may_have_a_plan_of_another_size(world: World) -> None:
    world.submit(a_job("new", 1, (2, 4), parallel=ParallelPlan(1, 1, 2)))
    assert "new" in world.state.jobs


def test_the_levels_of_every_cluster_are_known(world: World) -> None:
    for level in ("", NODE, "cluster", "rack"):
        world.submit(Job(f"at-{level}", Gang((workers(),), Topology(level, level))))


def test_news_of_jobs_and_attempts_that_nobody_knows_are_no_contradiction(world: World) -> None:
    world.turn(
        Done(ActionId(1, "ghost", 1, 0)),
        AttemptEnded("ghost", 1, Outcome.LOST),
        Progress("ghost", 1, step=5),
        Progress("a", 9, step=5),
    )


def test_of_several_events_those_before_the_refused_one_have_happened(world: World) -> None:
    with pytest.raises(ValueError, match="no job 'ghost'"):
        world.turn(JobHeld("waits"), JobCancelled("ghost"))
    assert world.reason("waits") is Reason.HELD


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"gpus": 1.5}, "task: gpus must be a whole number of at least 0, got 1.5"),
        ({"gpus": 1.0}, "task: gpus .* got 1.0"),
        ({"gpus": True}, "task: gpus .* got True"),
        ({"gpus": -1}, "task: gpus .* got -1"),
        ({"cpus_milli": -1}, "task: cpus_milli"),
        ({"memory_mb": 0.5}, "task: memory_mb"),
        ({"nics": -1}, "task: nics"),
        ({"storage_gb": (("nvme", -1),)}, "task: storage_gb of nvme"),
        ({"gpu_types": "H100"}, "task: gpu_types must be a tuple of names, got 'H100'"),
        ({"gpu_memory_gb": math.nan}, "task: gpu_memory_gb must be a finite number"),
        ({"gpu_memory_gb": -1.0}, "task: gpu_memory_gb"),
    ],
    ids=str,
)
def test_a_task_that_nothing_could_give_cannot_be_made(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Task(**task)


def test_roles_are_counted_in_whole_numbers() -> None:
    with pytest.raises(ValueError, match=r"role w: replicas must be whole numbers, got 1 to 2\.5"):
        Role("w", 1, 2.5)  # type: ignore[arg-type]


def test_a_journal_with_a_value_that_nothing_could_give_is_refused(world: World) -> None:
    line = encode(Record(0, 0, JobSubmitted(a_job("new", 3)))).replace(b'"gpus":3', b'"gpus":-3')
    with pytest.raises(ValueError, match="gpus must be a whole number of at least 0, got -3"):
        decode(line)
