from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.formats.queue_data import queue_data
from phalanx.cluster.queues import Queue, Quota
from phalanx.document import DocumentError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cluster-file.md"
NODES = "nodes: [{count: 32, gpus: 8, cpus: 64, memory_gb: 1024}]\n"


def cluster(queues: str) -> Cluster:
    return read_cluster(f"{NODES}queues: {queues}\n", "c.yaml")


def test_every_key_of_a_queue_is_read() -> None:
    (queue,) = cluster(
        "[{name: a, guaranteed: {gpus: 0.5, cpus: 2}, deserved: 4, limit: {gpus: 8, memory_gb: 1.5}, weight: 3,"
        " priority: -2, job_priority: {normal: -5, members: 0, operators: 9},"
        " reclaimable: false, min_run: 10m, min_run_reclaim: 0s, budget_gpu_hours: 1.5}]"
    ).queues
    assert queue == Queue(
        "a",
        guaranteed=Quota(500, 2000),
        deserved=Quota(4000),
        limit=Quota(8000, None, 1536),
        weight=3,
        priority=-2,
        normal_priority=-5,
        member_priority_max=0,
        operator_priority_max=9,
        reclaimable=False,
        min_run_ms=600_000,
        min_run_reclaim_ms=0,
        budget_gpu_ms=5_400_000,
    )


def test_weights_may_be_given_for_each_resource() -> None:
    queues = cluster(
        "[{name: a, weight: {gpus: 4, cpus: 2}}, {name: b, weight: {gpus: 2, cpus: 2, memory_gb: 2}}]"
    ).queues
    assert queues == (Queue("a", weight=4, cpu_weight=2, memory_weight=1), Queue("b", weight=2))
    assert [queue.weights for queue in queues] == [(4, 2, 1), (2, 2, 2)]
    assert queue_data(queues) == [
        {"name": "a", "weight": {"gpus": 4, "cpus": 2, "memory_gb": 1}},
        {"name": "b", "weight": 2},
    ]
    assert cluster(str(queue_data(queues)).replace("'", "")).queues == queues


def test_a_tree_may_be_written_as_one_or_by_paths() -> None:
    nested = cluster("[{name: a, deserved: 8, queues: [{name: x, deserved: 4}, {name: y, queues: [{name: z}]}]}]")
    by_paths = cluster("[{name: a, deserved: 8}, {name: a/x, deserved: 4}, {name: a/y}, {name: a/y/z}]")
    mixed = cluster("[{name: a, deserved: 8, queues: [{name: x, deserved: 4}, {name: y}]}, {name: a/y/z}]")
    assert nested.queues == by_paths.queues == mixed.queues
    assert [queue.path for queue in nested.queues] == ["a", "a/x", "a/y", "a/y/z"]


def test_what_is_written_as_data_is_read_back_the_same() -> None:
    text = (
        "[{name: a, guaranteed: 2.5, limit: {cpus: 7.25}, min_run: 90s, min_run_reclaim: 2500ms,"
        " queues: [{name: x, budget_gpu_hours: 3, job_priority: {members: 7}}]}]"
    )
    queues = cluster(text).queues
    assert cluster(str(queue_data(queues)).replace("'", "")).queues == queues
    assert queue_data(queues) == [
        {
            "name": "a",
            "guaranteed": {"gpus": 2.5},
            "limit": {"cpus": 7.25},
            "min_run": "90s",
            "min_run_reclaim": "2500ms",
            "queues": [{"name": "x", "job_priority": {"members": 7}, "budget_gpu_hours": 3.0}],
        }
    ]


def test_the_example_of_the_page_is_read() -> None:
    example = PAGE.read_text(encoding="utf-8").split("```\nqueues:", 1)[1].split("```", 1)[0]
    queues = read_cluster(f"{NODES}queues:{example}", "c.yaml").queues
    assert [queue.path for queue in queues] == ["research", "research/llm", "research/vision", "prod"]


@pytest.mark.parametrize(
    ("queues", "told"),
    [
        ("[]", "expected a list of 1 to 50000 items"),
        ("[{name: a}, {name: b}, {name: a}]", "the queue 'a' is given twice, first on line 2"),
        ("[{name: a, queues: [{name: x}]}, {name: a/x}]", "the queue 'a/x' is given twice"),
        ("[{name: a/x}]", "queue a/x lies in a, which there is not"),
        ("[{name: a b}]", "expected a name, or a path of names such as research/llm"),
        ("[{name: a, guaranteed: 5, deserved: 4}]", "queue a is guaranteed 5 GPUs, more than the 4 it deserves"),
        ("[{name: a, deserved: 5, limit: 4}]", "queue a deserves 5 GPUs, more than its limit of 4"),
        ("[{name: a, guaranteed: 5, limit: 4}]", "queue a is guaranteed 5 GPUs, more than its limit of 4"),
        (
            "[{name: a, limit: 4, queues: [{name: x, guaranteed: 3}, {name: y, guaranteed: 1.5}]}]",
            "a/x 3 + a/y 1.5 are guaranteed 4.5 GPUs together, but the limit of queue a is 4",
        ),
        (
            "[{name: a, limit: 4, queues: [{name: x, guaranteed: 1}, {name: y, deserved: 3.5}]}]",
            "a/x 1 + a/y 3.5 deserve 4.5 GPUs together, but the limit of queue a is 4",
        ),
        (
            "[{name: a, deserved: 200}, {name: b, deserved: 100}]",
            "a 200 + b 100 deserve 300 GPUs together, but the cluster has 256",
        ),
        (
            "[{name: a, deserved: 8, queues: [{name: x, deserved: 6}, {name: y, deserved: 6}]}]",
            "a/x 6 + a/y 6 deserve 12 GPUs together, but queue a has 8",
        ),
        ("[{name: a, weight: 0}]", "expected a whole number from 1 to 1000000, got 0"),
        ("[{name: a, job_priority: 4}]", "expected a mapping"),
        ("[{name: a, job_priority: {member: 4}}]", "unknown key, did you mean 'members'?"),
        ("[{name: a, job_priority: {normal: 5, members: 4}}]", "expected at least 5, which is 'normal', got 4"),
        ("[{name: a, job_priority: {normal: 5, operators: 4}}]", "expected at least 5, which is 'normal', got 4"),
        ("[{name: a, gpus: 4}]", "unknown key"),
        ("[{name: a, deserved: {gpu: 4}}]", "unknown key, did you mean 'gpus'?"),
        ("[{name: a, budget_gpu_hours: -1}]", "expected a number from 0 to 1000000000, got -1"),
        (f"[{{name: {'/'.join('abcdefghijklmnopq')}}}]", "queues lie at most 16 deep in one another"),
    ],
)
def test_queues_that_make_no_sense_are_refused(queues: str, told: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        cluster(queues)
    assert told in str(refusal.value)
    assert str(refusal.value).startswith("c.yaml:2: ")
