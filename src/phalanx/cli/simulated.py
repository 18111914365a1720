"""The line by which verbs tell that nodes are simulated: what is seen there must not be taken for a machine."""

from __future__ import annotations


def banner_of(nodes: int) -> str:
    """The line for so many simulated nodes; empty for none."""
    if not nodes:
        return ""
    which = "1 node is simulated" if nodes == 1 else f"{nodes} nodes are simulated"
    return f"SIMULATED: {which}, with all GPUs there: jobs run on this server's machine and find no GPU"
