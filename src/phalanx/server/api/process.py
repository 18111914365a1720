"""The process of an API worker: serves HTTP on a socket it was handed."""

from __future__ import annotations

import os
import socket
import sys

import uvicorn

from phalanx.server.accounts.edition import Edition
from phalanx.server.api.app import create_app
from phalanx.server.api.context import Context
from phalanx.server.api.engine import Engine
from phalanx.server.api.figures import HttpFigures
from phalanx.server.log import log_to_stderr
from phalanx.server.options import Options, options_of
from phalanx.server.store.database import open_reader

GRACE_S = 3
"""How long streams and requests may go on when the worker is told to stop."""

HEAD_BYTES_MAX = 64 << 10


def main(line: str, handle: str) -> int:
    """Serves until told to stop. `handle` is the number of the listening socket."""
    options = options_of(line)
    log_to_stderr("api")
    listener = socket.socket(fileno=int(handle))
    config = uvicorn.Config(
        create_app(context_for(options)),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=75,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ssl_certfile=options.tls_cert or None,
        ssl_keyfile=options.tls_key or None,
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def context_for(options: Options) -> Context:
    """A worker's context."""
    return Context(
        options,
        open_reader(options.store_url),
        Engine(options.file("run", "engine.sock"), options.file("log", "loop.log")),
        HttpFigures(),
        Edition(options.file("run")),
    )


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2])
    # Threads that read for somebody who has gone must not keep the worker alive.
    os._exit(code)
