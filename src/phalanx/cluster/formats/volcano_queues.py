"""Queues of Volcano, read from their manifests (scheduling.volcano.sh, as its capacity plugin has them).

| Volcano | here |
|---|---|
| `guarantee.resource` | `guaranteed` |
| `deserved` | `deserved` |
| `capability` | `limit`; of `cpu` and `memory`, 0 is none, as in Volcano |
| `weight`, `priority`, `reclaimable` | the same |
| `parent` | the queue it lies in; `root` is the whole cluster |
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.formats.limits import LABELS_MAX, QUEUE_PRIORITY_MAX
from phalanx.cluster.formats.manifests import Manifest, read_manifests
from phalanx.cluster.formats.quantity import cpus_milli, gpus_permille, memory_mb
from phalanx.cluster.formats.queue_tree import Imported, Named, as_tree
from phalanx.cluster.queues import UNSAID, Queue, Quota
from phalanx.document import Field, Fields

API = "scheduling.volcano.sh"
SPEC_KEYS = (
    "weight",
    "capability",
    "reclaimable",
    "guarantee",
    "deserved",
    "parent",
    "priority",
    "dequeueStrategy",
    "affinity",
    "extendClusters",
    "type",
)
WEIGHT_MAX = 65_535
ROOT = "root"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu")
CLOSED = ("Closed", "Closing")


def read_volcano_queues(text: str, source: str) -> Imported:
    """The tree of the queues in a file of manifests."""
    manifests = read_manifests(text, source, API, "Queue")
    notes = [f"queue {ROOT}: {lost}" for each in manifests if each.name == ROOT for lost in _of_the_root(_spec(each))]
    imported = as_tree(tuple(_read(each) for each in manifests if each.name != ROOT))
    return Imported(imported.queues, (*notes, *imported.notes))


def _spec(manifest: Manifest) -> Fields:
    spec = manifest.fields.get("spec", lambda spec: spec.mapping(SPEC_KEYS), None)
    return Fields(manifest.place, {}) if spec is None else spec


def _of_the_root(spec: Fields) -> Iterator[str]:
    """What the root says that is lost here. The API server writes `guarantee: {}` of every queue: that says nothing."""
    for key, read in (("guarantee", _read_guarantee), ("capability", _read_capability)):
        if spec.get(key, read, UNSAID) != UNSAID:
            raise spec[key].error("the root is the whole cluster; remove the key")
    if spec.get("parent", lambda field: field.is_word(""), True) is False:
        raise spec["parent"].error("the root is the whole cluster; remove the key")
    if spec.get("deserved", _read_resources, UNSAID) != UNSAID:
        yield f"deserved (line {spec['deserved'].line}): it deserves the whole cluster here"


def _read(manifest: Manifest) -> Named:
    spec = _spec(manifest)
    parent = spec.get("parent", Field.text, "")
    queue = Queue(
        manifest.name,
        guaranteed=spec.get("guarantee", _read_guarantee, UNSAID),
        deserved=spec.get("deserved", _read_resources, UNSAID),
        limit=spec.get("capability", _read_capability, UNSAID),
        weight=spec.get("weight", lambda weight: weight.integer(1, WEIGHT_MAX), 1),
        priority=spec.get("priority", lambda field: field.integer(-QUEUE_PRIORITY_MAX, QUEUE_PRIORITY_MAX), 0),
        reclaimable=spec.get("reclaimable", Field.boolean, True),
    )
    lost = (*manifest.remarks, *_lost(spec), *_state(manifest.fields))
    return Named(manifest.place, manifest.name, "" if parent == ROOT else parent, queue, lost)


def _read_guarantee(field: Field) -> Quota:
    return field.mapping(("resource",)).get("resource", _read_resources, UNSAID)


def _read_capability(field: Field) -> Quota:
    """Volcano takes 0 CPUs or 0 bytes for no limit; 0 GPUs are none."""
    gpus, cpus, memory = _read_resources(field)
    return Quota(gpus, cpus or None, memory or None)


def _read_resources(field: Field) -> Quota:
    gpus: int | None = None
    cpus: int | None = None
    memory: int | None = None
    for resource, amount in field.entries(LABELS_MAX):
        if resource == "cpu":
            cpus = cpus_milli(amount)
        elif resource == "memory":
            memory = memory_mb(amount)
        elif resource not in GPU_RESOURCES:
            known = ", ".join(("cpu", "memory", *GPU_RESOURCES))
            raise amount.error(f"there are no quotas of {resource} here, only of {known}; remove it")
        elif gpus is not None:
            raise amount.error("there are no quotas by kind of GPU here: add the two up to one, or remove one")
        else:
            gpus = gpus_permille(amount)
    return Quota(gpus, cpus, memory)


def _lost(spec: Fields) -> Iterator[str]:
    """What a queue says that nothing here does, or that means something else than it reads."""
    capability = spec.get("capability", _read_resources, UNSAID)
    for resource, amount in (("cpu", capability[1]), ("memory", capability[2])):
        if amount == 0:
            yield f"capability of {resource} is 0: it has no limit, as in Volcano"
    if spec.get("dequeueStrategy", lambda field: field.choice(("traverse", "fifo")), "traverse") == "fifo":
        yield "dequeueStrategy fifo: its head holds up no job here, unless the policy is fifo"
    for key in ("affinity", "extendClusters", "type"):
        if key in spec:
            yield f"{key} (line {spec[key].line}): there is nothing like it here"


def _state(fields: Fields) -> Iterator[str]:
    status = fields.get("status", lambda status: dict(status.entries(LABELS_MAX)), {})
    if "state" in status and (state := status["state"].text()) in CLOSED:
        yield f"it is {state.lower()}: here it takes jobs"
