"""A real Kubernetes API server for tests, built by `scripts/kube-cluster`, with etcd behind it and no real nodes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from phalanx.kube.api.access import Access, from_kubeconfig
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError, NotFoundError
from phalanx.kube.api.reflector import Changed, Listed, News, Page, Reflector
from phalanx.kube.objects.pod import Pod

SCRIPT = Path(__file__).parents[1] / "scripts" / "kube-cluster"
MANIFESTS = [Path(__file__).parents[1] / "examples" / "kubernetes" / name for name in ("phalanx.yaml", "volcano.yaml")]
STARTS_WITHIN_S = 180.0
TOKEN = "not-a-secret-of-anybody"

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NATIVE_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
WHOLE_CLUSTER = ("Node", "PersistentVolume", "StorageClass", "PriorityClass", "HyperNode", "Queue")
"""Kinds whose objects are in no namespace."""

CUSTOM = (
    ("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
)
"""Custom resources by their group, version and kind. Their controllers do not run here."""

VOLCANO = (
    ("batch.volcano.sh", "v1alpha1", "Job"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup"),
    ("scheduling.volcano.sh", "v1beta1", "Queue"),
    ("topology.volcano.sh", "v1alpha1", "HyperNode"),
)
"""Those that the manifest among the examples defines."""


def definition(group: str, version: str, kind: str) -> dict[str, Any]:
    """The definition of a custom resource of which every field is kept."""
    singular = kind.lower()
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{singular}s.{group}",
            # Groups of Kubernetes are protected: their objects say where they were agreed on.
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": group,
            "scope": "Cluster" if kind in WHOLE_CLUSTER else "Namespaced",
            "names": {"kind": kind, "plural": f"{singular}s", "singular": singular, "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


CUSTOM_PATHS = [
    f"/apis/{group}/{version}/{'' if kind in WHOLE_CLUSTER else 'namespaces/default/'}{kind.lower()}s"
    for group, version, kind in (*VOLCANO, *CUSTOM)
]


def folder() -> Path:
    """Where `scripts/kube-cluster` puts its programs, of the version that it names."""
    named = re.search(r"^version=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert named is not None, f"{SCRIPT} names no version"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "phalanx" / "kube" / named[1]


def is_here() -> bool:
    """Whether all that a cluster takes is on this machine."""
    has_programs = all(shutil.which(name) is not None for name in ("etcd", "openssl"))
    return has_programs and (folder() / "kube-apiserver").exists()


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def wait_for(what: str, is_so: Callable[[], bool], within_s: float = 20.0) -> None:
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


class KubeCluster:
    """etcd, an API server and what stands for kubelets, on loopback. The API server can be ended and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._etcd_port, self._etcd_peer, self.port = free_ports(3)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._kubelets: Kubelets | None = None
        self.kubeconfig = root / "kubeconfig"

    def start(self) -> None:
        """Returns when the API server is ready."""
        self.root.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._etcd_peer}"
        self._run(
            "etcd",
            *(shutil.which("etcd") or "etcd", "--data-dir", self.root / "etcd", "--unsafe-no-fsync", "--name", "test"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}"),
        )
        (self.root / "tokens.csv").write_text(
            f"{TOKEN},admin,admin,system:masters\nscheduler,scheduler,scheduler\nweak,weak,weak\n"
        )
        self.start_apiserver()
        with self.client() as api:
            self._prepare(api)
        self._kubelets = Kubelets(self.client())
        self._kubelets.start()

    def start_apiserver(self) -> None:
        """Starts the API server, and returns when it is ready."""
        certificates = self.root / "certificates"
        certificates.mkdir(exist_ok=True)
        key = certificates / "accounts.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._run(
            "kube-apiserver",
            *(folder() / "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self._etcd_port}"),
            *("--cert-dir", certificates, "--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--service-account-key-file", key, "--service-account-signing-key-file", key),
            *("--service-account-issuer", "https://127.0.0.1", "--service-cluster-ip-range", "10.0.0.0/24"),
            *("--token-auth-file", self.root / "tokens.csv", "--authorization-mode", "RBAC"),
            # No controller manager takes the taint off new nodes, or makes accounts.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--feature-gates=GenericWorkload=true",
            "--runtime-config=scheduling.k8s.io/v1beta1=true",
        )
        wait_for(f"the API server is ready:\n{self.log('kube-apiserver')}", self._is_ready, STARTS_WITHIN_S)

    def write_kubeconfig(self, path: Path, token: str) -> None:
        """A kubeconfig by which a token is shown."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{self.port}",
                        "certificate-authority": str(self.root / "certificates" / "apiserver.crt"),
                    },
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path.write_bytes(msgspec.yaml.encode(config))

    def access(self) -> Access:
        """How an admin gets in."""
        return from_kubeconfig(self.kubeconfig, None)

    def client(self) -> Client:
        """A client of an admin."""
        return Client(self.access())

    def scheduler_client(self) -> Client:
        """A client that may do what the manifest among the examples allows, and nothing else."""
        return Client(replace(self.access(), token=lambda: "scheduler"))

    def log(self, name: str) -> str:
        """The last that a program said."""
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def kill_apiserver(self) -> None:
        """Ends the API server as a power cut would."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def etcd_compact(self) -> None:
        """Has etcd forget all versions but the present ones: watches cannot be resumed from any before."""

        def ask(path: str, body: dict[str, Any]) -> Any:
            url = f"http://127.0.0.1:{self._etcd_port}/v3/{path}"
            with urllib.request.urlopen(url, msgspec.json.encode(body)) as answer:
                return msgspec.json.decode(answer.read())

        revision = ask("maintenance/status", {})["header"]["revision"]
        ask("kv/compaction", {"revision": revision, "physical": True})

    def stop(self) -> None:
        """Ends everything, in the order in which each can still say goodbye to the next."""
        if self._kubelets is not None:
            self._kubelets.close()
        for name in ("kube-apiserver", "etcd"):
            process = self._processes.pop(name, None)
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def _run(self, name: str, *command: object) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(each) for each in command],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.root)},
            )

    def _is_ready(self) -> bool:
        process = self._processes["kube-apiserver"]
        assert process.poll() is None, f"the API server ended:\n{self.log('kube-apiserver')}"
        if not (self.root / "certificates" / "apiserver.crt").exists():
            return False
        self.write_kubeconfig(self.kubeconfig, TOKEN)
        try:
            with self.client() as api:
                api.ask("GET", "/readyz")
        except ApiError:
            return False
        return True

    def _prepare(self, api: Client) -> None:
        written = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]
        definitions = [each for each in written if each["kind"] == "CustomResourceDefinition"]
        for each in (*definitions, *(definition(*each) for each in CUSTOM)):
            with contextlib.suppress(ConflictError):
                api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each)
        for path in CUSTOM_PATHS:
            wait_for(f"{path} is served", lambda path=path: self._serves(api, path))  # type: ignore[misc]
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
        wait_for("there is a default namespace", lambda: self._serves(api, "/api/v1/namespaces/default"))

    @staticmethod
    def _serves(api: Client, path: str) -> bool:
        try:
            api.ask("GET", path)
        except NotFoundError:
            return False
        return True


def clear(api: Client) -> None:
    """Deletes all nodes, pods, groups and budgets."""
    for path in (
        *CUSTOM_PATHS,
        "/api/v1/namespaces/default/pods",
        "/apis/batch/v1/namespaces/default/jobs",
        "/api/v1/nodes",
        NATIVE_GROUPS,
        BUDGETS,
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/api/v1/persistentvolumes",
        "/apis/storage.k8s.io/v1/storageclasses",
    ):
        for raw in api.get(path, Page).items or ():
            name = msgspec.json.decode(raw, type=Pod).metadata.name
            with contextlib.suppress(NotFoundError):
                # No controller takes off finalizers here.
                if "persistentvolume" in path or path == NATIVE_GROUPS:
                    api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}, "merge-patch")
                api.delete(f"{path}/{name}", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


@contextlib.contextmanager
def running(root: Path) -> Iterator[KubeCluster]:
    """A cluster that runs meanwhile."""
    cluster = KubeCluster(root)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


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
