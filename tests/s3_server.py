"""A real S3 server for tests, built by `scripts/s3-server`, and a line to it that can be cut."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "s3-server"
ACCESS_KEY, SECRET_KEY = "phalanx-tests", "not-a-secret-of-anybody"
STARTS_WITHIN_S = 60.0
PIECE_BYTES = 1 << 16


def program() -> Path:
    """Where `scripts/s3-server` puts the server, of the version that it names."""
    named = re.search(r"^version=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert named is not None, f"{SCRIPT} names no version"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "phalanx" / f"versitygw-{named[1]}" / "versitygw"


class S3Server:
    """A process that serves the folders of `root` as buckets; it can be killed and started again on the same port."""

    def __init__(self, root: Path, port: int) -> None:
        self.port = port
        self._root = root
        self._lock = threading.Lock()
        self._buckets, self._sidecar = root / "buckets", root / "sidecar"
        self._process: subprocess.Popen[bytes] | None = None
        self._buckets.mkdir(parents=True)
        self._sidecar.mkdir()

    def make_bucket(self, name: str) -> None:
        (self._buckets / name).mkdir()

    def has_bucket(self, name: str) -> bool:
        return (self._buckets / name).exists()

    def start(self) -> None:
        """Returns when it takes connections."""
        command = [
            str(program()),
            *("--port", f"127.0.0.1:{self.port}", "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet"),
            # Not every file system has extended attributes for the server to keep ETags in.
            *("posix", "--sidecar", str(self._sidecar), str(self._buckets)),
        ]
        with (self._root / "log").open("ab") as log:
            process = self._process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.defpath})
        until = time.monotonic() + STARTS_WITHIN_S
        while not self._answers():
            assert process.poll() is None, f"the S3 server ended:\n{self.log}"
            assert time.monotonic() < until, f"the S3 server does not answer:\n{self.log}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends it as a power cut would."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    @property
    def log(self) -> str:
        return (self._root / "log").read_text()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class Line:
    """A TCP proxy to a server. `on_upload` hears how many bytes have come from clients; `cut` drops all connections."""

    def __init__(self, port: int) -> None:
        self.uploaded = self.downloaded = 0
        self.cuts = 0
        self.on_upload: Callable[[int], None] = lambda uploaded: None
        self._to = port
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            ends, self._open = self._open, []
            self.cuts += 1
        for end in ends:
            shut(end)

    def close(self) -> None:
        shut(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                shut(client)
                continue
            with self._lock:
                self._open += [client, server]
            for pump in (self._up, self._down):
                threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(PIECE_BYTES):
                with self._lock:
                    self.uploaded += len(piece)
                self.on_upload(self.uploaded)
                server.sendall(piece)
        shut(server)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := server.recv(PIECE_BYTES):
                with self._lock:
                    self.downloaded += len(piece)
                client.sendall(piece)
        shut(client)


def shut(end: socket.socket) -> None:
    # A thread that waits on it hears of a shutdown, and not of a close.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextlib.contextmanager
def serving(root: Path, port: int) -> Iterator[S3Server]:
    """A server that runs meanwhile, with what it stored gone afterwards."""
    server = S3Server(root, port)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(root, ignore_errors=True)
