"""Where ranks stand when nothing moves: which of them wait for another, and which is waited for."""

from __future__ import annotations

import linecache

WAITING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier", "all_to_all", "recv", "send", "wait")
"""Functions of torch.distributed in which a rank waits for other ranks."""

WAITING_IN = ("torch/distributed", "phalanx/train/elastic/group.py")
"""The second is where ranks that keep their memory meet for a world."""


def newest(text: str) -> str:
    """The last dump in a file of faulthandler's; all threads, the current one last."""
    parts = text.strip().split("\n\n")
    current = [part for part in parts if part.startswith("Current thread")]
    return current[-1] if current else parts[-1]


def innermost(dump: str) -> str:
    """`file:line in function` of the innermost frame, or empty."""
    for line in dump.splitlines():
        line = line.strip()
        if line.startswith("File "):
            name, _, rest = line.removeprefix("File ").partition(", line ")
            number, _, function = rest.partition(" in ")
            return f"{name.strip(chr(34))}:{number} in {function}"
    return ""


def is_waiting(dump: str) -> bool:
    """Whether a rank stands in a collective: it waits for other ranks and is not what they wait for.

    What waits in torch itself shows as the line of Python that called it; data-parallel gradients are waited for in
    the backward pass.
    """
    for line in dump.splitlines():
        line = line.strip()
        if not line.startswith("File "):
            continue
        name, _, rest = line.removeprefix("File ").partition(", line ")
        number, _, function = rest.partition(" in ")
        path = name.strip(chr(34))
        if any(place in path for place in WAITING_IN) or function == "_engine_run_backward":
            return True
        source = linecache.getline(path, int(number)) if number.isdigit() else ""
        return any(f"{word}(" in source for word in WAITING)
    return False
