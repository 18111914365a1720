"""Nodes as Slurm tells of them: what they have, how they are, and what is used of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from phalanx.backends.slurm.commands import run
from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import DEFAULT_POLICY, Cluster, Health, Node
from phalanx.workload.formats.hostlist import HostlistError, numbers

_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z_/:]*)=")
_GPU = re.compile(r"gpu(?::([^:(,]+))?:(\d+)(?:\(([^)]*)\))?")
_FLAGS_OF_SUFFIX = {"*": "NOT_RESPONDING", "$": "MAINT"}
_SUFFIXES = "*~#!%$@^-"

DOWN = ("DOWN", "ERROR", "FAIL", "INVAL", "INVALID_REG", "FUTURE", "REBOOT_ISSUED")
LEAVING = ("DRAIN", "DRAINING", "DRAINED", "FAILING", "MAINT")
SILENT = ("NOT_RESPONDING", "UNKNOWN")
"""A controller that was started again knows nothing of a node for some seconds; what runs there runs on."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node. `used_devices` are the numbers of its GPUs that jobs hold; `flags` all words of its state."""

    name: str
    address: str
    gpus: int
    gpu_type: str
    cpus: int
    memory_mb: int
    flags: tuple[str, ...]
    reason: str
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    used_devices: tuple[int, ...]
    used_gpus: int
    used_cpus: int
    used_memory_mb: int

    @property
    def health(self) -> Health:
        """What its state means for new work."""
        if any(flag in DOWN for flag in self.flags):
            return Health.FAILED
        if any(flag in LEAVING for flag in self.flags):
            return Health.DRAINING
        return Health.SUSPECT if any(flag in SILENT for flag in self.flags) else Health.HEALTHY

    @property
    def told(self) -> str:
        """Its state and the operator's reason for it."""
        return f"Slurm: {'+'.join(self.flags).lower()}" + (f" ({self.reason})" if self.reason else "")


def ask_nodes() -> tuple[SlurmNode, ...]:
    """All nodes there are now."""
    return tuple(read_nodes(run(["scontrol", "show", "node", "--details", "--oneliner"])))


def read_nodes(text: str) -> Iterator[SlurmNode]:
    """Nodes from what `scontrol show node -d -o` prints; what is no node is passed over."""
    for line in text.splitlines():
        found = fields(line)
        if "NodeName" in found:
            yield _node(found)


def fields(line: str) -> dict[str, str]:
    """The fields of a line of scontrol's; a value may have blanks. Of a name that comes twice, the first counts."""
    marks = list(_FIELD.finditer(line))
    ends = [*(mark.start() for mark in marks[1:]), len(line)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=False):
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found


def cluster_of(nodes: Iterable[SlurmNode], name: str = "slurm") -> Cluster:
    """The cluster of Slurm's nodes: features and partitions are labels."""
    return Cluster(tuple(map(_described, nodes)), policy=DEFAULT_POLICY, name=name)


def _described(node: SlurmNode) -> Node:
    labels = [(f"slurm/feature-{each}", "true") for each in node.features]
    labels += [(f"slurm/partition-{each}", "true") for each in node.partitions]
    gpu_type, memory_gb = catalogued(node.gpu_type) if node.gpus else ("", 0.0)
    return Node(
        node.name,
        gpus=node.gpus,
        gpu_type=gpu_type,
        gpu_memory_gb=memory_gb,
        cpus_milli=1000 * node.cpus,
        memory_mb=node.memory_mb,
        labels=tuple(labels),
    )


def catalogued(gpu_type: str) -> tuple[str, float]:
    """The catalogue's name of what a site calls `h100` or `nvidia_h100_80gb_hbm3`; else the site's."""
    for word in (gpu_type, *re.split(r"[_\-\s]+", gpu_type)):
        for spelled in (word, word.upper()):
            try:
                found = accelerator(spelled)
            except UnknownAccelerator:
                continue
            return found.name, found.memory_gb.value
    return gpu_type or "gpu", 0.0


def _node(found: dict[str, str]) -> SlurmNode:
    has, used = _gpus(found.get("Gres", "")), _gpus(found.get("GresUsed", ""))
    return SlurmNode(
        name=found["NodeName"],
        address=found.get("NodeAddr") or found.get("NodeHostName") or found["NodeName"],
        gpus=sum(count for _, count, _ in has),
        gpu_type=next((kind for kind, _, _ in has if kind), ""),
        cpus=_count(found.get("CPUEfctv") or found.get("CPUTot", "")),
        memory_mb=max(_count(found.get("RealMemory", "")) - _count(found.get("MemSpecLimit", "")), 0),
        flags=_flags(found.get("State", "UNKNOWN")),
        reason="" if found.get("Reason", "") in ("none", "(null)") else found.get("Reason", "")[:200],
        features=_words(found.get("ActiveFeatures", "")),
        partitions=_words(found.get("Partitions", "")),
        used_devices=tuple(sorted({device for _, _, devices in used for device in devices})),
        used_gpus=sum(count for _, count, _ in used),
        used_cpus=_count(found.get("CPUAlloc", "")),
        used_memory_mb=_count(found.get("AllocMem", "")),
    )


def _flags(state: str) -> tuple[str, ...]:
    words = [word for part in state.upper().split("+") if (word := part.rstrip(_SUFFIXES))]
    marks = [_FLAGS_OF_SUFFIX[mark] for mark in state if mark in _FLAGS_OF_SUFFIX]
    return tuple(dict.fromkeys([*words, *marks]))


def _gpus(text: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """Type, count and numbers of the GPUs of `gpu:h100:2(IDX:0-1),gpu:a100:1(IDX:N/A)`."""
    found = []
    for kind, count, more in _GPU.findall(text):
        _, _, listed = more.partition("IDX:")
        try:
            devices = numbers(listed)
        except HostlistError:
            devices = ()
        found.append((kind, int(count), devices))
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word and word != "(null)")


def _count(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0
