"""Real nodes on this machine: kubelets that `scripts/kube-cluster --older kubelet` built, each with its own containerd.

Images are made from busybox and imported from archives: no registry is reachable. It takes root.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kube_cluster import folder, wait_for
from phalanx.bench.kubernetes.control_plane import ControlPlane, free_ports
from phalanx.kube.api.errors import NotFoundError

IMAGE, PAUSE = "phalanx.test/busybox:1", "phalanx.test/pause:1"
SLEEP = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"
PROGRAMS = ("containerd", "runc", "ctr", "busybox")

CONTAINERD = """version = 2
root = "{root}/root"
state = "{root}/state"
[grpc]
  address = "{root}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{pause}"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
"""


def are_here() -> bool:
    """Whether this machine can have nodes."""
    has_programs = all(shutil.which(name) is not None for name in PROGRAMS)
    is_built = (folder("older_version") / "kubelet").exists()
    return os.getuid() == 0 and has_programs and is_built and Path("/usr/lib/cni/ptp").exists()


class KubeletPlane(ControlPlane):
    """A control plane that reaches its kubelets by their addresses, which no DNS names."""

    def start_apiserver(self, *options: str) -> None:
        """Starts the API server, and returns when it is ready."""
        super().start_apiserver("--kubelet-preferred-address-types=InternalIP", *options)


class Kubelet:
    """One node: containerd and kubelet."""

    def __init__(self, plane: ControlPlane, name: str, number: int) -> None:
        self.plane, self.name, self._number = plane, name, number
        # The path of a socket is short by law.
        self.root = Path(f"/tmp/knode-{os.getpid()}-{number}")
        self._port, self._health = free_ports(2)

    def start(self) -> None:
        """Returns when the node is ready."""
        (self.root / "cni").mkdir(parents=True)
        (self.root / "config.toml").write_text(CONTAINERD.format(root=self.root, pause=PAUSE))
        (self.root / "cni" / "net.conflist").write_text(json.dumps(self._network()))
        self.plane.spawn(f"containerd-{self.name}", "containerd", "--config", self.root / "config.toml")
        wait_for("containerd listens", (self.root / "c.sock").exists)
        for image, command in ((IMAGE, ["sh"]), (PAUSE, ["sh", "-c", SLEEP])):
            archive = self.root / "image.tar"
            write_image(archive, image, command)
            self.ctr("images", "import", "--snapshotter", "native", str(archive))
        self.start_kubelet()

    def start_kubelet(self) -> None:
        """Starts the kubelet alone, and returns when the node is ready."""
        (self.root / "kubelet.yaml").write_bytes(msgspec.yaml.encode(self._settings()))
        self.plane.spawn(
            f"kubelet-{self.name}",
            *(folder("older_version") / "kubelet", "--config", self.root / "kubelet.yaml"),
            *("--kubeconfig", self.plane.kubeconfig, "--hostname-override", self.name, "--node-ip", address()),
            *("--root-dir", self.root / "kubelet", "--cert-dir", self.root / "pki", "--v=2"),
        )
        wait_for(f"node {self.name} is ready", self._is_ready, 120)

    def kill_kubelet(self) -> None:
        """Ends the kubelet as a power cut would; its containers run on."""
        self.plane.end(f"kubelet-{self.name}")

    def ctr(self, *command: str) -> str:
        """Asks containerd."""
        argv = ["ctr", "-a", str(self.root / "c.sock"), "-n", "k8s.io", *command]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def stop(self) -> None:
        """Ends all containers, and both programs."""
        with contextlib.suppress(KeyError):
            self.plane.end(f"kubelet-{self.name}")
        with contextlib.suppress(subprocess.CalledProcessError):
            for task in self.ctr("tasks", "ls", "-q").split():
                self.ctr("tasks", "kill", "-s", "SIGKILL", "-a", task)
        with contextlib.suppress(KeyError):
            self.plane.end(f"containerd-{self.name}")
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.root}/"):
                subprocess.run(["umount", "--lazy", where], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def _network(self) -> dict[str, object]:
        subnet = f"10.88.{self._number}.0/24"
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.root / "ipam"),
        }
        return {"cniVersion": "0.4.0", "name": f"net{self._number}", "plugins": [{"type": "ptp", "ipam": ipam}]}

    def _settings(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.root}/c.sock",
            "port": self._port,
            "healthzPort": self._health,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "clusterDNS": [address()],
            "clusterDomain": "cluster.local",
            "evictionHard": {"memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "containerLogMaxSize": "100Mi",
            "volumePluginDir": str(self.root / "plugins"),
            "podLogsDir": f"/var/log/pods-{os.getpid()}-{self._number}",
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "2s",
            "serializeImagePulls": False,
        }

    def _is_ready(self) -> bool:
        with self.plane.client() as api:
            try:
                node = json.loads(api.ask("GET", f"/api/v1/nodes/{self.name}"))
            except NotFoundError:
                return False
        conditions = node["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def address() -> str:
    """An address of this machine that is not that of its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))
        return str(probe.getsockname()[0])


def write_image(path: Path, name: str, command: list[str]) -> None:
    """An archive of an image that has busybox, and nothing else."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder_name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder_name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder_name == "tmp" else 0o755
            tar.addfile(entry)
        busybox = shutil.which("busybox")
        assert busybox is not None
        tar.add(busybox, "bin/busybox")
        for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    content = layer.getvalue()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Entrypoint": command},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for file, data in (("layer.tar", content), ("config.json", config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@contextlib.contextmanager
def nodes(root: Path, *names: str) -> Iterator[tuple[ControlPlane, list[Kubelet]]]:
    """A control plane with real nodes."""
    plane = KubeletPlane(root, folder())
    found = [Kubelet(plane, name, number) for number, name in enumerate(names, start=1)]
    try:
        plane.start()
        for each in found:
            each.start()
        yield plane, found
    finally:
        for each in found:
            each.stop()
        plane.stop()
