"""Trimmed: what is recorded of an object. All else of it, as what its users write for others, is not kept."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from phalanx.kube.gangs.hived import LIMITS
from phalanx.kube.objects.meta import Labels, Metadata, Stored
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.words import WORDS_MAX, without_words, words_of
from phalanx.workload.formats.hived import ANNOTATION as HIVED_ANNOTATION

T = TypeVar("T", bound=Stored)

READ = (
    "phalanx.dev/",
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "leaderworkerset.sigs.k8s.io/",
    "kueue.x-k8s.io/",
    "kai.scheduler/",
    HIVED_ANNOTATION,
    "pod-group-name",
    "kubernetes.io/config.mirror",
)
"""How the annotations begin that say where pods belong, and with which others."""

VALUE_MAX = 253
LABELS_MAX = 64
MESSAGE_MAX = 200
OWNERS_MAX = 4


def trimmed(it: T) -> T:
    """What is recorded of an object."""
    it = msgspec.structs.replace(it, metadata=_metadata(it.metadata))
    return _pod(it) if isinstance(it, Pod) else it  # type: ignore[return-value]


def essence(it: T) -> T:
    """What must differ for an object to be recorded anew: the words of its scheduler change all the time."""
    it = msgspec.structs.replace(it, metadata=msgspec.structs.replace(it.metadata, resource_version="", generation=0))
    if not isinstance(it, Pod):
        return it
    conditions = [msgspec.structs.replace(each, message="") for each in it.status.conditions or ()]
    return msgspec.structs.replace(it, status=msgspec.structs.replace(it.status, conditions=conditions))


def _metadata(metadata: Metadata) -> Metadata:
    return msgspec.structs.replace(
        metadata,
        labels=_short(metadata.labels),
        annotations=_annotations(metadata.annotations or {}),
        owner_references=(metadata.owner_references or [])[:OWNERS_MAX] or None,
    )


def _annotations(said: Labels) -> Labels | None:
    """Those that are read. What HiveD is told of a pod is a document."""
    kept = _short({key: value for key, value in said.items() if key.startswith(READ)}) or {}
    document = said.get(HIVED_ANNOTATION, "")
    return {**kept, **({HIVED_ANNOTATION: document} if 0 < len(document) <= LIMITS.text else {})} or None


def _short(said: Labels | None) -> Labels | None:
    """The first of what is said. A value that is too long for a name is none."""
    kept = [(key, value) for key, value in (said or {}).items() if len(value) <= VALUE_MAX]
    return dict(kept[:LABELS_MAX]) or None


def _pod(pod: Pod) -> Pod:
    if words_of(pod) > WORDS_MAX:
        pod = without_words(pod)
    placed = [
        msgspec.structs.replace(each, message=each.message[:MESSAGE_MAX])
        for each in pod.status.conditions or ()
        if each.type == "PodScheduled"
    ]
    spec = msgspec.structs.replace(pod.spec, volumes=None)
    return msgspec.structs.replace(pod, spec=spec, status=msgspec.structs.replace(pod.status, conditions=placed))
