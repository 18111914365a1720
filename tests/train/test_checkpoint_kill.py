"""A training that is killed anywhere, and goes on, ends in the same state to the last bit as one that was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.bench.drill import Drill
from phalanx.bench.drills import Launcher, Outcome, launcher
from phalanx.bench.kill_matrix import kill_of, steps_at_risk
from phalanx.train.checkpoint.points import POINTS

SEED = 3


@pytest.fixture(scope="module")
def drills() -> Iterator[Launcher]:
    with launcher() as started:
        yield started


@pytest.fixture(scope="module")
def unfailed(drills: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = str(tmp_path_factory.mktemp("unfailed"))
    return drills.run(Drill(folder, folder, seed=SEED))


@pytest.mark.parametrize("point", POINTS)
def test_a_training_killed_there_ends_as_the_one_that_was_not(
    drills: Launcher, unfailed: Outcome, tmp_path: Path, point: str
) -> None:
    kill = kill_of(point, SEED)
    outcome = drills.run(Drill(str(tmp_path), str(tmp_path), seed=SEED, kill=kill))
    assert outcome.starts == 2, "it was killed once"
    assert outcome.digests == unfailed.digests
    step = int(kill.split("@")[1])
    if step > steps_at_risk(point):
        assert all(step - back <= steps_at_risk(point) for back in outcome.loaded("step"))
        assert outcome.loaded("tier") == ["host", "host"], "the memory outlived the trainers"


def test_a_background_process_that_is_not_forked_does_the_same(
    drills: Launcher, unfailed: Outcome, tmp_path: Path
) -> None:
    outcome = drills.run(Drill(str(tmp_path), str(tmp_path), seed=SEED, kill="commit@4@0", forks=False))
    assert outcome.starts == 2
    assert outcome.digests == unfailed.digests
