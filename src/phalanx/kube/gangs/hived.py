"""HiveD's annotation on pods: the affinity group that starts together, its virtual cluster, priority and GPU type."""

from __future__ import annotations

from functools import lru_cache

from phalanx.document import Limits, read_document
from phalanx.errors import PhalanxError
from phalanx.kube.objects.group import PodGroupSpec
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.workload.formats.hived import ANNOTATION, PodSpec, read_pod

LIMITS = Limits(text=4096, values=1000, depth=8, items=200)
"""An annotation is read for each pod that comes: what is larger is refused unread."""

KNOWN_MAX = 1024
"""Annotations of which it is remembered what they say: the pods of a group say the same."""


def asks(pod: Pod) -> bool:
    """Whether a pod has the annotation."""
    return ANNOTATION in (pod.metadata.annotations or {})


def name_of(pod: Pod) -> str:
    """The affinity group of a pod; its own name if it names none, or what it says cannot be read."""
    try:
        return _spec(pod).group
    except PhalanxError:
        return pod.metadata.name


def spec_of(pod: Pod) -> PodGroupSpec | None:
    """What a pod says of its group; None if that cannot be read, or asks for what there is not here."""
    if refusal_of(pod):
        return None
    spec = _spec(pod)
    least = sum(pods for pods, _ in spec.members)
    return PodGroupSpec(
        min_member=least, queue=spec.virtual_cluster, priority=spec.priority, gpu_product=spec.leaf_type
    )


def refusal_of(pod: Pod) -> str:
    """What is wrong with what a pod says, by the name of the key; empty if nothing is."""
    try:
        spec = _spec(pod)
        gpus = demand_of(pod).gpus
    except (PhalanxError, ValueError) as error:
        return str(error)
    return next((f"annotation {ANNOTATION}: {line}" for line in _refusals(spec, pod.spec.priority, gpus)), "")


def _refusals(spec: PodSpec, priority: int, gpus: int) -> list[str]:
    asked = {
        "pinnedCellId": bool(spec.pinned_id),
        "lazyPreemptionEnable: true": spec.lazy_preemption,
        "ignoreK8sSuggestedNodes: false": not spec.ignores_suggestions,
        "quota": spec.quota is not None,
    }
    lines = [f"phalanx does not look at {key} of pods on Kubernetes yet" for key, is_asked in asked.items() if is_asked]
    if spec.priority > priority:
        # Whoever may make pods may write any number here; who may use a PriorityClass, the cluster says.
        lines.append(f"priority {spec.priority} is above {priority}, that of its PriorityClass; expected up to that")
    if spec.leaves != gpus:
        lines.append(f"leafCellNumber is {spec.leaves}, and its containers ask for {gpus} GPUs; expected as many there")
    return lines


def _spec(pod: Pod) -> PodSpec:
    return _read((pod.metadata.annotations or {}).get(ANNOTATION, ""), pod.metadata.name)


def _read(text: str, name: str) -> PodSpec:
    """Raises PhalanxError for what is no such annotation."""
    if len(text) > LIMITS.text:
        raise PhalanxError(f"annotation {ANNOTATION}: expected at most {LIMITS.text} characters, got {len(text)}")
    spec = _known(text, name)
    if isinstance(spec, str):
        raise PhalanxError(spec)
    return spec


@lru_cache(KNOWN_MAX)
def _known(text: str, name: str) -> PodSpec | str:
    """What an annotation says, or what is wrong with it: garbage is read once, too."""
    try:
        return read_pod(read_document(text, f"annotation {ANNOTATION}", LIMITS), name)
    except PhalanxError as error:
        return str(error)
