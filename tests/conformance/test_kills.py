"""The scheduler is killed at random moments under load: nothing is lost, done twice, or left behind.

PHALANX_KILLS says how often; 500 takes a quarter of an hour.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

from needs import about, spares
from programs import COMMANDS, Program
from rig import Rig

from phalanx.backends.capability import Capability
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import verify

KILLS = int(os.environ.get("PHALANX_KILLS", "8"))
JOBS_PER_KILL = 3


@about(Program.SHORT, Capability.ADOPT)
@spares("ray")
def test_nothing_is_lost_doubled_or_orphaned_however_often_the_scheduler_is_killed(apart: Rig, tmp_path: Path) -> None:
    kills = max(KILLS // getattr(apart.subject, "slowness", 1), 1)
    chance = random.Random(KILLS)
    diary = tmp_path / "diary"
    script = f"echo $PHALANX_JOB_ID/$PHALANX_ATTEMPT/$PHALANX_RANK >> {diary}; sleep 0.$(($$ % 4))"
    COMMANDS[Program.SHORT], before = ("sh", "-c", script), COMMANDS[Program.SHORT]
    try:
        jobs = [f"j{i}" for i in range(kills * JOBS_PER_KILL)]
        waiting = iter(jobs)
        for _ in range(kills):
            for _ in range(JOBS_PER_KILL):
                apart.submit(next(waiting), Program.SHORT, count=chance.choice([1, 2]))
            for _ in range(chance.randrange(6)):
                apart.subject.wait(None)
                apart.turn()
            apart.crash()
        for job in jobs:
            apart.finish(job)
    finally:
        COMMANDS[Program.SHORT] = before
    verify(apart.journal)
    assert {apart.record(job).final for job in jobs} == {JobState.SUCCEEDED}
    assert {apart.record(job).attempts for job in jobs} == {1}
    begun = Counter(diary.read_text().split())
    expected = {f"{job}/1/{rank}" for job in jobs for rank in range(apart.record(job).asked.gang.gpus_max)}
    assert begun == Counter(expected)
    assert not any(apart.subject.processes(job) for job in jobs)
