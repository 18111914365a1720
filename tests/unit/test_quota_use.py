"""The use of quotas over time: what queues had of what they deserved and asked for, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import phalanx.simulate
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.simulate.figures.quota_use import NO_USE, QuotaUse, joined_use, quota_figures
from phalanx.simulate.figures.result import QuotaTrack, Result
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS


def quota(count: int) -> Quota:
    return Quota(gpus_permille=1000 * count)


TWO_QUEUES = (Queue("a", deserved=quota(4), reclaimable=False), Queue("b", deserved=quota(4), reclaimable=False))


def cluster(*queues: Queue) -> Cluster:
    return replace(flat(1, 8), queues=queues)


def job(name: str, queue: str, submit_s: int, gpus: int, duration_s: int) -> TraceJob:
    return TraceJob(name, submit_s * 1000, duration_s * 1000, gpus, queue)


def run(*jobs: TraceJob, queues: tuple[Queue, ...] = TWO_QUEUES, policy: str = "fifo") -> Result:
    trace = Trace("by hand", jobs)
    return phalanx.simulate(cluster(*queues), trace, policy, costs=NO_COSTS)


def test_a_queue_that_waits_for_what_another_borrowed_has_not_attained_its_quota() -> None:
    """From 0 to 100 s `a` has all 8; from 100 on `b` asks for 4 and waits until 200."""
    result = run(job("all", "a", 0, 8, 200), job("late", "b", 100, 4, 100))
    assert result.summary["quotas"]["by_queue"] == {
        "a": {"deserved_gpus": 4.0, "used_gpus": pytest.approx(16 / 3, abs=1e-6), "attained": 1.0},
        "b": {"deserved_gpus": 4.0, "used_gpus": pytest.approx(4 / 3, abs=1e-6), "attained": 0.5},
    }
    assert result.summary["quotas"]["least_attained"] == 0.5
    assert result.timeline.at_s == [0.0, 100.0, 200.0]
    assert result.quotas == {
        "a": QuotaTrack([4.0, 4.0, 4.0], [8.0, 8.0, 0.0], [1.0, 1.0, None]),
        "b": QuotaTrack([4.0, 4.0, 4.0], [0.0, 0.0, 4.0], [None, 0.0, 1.0]),
    }


def test_what_a_queue_asks_for_beyond_its_quota_is_not_owed_to_it() -> None:
    result = run(job("first", "a", 0, 4, 100), job("second", "a", 0, 8, 100))
    assert result.summary["quotas"]["by_queue"]["a"]["attained"] == 1.0


def test_a_queue_counts_what_the_queues_inside_it_have_and_ask_for() -> None:
    queues = (Queue("org", deserved=quota(6)), Queue("org/team", deserved=quota(2)), Queue("other", reclaimable=False))
    result = run(job("all", "other", 0, 8, 100), job("late", "org/team", 0, 4, 100), queues=queues)
    found = result.summary["quotas"]["by_queue"]
    assert list(found) == ["org", "org/team"], "a queue that deserves nothing has no quota to attain"
    assert found["org"] == {"deserved_gpus": 6.0, "used_gpus": 2.0, "attained": 0.5}
    assert found["org/team"] == {"deserved_gpus": 2.0, "used_gpus": 2.0, "attained": 0.5}


def test_a_cluster_without_queues_says_nothing_of_quotas() -> None:
    result = run(job("one", "default", 0, 8, 100), queues=())
    assert "quotas" not in result.summary
    assert result.quotas == {}


def test_a_queue_that_asks_for_nothing_attains_neither_all_nor_nothing() -> None:
    figures = quota_figures([({"a": QuotaUse(4.0, 0.0, 0.0, 0.0)}, 100)])
    assert figures == {
        "least_attained": None,
        "by_queue": {"a": {"deserved_gpus": 4.0, "used_gpus": 0.0, "attained": None}},
    }


def test_means_count_each_time_for_as_long_as_it_lasted_also_before_a_queue_was_there() -> None:
    early, late = QuotaUse(4.0, 2.0, 4.0, 2.0), QuotaUse(8.0, 8.0, 8.0, 8.0)
    found = joined_use(({"a": early}, 300), ({"a": late, "new": late}, 100))
    assert found == {"a": QuotaUse(5.0, 3.5, 5.0, 3.5), "new": QuotaUse(2.0, 2.0, 2.0, 2.0)}
    assert joined_use(({}, 100), ({"a": NO_USE}, 0)) == {"a": NO_USE}
