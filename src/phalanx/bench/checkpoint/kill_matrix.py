"""The kill matrix: a tiny training, killed at every named point over many seeds, must end as if unharmed."""

from __future__ import annotations

import random
import tempfile

from phalanx.bench.checkpoint.drill import Drill
from phalanx.bench.checkpoint.drills import Launcher, Outcome, launcher
from phalanx.bench.row import Row, Tell, row
from phalanx.train.checkpoint.points import POINTS

SEEDS, SEEDS_QUICK = 20, 1
HOST_EVERY, DURABLE_EVERY, STEPS, RANKS = 2, 4, 14, 2


def kill_of(point: str, seed: int) -> str:
    """Where, after which step and in which rank a drill kills: points that come rarely are hit when they come."""
    generator = random.Random(f"{point} {seed}")
    rank = generator.randrange(RANKS)
    if point == "retire":
        # A step goes when a later one is on the disks of all ranks, which is known when that is followed by another.
        step = 3 * DURABLE_EVERY
    elif point in ("persist", "commit"):
        step = generator.randrange(DURABLE_EVERY, STEPS + 1, DURABLE_EVERY)
    elif point in ("snapshot-start", "snapshot-middle", "replicate"):
        step = generator.randrange(HOST_EVERY, STEPS + 1, HOST_EVERY)
    else:
        step = generator.randint(HOST_EVERY + 1, STEPS)
    return f"{point}@{step}@{rank}"


def steps_at_risk(point: str) -> int:
    """The most steps that a kill may cost: the interval of host memory, and what the killed snapshot was to save."""
    return 2 * HOST_EVERY if point in ("snapshot-start", "snapshot-middle", "replicate") else HOST_EVERY


def run(quick: bool, tell: Tell) -> list[Row]:
    """How many of the kills did not end in the unfailed training's state."""
    seeds = SEEDS_QUICK if quick else SEEDS
    wrong, missed = dict.fromkeys(POINTS, 0), 0
    with launcher() as drills:
        for seed in range(seeds):
            unfailed = _drill(drills, seed, "")
            for point in POINTS:
                kill = kill_of(point, seed)
                outcome = _drill(drills, seed, kill)
                is_hit, is_right = outcome.was_hit(kill), outcome.digests == unfailed.digests
                wrong[point] += not is_right
                missed += not is_hit
                tell(f"seed {seed}, {kill}: {'equal' if is_right else 'DIFFERENT'}{'' if is_hit else ', NOT HIT'}")
    name = "killed {}, does not end as the unfailed training, of {}"
    rows = [row(name.format(point, seeds), wrong[point], "runs", 0) for point in POINTS]
    rows.append(row(name.format("anywhere", seeds * len(POINTS)), sum(wrong.values()), "runs", 0))
    return [*rows, row(f"kills that missed their point, of {seeds * len(POINTS)}", missed, "runs", 0)]


def _drill(drills: Launcher, seed: int, kill: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return drills.run(Drill(folder, folder, seed=seed, steps=STEPS, kill=kill))
