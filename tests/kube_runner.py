"""Stands for the kubelets of some nodes: runs the task of each pod bound there as processes of this machine.

`python kube_runner.py KUBECONFIG FOLDER NODE…` creates the nodes, says "ready", and runs until it is ended. It reports
states, exit codes, notice, grace and logs as a kubelet does, and knows no images, networks, volumes and limits.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from phalanx.backends.local.host.processes import Process, processes, variable
from phalanx.kube.api.access import from_kubeconfig
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, NotFoundError
from phalanx.kube.api.reflector import Changed, Listed, News, Reflector
from phalanx.kube.objects.meta import Stored

IMAGE = "of-this-machine"
MARK = "POD_UID_OF_RUNNER"
"""The variable by which the processes of a pod are found, wherever they went."""

SHIM = ("sh", "-c", '"$@"; exit $?', "shim-of-runner")
"""Stays beside the task, as a shim of containerd does: if it is killed, the task is ended, and its end is unknown."""


class Wanted(Stored, frozen=True):
    """A pod, as it is written."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class Container:
    """The task of one pod."""

    def __init__(self, api: Client, pod: Wanted, folder: Path) -> None:
        self.uid, self.spec = pod.metadata.uid, pod.spec
        self.path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        self.log = folder / self.uid
        self.is_over = threading.Event()
        self._namespace = pod.metadata.namespace
        self._api = api
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at_s: float | None = None
        self._is_noticed = False
        self._changed = threading.Condition()

    def run(self) -> None:
        """Runs the task to its end, and reports it."""
        with contextlib.suppress(NotFoundError):
            self._run()
        self.is_over.set()
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        (container,) = (each for each in self.spec["containers"] if each["name"] == "task")
        if container["image"] != IMAGE:
            waiting = {"reason": "ErrImagePull", "message": f'pull access to "{container["image"]}": not found'}
            self._report("Pending", {"waiting": waiting})
            return
        argv = [word.replace("$$(", "$(") for word in container["command"]]
        env = {each["name"]: self._value(each) for each in container["env"]}
        env = {"PATH": os.environ["PATH"], **env, MARK: self.uid}
        if shutil.which(argv[0]) is None:
            message = f'exec: "{argv[0]}": stat {argv[0]}: no such file or directory'
            self._report("Failed", _ended(128, "StartError", message))
            return
        with self._changed:
            if self._kill_at_s is not None:
                return
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*SHIM, *argv], env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
                )
        self._report("Running", {"running": {"startedAt": _now()}})
        code = self._process.wait()
        self._kill_rest()
        if code < 0:
            self._report("Failed", _ended(137, "ContainerStatusUnknown", "the shim is gone"))
        else:
            self._report("Failed" if code else "Succeeded", _ended(code, "Error" if code else "Completed", ""))

    def end(self, grace_s: int) -> None:
        """Gives notice, and kills after the grace; another call can only shorten it."""
        with self._changed:
            until_s = time.monotonic() + grace_s
            is_first = self._kill_at_s is None
            self._kill_at_s = until_s if self._kill_at_s is None else min(until_s, self._kill_at_s)
            self._changed.notify_all()
        if is_first:
            threading.Thread(target=self._see_off, daemon=True).start()

    def _see_off(self) -> None:
        if self._process is not None:
            # The runtime tells the first process of the container alone.
            for each in self._family():
                if each.parent == self._process.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each.pid, signal.SIGTERM)
        with self._changed:
            while not self.is_over.is_set() and (left_s := (self._kill_at_s or 0.0) - time.monotonic()) > 0:
                self._changed.wait(left_s)
        self._kill_rest()
        if self._process is not None:
            self.is_over.wait()
        with contextlib.suppress(ApiError):
            self._api.delete(self.path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})

    def _kill_rest(self) -> None:
        while rest := self._family():
            for each in rest:
                if self._process is None or each.pid != self._process.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each.pid, signal.SIGKILL)
            if all(self._process is not None and each.pid == self._process.pid for each in rest):
                return
            time.sleep(0.01)

    def _family(self) -> list[Process]:
        return [each for each in processes() if each.state != "Z" and variable(each.pid, MARK) == self.uid]

    def _value(self, each: dict[str, Any]) -> str:
        if "valueFrom" not in each:
            return str(each.get("value", "")).replace("$$(", "$(")
        chosen = each["valueFrom"]["secretKeyRef"]
        secret = self._api.ask("GET", f"/api/v1/namespaces/{self._namespace}/secrets/{chosen['name']}")
        return msgspec.convert(json.loads(secret)["data"][chosen["key"]], bytes).decode()

    def _report(self, phase: str, state: dict[str, Any]) -> None:
        status = {"name": "task", "image": IMAGE, "imageID": "", "ready": phase == "Running", "restartCount": 0}
        told = {"phase": phase, "containerStatuses": [{**status, "state": state}]}
        with contextlib.suppress(NotFoundError):
            self._api.patch(f"{self.path}/status", {"status": told, "metadata": {"uid": self.uid}})


class Runner:
    """Runs the pods of some nodes."""

    def __init__(self, api: Client, folder: Path, nodes: list[str]) -> None:
        self.containers: dict[str, Container] = {}
        self._api = api
        self._folder = folder
        self._nodes = nodes
        self._reflector = Reflector(api, "pods", "/api/v1/pods", Wanted, self._tell)

    def start(self, port: int) -> None:
        """Registers the nodes and begins to watch."""
        for name in self._nodes:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            self._api.post("/api/v1/nodes", node)
            self._api.patch(f"/api/v1/nodes/{name}/status", {"status": node_status(port)})
        self._reflector.start()

    def find(self, namespace: str, name: str) -> Container | None:
        """The container of a pod."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        return next((each for each in self.containers.values() if each.path == path), None)

    def _tell(self, news: News) -> None:
        pods = news.objects if isinstance(news, Listed) else ()
        if isinstance(news, Changed) and not news.gone:
            pods = (news.object,)
        for pod in pods:
            if pod.spec.get("nodeName") in self._nodes:
                self._care_for(pod)

    def _care_for(self, pod: Wanted) -> None:
        known = self.containers.get(pod.metadata.uid)
        if known is None:
            known = self.containers[pod.metadata.uid] = Container(self._api, pod, self._folder)
            if pod.metadata.deletion_timestamp is None:
                threading.Thread(target=known.run, daemon=True).start()
        if pod.metadata.deletion_timestamp is not None:
            known.end(pod_grace(pod))


def pod_grace(pod: Wanted) -> int:
    """How long a pod that is deleted may take: what is left until the moment of its deletion."""
    until = datetime.fromisoformat(pod.metadata.deletion_timestamp or "").timestamp()
    # Moments are written in whole seconds, cut off: the next one counts.
    return max(round(until + 1 - time.time()), 0)


def node_status(port: int) -> dict[str, Any]:
    """A node that is ready, and whose logs are read at a port of this machine."""
    has = {"cpu": "64", "memory": "64Gi", "pods": "500"}
    return {
        "capacity": has,
        "allocatable": has,
        "conditions": [{"type": "Ready", "status": "True", "reason": "RunnerReady"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


def log_server(runner: Runner, folder: Path) -> ThreadingHTTPServer:
    """What the API server reads logs from."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _, _, namespace, name, *_ = self.path.partition("?")[0].split("/")
            container = runner.find(namespace, name)
            if container is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(OSError):
                self._copy(container)

        def _copy(self, container: Container) -> None:
            with container.log.open("rb") as log:
                while True:
                    was_over = container.is_over.is_set()
                    while piece := log.read(1 << 16):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    if was_over:
                        break
                    container.is_over.wait(0.02)
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *args: object) -> None:
            """It says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    certificate = folder / "runner.pem"
    subject = ["-subj", "/CN=runner", "-days", "2", "-keyout", str(certificate), "-out", str(folder / "runner.crt")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "runner.crt", certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def _ended(code: int, reason: str, message: str) -> dict[str, Any]:
    moment = _now()
    ended = {"exitCode": code, "reason": reason, "message": message, "startedAt": moment, "finishedAt": moment}
    return {"terminated": ended}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main(kubeconfig: str, folder: Path, nodes: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    api = Client(from_kubeconfig(Path(kubeconfig), None))
    runner = Runner(api, folder, nodes)
    server = log_server(runner, folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    runner.start(server.server_address[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    # It ends with whoever started it.
    sys.stdin.read()
    for each in runner.containers.values():
        each._kill_rest()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
