"""Checkpoints that cost next to nothing: tiers from device memory to a shared store, copies in the memory of peers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.train.checkpoint.checkpointer import Checkpointer
    from phalanx.train.checkpoint.contents.rng import RngState
    from phalanx.train.checkpoint.copies.replicas import Placement, place
    from phalanx.train.checkpoint.ending.notice import Acknowledgement
    from phalanx.train.checkpoint.loading import Loaded
    from phalanx.train.checkpoint.schedule import Rates
    from phalanx.train.checkpoint.store import Retention
    from phalanx.train.checkpoint.tiers import Device, Host, Local, Peer, Shared

__all__ = [
    "Acknowledgement",
    "Checkpointer",
    "Device",
    "Host",
    "Loaded",
    "Local",
    "Peer",
    "Placement",
    "Rates",
    "Retention",
    "RngState",
    "Shared",
    "place",
]

_HOMES = {
    "Acknowledgement": "ending.notice",
    "Checkpointer": "checkpointer",
    "Device": "tiers",
    "Host": "tiers",
    "Loaded": "loading",
    "Local": "tiers",
    "Peer": "tiers",
    "Placement": "copies.replicas",
    "Rates": "schedule",
    "Retention": "store",
    "RngState": "contents.rng",
    "Shared": "tiers",
    "place": "copies.replicas",
}


def __getattr__(name: str) -> object:
    """Imports a name when it is first used: processes that need no torch load none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
