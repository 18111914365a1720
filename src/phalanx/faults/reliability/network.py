"""Rerouting in the network, by formula: what a lost uplink costs a job until it is repaired."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reroute:
    """What is lost to links. Shares are of the job's time, or of its speed."""

    links_down: float
    bandwidth_left: float
    slowdown: float
    stall_share: float
    saved_share: float


def reroute(
    per_hour: float, repair_hours: float, uplinks: int, exposed: float, reroute_s: float, restart_s: float
) -> Reroute:
    """Uplinks of one leaf switch share its traffic. With one of u lost, (u − 1)/u of its bandwidth is left.

    A synchronous job goes at the pace of its slowest collective: that part of a step in which communication is not
    hidden (`exposed`) takes u/(u − 1) as long. Without rerouting, each such failure would cost `restart_s`.
    """
    down = per_hour * repair_hours
    left = (uplinks - 1) / uplinks if uplinks > 1 else 0.0
    slower = exposed * (1 / left - 1) if left else 1.0
    any_down = down / (1 + down)
    stall = per_hour * reroute_s / 3600
    return Reroute(down, left, any_down * slower, stall, per_hour * restart_s / 3600 - stall)
