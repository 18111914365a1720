"""The process of an API worker: serves HTTP on a socket it was handed."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_network

import uvicorn

from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.api.admission.bounded_http import bounded_http
from phalanx.server.api.app import create_app
from phalanx.server.api.context import Context
from phalanx.server.api.engine import Engine, NoEngine
from phalanx.server.api.figures import HttpFigures
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.log import log_to_stderr
from phalanx.server.options import Options, options_of
from phalanx.server.store.database import Database, open_reader
from phalanx.server.store.journal import newest_seq

GRACE_S = 3
"""How long streams and requests may go on when the worker is told to stop."""

FILES_MAX = 65_536
"""How many files a worker may have open, where the system lets it: every connection is one."""

TYPED_BYTES_MAX = 1 << 20
"""How large a message of a web socket may be. None is compressed: a small one could become very large."""


def main(handle: str, listening: str) -> int:
    """Serves until told to stop, with the numbers of the file that holds the options and of the listening socket."""
    options = options_of(handle)
    log_to_stderr("api")
    _allow_files()
    listener = socket.socket(fileno=int(listening))
    config = uvicorn.Config(
        create_app(context_for(options)),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=75,
        http=bounded_http(options.request_timeout_s),
        # Named, whatever the environment says: from any other address the header is a claim that no proxy checked.
        proxy_headers=bool(options.proxies),
        forwarded_allow_ips=trusted(options.proxies),
        ws_max_size=TYPED_BYTES_MAX,
        ws_per_message_deflate=False,
        ssl_certfile=options.tls_cert or None,
        ssl_keyfile=options.tls_key or None,
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def trusted(proxies: Sequence[str]) -> list[str]:
    """The proxies, also as a socket sees them that takes IPv4 and IPv6."""
    networks = [ip_network(proxy) for proxy in proxies]
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in networks if each.version == 4]
    return [*map(str, networks), *mapped]


def _allow_files() -> None:
    """Raises the soft limit, which is often 1,024: as many half-sent requests would keep all other requests out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def context_for(options: Options) -> Context:
    """A worker's context."""
    database = open_reader(options.store_url)
    return Context(
        options,
        database,
        _engine_for(options, database),
        HttpFigures(),
        CacheEpoch(options.file("run")),
        Heartbeat(options.file("run")),
    )


def _engine_for(options: Options, database: Database) -> Engine:
    if options.shown is None:
        return Engine(options.file("run", "engine.sock"), options.file("log", "loop.log"))
    with database.reading() as connection:
        return NoEngine(newest_seq(connection))


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2])
    # Threads that read for a caller that has gone must not keep the worker alive.
    os._exit(code)
