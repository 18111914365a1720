"""The health loop of a run: the watch that a server has over its nodes, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.document.units import duration_ms
from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.faults.health.quarantine import Rules
from phalanx.faults.health.watch import NodeWatch
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

SHARE_MAX = 0.5
TIMES = ("time", "canary")
HOUR_MS = 3_600_000


class HealthLoopError(PhalanxError):
    """Something that is not written as a health loop is."""


@dataclass(frozen=True, slots=True)
class HealthLoop:
    """The share of the nodes that may be in quarantine, for how long they are at first, and how long a canary runs
    afterwards on all GPUs of a node; 0 for none.
    """

    share: float
    first_ms: int = Rules().first_ms
    canary_ms: int = 0

    def watch(self, state: State) -> NodeWatch:
        """The watch over the nodes of a run that begins."""
        rules = Rules(share_max=self.share, first_ms=self.first_ms, longest_ms=max(self.first_ms, Rules().longest_ms))
        return NodeWatch(state, rules, self._canary(state) if self.canary_ms else None)

    def _canary(self, state: State) -> Job:
        if state.cells is not None:
            raise HealthLoopError("--quarantine: clusters with virtual clusters have no canaries; leave out canary=")
        gpus = min((node.gpus for node in state.topology.nodes if node.gpus), default=0)
        queue = next(iter(state.quotas.leaves()), "default")
        gang = Gang((Role("canary", task=Task(gpus)),))
        return Job("canary", gang, queue=queue, max_run_ms=2 * self.canary_ms + HOUR_MS)


def health_loop_of(text: str) -> HealthLoop:
    """The loop as it is written: the share of the nodes, then `time` and `canary`, as in 0.1,time=30m,canary=10m."""
    first, *rest = text.split(",")
    given: dict[str, int] = {}
    for part in rest:
        name, _, value = part.partition("=")
        length_ms = duration_ms(value)
        if name not in TIMES or name in given or not length_ms:
            raise HealthLoopError(f"--quarantine {text}: expected 0.1,time=30m,canary=10m, got {part!r}")
        given[name] = length_ms
    return HealthLoop(_share(first, text), given.get("time", Rules().first_ms), given.get("canary", 0))


def _share(first: str, text: str) -> float:
    try:
        share = float(first)
    except ValueError:
        share = 0.0
    if not 0 < share <= SHARE_MAX:
        raise HealthLoopError(
            f"--quarantine {text}: expected a share of the nodes above 0 and at most {SHARE_MAX}, got {first!r}"
        )
    return share
