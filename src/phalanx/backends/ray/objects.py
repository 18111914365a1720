"""Where the large objects of Ray lie that a job is to read, as `prefer` of its job file.

Ray tells this only to a process that holds the references.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from phalanx.backends.ray.nodes import node_name

WEIGHT_MAX = 100
ANSWER_MS = 30_000


def near(references: Iterable[Any]) -> dict[str, int]:
    """`prefer` of a job file: nodes with copies of objects, each the more the more bytes it has of what any has most.

    One with less than a hundredth of that is not among them.
    """
    import ray
    from ray.experimental import get_object_locations

    located = get_object_locations(list(references), ANSWER_MS)
    names = {told["NodeID"]: node_name(told) for told in ray.nodes() if told["Alive"]}
    return weights(((told["node_ids"], told["object_size"] or 0) for told in located.values()), names)


def weights(copies: Iterable[tuple[Iterable[str], int]], names: Mapping[str, str]) -> dict[str, int]:
    """Of copies, with the nodes that have them and their bytes, by the names of nodes that live."""
    held: dict[str, int] = {}
    for nodes, size in copies:
        for node in nodes:
            if node in names:
                held[names[node]] = held.get(names[node], 0) + size
    most = max(held.values(), default=0) or 1
    shares = {name: WEIGHT_MAX * size // most for name, size in sorted(held.items())}
    return {f"phalanx/node={name}": share for name, share in shares.items() if share}
