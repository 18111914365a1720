"""Where does the time of a recovery go, and which part is worth shortening?

    python recovery_time_analysis.py --gpus 16384 --profile rsc-1 --target 0.95

1. One failure, step by step: noticed, queued, restarted, loaded, work done again; for four ways to recover.
2. The ratio of time that trains (ETTR) of each by formula, and the same by chance.
3. What each step may take at most for a target, the others left as they are, and which buys most.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from phalanx.faults.reliability.course import Course
from phalanx.faults.reliability.ettr import exact_ettr, exact_split
from phalanx.faults.reliability.intervals import exact_s
from phalanx.faults.reliability.monte_carlo import simulated
from phalanx.faults.reliability.tornado import FIGURES, tornado
from phalanx.faults.taxonomy.choose import profile_of
from phalanx.faults.taxonomy.fleet import Fleet

STEPS = {"detect_s": "detect", "queue_s": "queue", "restart_s": "restart", "reload_s": "reload"}

WAYS = {
    "restart from storage": {"save_s": 30, "detect_s": 600, "queue_s": 180, "restart_s": 300, "reload_s": 120},
    "and fast detection": {"save_s": 30, "detect_s": 30, "queue_s": 180, "restart_s": 300, "reload_s": 120},
    "and saves in memory": {"save_s": 1, "detect_s": 30, "queue_s": 180, "restart_s": 300, "reload_s": 10},
    "and warm spares": {"save_s": 1, "detect_s": 30, "queue_s": 0, "restart_s": 60, "reload_s": 10},
}
"""Seconds of each step. Put in your own."""


def courses(per_hour: float) -> dict[str, Course]:
    """Each way with the interval between saves that is best for it."""
    return {
        name: Course(per_hour, exact_s(times["save_s"], 3600 / per_hour), **{key: float(times[key]) for key in times})
        for name, times in WAYS.items()
    }


def at_most(course: Course, step: str, target: float) -> float | None:
    """How long a step may take for the target, the others left as they are; None if nothing is short enough."""
    if exact_ettr(replace(course, **{step: 0.0})) < target:
        return None
    low, high = 0.0, 86_400.0
    for _ in range(50):
        middle = (low + high) / 2
        reaches = exact_ettr(replace(course, **{step: middle})) >= target
        low, high = (middle, high) if reaches else (low, middle)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=16_384)
    parser.add_argument("--profile", default="rsc-1")
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--failures", type=int, default=20_000)
    given = parser.parse_args()
    fleet = Fleet(given.gpus)
    found = courses(profile_of(given.profile).per_hour(fleet))
    print(f"{given.gpus:,} GPUs, one failure every {next(iter(found.values())).mttf_s / 3600:.2f} h")
    print(f"{'one recovery':<22}{'detect':>8}{'queue':>8}{'restart':>9}{'reload':>8}{'redo':>8}{'all':>8}   seconds")
    for name, course in found.items():
        steps = [getattr(course, step) for step in STEPS]
        redo = (course.interval_s + course.save_s) / 2
        widths = zip((*steps, redo, sum(steps) + redo), (8, 8, 9, 8, 8, 8), strict=True)
        print(f"{name:<22}" + "".join(f"{value:>{width}.0f}" for value, width in widths))
    print(f"\n{'ETTR':<22}{'formula':>9}{'chance':>9}{'save':>8}{'redo':>8}{'down':>8}")
    for name, course in found.items():
        split, chance = exact_split(course), simulated(course, given.failures).split.work
        down = split.detect + split.queue + split.restart + split.reload
        print(f"{name:<22}{split.work:>9.4f}{chance:>9.4f}{split.save:>8.2%}{split.redo:>8.2%}{down:>8.2%}")
    last = found["and warm spares"]
    print(f"\nwith warm spares, for {given.target:.2%}:")
    for step, title in STEPS.items():
        most = at_most(last, step, given.target)
        told = "no time is short enough, the others left as they are" if most is None else f"at most {most:.0f} s"
        print(f"  {title:<8} {told} (now {getattr(last, step):.0f} s)")
    bars = [bar for bar in tornado(last) if bar.figure != FIGURES["per_hour"]]
    print(f"halving the {bars[0].figure} buys most: {bars[0].halved - exact_ettr(last):+.2%}")


if __name__ == "__main__":
    main()
