"""What is told of solvers that gave no answer."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.cli.runs import note_kept_advice
from phalanx.cluster.cluster import flat
from phalanx.simulate.simulation import Setup
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.trace import Trace, TraceJob


@pytest.mark.parametrize(("times", "told"), [(0, ""), (1, "no answer once;"), (2_000, "no answer 2,000 times;")])
def test_a_run_tells_how_often_the_last_advice_was_kept(
    times: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_one(Setup(flat(1, 1), Trace("t", (TraceJob("a", 0, 1000, 1),)), "fifo"), "fifo")
    note_kept_advice([msgspec.structs.replace(result, setup={**result.setup, "advice_kept": times})])
    said = capsys.readouterr().err
    assert (told in said and "the last advice was kept" in said) if told else not said
