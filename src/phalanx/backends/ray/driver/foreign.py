"""What other work of the same Ray holds: what is taken of a node, less what our gangs hold there.

Ray tells of it seconds late, so that only what stays the same for a while counts, while no gang of ours changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.backends.ray.driver.cluster import Used

STEADY_LOOKS = 6
"""So often in a row the same must be seen. Ray tells its head once a second at most."""


class ForeignWork:
    """Looks on, and says what is new."""

    def __init__(self) -> None:
        self._looks: list[tuple[dict[str, Used], dict[str, Used]]] = []
        self.found: dict[str, Used] = {}

    def look(self, used: dict[str, Used], gangs: Iterable[dict[str, Used]]) -> bool:
        """Takes in what is taken and what gangs hold; whether what is found is new."""
        held = _sum(gangs)
        self._looks = [*self._looks[1 - STEADY_LOOKS :], (used, held)]
        if len(self._looks) < STEADY_LOOKS or any(look != self._looks[0] for look in self._looks):
            return False
        before, self.found = self.found, {name: _less(each, held.get(name, Used())) for name, each in used.items()}
        return before != self.found


def _sum(gangs: Iterable[dict[str, Used]]) -> dict[str, Used]:
    total: dict[str, Used] = {}
    for gang in gangs:
        for node, each in gang.items():
            before = total.get(node, Used())
            total[node] = Used(before.gpus + each.gpus, before.cpus_milli + each.cpus_milli)
    return total


def _less(used: Used, held: Used) -> Used:
    return Used(max(used.gpus - held.gpus, 0), max(used.cpus_milli - held.cpus_milli, 0))
