"""The HTTP server that kube-scheduler asks, as its extenders are asked: filter, prioritize, preempt and bind.

Whoever reaches it can have pods bound: those that phalanx decides on where it has placed them, others of kube-scheduler
anywhere. It listens on this machine alone unless it is told otherwise, since kube-scheduler shows it no credentials.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar

import msgspec

from phalanx.kube.extender.run import ExtenderRun
from phalanx.kube.objects.pod import Pod

BODY_MAX = 16 << 20
"""A pod is up to 1.5 MB, and 100,000 names of nodes are some more."""

REQUEST_WITHIN_S = 10.0
SCORE = 10


class Asked(msgspec.Struct, frozen=True, rename="pascal"):
    """A question about one pod."""

    pod: Pod = Pod()
    node_names: list[str] | None = None


class Binding(msgspec.Struct, frozen=True):
    """A pod that is to be bound."""

    namespace: str = msgspec.field(default="", name="PodNamespace")
    name: str = msgspec.field(default="", name="PodName")
    uid: str = msgspec.field(default="", name="PodUID")
    node: str = msgspec.field(default="", name="Node")


class Verbs:
    """The answers."""

    def __init__(self, run: ExtenderRun) -> None:
        self._run = run

    def filter(self, body: bytes) -> dict[str, Any]:
        """The node that a pod was given, if it is among those that are left. Others are not to be preempted on."""
        asked = msgspec.json.decode(body, type=Asked)
        if asked.node_names is None:
            raise ValueError("NodeNames is missing: set nodeCacheCapable: true in the configuration of the extender")
        if not self._run.decides_on(asked.pod):
            return {"NodeNames": asked.node_names}
        node = self._run.assigner.node_for(asked.pod.metadata.uid)
        if node in asked.node_names:
            return {"NodeNames": [node]}
        why = f"phalanx placed it on {node}" if node else self._run.why(asked.pod.metadata.uid)
        return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(asked.node_names, why)}

    def prioritize(self, body: bytes) -> list[dict[str, Any]]:
        """The node that a pod was given is the best."""
        asked = msgspec.json.decode(body, type=Asked)
        node = self._run.assigner.node_for(asked.pod.metadata.uid)
        return [{"Host": name, "Score": SCORE * (name == node)} for name in asked.node_names or ()]

    def preempt(self, body: bytes) -> dict[str, Any]:
        """kube-scheduler evicts nothing for a pod: phalanx evicts whole gangs where that is worth it."""
        msgspec.json.decode(body)
        return {"NodeNameToMetaVictims": {}}

    def bind(self, body: bytes) -> dict[str, Any]:
        """Binds a pod where phalanx has placed it; one on which it does not decide, where kube-scheduler has."""
        asked = msgspec.json.decode(body, type=Binding)
        if self._run.is_left_alone(f"{asked.namespace}/{asked.name}", asked.uid):
            return {"Error": self._run.assigner.bind_other(asked.namespace, asked.name, asked.uid, asked.node)}
        return {"Error": self._run.assigner.bind_pod(asked.uid, asked.node)}


class Server:
    """Answers as long as it is open."""

    def __init__(self, address: tuple[str, int], run: ExtenderRun) -> None:
        verbs = Verbs(run)

        class Handler(_Handler):
            verbs_by_path: ClassVar[dict[str, Callable[[bytes], Any]]] = {
                "/filter": verbs.filter,
                "/prioritize": verbs.prioritize,
                "/preempt": verbs.preempt,
                "/bind": verbs.bind,
            }
            probes: ClassVar[dict[str, Callable[[], bool]]] = {
                "/healthz": lambda: run.pulse.is_alive,
                # Only the replica that leads is asked: the others have decided nothing.
                "/readyz": lambda: run.pulse.leads and run.pulse.is_alive,
            }

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="extender", daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    verbs_by_path: ClassVar[dict[str, Callable[[bytes], Any]]]
    probes: ClassVar[dict[str, Callable[[], bool]]]
    timeout = REQUEST_WITHIN_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "phalanx", ""

    def do_GET(self) -> None:
        """Answers a probe."""
        probe = self.probes.get(self.path)
        if probe is None:
            self._refuse(404, "expected /healthz or /readyz")
        else:
            is_so = probe()
            self._send(200 if is_so else 503, b"ok\n" if is_so else b"not yet\n", "text/plain; charset=utf-8")

    def do_POST(self) -> None:
        """Answers one question."""
        verb = self.verbs_by_path.get(self.path)
        said = self.headers.get("Content-Length", "")
        size = int(said) if said.isascii() and said.isdecimal() and len(said) <= len(str(BODY_MAX)) else -1
        if verb is None:
            self._refuse(404, "expected /filter, /prioritize, /preempt or /bind")
        elif not 0 <= size <= BODY_MAX:
            self._refuse(413, f"expected a Content-Length of up to {BODY_MAX:,} bytes")
        else:
            self._answer(verb, self.rfile.read(size))

    def _answer(self, verb: Callable[[bytes], Any], body: bytes) -> None:
        try:
            answer = verb(body)
        except (ValueError, msgspec.MsgspecError) as error:
            self._refuse(400, f"{type(error).__name__}: {error}"[:500])
            return
        self._send(200, msgspec.json.encode(answer), "application/json")

    def _refuse(self, status: int, why: str) -> None:
        # What was not read is no next request.
        self.close_connection = True
        self._send(status, f"{why}\n".encode(), "text/plain; charset=utf-8")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
