"""Whatever the text, a reader gives a whole job or cluster, or one clear error, and never anything else."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.group import GROUP_KEYS
from phalanx.cluster.formats.limits import NODES_MAX
from phalanx.cluster.formats.native import CLUSTER_KEYS, read_cluster
from phalanx.document import DocumentError
from phalanx.workload.array import members
from phalanx.workload.formats.gang import ROLE_KEYS
from phalanx.workload.formats.native import JOB_KEYS, read_job
from phalanx.workload.job import Job

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("job-*.yaml"))]
CLUSTERS = [(EXAMPLES / f"cluster-{name}.yaml").read_text(encoding="utf-8") for name in ("small", "three-types")]

SIGNS = [*"{}[]:,|#%'\"\n\t\0\ud800", ": ", "- ", "  ", "&a ", "*a", "<<: ", "!!int ", "---\n"]
WORDS = ["gpus: ", "gang:", "nodes:", "replicas", "-1", "0", "1e9", ".nan", ".inf", "true", "~", "9" * 40]
SCRAPS = st.sampled_from([*SIGNS, *WORDS])
GARBAGE = st.one_of(st.text(), st.lists(SCRAPS).map("".join))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        ["H100", "1h", "+2h", "auto", "0-3%2", "rack", "r{}", "1g.10gb", "a=b:NoSchedule", "2030-01-01T00:00Z"]
    ),
)
KEY_NAMES = st.sampled_from(
    [
        *JOB_KEYS,
        *CLUSTER_KEYS,
        *GROUP_KEYS,
        *ROLE_KEYS,
        "rack",
        "pod",
        "min",
        "max",
        "request",
        "limit",
        "fraction",
        "tp",
    ]
)


def trees(scalars: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Documents with the right keys in the wrong places."""
    return st.recursive(
        scalars,
        lambda parts: st.lists(parts, max_size=4) | st.dictionaries(KEY_NAMES, parts, max_size=6),
        max_leaves=20,
    )


def job_or_error(text: str) -> Job | None:
    try:
        return read_job(text, "f.yaml")
    except DocumentError as error:
        check(error)
        return None


def cluster_or_error(text: str) -> Cluster | None:
    try:
        return read_cluster(text, "f.yaml")
    except DocumentError as error:
        check(error)
        return None


def check(error: DocumentError) -> None:
    assert str(error).startswith(f"f.yaml:{error.line}: ")
    assert error.line >= 1
    assert str(error).isprintable(), "an error is one line"


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    """A valid file in which a few stretches are replaced by something else."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + draw(SCRAPS | st.text(max_size=5)) + text[end:]
    return text


@given(GARBAGE)
def test_garbage_gives_an_error_and_nothing_else(text: str) -> None:
    job_or_error(text)
    cluster_or_error(text)


@given(mutated(JOBS))
def test_a_broken_job_file_gives_a_job_or_an_error(text: str) -> None:
    job = job_or_error(text)
    if job is not None:
        assert 0 <= job.gang.gpus_min <= job.gang.gpus_max
        assert len(members(job)) == (len(job.array.indices) if job.array else 1)


@given(mutated(CLUSTERS))
def test_a_broken_cluster_file_gives_a_cluster_or_an_error(text: str) -> None:
    cluster = cluster_or_error(text)
    if cluster is not None:
        check_cluster(cluster)


@given(trees(SCALARS))
def test_right_keys_in_wrong_places_give_an_error_and_nothing_else(tree: object) -> None:
    text = json.dumps(tree)
    job_or_error(text)
    cluster = cluster_or_error(text)
    if cluster is not None:
        check_cluster(cluster)


def check_cluster(cluster: Cluster) -> None:
    assert len({node.name for node in cluster.nodes}) == len(cluster.nodes) <= NODES_MAX
    assert all(len(node.path) == len(cluster.levels_above) for node in cluster.nodes)
    for depth, level in enumerate(cluster.levels_above):
        above: dict[str, tuple[str, ...]] = {}
        for node in cluster.nodes:
            if node.path[depth]:
                assert above.setdefault(node.path[depth], node.path[:depth]) == node.path[:depth], level


@given(
    st.integers(1, 1024),
    st.decimals(0, 1000, places=3),
    st.integers(0, 10_000),
    st.integers(0, 10**8),
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=40),
)
def test_round_numbers_and_text_survive(gpus: int, cpus: Decimal, memory_gb: int, seconds: int, name: str) -> None:
    ask = {"gpus": gpus, "cpus": float(cpus), "memory_gb": memory_gb}
    job = job_or_error(json.dumps(ask | {"name": name, "duration": seconds}))
    assert job is not None
    task = job.gang.roles[0].task
    assert (task.gpus, task.cpus_milli, task.memory_mb) == (gpus, int(cpus * 1000), memory_gb * 1024)
    assert (job.duration_ms, job.name) == (seconds * 1000, name)
    cluster = cluster_or_error(json.dumps({"nodes": [ask]}))
    assert cluster is not None
    node = cluster.nodes[0]
    assert (node.gpus, node.cpus_milli, node.memory_mb) == (task.gpus, task.cpus_milli, task.memory_mb)


@given(st.decimals(0, 1000, places=6), st.decimals(0, 1000, places=6))
def test_asking_for_what_a_node_has_always_fits(cpus: Decimal, memory_gb: Decimal) -> None:
    keys = f"{{cpus: {cpus:f}, memory_gb: {memory_gb:f}}}"
    job, cluster = job_or_error(keys), cluster_or_error(f"nodes: [{keys}]")
    assert job is not None
    assert cluster is not None
    task, node = job.gang.roles[0].task, cluster.nodes[0]
    assert (task.cpus_milli, task.memory_mb) == (node.cpus_milli, node.memory_mb)
    assert task.cpus_milli >= cpus * 1000


@pytest.mark.parametrize("number", ["NaN", ".nan", "Infinity", "-Infinity", ".inf", "-.inf", "1e400"])
@pytest.mark.parametrize("key", ["gpus", "cpus", "memory_gb", "gpu_memory_gb"])
def test_what_is_no_number_is_refused_everywhere(key: str, number: str) -> None:
    assert job_or_error(f"{{gpus: 1, {key}: {number}}}") is None
    assert cluster_or_error(f"nodes: [{{gpus: 1, {key}: {number}}}]") is None
