"""The cluster drawn as text: a line a node, a letter a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NODES_SHOWN_MAX = 64
MANY = 10


def draw(state: State) -> Iterator[str]:
    """Nodes by domain with one letter per device: a job's letter (small while it leaves), `.` free, `x` unusable.

    Several tasks that share a device are a number; `+` from ten on.
    """
    letters = letters_of(state)
    cells: dict[str, list[str]] = {node.name: ["."] * node.gpus for node in state.topology.nodes}
    sharing: Counter[tuple[str, int]] = Counter()
    for attempt in state.attempts():
        letter = letters[attempt.job.id]
        letter = letter.lower() if attempt.phase is Phase.STOPPING else letter
        for slot in attempt.placement.slots:
            for device in slot.devices:
                if not attempt.waits:
                    sharing[slot.node, device] += 1
                    count = sharing[slot.node, device]
                    cells[slot.node][device] = letter if count == 1 else str(count) if count < MANY else "+"
    domain = ""
    for i, node in enumerate(state.topology.nodes[:NODES_SHOWN_MAX]):
        here = " / ".join(name for name in node.path if name)
        if here != domain:
            yield here
            domain = here
        row = cells[node.name]
        for device in range(node.gpus):
            if state.capacity.unhealthy[i] >> device & 1:
                row[device] = "x"
        health = state.capacity.health[i]
        note = "" if health is Health.HEALTHY else f"  {health.value}"
        yield f"  {node.name:<12} {node.gpu_type:<8} {' '.join(row)}{note}"
    hidden = len(state.topology.nodes) - NODES_SHOWN_MAX
    if hidden > 0:
        yield f"  … and {hidden} more nodes"


def letters_of(state: State) -> dict[str, str]:
    """A letter for each job, in the order of submission."""
    return {job: LETTERS[i % len(LETTERS)] for i, job in enumerate(state.jobs)}
