"""`phalanx view`: the page over a journal, without a server's state."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from phalanx.cli.output import say
from phalanx.cli.up import ListenError, address_of
from phalanx.cli.when import clock

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.argument("path", metavar="FILE")
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on. Port 0 picks a free port.",
)
@click.option("--ready-file", default="", metavar="FILE", help="Write the address to this file, when ready.")
def view(path: str, listen: str, ready_file: str) -> int:
    """Open FILE in the page, without a server: a debug bundle, a journal, or a run of `simulate --journal --save`.

    FILE may also be the folder of an unpacked bundle or of a server's data. Nothing in it can be changed, and values of
    environment variables are left out. It is shown at an address that is a secret of yours, until Ctrl-C.
    """
    from phalanx.cli.opened import opened
    from phalanx.cli.up import write_whole
    from phalanx.server.options import Options, Shown
    from phalanx.server.past.viewing import view as show

    host, port = address_of(listen)
    if host not in LOOPBACK:
        raise ListenError(f"--listen {listen}: expected an address of this machine alone; elsewhere, use `ssh -L`")
    source = opened(path)

    def tell_ready(options: Options, address: str) -> None:
        assert isinstance(options.shown, Shown)
        if ready_file:
            write_whole(ready_file, f"{address}\n")
        click.echo(
            f"{source.name}, from {clock(options.shown.first_ms)} to {clock(options.shown.last_ms)}, is at\n\n"
            f"  {address}\n\n"
            "Whoever has the address can look. Ctrl-C ends it."
        )

    with _ends_by_signals(), tempfile.TemporaryDirectory(prefix="phalanx-view-") as folder:
        options = Options(data=str(Path(folder, "data")), host=host, port=port, backend="rehearsal")
        return show(source, options, tell_ready, lambda line: say(f"phalanx: {line}", err=True))


@contextmanager
def _ends_by_signals() -> Iterator[None]:
    """Has a signal that ends this process leave nothing behind, also before the server heeds it."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
