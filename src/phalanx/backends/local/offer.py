"""What the local backend can do on this machine, and why not the rest."""

from __future__ import annotations

import os

from phalanx.backends.capability import Capability, Offer
from phalanx.backends.local.cgroup import why_not
from phalanx.backends.local.container import ENGINES, find_engine
from phalanx.backends.local.device_memory import probe
from phalanx.backends.local.device_memory.rates import Rates
from phalanx.backends.local.mps import CONTROL, has_mps
from phalanx.backends.local.orders import Yard

SUMMARY = "Processes on this machine, with its GPUs or simulated ones."


def local_offer(yard: Yard) -> Offer:
    """Looks at this machine."""
    memory = why_not(yard.pens, "memory")
    obstacles = {
        Capability.CPU_LIMIT: why_not(yard.pens, "cpu"),
        Capability.MEMORY_LIMIT: memory,
        Capability.OOM: memory,
        Capability.CONTAINERS: "" if find_engine() else f"none of {', '.join(ENGINES)} is on the PATH",
        Capability.UNIX_USER: "" if os.getuid() == 0 else "only a server that runs as root can",
        Capability.MPS: f"there is no {CONTROL}" if yard.device_names and not has_mps() else "",
        Capability.MIG: "it does not cut real GPUs" if yard.device_names else "",
        Capability.SUSPEND_FREES_MEMORY: probe.why_not(),
    }
    lacks = {capability: why for capability, why in obstacles.items() if why}
    rates = None if Capability.SUSPEND_FREES_MEMORY in lacks else Rates(yard.backend).read()
    return Offer("local", SUMMARY, lacks, rates, yard.real_nodes)
