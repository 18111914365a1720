"""What failures cost a run: where the time went that jobs held GPUs, each second in one place only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phalanx.simulate.figures.ledger import FULL_PERMILLE, Account, permille_of
from phalanx.simulate.figures.result import JobResult
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.world.life import Life

if TYPE_CHECKING:
    from phalanx.simulate.simulation import Simulation

GPU_S = FULL_PERMILLE * 1000

HELD = ("useful", "checkpoint", "recompute", "slowdown", "detection", "start", "restart", "reload", "other")
"""What held time goes to. `slowdown` is by nodes that are slow, by neighbours and by where a job lies; `other` are
stopping, moving, resizing and suspending.
"""


def failure_figures(simulation: Simulation, jobs: Sequence[JobResult]) -> dict[str, Any]:
    """GPU-seconds by what they went to; nothing of a run without failures and without checkpoints of its own."""
    setup, damage = simulation.setup, simulation.backend.damage
    if not setup.occurrences and not setup.every_ms:
        return {}
    spent = _spent(simulation)
    queued_s = sum(job.queued_s * job.gpus for job in jobs)
    watched = {} if simulation.run.watch is None else {"health_loop": _looked_after(simulation)}
    return {
        **watched,
        "happened": damage.happened,
        "interrupted": damage.interrupted,
        "gpu_s": {name: rounded(value / GPU_S) for name, value in spent.items()},
        "queueing_gpu_s": rounded(queued_s),
    }


def _looked_after(simulation: Simulation) -> dict[str, int]:
    """How often nodes came into quarantine, how many did, and how many canaries ran."""
    nodes = simulation.run.quarantined
    return {"quarantines": len(nodes), "nodes": len(dict.fromkeys(nodes)), "canaries": len(simulation.canaries)}


def _spent(simulation: Simulation) -> dict[str, float]:
    backend = simulation.backend
    spent = dict.fromkeys(HELD, 0.0)
    canaries = dict.fromkeys(simulation.canaries)
    for job, work in simulation.works.items():
        if job in canaries:
            continue
        parts = _parts(backend.ledger.accounts.get(job) or Account(), backend.lives.get(job), simulation.now_ms)
        speed = work.speed_beside_saves(simulation.setup.costs.checkpoint_ms)
        parts["checkpoint"] = parts["useful"] * (1 / speed - 1)
        parts["slowdown"] -= parts["useful"] / speed
        for name, value in parts.items():
            spent[name] += value
    spent["other"] = backend.totals(simulation.now_ms)[0] - sum(spent.values())
    return spent


def _parts(account: Account, life: Life | None, now: int) -> dict[str, float]:
    """What one job held, and what of it is under way at this moment. `slowdown` has all that was kept, at first."""
    computed, useful, down = float(account.computed), account.useful, dict.fromkeys(account.down, 0.0)
    for name, value in account.down.items():
        down[name] += value
    if life is not None and life.placement is not None:
        permille = permille_of(life.placement)
        if life.since_ms >= 0:
            computed += permille * (now - life.since_ms)
            useful += permille * (now - life.since_ms) * life.use
        elif life.broken_ms >= 0:
            down["detection"] = down.get("detection", 0.0) + permille * (now - life.broken_ms)
        elif life.starting:
            down[life.starting] = down.get(life.starting, 0.0) + permille * (now - life.held_since_ms)
    return {"useful": useful, "recompute": float(account.lost), "slowdown": computed - account.lost, **down}
