"""What the Ray backend can do, and why not the rest."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from phalanx.backends.capability import Capability, Offer

SUMMARY = "Gangs on a Ray cluster: placement groups on the nodes of the plan, tasks by an agent on each node."

OLDEST, NEWER = (2, 49), (3, 0)
"""Versions of Ray with labels on nodes and bundles that are pinned to them, as `label_selector` has it."""

IN_RAY = "Ray has no limits on what a task takes"
SHARED = "Ray gives parts of a GPU by number alone: nothing enforces them"

LACKS = {
    Capability.SUSPEND_FREES_MEMORY: "device memory stays on the GPU",
    Capability.EXEC: "tasks run on other machines, which no session reaches",
    Capability.CPU_LIMIT: IN_RAY,
    Capability.MEMORY_LIMIT: IN_RAY,
    Capability.OOM: IN_RAY,
    Capability.CONTAINERS: "tasks run in the surroundings of Ray on their nodes",
    Capability.UNIX_USER: "tasks run as the Unix user of Ray",
    Capability.TURNS: SHARED,
    Capability.FRACTION: SHARED,
    Capability.MPS: SHARED,
    Capability.MIG: "Ray cuts no GPU",
}


def ray_offer() -> Offer:
    """Looks at what is installed here; a version that cannot do it lacks everything."""
    why = why_not()
    if why:
        return Offer("ray", SUMMARY, dict.fromkeys(Capability, why))
    return Offer("ray", f"{SUMMARY} Ray {version('ray')} is here.", dict(LACKS))


def why_not() -> str:
    """Why this Ray cannot be used; empty if it can."""
    if find_spec("ray") is None:
        return "Ray is not installed here: pip install ray"
    try:
        here = version("ray")
    except PackageNotFoundError:
        return "Ray is here without its version: install it by pip"
    numbers = tuple(int(part) for part in here.split(".")[:2] if part.isdigit())
    if OLDEST <= numbers < NEWER:
        return ""
    return f"Ray {here} is here; expected {OLDEST[0]}.{OLDEST[1]} or newer, before {NEWER[0]}.0"
