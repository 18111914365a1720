"""Words: how much a pod says of where it may go. All of it is looked through for each node, so there is a bound."""

from __future__ import annotations

import msgspec

from phalanx.kube.objects.pod import Pod

WORDS_MAX = 32 << 10
"""Bytes of affinity, spreads, node selector and tolerations that are looked through."""

FEW = 8
"""Entries of a list that need not be measured."""


def words_of(pod: Pod) -> int:
    """How many bytes a pod says of where it may go."""
    spec = pod.spec
    lists = (spec.node_selector or (), spec.tolerations or (), spec.topology_spread_constraints or ())
    if spec.affinity is None and not spec.topology_spread_constraints and all(len(each) <= FEW for each in lists):
        return 0
    return len(msgspec.json.encode((spec.affinity, *lists)))


def too_wordy(size: int) -> str:
    """Why a pod is not scheduled that says so much."""
    return (
        f"its affinity, topology spreads, node selector and tolerations are {size:,} bytes long; expected up to "
        f"{WORDS_MAX:,}"
    )


def without_words(pod: Pod) -> Pod:
    """A pod of which only the rest is looked at."""
    spec = msgspec.structs.replace(
        pod.spec, affinity=None, topology_spread_constraints=None, node_selector=None, tolerations=None
    )
    return msgspec.structs.replace(pod, spec=spec)
