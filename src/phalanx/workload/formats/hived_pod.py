"""Pods of Kubernetes that carry HiveD's annotation, as native jobs."""

from __future__ import annotations

import re

from phalanx.cluster.formats.hived import CONFIG_LIMITS
from phalanx.document import Field, read_document
from phalanx.workload.formats.hived import ANNOTATION, PodSpec, read_annotation
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

KEYS_MAX = 10_000


def documents(text: str, source: str) -> list[tuple[str, str]]:
    """The documents of a file, each with the name by which errors call it."""
    parts = [part for part in re.split(r"^---[^\n]*$", text, flags=re.MULTILINE) if part.strip()]
    if len(parts) < 2:
        return [(text, source)]
    return [(part, f"{source} (document {number})") for number, part in enumerate(parts, start=1)]


def is_pod(text: str, source: str) -> bool:
    """Whether a document is a pod, and not a configuration."""
    root = read_document(text, source, CONFIG_LIMITS)
    return root.has("kind") and dict(root.entries(KEYS_MAX))["kind"].is_word("Pod")


def read_manifest(text: str, source: str) -> tuple[str, PodSpec]:
    """The name of a pod and what its annotation asks of HiveD."""
    root = read_document(text, source, CONFIG_LIMITS)
    metadata = _inside(root, "metadata")
    name = _inside(metadata, "name").title()
    annotation = _inside(_inside(metadata, "annotations"), ANNOTATION)
    return name, read_annotation(annotation.text(), f"{source} ({ANNOTATION})", name)


def native_job(name: str, spec: PodSpec) -> Job:
    """The group of a pod as one native job: all its members, and the pod's name if it is alone."""
    types = (spec.leaf_type,) if spec.leaf_type else ()
    roles = tuple(
        Role(f"member-{i}" if len(spec.members) > 1 else "worker", pods, pods, Task(gpus=leaves, gpu_types=types))
        for i, (pods, leaves) in enumerate(spec.members)
    )
    labels = {}
    if spec.pinned_id:
        labels["hived/pinned-cell"] = spec.pinned_id
    if spec.lazy_preemption:
        labels["hived/lazy-preemption"] = "true"
    return Job(
        id="",
        gang=Gang(roles),
        name=spec.group if len(spec.members) > 1 or spec.members[0][0] > 1 else name,
        queue=spec.virtual_cluster,
        priority=spec.priority,
        labels=tuple(sorted(labels.items())),
    )


def _inside(field: Field, key: str) -> Field:
    entries = dict(field.entries(KEYS_MAX))
    if key not in entries:
        raise field.error(f"the key '{key}' is missing")
    return entries[key]
