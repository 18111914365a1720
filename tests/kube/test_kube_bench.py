"""`phalanx bench kubernetes` in its small form, on the API server of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kube_cluster import KubeCluster
from phalanx.bench.kubernetes import run
from phalanx.bench.kubernetes.contender import OURS, contenders
from phalanx.bench.kubernetes.objects import NODES, create, node
from phalanx.bench.row import Row
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


@pytest.fixture
def here(api: Client, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has it use the cluster of the tests, on whose nodes nothing runs, and our scheduler alone."""

    @contextmanager
    def running(nodes: int, idle: bool = False) -> Iterator[tuple[KubeCluster, Client]]:
        create(api, NODES, (node(f"n{i}") for i in range(nodes)))
        yield cluster, api

    monkeypatch.setattr(run, "running", running)
    monkeypatch.setattr(run, "contenders", lambda plane: (OURS,))


def values(rows: list[Row]) -> dict[str, float | None]:
    return {row["name"].rpartition(": ")[2]: row["value"] for row in rows}


@pytest.mark.usefixtures("here")
def test_a_backlog_is_drained_at_some_rate() -> None:
    rate = values(run.drain(run.QUICK, print))["phalanx"]
    assert rate is not None
    assert rate > 0


@pytest.mark.usefixtures("here")
def test_the_shares_of_the_processor_time_make_it_whole() -> None:
    cores, *shares = [row["value"] or 0.0 for row in run.share(run.QUICK, print)]
    assert 0 < cores < 2
    assert all(share > 0 for share in shares)
    assert sum(shares) == pytest.approx(100, abs=0.01)


@pytest.mark.usefixtures("here")
def test_every_gang_that_comes_is_timed() -> None:
    found = values(run.latency(run.QUICK, print))
    assert found.keys() == {"phalanx, p50", "phalanx, p99"}
    assert all(value is not None and value < 20 for value in found.values())


@pytest.mark.usefixtures("here")
def test_a_large_cluster_is_listed_and_a_gang_in_it_bound() -> None:
    rows = run.large(run.QUICK, print)
    assert all(row["value"] is not None and row["value"] > 0 for row in rows)


@pytest.mark.usefixtures("here")
def test_gangs_that_are_bound_in_part_are_counted(cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler without gangs binds parts of all three; where it was not built, only ours is looked at."""
    monkeypatch.setattr(run, "contenders", lambda plane: contenders(plane)[:2])
    found: dict[str, Any] = values(run.crowded(run.QUICK, print))
    assert found["phalanx, bound in part"] == 0
    assert found["phalanx, GPUs unused"] == 0
    assert found.get("kube-scheduler, bound in part", 3) == 3
