"""What `up` was told, handed to every process of the tree as one line of JSON."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from phalanx.backends.registry import TURN_MS

PORT = 8470


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a server runs. Paths are absolute; an empty `store` is a SQLite file in the data folder."""

    data: str
    host: str = "127.0.0.1"
    port: int = PORT
    store: str = ""
    cluster: str = ""
    nodes: int | None = None
    gpus: int | None = None
    policy: str = ""
    backend: str = "local"
    workers: int = 1
    tls_cert: str = ""
    tls_key: str = ""
    alerts: str = ""
    job_user: str = ""
    turn_s: int = TURN_MS // 1000
    public_url: str = ""
    rate_limit: int = 2_000
    body_bytes_max: int = 32 << 20

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

    def line(self) -> str:
        """All of it as one line."""
        return msgspec.json.encode(self).decode()


def options_of(line: str) -> Options:
    """Options from their line."""
    return msgspec.json.decode(line, type=Options)


def default_data() -> str:
    """Where the data is kept if nobody says otherwise."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "phalanx")
