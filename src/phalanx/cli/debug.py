"""`phalanx debug`: what is needed to look into a problem elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from phalanx.cli.client import connect
from phalanx.cli.files import FileError

DEFAULT = "phalanx-bundle.zip"


@click.group()
def debug() -> None:
    """Collect logs, metrics and the journal for a bug report."""


@debug.command()
@click.argument("file", default=DEFAULT, metavar="[FILE]")
def bundle(file: str) -> None:
    """Write the journal, the state, logs, metrics and versions of the server to FILE, phalanx-bundle.zip by default.

    The bundle holds the commands of jobs. It holds no values of environment variables, no secrets, tokens or passwords.
    Needs the role admin.
    """
    target, part = Path(file), Path(f"{file}.part")
    try:
        with part.open("wb") as out:
            for piece in connect().stream("/debug/bundle"):
                out.write(piece)
        part.replace(target)
    except OSError as error:
        raise FileError(f"{file}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
    click.echo(f"{file}: {target.stat().st_size >> 10} KB; ask it with `phalanx why ID --state {file}`", err=True)
