"""Manifests: all that is applied to run phalanx in a cluster, as plain objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from phalanx.kube.install.rights import EXTENDING, LEASES, LOOKING_ON, SCHEDULING, Right

Manifest = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
PORT = 9464
"""Where metrics and probes are answered: none of the ports that Kubernetes itself takes."""

EXTENDER_PORT = 9465
"""Where kube-scheduler asks."""

USER = 65532
"""Not root, and nobody's else."""


@dataclass(frozen=True, slots=True)
class Site:
    """What differs from site to site."""

    name: str = "phalanx"
    namespace: str = "phalanx"
    image: str = "phalanx:latest"
    arguments: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """By which all that belongs to it is found."""
        return {"app.kubernetes.io/name": self.name}


def scheduling(site: Site) -> list[Manifest]:
    """Two replicas of the scheduler, of which the holder of a Lease schedules."""
    metrics = {**_metadata(site), "labels": site.labels}
    ports = [{"name": "metrics", "port": PORT, "targetPort": "metrics"}]
    spec = {"clusterIP": "None", "selector": site.labels, "ports": ports}
    return [*_replicas(site, SCHEDULING, _container(site)), _object("v1", "Service", metrics, spec=spec)]


def extending(site: Site) -> list[Manifest]:
    """Two replicas of the extender, and a Service by which kube-scheduler reaches the holder of the Lease."""
    asks = {**_metadata(site), "labels": site.labels}
    ports = [{"name": "extender", "port": EXTENDER_PORT, "targetPort": "extender"}]
    spec = {"selector": site.labels, "ports": ports}
    return [*_replicas(site, EXTENDING, _extender(site)), _object("v1", "Service", asks, spec=spec)]


def _replicas(site: Site, rights: Iterable[Right], container: Manifest) -> list[Manifest]:
    return [
        _object("v1", "Namespace", {"name": site.namespace}),
        _object("v1", "ServiceAccount", _metadata(site)),
        *_granted(site, rights),
        *_granted_here(site, LEASES),
        _deployment(site, container),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            _metadata(site),
            spec={"minAvailable": 1, "selector": {"matchLabels": site.labels}},
        ),
    ]


def looking_on(site: Site) -> list[Manifest]:
    """An account that may read what shadow and snapshot read, and change nothing."""
    return [
        _object("v1", "Namespace", {"name": site.namespace}),
        _object("v1", "ServiceAccount", _metadata(site)),
        *_granted(site, LOOKING_ON),
    ]


def _deployment(site: Site, container: Manifest) -> Manifest:
    is_scraped = any(port["name"] == "metrics" for port in container["ports"])
    scraped = {"annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)}} if is_scraped else {}
    pod = {
        "metadata": {"labels": site.labels, **scraped},
        "spec": {
            "serviceAccountName": site.name,
            "priorityClassName": "system-cluster-critical",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": site.labels},
                }
            ],
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
        },
    }
    spec = {"replicas": 2, "selector": {"matchLabels": site.labels}, "template": pod}
    return _object("apps/v1", "Deployment", _metadata(site), spec=spec)


def _container(site: Site) -> Manifest:
    lease = ("--lease", f"{site.namespace}/{site.name}", "--listen", f"0.0.0.0:{PORT}")
    return _contained(site, ["phalanx", "kube", *lease, *site.arguments], "metrics", PORT)


def _extender(site: Site) -> Manifest:
    lease = ("--lease", f"{site.namespace}/{site.name}", "--listen", f"0.0.0.0:{EXTENDER_PORT}")
    return _contained(site, ["phalanx", "kube", "extender", *lease, *site.arguments], "extender", EXTENDER_PORT)


def _contained(site: Site, command: list[str], port: str, number: int) -> Manifest:
    return {
        "name": "phalanx",
        "image": site.image,
        "command": command,
        "ports": [{"name": port, "containerPort": number}],
        "livenessProbe": {**_asks("/healthz", port), "periodSeconds": 20, "failureThreshold": 6},
        "readinessProbe": {**_asks("/readyz", port), "periodSeconds": 5},
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # Certificates of a kubeconfig are written to files for a moment.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _asks(path: str, port: str) -> Manifest:
    return {"httpGet": {"path": path, "port": port}}


def _granted(site: Site, rights: Iterable[Right]) -> list[Manifest]:
    """Rights in the whole cluster."""
    return [
        _object(f"{RBAC}/v1", "ClusterRole", {"name": site.name}, rules=[right.rule for right in rights]),
        _object(
            f"{RBAC}/v1",
            "ClusterRoleBinding",
            {"name": site.name},
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": site.name},
            subjects=[_account(site)],
        ),
    ]


def _granted_here(site: Site, rights: Iterable[Right]) -> list[Manifest]:
    """Rights in the namespace that it runs in, on the objects of its name as far as that can be said."""
    rules = [
        right.rule if "create" in right.verbs else {**right.rule, "resourceNames": [site.name]} for right in rights
    ]
    return [
        _object(f"{RBAC}/v1", "Role", _metadata(site), rules=rules),
        _object(
            f"{RBAC}/v1",
            "RoleBinding",
            _metadata(site),
            roleRef={"apiGroup": RBAC, "kind": "Role", "name": site.name},
            subjects=[_account(site)],
        ),
    ]


def _account(site: Site) -> dict[str, str]:
    return {"kind": "ServiceAccount", **_metadata(site)}


def _metadata(site: Site) -> dict[str, str]:
    return {"name": site.name, "namespace": site.namespace}


def _object(version: str, kind: str, metadata: Manifest, **rest: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
