"""Jobs as pods on real kubelets of this machine, one cluster for all cases."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from hosted import CLUSTER
from kubernetes_subject import KubernetesSubject
from programs import Program

import kubelets
from phalanx.backends.local.host.processes import Process, process
from phalanx.bench.kubernetes.control_plane import ControlPlane


@cache
def cluster() -> tuple[ControlPlane, list[kubelets.Kubelet]]:
    """The control plane and its nodes, started when they are first wanted."""
    started = kubelets.nodes(Path(tempfile.mkdtemp(prefix="kubelets-")), *(node.name for node in CLUSTER.nodes))
    found = started.__enter__()
    atexit.register(started.__exit__, None, None, None)
    return found


class KubeletSubject(KubernetesSubject):
    """Containers of containerd, whose processes this machine sees."""

    programs = frozenset(Program)
    image = kubelets.IMAGE

    def _start_plane(self) -> ControlPlane:
        return cluster()[0]

    def _tasks(self, job: str) -> list[Process]:
        """The first processes of its containers: what started them is a shim of containerd."""
        found = self.processes(job)
        own = {each.pid for each in found}
        return [each for each in found if each.parent not in own and self._is_containerd_shim(each.parent)]

    def _is_containerd_shim(self, pid: int) -> bool:
        found = process(pid)
        try:
            return found is not None and b"containerd-shim" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def living(self, job: str) -> int:
        return len(self._tasks(job))

    def keeper(self, job: str) -> int:
        return self._tasks(job)[0].parent
