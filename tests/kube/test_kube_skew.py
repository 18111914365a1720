"""A machine whose clock is an hour off that of the API server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import create_priority, gang, nodes_of, reason, scheduling
from phalanx.bench.kubernetes.beside import recording
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.lease import Lease, LeaseSettings
from phalanx.kube.shadow.history import history_of
from phalanx.kube.shadow.recording import BEGIN, entries_in

pytestmark = pytest.mark.needs("kubernetes")

HOUR_S = 3600
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

Turn = Callable[[int], None]


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Turn:
    """Sets the clock of this process so many seconds off, that of the API server not."""
    now_s, now_ns = time.time, time.time_ns

    def set_off(by_s: int) -> None:
        monkeypatch.setattr(time, "time", lambda: now_s() + by_s)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + by_s * 10**9)

    return set_off


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_gangs_are_bound_preempted_and_adopted(api: Client, cluster: KubeCluster, turn: Turn, off_s: int) -> None:
    turn(off_s)
    create(api, node("n0"), node("n1"), *gang("low", 2))
    with scheduling(cluster):
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
    create_priority(api, "urgent", 1000)
    with scheduling(cluster):
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the adopted gang makes way", lambda: list(nodes_of(api)) == ["urgent"])


def test_a_clock_that_is_set_back_while_it_runs_delays_nothing(api: Client, cluster: KubeCluster, turn: Turn) -> None:
    create(api, node("n0"), pod("a", 8))
    with scheduling(cluster):
        wait_for("the first is bound", lambda: list(nodes_of(api)) == ["a"])
        turn(-HOUR_S)
        create(api, pod("b", 8))
        wait_for("the next says why", lambda: bool(reason(api, "b")))
        create(api, node("n1"))
        wait_for("it is bound to a new node", lambda: nodes_of(api).get("b") == "n1")


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_a_lease_is_as_old_as_it_was_seen_to_be_and_not_as_its_holder_wrote(api: Client, off_s: int) -> None:
    written = (datetime.now(UTC) + timedelta(seconds=off_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 2, "acquireTime": written, "renewTime": written}
    metadata = {"name": "skewed", "namespace": "default"}
    with suppress(NotFoundError):
        api.delete(f"{LEASES}/skewed")
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    api.post(LEASES, body)
    ours = Lease(api, LeaseSettings("default", "skewed", "ours", 2))
    seen_s = time.monotonic()
    assert not ours.try_take()
    wait_for("it is taken when it was not renewed for its duration", ours.try_take)
    assert time.monotonic() - seen_s >= 2
    ours.close()
    api.delete(f"{LEASES}/skewed")


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_a_shadow_knows_how_long_what_it_found_had_waited(api: Client, tmp_path: Path, turn: Turn, off_s: int) -> None:
    turn(off_s)
    create(api, node("n0"), pod("a", 8))
    began_s = time.monotonic()
    with recording(api, tmp_path):
        waited_s = time.monotonic() - began_s
    begin = next(entry for entry in entries_in(tmp_path) if entry.what == BEGIN)
    # Its clock tells the second.
    assert begin.ahead_ms == pytest.approx(-1000 * off_s, abs=1500)
    (found,) = history_of(entries_in(tmp_path)).watched.values()
    assert 0 <= begin.at_ms - found.arrived_ms <= 1000 * waited_s + 3000
