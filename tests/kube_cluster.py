"""A real Kubernetes API server for tests, built by `scripts/kube-cluster`, with etcd behind it and no real nodes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from phalanx.bench.kubernetes.control_plane import ControlPlane
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from phalanx.kube.api.reflector import Changed, Listed, News, Page, Reflector
from phalanx.kube.objects.pod import Pod

SCRIPT = Path(__file__).parents[1] / "scripts" / "kube-cluster"
MANIFESTS = [Path(__file__).parents[1] / "examples" / "kubernetes" / name for name in ("phalanx.yaml", "volcano.yaml")]

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NATIVE_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
COMPOSITES = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups"
WHOLE_CLUSTER = ("Node", "PersistentVolume", "StorageClass", "PriorityClass", "HyperNode", "Queue")
"""Kinds whose objects are in no namespace."""

CUSTOM = (
    ("batch.volcano.sh", "v1alpha1", "Job"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup"),
    ("scheduling.volcano.sh", "v1beta1", "Queue"),
    ("topology.volcano.sh", "v1alpha1", "HyperNode"),
    ("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("ray.io", "v1", "RayCluster"),
)
"""Custom resources by their group, version and kind. Their controllers do not run here, but KubeRay's in its tests."""

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def custom_path(group: str, version: str, kind: str) -> str:
    """Where the objects of a custom resource are."""
    return f"/apis/{group}/{version}/{'' if kind in WHOLE_CLUSTER else 'namespaces/default/'}{kind.lower()}s"


CUSTOM_PATHS = [custom_path(*each) for each in CUSTOM]


def folder(version: str = "version") -> Path:
    """Where `scripts/kube-cluster` puts its programs, of the `version` or `older_version` that it names."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "phalanx" / "kube" / _named(version)


def _named(version: str) -> str:
    found = re.search(rf"^{version}=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert found is not None, f"{SCRIPT} names no {version}"
    return found[1]


def definitions(version: str = "version") -> list[Path]:
    """The folders of the definitions of custom resources that the script fetches, each of the version that it names."""
    paths = re.findall(r'^ {4}"?(\S+@v[^\s"]+)"?$', SCRIPT.read_text(), re.MULTILINE)
    assert paths, f"{SCRIPT} names no definitions"
    kuberay = _named("kuberay_version")
    return [folder(version) / "definitions" / path.replace("$kuberay_version", kuberay) for path in paths]


def is_here(version: str = "version") -> bool:
    """Whether all that a cluster takes is on this machine."""
    has_programs = all(shutil.which(name) is not None for name in ("etcd", "openssl"))
    return has_programs and all(each.exists() for each in (folder(version) / "kube-apiserver", *definitions(version)))


def wait_for(what: str, is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    """Waits until something is so."""
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, f"waited {within_s} s in vain: {what}"
        time.sleep(0.02)


class Kubelets:
    """Stand for the kubelets of all nodes: bound pods run at once, and pods that are to end are gone at once."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._reflector = Reflector(api, "pods", "/api/v1/pods", Pod, self._tell)

    def start(self) -> None:
        """Begins to watch pods."""
        self._reflector.start()

    def close(self) -> None:
        """Ends it."""
        self._reflector.close()
        self._api.close()

    def _tell(self, news: News) -> None:
        pods = news.objects if isinstance(news, Listed) else (news.object,) if isinstance(news, Changed) else ()
        for pod in pods:
            with contextlib.suppress(ApiError):
                self._care_for(pod)

    def _care_for(self, pod: Pod) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        if not pod.spec.node_name:
            return
        if pod.is_leaving:
            if not self._has_node(pod.spec.node_name):
                return
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
            self._api.delete(path, options)
        elif pod.status.phase == "Pending":
            self._api.patch(f"{path}/status", {"status": {"phase": "Running"}})

    def _has_node(self, name: str) -> bool:
        try:
            self._api.ask("GET", f"/api/v1/nodes/{name}")
        except NotFoundError:
            return False
        return True


class KubeCluster(ControlPlane):
    """A control plane and what stands for kubelets, with the rights of the examples and what `defined` defines."""

    def __init__(self, root: Path, programs: Path, defined: Sequence[Path], etcd: Path | None = None) -> None:
        super().__init__(root, programs, etcd)
        self._defined = defined
        self._kubelets: Kubelets | None = None

    def start(self) -> None:
        """Returns when the API server is ready."""
        super().start()
        with self.client() as api:
            self._prepare(api)
        self._kubelets = Kubelets(self.client())
        self._kubelets.start()

    def scheduler_client(self) -> Client:
        """A client that may do what the manifests among the examples allow, and nothing else."""
        return Client(replace(self.access(), token=lambda: "scheduler"))

    def kill_apiserver(self) -> None:
        """Ends the API server as a power cut would."""
        self.end("kube-apiserver")

    def etcd_compact(self) -> None:
        """Has etcd forget all versions but the present ones: watches cannot be resumed from any before."""

        def ask(path: str, body: dict[str, Any]) -> Any:
            url = f"http://127.0.0.1:{self.etcd_port}/v3/{path}"
            with urllib.request.urlopen(url, msgspec.json.encode(body)) as answer:
                return msgspec.json.decode(answer.read())

        revision = ask("maintenance/status", {})["header"]["revision"]
        ask("kv/compaction", {"revision": revision, "physical": True})

    def stop(self) -> None:
        """Ends everything, what stands for kubelets first."""
        if self._kubelets is not None:
            self._kubelets.close()
        super().stop()

    def _prepare(self, api: Client) -> None:
        written = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]
        if self._defined:
            define(api, self._defined, *CUSTOM)
        for role in (each for each in written if each["kind"] == "ClusterRole"):
            name = role["metadata"]["name"]
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{name}-of-the-scheduler"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "scheduler"}],
            }
            api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
            api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        wait_for("there is a default namespace", lambda: self.serves(api, "/api/v1/namespaces/default"))

    @staticmethod
    def serves(api: Client, path: str) -> bool:
        """Whether the server knows a path."""
        try:
            api.ask("GET", path)
        except NotFoundError:
            return False
        return True


def define(api: Client, folders: Sequence[Path], *customs: tuple[str, str, str]) -> None:
    """Defines custom resources as their projects do, and waits until the server has them."""
    for group, _, kind in customs:
        name = f"{group}_{kind.lower()}s.yaml"
        (path,) = (each / name for each in folders if (each / name).exists())
        with contextlib.suppress(ConflictError):
            # Some are longer than a megabyte, which Python takes half a minute to read.
            api.ask("POST", DEFINITIONS, path.read_bytes(), "application/yaml")
    for custom in customs:
        wait_for(f"{custom} is served", lambda custom=custom: is_defined(api, *custom))  # type: ignore[misc]


def is_defined(api: Client, group: str, version: str, kind: str) -> bool:
    """Whether the server has a custom resource, and says so: it does that a moment later."""
    return KubeCluster.serves(api, f"/apis/{group}/{version}") and KubeCluster.serves(
        api, custom_path(group, version, kind)
    )


def clear(api: Client) -> None:
    """Deletes all nodes, pods, groups and budgets, and the events on them."""
    native_groups = (NATIVE_GROUPS, COMPOSITES) if KubeCluster.serves(api, NATIVE_GROUPS) else ()
    custom = [path for path in CUSTOM_PATHS if KubeCluster.serves(api, path)]
    for path in (
        *custom,
        "/api/v1/namespaces/default/pods",
        "/apis/batch/v1/namespaces/default/jobs",
        "/api/v1/nodes",
        *native_groups,
        BUDGETS,
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/api/v1/persistentvolumes",
        "/apis/storage.k8s.io/v1/storageclasses",
        "/api/v1/namespaces/default/events",
    ):
        # No controller takes off finalizers here.
        for raw in api.get(path, Page).items or () if "persistentvolume" in path or path in native_groups else ():
            name = msgspec.json.decode(raw, type=Pod).metadata.name
            api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}, "merge-patch")
        wait_for(f"{path} is empty", partial(_delete_all, api, path), 300)


def _delete_all(api: Client, path: str) -> bool:
    try:
        api.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    except UnreachableError:
        # A slow machine takes longer for a thousand pods than a client waits; it goes on all the same.
        return False
    return True


@contextlib.contextmanager
def running(
    root: Path, version: str = "version", has_custom: bool = True, etcd: Path | None = None
) -> Iterator[KubeCluster]:
    """A cluster that runs meanwhile, with the custom resources of other projects or, as it was installed, without. Its
    etcd is that of the system unless another is given.
    """
    cluster = KubeCluster(root, folder(version), definitions(version) if has_custom else (), etcd)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def existing(api: Client, *objects: tuple[str, dict[str, Any]]) -> Iterator[None]:
    """Objects that are there meanwhile."""
    try:
        for path, each in objects:
            api.post(path, each)
        yield
    finally:
        for path, each in reversed(objects):
            with contextlib.suppress(NotFoundError):
                api.delete(f"{path}/{each['metadata']['name']}")


def create(api: Client, *objects: dict[str, Any]) -> None:
    """Creates nodes, pods and groups."""
    for each in objects:
        api.post(path_of(each), each)


def path_of(written: dict[str, Any]) -> str:
    """Where objects of a kind are created."""
    kind, version = written["kind"], written["apiVersion"]
    prefix = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    plural = {"StorageClass": "storageclasses", "PriorityClass": "priorityclasses"}.get(kind, f"{kind.lower()}s")
    return f"{prefix}/{plural}" if kind in WHOLE_CLUSTER else f"{prefix}/namespaces/default/{plural}"
