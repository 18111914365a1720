"""Lab 5: the five experiments come out as the report says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

LAB = Path(__file__).parents[2] / "labs" / "lab05-hived"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The lab's own module, run from its folder as a reader would."""
    monkeypatch.syspath_prepend(str(LAB))
    monkeypatch.delitem(sys.modules, "virtual_time", raising=False)
    yield runpy.run_path(str(LAB / "lab.py"), run_name="lab")
    sys.modules.pop("virtual_time", None)


def test_jobs_of_a_cluster_stay_on_its_machine_and_wait_for_one_another(lab: Any) -> None:
    row = lab["vc_safety"]()
    assert row.observed[0] == "all run on hostname-dan, the machine of vc1"
    assert row.observed[1].startswith("one after another, at minutes 0, 10, 20, 30")


def test_prod_preempts_test_and_test_starts_anew_after_it(lab: Any) -> None:
    assert lab["priority_and_preemption"]().observed == (
        "the later prod job starts at minute 5, at once, and not after the test job",
        "the test job is preempted at minute 5",
        "it starts anew at minute 15",
        "prod ends at minute 15, test at minute 45",
    )


def test_oppo_starts_at_once_on_the_idle_machine_and_yields_to_its_owner(lab: Any) -> None:
    assert lab["opportunistic"]().observed == (
        "the oppo job starts at minute 5 on hostname-carol, which is idle: it waits for nobody",
        "the test job of `default` preempts it at minute 10",
        "it runs on hostname-carol from minute 10",
        "the oppo job starts anew at minute 20 on hostname-carol",
    )


def test_a_gang_starts_as_a_whole_when_both_machines_are_free(lab: Any) -> None:
    assert lab["gang"]().observed == (
        "the job starts at minute 20, when the first ends (minute 20)",
        "its two tasks start both at once; until then one machine stays idle",
    )


def test_tasks_that_need_not_start_together_start_one_by_one_and_may_exceed_what_is_owned(lab: Any) -> None:
    first, second, refused = lab["incremental"]().observed
    assert first.startswith("the tasks start one by one, at minutes 5, 15")
    assert "at minutes 100, 100, 110, 110" in second
    assert "4 × 1 = 4 leaves never fit; there are 2 in" in refused


def test_the_readme_shows_what_the_lab_prints(lab: Any) -> None:
    assert lab["report"]() in (LAB / "README.md").read_text()
