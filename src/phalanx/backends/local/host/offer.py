"""What the local backend can do on this machine, and why not the rest."""

from __future__ import annotations

import os

from phalanx.backends.capability import Capability, Offer
from phalanx.backends.local import container
from phalanx.backends.local.device_memory import probe
from phalanx.backends.local.device_memory.rates import Rates
from phalanx.backends.local.host import cgroup, mps
from phalanx.backends.local.orders import Yard

ON_REAL_GPUS = (Capability.MPS, Capability.MIG)
"""What jobs have on real GPUs only."""

SUMMARY = "Processes on this machine, with its GPUs or simulated ones."


def local_offer(yard: Yard) -> Offer:
    """Looks at this machine."""
    memory = cgroup.why_not(yard.pens, "memory")
    obstacles = {
        Capability.CPU_LIMIT: cgroup.why_not(yard.pens, "cpu"),
        Capability.MEMORY_LIMIT: memory,
        Capability.OOM: memory,
        Capability.CONTAINERS: container.why_not(),
        Capability.UNIX_USER: "" if os.getuid() == 0 else "only a server that runs as root can",
        Capability.MPS: mps.why_not() if yard.device_names else "",
        Capability.MIG: "it does not cut real GPUs" if yard.device_names else "",
        Capability.SUSPEND_FREES_MEMORY: probe.why_not(),
    }
    lacks = {capability: why for capability, why in obstacles.items() if why}
    rates = None if Capability.SUSPEND_FREES_MEMORY in lacks else Rates(yard.backend).read()
    simulated = {} if yard.device_names else dict.fromkeys(ON_REAL_GPUS, "there are no real GPUs: it is only simulated")
    return Offer("local", SUMMARY, lacks, rates, yard.real_nodes, simulated)
