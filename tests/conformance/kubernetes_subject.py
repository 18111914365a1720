"""Jobs as pods of a real API server, whose nodes a small runner of the tests stands for; one for all cases."""

from __future__ import annotations

import atexit
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from hosted import CLUSTER, HostedBackend
from programs import COMMANDS, Program
from subject import PATIENCE_S, LocalSubject

import kube_cluster
import kube_runner
from kube_runner import IMAGE, SHIM
from phalanx.backends.capability import Offer
from phalanx.backends.kubernetes.backend import KubernetesBackend
from phalanx.backends.kubernetes.manifests import Owner
from phalanx.backends.kubernetes.offer import kubernetes_offer
from phalanx.backends.kubernetes.settings import Settings
from phalanx.backends.kubernetes.site import Site, server_name
from phalanx.backends.local.host.processes import Process, processes, variable
from phalanx.backends.local.orders import Yard
from phalanx.bench.kubernetes.control_plane import ControlPlane
from phalanx.engine.backend import Backend
from phalanx.kube.api.access import from_kubeconfig
from phalanx.kube.api.client import Client
from phalanx.workload.job import Job

SUBJECT = "SUBJECT_OF_TEST"


@cache
def control_plane() -> ControlPlane:
    """The API server, started when it is first wanted, with nodes as the suite wants them."""
    plane = ControlPlane(Path(tempfile.mkdtemp(prefix="kube-conformance-")), kube_cluster.folder())
    atexit.register(shutil.rmtree, plane.root, ignore_errors=True)
    atexit.register(plane.stop)
    plane.start()
    nodes = [node.name for node in CLUSTER.nodes]
    runner = subprocess.Popen(
        [sys.executable, kube_runner.__file__, str(plane.kubeconfig), str(plane.root / "runner"), *nodes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert runner.stdin is not None
    assert runner.stdout is not None
    atexit.register(runner.wait, 30)
    atexit.register(runner.stdin.close)
    assert runner.stdout.readline() == b"ready\n"
    runner.stdout.close()
    return plane


def opened(
    data: Path, jobs: dict[str, Job], kubeconfig: str, namespace: str, image: str = IMAGE, pods_of_user_max: int = 1_000
) -> KubernetesBackend:
    """The backend in a folder and a namespace."""
    yard = Yard(data)
    settings = Settings(namespace=namespace, image=image, pods_of_user_max=pods_of_user_max)
    client = Client(from_kubeconfig(Path(kubeconfig), None))
    backend = KubernetesBackend(Site(client, settings, server_name(yard.backend)), yard, jobs.__getitem__, CLUSTER)
    backend.start()
    return backend


class KubernetesSubject(LocalSubject):
    """Processes that a small runner starts for pods."""

    programs = frozenset(Program) - {Program.HUNGRY}
    image = IMAGE
    slowness = 2
    """So many times fewer kills."""

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"conformance-{secrets.token_hex(4)}"
        self.kubeconfig: Path | None = None
        """Other credentials than those of an admin."""
        self.pods_of_user_max = 1_000
        self._plane: ControlPlane | None = None

    @property
    def plane(self) -> ControlPlane:
        """The API server, on which the case has a namespace of its own."""
        if self._plane is None:
            self._plane = self._start_plane()
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            with self._plane.client() as api:
                api.post("/api/v1/namespaces", made)
        return self._plane

    def _start_plane(self) -> ControlPlane:
        return control_plane()

    def _make_yard(self) -> Yard:
        return Yard(self.data)

    def _look_around(self) -> Offer:
        return kubernetes_offer()

    def job(self, job: Job, program: Program) -> Job:
        made = super().job(job, program)
        if made.execution.command == COMMANDS[Program.SHORT] == ("sleep", "0.2"):
            # A pod takes longer than that to be seen running.
            made = replace(made, execution=replace(made.execution, command=("sleep", "2")))
        env = (*made.execution.env, (SUBJECT, self.data.name))
        made = self.jobs[job.id] = replace(made, execution=replace(made.execution, env=env))
        return made

    def open(self, apart: bool) -> Backend:
        backend = HostedBackend(self.data, self.jobs, *self._how()) if apart else self._made()
        backend.wake = self._woken.set
        self._backend = backend  # type: ignore[assignment]
        return backend

    def _how(self) -> tuple[str, ...]:
        return ("kubernetes", str(self.plane.kubeconfig), self.namespace, self.image)

    def _made(self) -> KubernetesBackend:
        kubeconfig = str(self.kubeconfig or self.plane.kubeconfig)
        return opened(self.data, self.jobs, kubeconfig, self.namespace, self.image, self.pods_of_user_max)

    def processes(self, job: str) -> list[Process]:
        """All processes of a job, whoever their parents are."""
        return [
            each
            for each in processes()
            if each.state != "Z"
            and variable(each.pid, SUBJECT) == self.data.name
            and variable(each.pid, "PHALANX_JOB_ID") == job
        ]

    def living(self, job: str) -> int:
        """Its tasks are what shims stay beside."""
        return sum(1 for each in self.processes(job) if self._is_shim(each.pid))

    def keeper(self, job: str) -> int:
        return next(each.pid for each in self.processes(job) if self._is_shim(each.pid))

    def _is_shim(self, pid: int) -> bool:
        try:
            return SHIM[-1].encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def sabotage(self, job: str, rank: int) -> None:
        """A pod of another has the name of the task's."""
        name = Owner(server_name(self.yard.backend), job, 1).pod_name(rank)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "other", "image": self.image}]},
        }
        with self.plane.client() as api:
            api.post(f"/api/v1/namespaces/{self.namespace}/pods", pod)

    def left(self) -> dict[str, list[str]]:
        """What this server has made and not deleted."""
        with self.plane.client() as api:
            site = Site(api, Settings(namespace=self.namespace), server_name(self.yard.backend))
            return {
                plural: [each.metadata.name for each in site.made(plural)] for plural in ("pods", "secrets", "services")
            }

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()
            last = self._made()
            last.adopt((), self.now())
            deadline_s = time.monotonic() + PATIENCE_S
            while (any((self.data / "backend" / "live").iterdir()) or any(self.left().values())) and (
                time.monotonic() < deadline_s
            ):
                time.sleep(0.05)
            last.close()
            assert not any(self.left().values()), f"it was left: {self.left()}"
        shutil.rmtree(self.data)
