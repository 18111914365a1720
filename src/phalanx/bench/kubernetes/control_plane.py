"""A control plane on loopback: etcd and an API server that `scripts/kube-cluster` built, without nodes of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from phalanx.errors import PhalanxError
from phalanx.kube.api.access import Access, from_kubeconfig
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError

STARTS_WITHIN_S = 180.0
TOKEN = "not-a-secret-of-anybody"
HOW = "apt-get install etcd-server openssl && scripts/kube-cluster kube-apiserver kube-scheduler"


NATIVE_GROUPS = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
)
"""Has an API server serve native groups. One before them does not start with these."""

NATIVE_GROUPS_SINCE = (1, 37)


class MissingProgramError(PhalanxError):
    """What the control plane takes is not on this machine."""


def programs() -> Path:
    """Where the API server of the newest version is that was built here."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phalanx" / "kube"
    found = sorted((each.parent for each in cache.glob("*/kube-apiserver")), key=version_of)
    if not found or any(shutil.which(name) is None for name in ("etcd", "openssl")):
        raise MissingProgramError(f"etcd, openssl and a kube-apiserver under {cache} are needed: {HOW}")
    return found[-1]


def version_of(folder: Path) -> tuple[int, ...]:
    """The version of the programs in a folder, which has its name."""
    return tuple(int(part) for part in folder.name.split(".") if part.isdecimal())


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def wait_until(what: str, is_so: Callable[[], bool], within_s: float) -> None:
    """Waits until something is so; raises TimeoutError with `what` if it never is."""
    until = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {within_s} s in vain: {what}")
        time.sleep(0.02)


class ControlPlane:
    """etcd and an API server, that has `options` beside those of all. It can be ended and started again."""

    def __init__(self, root: Path, folder: Path, etcd: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self.root = root
        self._options = options
        self.folder = folder
        self.etcd = etcd or Path(shutil.which("etcd") or "etcd")
        self.etcd_port, self._etcd_peer, self.port = free_ports(3)
        self.kubeconfig = root / "kubeconfig"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def has_native_groups(self) -> bool:
        """Whether its version has PodGroups of Kubernetes' own."""
        return version_of(self.folder) >= NATIVE_GROUPS_SINCE

    def start(self) -> None:
        """Returns when the API server is ready."""
        self.root.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self._etcd_peer}"
        self.spawn(
            "etcd",
            *(self.etcd, "--data-dir", self.root / "etcd", "--unsafe-no-fsync", "--name", "test"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}"),
        )
        (self.root / "tokens.csv").write_text(
            f"{TOKEN},admin,admin,system:masters\nscheduler,scheduler,scheduler\nweak,weak,weak\n"
        )
        self.start_apiserver()

    def start_apiserver(self, *options: str) -> None:
        """Starts the API server, with options that it has beside those of all, and returns when it is ready."""
        certificates = self.root / "certificates"
        certificates.mkdir(exist_ok=True)
        key = certificates / "accounts.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self.spawn(
            "kube-apiserver",
            *(self.folder / "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self.etcd_port}"),
            *("--cert-dir", certificates, "--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--service-account-key-file", key, "--service-account-signing-key-file", key),
            *("--service-account-issuer", "https://127.0.0.1", "--service-cluster-ip-range", "10.0.0.0/24"),
            *("--token-auth-file", self.root / "tokens.csv", "--authorization-mode", "RBAC"),
            # No controller manager takes the taint off new nodes, or makes accounts.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            *(NATIVE_GROUPS if self.has_native_groups else ()),
            *self._options,
            *options,
        )
        wait_until("the API server is ready", self._is_ready, STARTS_WITHIN_S)

    def spawn(self, name: str, *command: object) -> subprocess.Popen[bytes]:
        """Starts a program that ends with the control plane; what it says is in the log of that name."""
        with (self.root / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(each) for each in command],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.root)},
            )
        self._processes[name] = process
        return process

    def end(self, name: str) -> None:
        """Ends a program as a power cut would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Ends everything, what was started last first."""
        for name in reversed(list(self._processes)):
            self.end(name)

    def log(self, name: str) -> str:
        """The last that a program said."""
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def access(self) -> Access:
        """How an admin gets in."""
        return from_kubeconfig(self.kubeconfig, None)

    def client(self) -> Client:
        """A client of an admin."""
        return Client(self.access())

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

    def _is_ready(self) -> bool:
        if self._processes["kube-apiserver"].poll() is not None:
            raise MissingProgramError(f"the API server ended:\n{self.log('kube-apiserver')}")
        if not (self.root / "certificates" / "apiserver.crt").exists():
            return False
        self.write_kubeconfig(self.kubeconfig, TOKEN)
        try:
            with self.client() as api:
                api.ask("GET", "/readyz")
        except ApiError:
            return False
        return True
