"""`--watch`: showing the same thing again and again, until it is interrupted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import click

from phalanx.cli.client import Unreachable

Decorated = TypeVar("Decorated", bound=Callable[..., object])

EVERY_S = 2.0


def watch_option(function: Decorated) -> Decorated:
    """Gives a verb `--watch`."""
    return click.option("-w", "--watch", is_flag=True, help=f"Refresh every {EVERY_S:.0f} s until Ctrl-C.")(function)


def shown(show: Callable[[], None], watch: bool) -> None:
    """Shows something once, or again and again. A server that restarts is waited for."""
    if not watch:
        show()
        return
    while True:
        if sys.stdout.isatty():
            click.clear()
        try:
            show()
        except Unreachable as error:
            click.echo(f"phalanx: {error}", err=True)
        time.sleep(EVERY_S)
