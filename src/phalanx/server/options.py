"""What `up` was told, handed to every process of the tree as JSON in a file of memory that it inherits."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from phalanx.backends.registry import TURN_MS

PORT = 8470


class Shown(msgspec.Struct, frozen=True):
    """A journal that is opened to be read: its name, and the moments of its first and last record."""

    name: str
    first_ms: int
    last_ms: int


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a server runs. Paths are absolute; an empty `store` is a SQLite file in the data folder.

    Tasks of users without a Unix user run as `job_user`, or else, where the server is root, as Unix users without a
    name, counted from `uid_first`. `private` are files and folders outside the data folder that no task may see. At
    most the part `quarantine` of the nodes is in quarantine, each for `quarantine_s` at first; `canary` is the content
    of the job file that such a node has to run then. Where something is `shown`, nothing is scheduled, and nothing can
    be changed.
    """

    data: str
    host: str = "127.0.0.1"
    port: int = PORT
    store: str = ""
    cluster: str = ""
    nodes: int | None = None
    gpus: int | None = None
    simulate: bool = False
    policy: str = ""
    backend: str = "local"
    workers: int = 1
    tls_cert: str = ""
    tls_key: str = ""
    alerts: str = ""
    prometheus: str = ""
    job_user: str = ""
    uid_first: int = 0
    private: tuple[str, ...] = ()
    turn_s: int = TURN_MS // 1000
    quarantine: float = 0.0
    quarantine_s: float = 1800.0
    canary: str = ""
    public_url: str = ""
    proxies: tuple[str, ...] = ()
    rate_limit: int = 2_000
    body_bytes_max: int = 32 << 20
    request_timeout_s: int = 30
    shown: Shown | None = None

    @property
    def store_url(self) -> str:
        """Where everything that must survive is."""
        return self.store or f"sqlite:///{Path(self.data) / 'phalanx.db'}"

    @property
    def url(self) -> str:
        """Where the server is reached: as it was said, or from this machine."""
        if self.public_url:
            return self.public_url
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    def file(self, *names: str) -> Path:
        """A path in the data folder."""
        return Path(self.data, *names)

    def in_memory(self) -> int:
        """A file of memory that holds all of it. Arguments and the disk would show the store's password."""
        handle = os.memfd_create("phalanx-options")
        os.write(handle, msgspec.json.encode(self))
        return handle


def options_of(handle: str) -> Options:
    """Options from the inherited file of that number, which is closed: no child of this process is to have it."""
    number = int(handle)
    try:
        # Not by `read`: all processes that inherit the file share one position in it.
        return msgspec.json.decode(os.pread(number, os.fstat(number).st_size, 0), type=Options)
    finally:
        os.close(number)
