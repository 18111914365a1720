"""What a pod takes of its node: the larger of what runs and what its start-up needs at any moment, and its overhead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from phalanx.kube.api.quantity import BYTES_PER_MB, quantity, up
from phalanx.kube.objects.meta import Resources
from phalanx.kube.objects.pod import Container, Pod, ResourceRequirements

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915", "habana.ai/gaudi")
"""Resources that are whole GPUs. The rest, such as MIG instances, is counted by name."""

PODS = "pods"
HIVED_SWITCH = "hivedscheduler.microsoft.com/pod-scheduling-enable"
"""What pods ask for so that HiveD looks at them: no node has it."""

UNCOUNTED = ("cpu", "memory", PODS, HIVED_SWITCH, *GPU_RESOURCES)
"""What is not counted by its name, but otherwise."""

HOST_PORT = "host port "
"""How a port of the node is counted: by protocol and number, of which every node has one."""

ZERO = Decimal(0)

Amounts = dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class Demand:
    """Whole GPUs and of which resource, CPUs, memory, and other resources by name; of what is stored, in MB."""

    gpus: int = 0
    gpu_resource: str = ""
    cpus_milli: int = 0
    memory_mb: int = 0
    others: tuple[tuple[str, int], ...] = ()

    def beside(self, name: str) -> Demand:
        """The same and one of another resource, if one is named."""
        return replace(self, others=(*self.others, (name, 1))) if name else self


def demand_of(pod: Pod) -> Demand:
    """What a pod takes. A quantity that is none raises ValueError."""
    amounts = requests_of(pod)
    below = [name for name, amount in amounts.items() if amount < 0]
    if below:
        raise ValueError(f"it asks for {amounts[below[0]]} of {below[0]}; expected at least 0")
    kinds = [name for name in GPU_RESOURCES if amounts.get(name)]
    if len(kinds) > 1:
        raise ValueError(f"it asks for GPUs of {' and '.join(kinds)}; expected one kind")
    gpu = kinds[0] if kinds else ""
    others = {name: in_units(name, amount) for name, amount in amounts.items() if name not in UNCOUNTED and amount}
    others.update((port, 1) for port in host_ports(pod))
    return Demand(
        gpus=up(amounts[gpu]) if gpu else 0,
        gpu_resource=gpu,
        cpus_milli=up(1000 * amounts.get("cpu", ZERO)),
        memory_mb=up(amounts.get("memory", ZERO) / BYTES_PER_MB),
        others=tuple(sorted(others.items())),
    )


def host_ports(pod: Pod) -> Iterator[str]:
    """The ports of its node that a pod takes while it runs. Of which address is not told apart."""
    sidecars = (each for each in pod.spec.init_containers or () if _is_sidecar(each))
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports or ():
            if port.host_port:
                yield f"{HOST_PORT}{port.protocol}/{port.host_port}"


def in_units(name: str, amount: Decimal) -> int:
    """An amount of a resource other than GPUs, CPUs and memory, rounded up: bytes in MB, all else counted."""
    return up(amount / BYTES_PER_MB) if is_bytes(name) else up(amount)


def is_bytes(name: str) -> bool:
    """Whether a resource is counted in bytes."""
    return name == "ephemeral-storage" or name.startswith("hugepages-")


def requests_of(pod: Pod) -> Amounts:
    """Requests as kube-scheduler adds them up: sidecars run beside all that starts after them."""
    running: Amounts = {}
    for container in pod.spec.containers:
        _add(running, _requests(container.resources))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in pod.spec.init_containers or ():
        own = _requests(container.resources)
        if _is_sidecar(container):
            _add(running, own)
            _add(sidecars, own)
            _raise_to(starting, sidecars)
        else:
            _raise_to(starting, _sum((own, sidecars)))
    _raise_to(running, starting)
    if pod.spec.resources is not None:
        # What is said of the pod as a whole stands in place of what its containers say.
        running.update(_requests(pod.spec.resources))
    _add(running, _parsed(pod.spec.overhead))
    return running


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _requests(resources: ResourceRequirements) -> Amounts:
    return {**_parsed(resources.limits), **_parsed(resources.requests)}


def _parsed(resources: Resources | None) -> Amounts:
    return {name: quantity(amount) for name, amount in (resources or {}).items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, ZERO) + amount


def _sum(all_amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for each in all_amounts:
        _add(total, each)
    return total


def _raise_to(least: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        least[name] = max(least.get(name, ZERO), amount)
