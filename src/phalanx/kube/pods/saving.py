"""Saving: a pod may name an address at which it is asked to save its work before its gang is evicted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phalanx.kube.objects.pod import Pod

SAVE_ANNOTATION = "phalanx.dev/save"
"""Where a pod is asked: a port and a path, as in `:8080/save`."""

WITHIN_ANNOTATION = "phalanx.dev/save-within"
"""How many seconds it has for that."""

WITHIN_DEFAULT_S, WITHIN_MAX_S = 60, 3600
_ADDRESS = re.compile(r":([0-9]{1,5})(/[!-~]*)?")


@dataclass(frozen=True, slots=True)
class Saving:
    """A port and a path of a pod, and how long it may take to answer."""

    port: int
    path: str
    within_s: int


def saving_of(pod: Pod) -> Saving | None:
    """How a pod saves its work; None if it does not say. What cannot be read raises ValueError."""
    annotations = pod.metadata.annotations or {}
    address, within = annotations.get(SAVE_ANNOTATION), annotations.get(WITHIN_ANNOTATION, str(WITHIN_DEFAULT_S))
    if address is None:
        return None
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[1]) < 1 << 16:
        raise ValueError(
            f"annotation {SAVE_ANNOTATION}: expected a port and a path such as :8080/save, got {address!r}"
        )
    if pod.spec.host_network:
        # Its address is that of the node, on which other programs listen too.
        raise ValueError(f"annotation {SAVE_ANNOTATION}: expected a pod with an address of its own, got hostNetwork")
    if not (within.isascii() and within.isdecimal() and len(within) < 6 and 0 < int(within) <= WITHIN_MAX_S):
        raise ValueError(f"annotation {WITHIN_ANNOTATION}: expected 1 to {WITHIN_MAX_S} seconds, got {within!r}")
    return Saving(int(found[1]), found[2] or "/", int(within))
