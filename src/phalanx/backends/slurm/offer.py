"""What can be done on the Slurm of this machine, and why not the rest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from phalanx.backends.capability import Capability, Offer
from phalanx.backends.slurm.commands import SlurmDown, SlurmError, run

SUMMARY = "Jobs on a Slurm cluster: each gang is one allocation on the nodes of its placement."

NEVER = {
    Capability.RESIZE: "a job's allocation does not grow on Slurm",
    Capability.SUSPEND: "Slurm leaves the GPUs of a suspended job to no other",
    Capability.SUSPEND_FREES_MEMORY: "Slurm leaves the GPUs of a suspended job to no other",
    Capability.EXEC: "use `srun --overlap --jobid`; the Slurm job's number is in PHALANX_SLURM_JOB_ID",
    Capability.CONTAINERS: "start the container in the command",
    Capability.PROBE: "the tasks of a service are not reached from the server",
    Capability.TURNS: "GPUs are given to jobs as a whole",
    Capability.FRACTION: "GPUs are given to jobs as a whole",
    Capability.MPS: "GPUs are given to jobs as a whole",
    Capability.MIG: "GPUs are given to jobs as a whole",
}

CONSTRAINTS = {
    Capability.CPU_LIMIT: "ConstrainCores",
    Capability.MEMORY_LIMIT: "ConstrainRAMSpace",
    Capability.OOM: "ConstrainRAMSpace",
}
"""What Slurm does with control groups, by the setting that says so."""

_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)


def slurm_offer() -> Offer:
    """Looks at Slurm's configuration."""
    try:
        return offer_with(dict(_SETTING.findall(run(["scontrol", "show", "config"]))))
    except SlurmDown:
        return offer_with({})
    except SlurmError as error:
        return Offer("slurm", SUMMARY, {**dict.fromkeys(Capability, str(error)), **NEVER})


def offer_with(settings: Mapping[str, str]) -> Offer:
    """What can be done with a configuration."""
    return Offer("slurm", SUMMARY, NEVER | _unlimited(settings) | _as_one_user())


def _unlimited(settings: Mapping[str, str]) -> dict[Capability, str]:
    lacking = {}
    for capability, name in CONSTRAINTS.items():
        if settings.get(name, "no").lower() != "yes" or "cgroup" not in settings.get("TaskPlugin", ""):
            lacking[capability] = f"Slurm is not configured with {name} and task/cgroup"
    return lacking


def _as_one_user() -> dict[Capability, str]:
    if os.getuid() == 0:
        return {}
    return {
        Capability.UNIX_USER: "only a server that runs as root submits for other users; all jobs run as the server's, "
        "with its Slurm account and priority, which an ordinary user cannot raise"
    }
