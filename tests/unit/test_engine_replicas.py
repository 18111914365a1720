"""Services that follow their load: their replicas go before jobs of lower priorities, and come back from none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.decide.cycle import decide
from phalanx.engine.decide.scaling import scaled
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import verify
from phalanx.engine.why.evidence import other
from phalanx.engine.why.replica_price import GivesWay, Had, ReplicaPrice, all_replicas, next_replica
from phalanx.protocol.action import Resize
from phalanx.protocol.event import JobCancelled, JobChanged, JobSubmitted, TimerDue
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.words.replica_price import price_words
from phalanx.workload.job import Job, Kind
from phalanx.workload.scale import Metric, Scale


def a_service(id: str = "service", least: int = 1, most: int = 8, priority: int = 5, gpus: int = 1) -> Job:  # noqa: A002
    metric = Metric.QUERY if least == 0 else Metric.REQUESTS_PER_S
    scale = Scale(metric, 10.0, least, most, query="up" if least == 0 else "")
    return a_job(id, gpus, max(least, 1), kind=Kind.SERVICE, priority=priority, min_available=least, scale=scale)


def to_have(world: World, replicas: int, job: str = "service") -> Plan:
    """What is planned once a service is to have another size."""
    return world.turn(JobChanged(scaled(world.state.jobs[job].job, replicas, world.now)))


def resizes(plan: Plan) -> dict[str, int]:
    return {action.id.job: len(action.placement.slots) for action in plan.actions if isinstance(action, Resize)}


def replicas_of(world: World, job: str = "service") -> int:
    return sum(map(len, world.where(job).values()))


def test_a_service_grows_on_what_is_free_and_shrinks_again() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service())
    assert resizes(to_have(world, 3)) == {"service": 3}
    world.done("service")
    assert replicas_of(world) == 3
    assert resizes(to_have(world, 2)) == {"service": 2}
    world.done("service")
    assert replicas_of(world) == 2


def test_a_service_grows_before_pending_jobs_of_lower_priority() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("training", 3))
    world.submit(a_job("pending", 3))
    plan = world.turn(JobChanged(scaled(world.state.jobs["service"].job, 2, world.now)))
    assert stops(plan) == ["training"]
    plan = world.done("training")
    assert resizes(plan) == {"service": 2}
    assert not starts(plan)


def test_a_training_job_gives_way_for_a_replica_and_does_not_take_it_back() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("training", 3))
    assert stops(to_have(world, 2)) == ["training"]
    assert resizes(world.done("training")) == {"service": 2}
    world.done("service")
    assert world.reason("training") is Reason.GPUS


def test_a_second_decision_stops_nothing_more_while_victims_leave() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("a", 1), a_job("b", 1), a_job("c", 1))
    plan = to_have(world, 3)
    assert len(stops(plan)) == 2
    assert not decide(world.state, world.now).actions


def test_what_victims_leave_is_promised_to_no_job_behind_the_service() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(), a_job("training", 1))
    to_have(world, 2)
    plan = world.submit(a_job("later", 1))
    assert not plan.claims
    plan = world.done("training")
    assert resizes(plan) == {"service": 2}
    assert not starts(plan)


def test_only_lower_priorities_give_way() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(priority=0), a_job("training", 1))
    plan = to_have(world, 2)
    assert not stops(plan)
    assert not resizes(plan)


def test_a_service_grows_behind_a_pending_job_of_higher_priority_that_does_not_fit() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("training", 1), a_job("urgent", 1, priority=9))
    world.submit(a_job("pending", 4, priority=9))
    assert resizes(to_have(world, 2)) == {"service": 2}


def test_an_elastic_training_shrinks_before_one_is_stopped() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("elastic", 1, (1, 3)))
    assert replicas_of(world, "elastic") == 3
    plan = to_have(world, 2)
    assert resizes(plan) == {"elastic": 2}
    assert not stops(plan)


def test_as_many_replicas_as_can_be_had_are_made_room_for() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("kept", 1, priority=9), a_job("training", 2))
    assert stops(to_have(world, 8)) == ["training"]
    assert resizes(world.done("training")) == {"service": 3}


@pytest.mark.parametrize("policy", ["phalanx", "fair", "backfill", "gandiva", "pollux", "kai"])
def test_it_grows_on_free_devices_under_every_kind_of_policy(policy: str) -> None:
    world = World(flat(1, 4), policy)
    world.run(a_service())
    to_have(world, 3)
    world.done("service")
    assert replicas_of(world) == 3


def test_without_load_it_has_no_replica_and_its_devices_are_free() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(least=0))
    assert stops(to_have(world, 0)) == ["service"]
    world.done("service")
    assert world.state.jobs["service"].state is JobState.WAITING
    assert world.reason("service") is Reason.SCALED_TO_ZERO
    assert world.state.free_gpus == 2


def test_load_wakes_it() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(least=0))
    to_have(world, 0)
    world.done("service")
    assert starts(to_have(world, 2)) == ["service"]
    world.done("service")
    assert replicas_of(world) == 2
    assert world.state.jobs["service"].preemptions == 0


def test_load_that_comes_while_it_is_stopped_starts_it_again() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(least=0))
    to_have(world, 0)
    to_have(world, 1)
    assert starts(world.done("service")) == ["service"]


def test_its_scale_can_be_cancelled_at_none() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(least=0))
    to_have(world, 0)
    world.done("service")
    world.turn(JobCancelled("service"))
    assert world.state.jobs["service"].state is JobState.CANCELLED
    assert not world.state.scaled


def test_a_replay_comes_to_the_same_state() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("training", 3))
    to_have(world, 3)
    world.done("training")
    world.done("service")
    again = verify(world.journal)
    assert again.fingerprint() == world.state.fingerprint()
    assert again.jobs["service"].job.scale == world.state.jobs["service"].job.scale


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": Kind.TRAINING}, "only a service"),
        ({"scale": Scale(Metric.QUEUE_LENGTH, 0.0, 1, 2)}, "above 0"),
        ({"scale": Scale(Metric.QUEUE_LENGTH, float("nan"), 1, 2)}, "above 0"),
        ({"scale": Scale(Metric.QUEUE_LENGTH, 1.0, 3, 2)}, "3 to 2 replicas"),
        ({"scale": Scale(Metric.QUEUE_LENGTH, 1.0, 1, 2, replicas=4)}, "and not 4"),
    ],
)
def test_what_no_file_could_say_is_refused(change: dict[str, object], words: str) -> None:
    world = World(flat(1, 2))
    job = replace(a_service(), **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        world.turn(JobSubmitted(job))


def test_the_price_of_a_replica_is_the_work_that_is_lost_for_it() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("training", 3))
    world.turn(TimerDue(), after_ms=3_600_000)
    price = next_replica(world.state, "service")
    assert price == ReplicaPrice(1, Had.PREEMPTION, (GivesWay(other(world.state, "training"), 3 * 3_600_000),))
    assert price_words(price) == "1 replica would stop job training of queue default (3 GPUs): 3.0 GPU-hours lost"
    assert not decide(world.state, world.now).actions


def test_a_replica_that_shrinks_an_elastic_job_loses_nothing() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(), a_job("elastic", 1, (1, 3)))
    assert price_words(next_replica(world.state, "service")) == (
        "1 replica would shrink job elastic of queue default (3 GPUs) by 1 GPU: 0.0 GPU-hours lost"
    )


def test_a_price_of_other_queues_names_no_job() -> None:
    world = World(flat(1, 2), "priority")
    world.run(a_service(), a_job("training", 1))
    price = next_replica(world.state, "service")
    assert price is not None
    assert "training" not in price_words(price.seen_from(()))


@pytest.mark.parametrize(
    ("gpus", "priority", "most", "had"), [(1, 5, 8, Had.FREE), (3, 5, 8, Had.NO_ROOM), (3, 0, 1, Had.MAX)]
)
def test_a_replica_without_a_price_says_why(gpus: int, priority: int, most: int, had: Had) -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_service(most=most), a_job("training", gpus, priority=priority))
    price = next_replica(world.state, "service")
    assert price is not None
    assert price.had is had
    assert price_words(price)


def test_only_services_that_follow_their_load_have_a_price() -> None:
    world = World(flat(1, 4), "priority")
    world.run(a_job("training"))
    assert next_replica(world.state, "training") is None
    assert all_replicas(world.state, "training") is None
    assert price_words(None) == ""


def test_quota_that_is_used_up_keeps_the_size_and_is_told() -> None:
    cluster = replace(flat(1, 4), queues=(Queue("serving", limit=Quota(1000)),))
    world = World(cluster, "priority")
    world.run(replace(a_service(), queue="serving"))
    plan = to_have(world, 3)
    assert not plan.actions
    price = next_replica(world.state, "service")
    assert price is not None
    assert price.had is Had.QUOTA
