"""Phrasing: reasons of the engine in the words of Kubernetes."""

from __future__ import annotations

import re

from phalanx.kube.gangs.arrangement import ELIGIBLE_LABEL
from phalanx.kube.gangs.bundle import Bundle
from phalanx.kube.pods.selection import AFFINITY_LABEL

STORAGE = re.compile(r"(without enough free .+?|with too little .+?) storage\b")
AFFINITY = re.compile(rf"without the label {AFFINITY_LABEL}\w+(=yes)?")
ELIGIBLE = re.compile(rf"without the label {ELIGIBLE_LABEL}\w+(=yes)?")


def in_kubernetes(line: str, bundle: Bundle) -> str:
    """A reason in the words of Kubernetes: what the engine knows as storage are resources of any kind, and labels of
    ours stand for what pods require.
    """
    line = STORAGE.sub(r"\1", line)
    line = AFFINITY.sub("ruled out by its node affinity", line)
    because = " and ".join(bundle.arrangement.because) or "what its pods require of one another"
    return ELIGIBLE.sub(f"ruled out by {because}", line)
