"""What `fair` promises between queues that all want more than there is, whatever their weights and lengths of jobs."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue, Quota

GPUS = 12
WEIGHTS = st.integers(1, 4)


@st.composite
def departments(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Two or three departments of one to three teams each."""
    found: list[Queue] = []
    for department in "abc"[: draw(st.integers(2, 3))]:
        found.append(Queue(department, weight=draw(WEIGHTS)))
        found += [Queue(f"{department}/t{i}", weight=draw(WEIGHTS)) for i in range(draw(st.integers(1, 3)))]
    return tuple(found)


def crowded(queues: tuple[Queue, ...], policy: str = "fair") -> World:
    """Every team has more jobs of one GPU in line than there are GPUs, and all that fit run."""
    world = World(Cluster((Node("n0", (), GPUS),), queues=queues), policy)
    teams = [queue.path for queue in queues if "/" in queue.path]
    plan = world.submit(*(a_job(f"{team}#{i}", queue=team) for i in range(3 * GPUS) for team in teams))
    world.done(*starts(plan))
    return world


def running(world: World) -> list[str]:
    return [attempt.job.id for attempt in world.state.attempts()]


def assert_fair(world: World, queues: tuple[Queue, ...]) -> None:
    """Nobody has so much for its weight that without one GPU it would still have more than another."""
    for outside in ["", *(queue.path for queue in queues if "/" not in queue.path)]:
        beside = [queue for queue in queues if queue.parent == outside]
        has = {queue.path: world.state.usage(queue.path).gpu_permille // 1000 for queue in beside}
        for queue in beside:
            for other in beside:
                assert Fraction(has[queue.path] - 1, queue.weight) <= Fraction(has[other.path], other.weight)


@given(departments(), st.lists(st.integers(0, GPUS - 1), max_size=8))
@settings(max_examples=30)
def test_at_every_level_nobody_has_a_job_too_many_for_its_weight(queues: tuple[Queue, ...], ends: list[int]) -> None:
    world = crowded(queues)
    assert len(running(world)) == GPUS
    assert_fair(world, queues)
    for number in ends:
        (begun,) = starts(world.end(running(world)[number]))
        world.done(begun)
        assert len(running(world)) == GPUS
        # One may leave who had few. Whoever comes in is of those who have the least now.
        newest = world.job(begun).job.queue
        assert_least(world, queues, newest)


def assert_least(world: World, queues: tuple[Queue, ...], newest: str) -> None:
    """Before its newest job came, every queue that it lies in, and it itself, had the least among those beside it."""
    weight = {queue.path: queue.weight for queue in queues}
    for path in (newest.partition("/")[0], newest):
        had = Fraction(world.state.usage(path).gpu_permille // 1000 - 1, weight[path])
        for queue in queues:
            if queue.parent == path.rpartition("/")[0] and queue.path != path:
                assert had <= Fraction(world.state.usage(queue.path).gpu_permille // 1000, queue.weight)


@st.composite
def owners(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Queues that deserve parts of the cluster, of all priorities."""
    cuts = sorted(draw(st.lists(st.integers(0, GPUS), min_size=3, max_size=3)))
    parts = [after - before for before, after in pairwise([0, *cuts])]
    return tuple(
        Queue(name, deserved=Quota(1000 * part), weight=draw(WEIGHTS), priority=draw(st.integers(0, 2)))
        for name, part in zip("abc", parts, strict=True)
    )


@given(owners(), st.permutations(["a", "b", "c"]))
@settings(max_examples=30)
def test_everybody_gets_what_he_deserves_at_once_and_nobody_is_stopped_for_it(
    queues: tuple[Queue, ...], order: list[str]
) -> None:
    world = World(Cluster((Node("n0", (), GPUS),), queues=queues), "fair")
    plan = world.submit(*(a_job(f"{queue}{i}", queue=queue) for queue in order for i in range(GPUS)))
    for queue in queues:
        assert world.state.usage(queue.path).gpu_permille >= (queue.deserved[0] or 0)
    assert len(starts(plan)) == GPUS
    assert not stops(world.done(*starts(plan)))
