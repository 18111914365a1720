"""The advisers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.advice.gavel import Gavel
from phalanx.advice.themis import Themis
from phalanx.engine.state.state import State
from phalanx.protocol.event import Advice
from phalanx.workload.throughputs import Throughputs

Adviser = Callable[[State, int], Advice]

KEPT = "kept"
"""The entry of an `Advice` that says that there is none: the last one holds until it is time again."""

ADVISERS: Mapping[str, Callable[[Throughputs | None], Adviser]] = {
    "gavel": Gavel,
    "themis": Themis,
}


def adviser(name: str, throughputs: Throughputs | None = None) -> Adviser:
    """The adviser that a policy names. One whose solver is not installed raises a `PhalanxError` that says how to.

    `throughputs` are speeds that were measured, where some were.
    """
    if name not in ADVISERS:
        raise ValueError(f"unknown adviser {name!r} (known: {', '.join(ADVISERS)})")
    return ADVISERS[name](throughputs)
