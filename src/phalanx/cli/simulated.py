"""Lines by which verbs tell of nodes without real GPUs: what is simulated must not be taken for a machine."""

from __future__ import annotations


def banner_of(nodes: int) -> str:
    """The line for so many simulated nodes; empty for none."""
    if not nodes:
        return ""
    which = "1 node is simulated" if nodes == 1 else f"{nodes} nodes are simulated"
    return f"SIMULATED: {which}, with all GPUs there: jobs run on this server's machine and find no GPU"


def gpus_line(gpus: int | None) -> str:
    """What `up` says of a cluster without GPUs; empty for any other, or where their number is not known."""
    if gpus != 0:
        return ""
    return "No GPUs: jobs get CPUs and memory only. `phalanx up --simulate` with another --data has simulated GPUs."
