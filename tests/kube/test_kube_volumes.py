"""Pods with persistent volume claims, on a real API server. The tests stand for the controllers that bind claims."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import group, node, pod
from kube_site import nodes_of, reason, scheduling
from phalanx.kube.api.client import Client
from phalanx.kube.objects.volume import SELECTED_NODE, VolumeClaim

pytestmark = pytest.mark.needs("kubernetes")

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
ZONE = "topology.kubernetes.io/zone"


def nodes() -> list[dict[str, Any]]:
    return [node(f"n{i}", labels={ZONE: zone}) for i, zone in enumerate("ab")]


def storage_class(mode: str, **fields: Any) -> dict[str, Any]:
    names = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"}}
    return {**names, "provisioner": "example.com/disk", "volumeBindingMode": mode, **fields}


def claim(name: str) -> dict[str, Any]:
    spec = {
        "storageClassName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def provide(api: Client, name: str, zone: str) -> None:
    """Makes a volume in a zone and binds a claim to it, as a provisioner and the volume controller do."""
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disk",
        "hostPath": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
    }
    create(api, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": spec})
    api.patch(f"{CLAIMS}/{name}", {"spec": {"volumeName": f"pv-{name}"}}, "merge-patch")
    api.patch(f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound"}}, "merge-patch")


def with_claim(written: dict[str, Any], name: str) -> dict[str, Any]:
    written["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return written


def selected(api: Client, name: str) -> str:
    found = api.get(f"{CLAIMS}/{name}", VolumeClaim)
    return (found.metadata.annotations or {}).get(SELECTED_NODE, "")


def test_a_pod_goes_where_its_volume_is(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(), storage_class("Immediate"))
    with scheduling(cluster):
        create(api, with_claim(pod("a"), "data"))
        wait_for("it names the claim", lambda: "claim default/data is not there" in reason(api, "a"))
        create(api, claim("data"))
        wait_for("it waits for a volume", lambda: "claim default/data is not bound yet" in reason(api, "a"))
        provide(api, "data", "b")
        wait_for("it is bound beside its volume", lambda: nodes_of(api).get("a") == "n1")


def test_a_gang_is_bound_once_its_volumes_are_made_where_it_will_run(api: Client, cluster: KubeCluster) -> None:
    zone_b = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    create(api, *nodes(), storage_class("WaitForFirstConsumer", allowedTopologies=zone_b))
    create(api, claim("d0"), claim("d1"), group("g", 2))
    with scheduling(cluster):
        create(api, *(with_claim(pod(f"g-{i}", 1, "g"), f"d{i}") for i in range(2)))
        wait_for("both claims have a node", lambda: [selected(api, f"d{i}") for i in range(2)] == ["n1", "n1"])
        assert not nodes_of(api)
        provide(api, "d0", "b")
        provide(api, "d1", "b")
        wait_for("both are bound", lambda: nodes_of(api) == {"g-0": "n1", "g-1": "n1"})


def test_a_gang_whose_volumes_are_made_elsewhere_is_placed_anew(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(), storage_class("WaitForFirstConsumer"), claim("data"))
    with scheduling(cluster):
        create(api, with_claim(pod("a"), "data"))
        wait_for("the claim has a node", lambda: selected(api, "data") != "")
        provide(api, "data", "a" if selected(api, "data") == "n1" else "b")
        wait_for(
            "it is bound where its volume is", lambda: nodes_of(api).get("a", "") not in ("", selected(api, "data"))
        )
