"""Random jobs for small clusters on which everything matters: kinds, sockets, CPUs, labels, taints."""

from __future__ import annotations

from hypothesis import strategies as st

from phalanx.cluster.cluster import NODE, Cluster, Node, Overcommit, Taint, flat
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import After, Array, Checkpointing, Dependency, Job, Kind
from phalanx.workload.share import ShareAsk, fraction_ask, mig_ask, mps_ask, turn_ask
from phalanx.workload.toleration import Toleration

SPLIT = (("socket", 2),)


def mixed() -> Cluster:
    """Two racks of two nodes: two kinds of GPU, sockets, CPUs that bind, labels, a taint."""
    return Cluster(
        (
            Node("a", ("r0",), 4, "A", 40.0, 8_000, 100, 1, (("nvme", 2),), (("zone", "x"),), (), SPLIT),
            Node("b", ("r0",), 4, "B", 80.0, 8_000, 100, 0, (), (("zone", "y"),), (), SPLIT),
            Node("c", ("r1",), 4, "A", 40.0, 4_000, 100, 1, (), (("zone", "x"),), (Taint("t"),), SPLIT),
            Node("d", ("r1",), 2, "B", 80.0, 16_000, 100, 1, (("nvme", 1),), (), (), (("socket", 1),)),
        ),
        ("rack", NODE, "socket"),
        overcommit=Overcommit(cpus=1.5),
    )


def deep() -> Cluster:
    """Two pods of two racks of two nodes."""
    return Cluster(
        tuple(Node(f"n{i}", (f"p{i // 4}", f"r{i // 2}"), 2, cpus_milli=4_000) for i in range(8)),
        ("pod", "rack", NODE),
    )


def small() -> Cluster:
    return flat(3, 4)


def cut() -> Cluster:
    """Two nodes of GPUs that MIG can cut."""
    return Cluster(tuple(Node(f"n{i}", (), 2, "H100", 80.0, 4_000) for i in range(2)))


CLUSTERS = {"mixed": mixed, "deep": deep, "small": small, "cut": cut}


def shares(cluster: Cluster) -> st.SearchStrategy[ShareAsk | None]:
    """Mostly whole devices; parts where devices have memory to divide."""
    if not cluster.nodes[0].gpu_memory_gb:
        return st.none()
    parts = [fraction_ask(500), fraction_ask(300), mps_ask(40), turn_ask(2)]
    if cluster.nodes[0].gpu_type == "H100":
        parts = [mig_ask("1g.10gb"), mig_ask("3g.40gb"), *parts]
    return st.sampled_from([None] * 2 * len(parts) + parts)


@st.composite
def tasks(draw: st.DrawFn, cluster: Cluster, shared: bool = True) -> Task:
    typed = sorted({node.gpu_type for node in cluster.nodes} - {""})
    busy = bool(cluster.nodes[0].cpus_milli)
    stored = bool(cluster.nodes[0].storage_gb)
    share = draw(shares(cluster)) if shared else None
    cpus_milli = draw(st.sampled_from([0, 0, 0, 1_000, 3_000])) if busy else 0
    return Task(
        gpus=1 if share else draw(st.sampled_from([1, 1, 1, 2, 2, 0, 4, 3])),
        gpu_types=draw(st.sampled_from([(), (), *((each,) for each in typed)])),
        gpu_memory_gb=draw(st.sampled_from([0.0, 0.0, 0.0, 60.0])) if typed else 0.0,
        share=share,
        cpus_milli=cpus_milli,
        cpus_limit_milli=draw(st.sampled_from([0, cpus_milli, cpus_milli, 4_000])) if busy else 0,
        nics=draw(st.sampled_from([0, 0, 0, 1])) if stored else 0,
        storage_gb=draw(st.sampled_from([(), (), (("nvme", 1),)])) if stored else (),
    )


def topologies(cluster: Cluster) -> st.SearchStrategy[Topology]:
    levels = st.sampled_from(["", "", "cluster", *cluster.levels])
    return st.builds(Topology, levels, levels)


@st.composite
def roles(draw: st.DrawFn, cluster: Cluster, name: str, depth: int = 2, elastic: bool = True) -> Role:
    least = draw(st.sampled_from([1, 1, 1, 2, 3]))
    most = least + draw(st.sampled_from([0, 0, 1, 2])) if elastic else least
    topology = draw(st.one_of(st.just(Topology()), topologies(cluster)))
    if depth and draw(st.sampled_from([False, False, False, True])):
        inner = tuple(draw(roles(cluster, each, depth - 1, elastic=False)) for each in "xy"[: draw(st.integers(1, 2))])
        return Role(name, least, most, members=inner, topology=topology)
    return Role(name, least, most, draw(tasks(cluster)), topology=topology)


@st.composite
def gangs(draw: st.DrawFn, cluster: Cluster) -> Gang:
    count = draw(st.sampled_from([1, 1, 1, 2]))
    topology = draw(st.one_of(st.just(Topology()), topologies(cluster)))
    return Gang(tuple(draw(roles(cluster, name)) for name in "vw"[:count]), topology)


@st.composite
def jobs(draw: st.DrawFn, cluster: Cluster, name: str, now: int = 0, others: tuple[str, ...] = ()) -> Job:
    """Any job. Dependencies are on the others; a begin time lies a little ahead."""
    after = ()
    if others and draw(st.integers(0, 5)) == 0:
        after = (Dependency(draw(st.sampled_from(others)), draw(st.sampled_from(list(After)))),)
    labelled = any(node.labels for node in cluster.nodes)
    return Job(
        name,
        draw(gangs(cluster)),
        kind=draw(st.sampled_from([Kind.TRAINING, Kind.TRAINING, Kind.SERVICE, Kind.INTERACTIVE])),
        priority=draw(st.sampled_from([0, 0, 1, 5, 200, 250, 300])),
        node_selector=draw(st.sampled_from([(), (), (("zone", "x"),)])) if labelled else (),
        tolerations=draw(st.sampled_from([(), (Toleration("t"),)])),
        max_run_ms=draw(st.sampled_from([None, None, 5_000])),
        begin_ms=draw(st.sampled_from([None, None, None, now + 700])),
        grace_ms=draw(st.sampled_from([0, 30_000])),
        after=after,
        array=draw(st.sampled_from([None, None, None, Array((0, 1, 2), 1), Array((0, 1, 2), 2)])),
        preemptible=draw(st.sampled_from([True, True, True, False])),
        checkpoint=draw(st.sampled_from([Checkpointing(saves=True), Checkpointing(cost_ms=100)])),
        retry_limit=draw(st.sampled_from([0, 1])),
    )
