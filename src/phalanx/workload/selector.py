"""Selectors: which values of a node's label a job accepts, as the text that its selector has for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NONE_OF = "!"
"""How a selector begins that names what a node must not have."""


class Selector(NamedTuple):
    """The values of which a label must have one, or none if it `excludes` them: also a node without it is accepted."""

    values: tuple[str, ...]
    excludes: bool = False


def selector_of(text: str) -> Selector:
    """`a` or `a,b` accepts these values, `!a,b` all others."""
    values = text.removeprefix(NONE_OF).split(",")
    return Selector(tuple(value.strip() for value in values), text.startswith(NONE_OF))


def excluding(values: Iterable[str]) -> str:
    """The text that accepts all values but these."""
    return NONE_OF + ",".join(values)
