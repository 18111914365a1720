"""What goes wrong in a cluster, on a real API server: every gang is bound whole or not at all in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kube_cluster import KubeCluster, create, existing, wait_for
from kube_objects import group, node, pod
from kube_site import events, gang, nodes_of, pods, reason, scheduling, verb
from phalanx.kube.api import reflector
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, TooManyRequestsError
from phalanx.kube.api.reflector import Changed, Listed, News, Reflector
from phalanx.kube.mirror import PODS
from phalanx.kube.objects.node import KubeNode
from tcp_relay import Relay

pytestmark = pytest.mark.needs("kubernetes")

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def refusing(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Admission that does not let a pod be bound."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refuse"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"request.name != '{name}'", "message": "not this one"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refuse"},
        "spec": {"policyName": "refuse", "validationActions": ["Deny"]},
    }
    return (POLICIES, policy), (POLICY_BINDINGS, binding)


def bind(api: Client, name: str, dry: bool) -> str:
    """What the server says to a bind that is only tried."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"},
    }
    try:
        api.post(f"/api/v1/namespaces/default/pods/{name}/binding", body, **({"dryRun": "All"} if dry else {}))
    except ApiError as error:
        return str(error)
    return ""


def test_a_gang_of_which_admission_refuses_one_pod_is_undone_whole(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("g", 2))
    with existing(api, *refusing("g-1")):
        wait_for("admission refuses", lambda: "not this one" in bind(api, "g-1", dry=True))
        with scheduling(cluster):
            wait_for("an event says so", lambda: any("not this one" in each for each in events(api, "g-1")))
    wait_for("admission allows it", lambda: not bind(api, "g-1", dry=True))
    wait_for("nothing stays bound", lambda: not nodes_of(api))

    def is_bound_once_it_is_whole() -> bool:
        if "g-0" not in pods(api):
            create(api, pod("g-0", 8, "g"))
        return len(nodes_of(api)) == 2

    with scheduling(cluster):
        wait_for("all are bound", is_bound_once_it_is_whole)


def test_a_scheduler_that_is_killed_between_two_binds_leaves_no_half_gang(api: Client, cluster: KubeCluster) -> None:
    """What was bound by then is completed as a whole gang, or released for its owner to make anew."""
    create(api, *(node(f"n{i}") for i in range(4)))
    with verb(cluster) as process:
        create(api, *gang("g", 32, 1))
        wait_for("the first pods are bound", lambda: bool(nodes_of(api)), 60)
        process.kill()
        process.wait()
    with scheduling(cluster):
        wait_for("all are bound, or none that was", lambda: len(nodes_of(api)) in (0, 32))
        create(api, *(pod(f"new-{i}", 1, "g") for i in range(32 - len(pods(api)))))
        wait_for("the gang is bound whole", lambda: len(nodes_of(api)) == 32)


def test_a_group_may_come_after_its_pods(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), pod("g-0", 1, "g"), pod("g-1", 1, "g"))
    with scheduling(cluster):
        wait_for("the pods wait for it", lambda: "PodGroup default/g" in reason(api, "g-0"))
        assert "is not there yet" in reason(api, "g-0")
        create(api, group("g", 2))
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)


def test_a_watch_that_falls_silent_goes_on_by_another_connection(
    api: Client, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall that forgets connections: nothing is closed, and nothing comes any more."""
    monkeypatch.setattr(reflector, "WATCH_SILENCE_S", 2.0)
    seen: dict[str, None] = {}

    def tell(news: News) -> None:
        objects = news.objects if isinstance(news, Listed) else (news.object,) if isinstance(news, Changed) else ()
        seen.update((each.metadata.name, None) for each in objects)

    with Relay(cluster.port) as relay, Client(replace(cluster.access(), port=relay.port)) as client:
        nodes = Reflector(client, "nodes", "/api/v1/nodes", KubeNode, tell)
        nodes.start()
        try:
            create(api, node("n0"))
            wait_for("it is told of", lambda: "n0" in seen)
            relay.silence()
            create(api, node("n1"))
            wait_for("it is told of, too", lambda: "n1" in seen)
            assert nodes.lists == 1, "it went on from where it was"
        finally:
            nodes.close()


@pytest.fixture
def ordinary_after(cluster: KubeCluster) -> Iterator[None]:
    """The API server is in the end as it was."""
    yield
    cluster.kill_apiserver()
    cluster.start_apiserver()


@pytest.mark.usefixtures("ordinary_after")
def test_a_server_may_restart_with_its_past_compacted_and_no_time_for_all_of_a_gang_at_once(
    api: Client, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes one change at a time, and has others tried later (429): the gang is bound whole nevertheless."""
    turned_away: list[str] = []
    ask_once = Client._ask_once

    def counted(client: Client, method: str, target: str, body: bytes | None, kind: str) -> bytes:
        try:
            return ask_once(client, method, target, body, kind)
        except TooManyRequestsError:
            turned_away.append(target)
            raise

    create(api, *(node(f"n{i}") for i in range(4)))
    with scheduling(cluster) as run:
        cluster.kill_apiserver()
        run.reflectors[PODS]._version = "1"
        cluster.etcd_compact()
        cluster.start_apiserver("--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1")
        create(api, *gang("g", 32, 1))
        monkeypatch.setattr(Client, "_ask_once", counted)
        wait_for("the gang is bound whole", lambda: len(nodes_of(api)) == 32, 60)
        assert run.reflectors[PODS].lists == 2
    assert any(target.endswith("/binding") for target in turned_away)
