"""A plain data-parallel training whose ranks keep their memory when others fail, come or leave."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.train.elastic.agreement import Recovery
    from phalanx.train.elastic.elastic import Elastic

__all__ = ["Elastic", "Recovery"]

_HOMES = {"Elastic": "elastic", "Recovery": "agreement"}


def __getattr__(name: str) -> object:
    """Imports a name when it is first used: `Elastic` needs torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
