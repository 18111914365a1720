"""Data that every sample of is used once in an epoch, whatever fails and however many ranks there are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.train.data.batch import Batch
    from phalanx.train.data.files import LineFiles
    from phalanx.train.data.ledger import Ledger
    from phalanx.train.data.order import Lanes, Listed, Order, Shuffled
    from phalanx.train.data.sampler import LedgerSampler
    from phalanx.train.data.share import Member
    from phalanx.train.data.steps import StepSampler
    from phalanx.train.data.stream import LedgerStream

__all__ = [
    "Batch",
    "Lanes",
    "Ledger",
    "LedgerSampler",
    "LedgerStream",
    "LineFiles",
    "Listed",
    "Member",
    "Order",
    "Shuffled",
    "StepSampler",
]

_HOMES = {
    "Batch": "batch",
    "Lanes": "order",
    "Ledger": "ledger",
    "LedgerSampler": "sampler",
    "LedgerStream": "stream",
    "LineFiles": "files",
    "Listed": "order",
    "Member": "share",
    "Order": "order",
    "Shuffled": "order",
    "StepSampler": "steps",
}


def __getattr__(name: str) -> object:
    """Imports a name when it is first used: only `LedgerStream` needs torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
