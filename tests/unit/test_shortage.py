"""Shortages: who asks for a part of a GPU is told whether memory, compute, a place or the mode is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from builders import World, a_job, sockets
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.engine.why.explain import Explanation
from phalanx.engine.why.why import why
from phalanx.placement.refusals.shortage import Barrier
from phalanx.protocol.reason import Reason
from phalanx.words.change import sooner
from phalanx.words.reason import because
from phalanx.workload.job import Job
from phalanx.workload.share import ShareAsk, fraction_ask, mig_ask, mps_ask, turn_ask

GB = 1024


def part(id: str, share: ShareAsk, count: int = 1, required: str = "", **task: Any) -> Job:  # noqa: A002
    return a_job(id, 1, count, required, task={"share": share, **task})


def told(cluster: Cluster, runs: list[Job], job: Job) -> Explanation:
    """What is said of a job that comes when others run."""
    world = World(cluster)
    world.run(*runs)
    world.submit(job)
    answer = why(world.state, job.id)
    assert answer.reason is not None
    return answer


def one() -> Cluster:
    return flat(1, 1, "H100", 80.0)


@pytest.mark.parametrize(
    ("runs", "asked", "barrier", "part_words", "left", "counted"),
    [
        (
            [part("a", fraction_ask(300, 60 * GB))],
            part("j", fraction_ask(300, 40 * GB)),
            Barrier.MEMORY,
            "by fractions, 0.3 of its compute, 40 GB of its memory",
            "the GPU that is shared so and has most memory left has 20 GB",
            "with too little memory left",
        ),
        (
            [part("a", mps_ask(60))],
            part("j", mps_ask(50)),
            Barrier.COMPUTE,
            "by MPS, 0.5 of its compute, 40 GB of its memory",
            "the GPU that is shared so and has most compute left has 0.4",
            "with too little compute left",
        ),
        (
            [part("a", fraction_ask(100))],
            part("j", mps_ask(20)),
            Barrier.MODE,
            "by MPS, 0.2 of its compute, 16 GB of its memory",
            "GPUs that are shared are shared by fractions, and a GPU is shared in one way at a time",
            "shared in another way",
        ),
        (
            [part("a", turn_ask(2)), part("b", turn_ask(2))],
            part("j", turn_ask(2)),
            Barrier.SLOT,
            "one of 2 turns, 40 GB of its memory",
            "no GPU that is shared so has such a turn left",
            "without a place left",
        ),
        (
            [part("a", mig_ask("3g.40gb")), part("b", mig_ask("3g.40gb"))],
            part("j", mig_ask("3g.40gb")),
            Barrier.SLOT,
            "MIG 3g.40gb",
            "no GPU that is shared so has room for such an instance left",
            "without a place left",
        ),
        (
            [a_job("a", 1)],
            part("j", mps_ask(20)),
            Barrier.TAKEN,
            "by MPS, 0.2 of its compute, 16 GB of its memory",
            "no GPU is free, and none is shared",
            "taken whole",
        ),
    ],
    ids=lambda value: value if isinstance(value, Barrier) else "",
)
def test_what_is_in_the_way_is_told_with_what_is_asked_and_what_is_left(
    runs: list[Job], asked: Job, barrier: Barrier, part_words: str, left: str, counted: str
) -> None:
    answer = told(one(), runs, asked)
    assert answer.reason is Reason.GPUS
    assert answer.shortage is not None
    assert answer.shortage.barrier is barrier
    assert because(answer) == f"it needs a part of a GPU ({part_words}); {left} (of 1 GPU: 1 {counted})"


def test_the_device_that_comes_nearest_is_the_one_that_is_told_of() -> None:
    runs = [part("a", fraction_ask(900, 30 * GB)), part("b", fraction_ask(900, 50 * GB))]
    answer = told(flat(1, 2, "H100", 80.0), runs, part("j", fraction_ask(50, 60 * GB)))
    assert answer.shortage is not None
    assert (answer.shortage.memory_mb_most, answer.shortage.compute_permille_most) == (50 * GB, 100)
    assert sooner(answer) == "it would start now with 50 GB of a GPU's memory instead of 60 GB"


def test_of_several_tasks_it_is_told_how_many_would_find_a_part() -> None:
    # One device is free, which holds two; one is shared otherwise, one is half full, one taken.
    runs = [a_job("a", 1), part("m", mps_ask(50)), part("f", fraction_ask(500))]
    answer = told(flat(2, 2, "H100", 80.0), runs, part("j", fraction_ask(500), 4))
    assert answer.shortage is not None
    assert (answer.shortage.tasks, answer.shortage.tasks_most, answer.shortage.devices) == (4, 3, 4)
    assert answer.shortage.barriers == ((Barrier.TAKEN, 1), (Barrier.MODE, 1))
    assert because(answer).startswith(
        "it needs 4 parts of GPUs (by fractions, 0.5 of its compute, 40 GB of its memory), "
    )
    assert ", and there is room for 3; " in because(answer)


def test_parts_that_are_not_in_one_domain_are_told_so() -> None:
    cluster = sockets(1, 2, gpu_type="H100", gpu_memory_gb=80.0)
    runs = [part("a", fraction_ask(600)), part("b", fraction_ask(600))]
    answer = told(cluster, runs, part("j", fraction_ask(400), 2, "socket"))
    assert because(answer) == (
        "it needs 2 parts of GPUs (by fractions, 0.4 of its compute, 32 GB of its memory): there is room, but not "
        "close enough together"
    )


def test_more_memory_than_any_gpu_has_is_told_as_memory() -> None:
    answer = told(one(), [], part("j", fraction_ask(500, 100 * GB)))
    assert answer.reason is Reason.NEVER_FITS
    assert because(answer).endswith("(of 1 node: 1 with too little GPU memory)")
    assert sooner(answer) == "it would start now with 80 GB of a GPU's memory instead of 100 GB"


def test_who_asks_for_whole_gpus_has_no_shortage_of_parts() -> None:
    answer = told(one(), [part("a", fraction_ask(500))], a_job("j", 1))
    assert answer.shortage is None
    assert because(answer).startswith("it needs 1 GPU and 0 are free")


def test_asking_leaves_the_devices_as_they_were() -> None:
    world = World(one())
    world.run(part("a", mig_ask("3g.40gb")))
    world.submit(part("j", mig_ask("4g.40gb"), 2))
    before = world.state.capacity.fingerprint()
    why(world.state, "j")
    assert world.state.capacity.fingerprint() == before
    world.state.capacity.check()


def test_devices_of_one_type_with_more_memory_give_larger_parts() -> None:
    nodes = (Node("small", (), 1, "H100", 80.0), Node("large", (), 1, "H100", 94.0))
    world = World(Cluster(nodes))
    world.run(part("j", fraction_ask(500, 90 * GB)), part("half", fraction_ask(500)))
    assert world.where("j") == {"large": (0,)}
    half = world.job("half").attempt
    assert half is not None
    assert [(slot.node, slot.portion and slot.portion.memory_mb) for slot in half.placement.slots] == [
        ("small", 40 * GB)
    ]
