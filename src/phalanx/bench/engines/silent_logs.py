"""The end of a kubelet at which logs are read, for pods that print nothing: an answer ends when its pod does."""

from __future__ import annotations

import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from phalanx.kube.api.client import Client
from phalanx.kube.api.reflector import Changed, Listed, News, Reflector
from phalanx.kube.objects.pod import Pod

PODS = "/api/v1/pods"
LONGEST_S = 900.0


class SilentLogs:
    """Answers for all nodes at a port of this machine, until `close`."""

    def __init__(self, api: Client, certificates: Path) -> None:
        self._over: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._reflector = Reflector(api, "pods", PODS, Pod, self._tell)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        # Hands are shaken in the thread of the connection: one that does not would hold up all others.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self._reflector.start()
        threading.Thread(target=self._server.serve_forever, name="silent logs", daemon=True).start()

    def close(self) -> None:
        """Lets go of all that still reads."""
        self._server.shutdown()
        self._server.server_close()
        self._reflector.close()
        with self._lock:
            for over in self._over.values():
                over.set()

    def _tell(self, news: News) -> None:
        pods = news.objects if isinstance(news, Listed) else (news.object,) if isinstance(news, Changed) else ()
        for pod in pods:
            if pod.is_over or (isinstance(news, Changed) and news.gone):
                self._end_of(pod.metadata.name).set()

    def _end_of(self, pod: str) -> threading.Event:
        with self._lock:
            return self._over.setdefault(pod, threading.Event())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        logs = self

        class Handler(BaseHTTPRequestHandler):
            """What is asked for is `/containerLogs/NAMESPACE/POD/CONTAINER`."""

            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                logs._end_of(self.path.split("/")[3]).wait(LONGEST_S)
                with suppress(OSError):
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args: object) -> None:
                """It says nothing."""

        return Handler
