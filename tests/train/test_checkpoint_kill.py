"""A training that is killed anywhere, and goes on, ends in the same state to the last bit as one that was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.bench.checkpoint.drill import Drill, unmarked
from phalanx.bench.checkpoint.drills import Launcher, Outcome, launcher
from phalanx.bench.checkpoint.kill_matrix import STEPS, kill_of, steps_at_risk
from phalanx.train.checkpoint.points import POINTS
from phalanx.train.checkpoint.store import steps

SEED = 3


@pytest.fixture(scope="module")
def drills() -> Iterator[Launcher]:
    with launcher() as started:
        yield started


@pytest.fixture(scope="module")
def unfailed(drills: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = str(tmp_path_factory.mktemp("unfailed"))
    return drills.run(Drill(folder, folder, seed=SEED, steps=STEPS))


@pytest.mark.parametrize("point", POINTS)
def test_a_training_killed_there_ends_as_the_one_that_was_not(
    drills: Launcher, unfailed: Outcome, tmp_path: Path, point: str
) -> None:
    kill = kill_of(point, SEED)
    outcome = drills.run(Drill(str(tmp_path), str(tmp_path), seed=SEED, steps=STEPS, kill=kill))
    assert outcome.was_hit(kill), outcome.deaths
    assert outcome.digests == unfailed.digests
    step = int(kill.split("@")[1])
    if step > steps_at_risk(point):
        assert all(step - back <= steps_at_risk(point) for back in outcome.loaded("step"))
        assert outcome.loaded("tier") == ["host", "host"], "the memory outlived the trainers"


@pytest.mark.parametrize(
    ("point", "half_done"), [("persist@8@0", {8}), ("commit@8@0", {8}), ("retire@8@0", {4}), ("in-forward@9@0", set())]
)
def test_a_kill_on_the_way_to_disk_leaves_a_step_half_done_and_none_at_the_end(
    drills: Launcher, tmp_path: Path, point: str, half_done: set[int]
) -> None:
    """Step 8 is half written, or step 4 half taken away, in one of the two durable tiers or in both."""
    outcome = drills.run(Drill(str(tmp_path), str(tmp_path), seed=SEED, steps=STEPS, kill=point))
    assert outcome.was_hit(point), outcome.deaths
    # Another tier or rank may be writing step 8 at that moment.
    assert half_done <= set(outcome.deaths[0]["half_done"]) <= half_done | {8}
    assert unmarked(tmp_path) == []
    assert [each.step for each in steps(tmp_path / "shared")] == [12]
    on_disks = [[each.step for each in steps(tmp_path / "local" / f"rank-0000{rank}")] for rank in (0, 1)]
    assert [found[-1] for found in on_disks] == [12, 12]
    # Beside the last one, what not both had a newer of when they met.
    assert all(len(found) <= 3 for found in on_disks)


def test_a_background_process_that_is_not_forked_does_the_same(
    drills: Launcher, unfailed: Outcome, tmp_path: Path
) -> None:
    outcome = drills.run(Drill(str(tmp_path), str(tmp_path), seed=SEED, steps=STEPS, kill="commit@4@0", forks=False))
    assert outcome.was_hit("commit@4@0"), outcome.deaths
    assert outcome.digests == unfailed.digests
