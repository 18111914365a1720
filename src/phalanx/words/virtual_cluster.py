"""A virtual cluster: what it has, and what a job lacks there."""

from __future__ import annotations

from phalanx.engine.why.cells_view import VirtualClusterView
from phalanx.engine.why.explain import Explanation
from phalanx.protocol.reason import Reason
from phalanx.words.phrases import counted


def lacking_in_cells(explanation: Explanation, owner: VirtualClusterView) -> str:
    """What a job lacks in its virtual cluster."""
    needed = explanation.refusal.gpus_needed if explanation.refusal is not None else 0
    match explanation.reason:
        case Reason.QUOTA if owner.borrow_limit is None:
            return "its user has as many GPUs as that user may have"
        case Reason.QUOTA:
            return (
                f"virtual cluster {owner.name} has borrowed {counted(owner.gpus_borrowed, 'GPU')}, "
                f"may borrow {owner.borrow_limit}, and it needs {needed}"
            )
        case Reason.UNHEALTHY:
            return (
                f"{owner.cells_bad} of {counted(owner.cells, 'cell')} of virtual cluster {owner.name} have broken "
                f"hardware, and it needs {counted(needed, 'GPU')} that work"
            )
        case Reason.FRAGMENTED | Reason.TOPOLOGY:
            return (
                f"{counted(owner.gpus_free, 'GPU')} of virtual cluster {owner.name} are free, "
                f"but not together: there is room for {_fits(owner)}"
            )
        case _:
            return (
                f"it needs {counted(needed, 'GPU')}; virtual cluster {owner.name} owns {owner.gpus}, "
                f"of which {owner.gpus_free} are free"
            )


def virtual_cluster_words(owner: VirtualClusterView | None) -> str:
    """A virtual cluster in one line."""
    if owner is None:
        return ""
    line = f"{owner.name}: {counted(owner.gpus, 'GPU')} in {counted(owner.cells, 'cell')}, {owner.gpus_free} free"
    if owner.gpus_free:
        line += f" (room for tasks: {_fits(owner)} GPUs; {owner.fragmentation:.0%} broken up)"
    if owner.cells_bad:
        line += f", {owner.cells_bad} cells broken, {owner.cells_doomed} of them for want of others"
    return line + (f", {owner.gpus_borrowed} borrowed" if owner.gpus_borrowed else "")


def _fits(owner: VirtualClusterView) -> str:
    return ", ".join(f"{count} of {gpus}" for gpus, count in owner.fits)
