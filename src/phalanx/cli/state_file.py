"""`--state`: looking at what was saved instead of at the live server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def at_option(function: Decorated) -> Decorated:
    """Gives a verb `--at`."""
    return click.option(
        "--at",
        metavar="TIME",
        help="As it was then: 2026-01-31T08:00Z, or so long ago (3h), in a FILE before its last record. Of the live "
        "server this takes its debug bundle, which needs the role admin.",
    )(function)


def state_option(function: Decorated) -> Decorated:
    """Gives a verb `--state`."""
    return click.option(
        "--state",
        "state_path",
        metavar="FILE",
        help="Read a journal, a snapshot, a debug bundle or a run of `simulate --save`. Default: the live server.",
    )(function)
