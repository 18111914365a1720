"""Two replicas with one Lease, on a real API server."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import gang, nodes_of, pods, verb
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.binder import Answer, Binder
from phalanx.kube.lease import Lease, LeaseObject, LeaseSettings

pytestmark = pytest.mark.needs("kubernetes")

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/phalanx"
OPTIONS = ("--lease", "default/phalanx", "--lease-duration", "3")


@pytest.fixture(autouse=True)
def no_lease(api: Client) -> None:
    """Nothing holds the lease before a test."""
    with suppress(NotFoundError):
        api.delete(LEASE)
    return


def holder(api: Client) -> str:
    try:
        return api.get(LEASE, LeaseObject).spec.holder_identity
    except NotFoundError:
        return ""


def test_a_replica_that_ends_leaves_the_lease_to_the_next(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"))
    with verb(cluster, *OPTIONS) as first:
        wait_for("the first leads", lambda: holder(api) != "", 40)
        leader = holder(api)
        with verb(cluster, *OPTIONS):
            create(api, *gang("g", 2))
            wait_for("the first binds", lambda: len(nodes_of(api)) == 2, 40)
            assert holder(api) == leader
            first.send_signal(signal.SIGTERM)
            assert first.wait(20) == 0
            wait_for("the second leads", lambda: holder(api) not in ("", leader), 40)
            create(api, node("n2"), pod("next", 8))
            wait_for("the second knows what is bound, and binds", lambda: nodes_of(api).get("next") == "n2", 40)


def test_a_leader_that_was_paused_for_too_long_binds_nothing_and_ends(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"))
    with verb(cluster, *OPTIONS) as first:
        wait_for("the first leads", lambda: holder(api) != "", 40)
        leader = holder(api)
        first.send_signal(signal.SIGSTOP)
        # The first hears of this pod when it goes on.
        create(api, pod("a", 8))
        with verb(cluster, *OPTIONS):
            wait_for("the second takes over and binds", lambda: nodes_of(api).get("a") == "n0", 60)
            create(api, node("n1"))
            second = holder(api)
            first.send_signal(signal.SIGCONT)
            assert first.wait(20) == 1
            assert first.stderr is not None
            assert b"the lease default/phalanx is lost" in first.stderr.read()
            assert holder(api) == second != leader


def test_without_the_lease_nothing_is_bound(api: Client, cluster: KubeCluster) -> None:
    """The lease is lost between the decision and the bind."""
    create(api, node("n0"), pod("a", 8))
    answers: list[Answer] = []
    lease = Lease(api, LeaseSettings("default", "phalanx", "this"))
    assert lease.try_take()
    binder = Binder(api, answers.append, lease.holds)
    lease._held_until = 0.0
    binder.bind("default/a@1", 1, ((pods(api)["a"], "n0"),))
    binder.close()
    assert [each.error for each in answers] == ["another replica may hold the lease by now"]
    assert nodes_of(api) == {}


def test_a_lease_that_is_renewed_is_not_taken(api: Client) -> None:
    first, second = (Lease(api, LeaseSettings("default", "phalanx", name, 2)) for name in ("first", "second"))
    assert first.try_take()
    assert not second.try_take()
    assert not second.holds()
    wait_for("it is taken when it was not renewed for its duration", second.try_take)
    assert not first.try_take()
    first.close()
    assert holder(api) == "second"
