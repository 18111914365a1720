"""Whether boxes make up their tensors: everything there, nothing twice."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from phalanx.train.checkpoint.store.boxes import Boxes, meetings
from phalanx.train.checkpoint.store.manifest import StoredTensor


def gaps(tensors: Mapping[str, StoredTensor]) -> list[str]:
    """A line for each tensor of which a part is missing or there twice."""
    return [f"{fqn} {fault}" for fqn, tensor in tensors.items() if (fault := fault_of(tensor))]


def fault_of(tensor: StoredTensor) -> str:
    wanted = math.prod(tensor.shape)
    if not tensor.chunks:
        return f"{list(tensor.shape)} was written by no rank" if wanted else ""
    boxes = Boxes.of([each.offsets for each in tensor.chunks], [each.sizes for each in tensor.chunks])
    found, asking = meetings(boxes, boxes)
    if len(found) > len(boxes):
        other = np.flatnonzero(found != asking)[0]
        one, two = tensor.chunks[int(found[other])], tensor.chunks[int(asking[other])]
        return f"{list(tensor.shape)} has boxes that overlap, at {list(one.offsets)} and {list(two.offsets)}"
    there = int(boxes.volumes.sum())
    return "" if there == wanted else f"{list(tensor.shape)} has {there} of {wanted} elements"
