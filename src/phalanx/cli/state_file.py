"""`--state`: looking at what was saved instead of at the live server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def state_option(function: Decorated) -> Decorated:
    """Gives a verb `--state`."""
    return click.option(
        "--state",
        "state_path",
        metavar="FILE",
        help="Read a journal, a snapshot, a debug bundle or a run of `simulate --save`. Default: the live server.",
    )(function)
