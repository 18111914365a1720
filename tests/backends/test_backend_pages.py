"""The pages about backends say what the code does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_job
from phalanx.backends.capability import MEANING, Capability
from phalanx.backends.local.environment import PASSED_ON, Surroundings, environment_of
from phalanx.backends.registry import UnknownBackend, backend_names, open_backend
from phalanx.cluster.device import Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.job import Array, Execution
from phalanx.workload.parallel import ParallelPlan

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def around(**job: object) -> Surroundings:
    return Surroundings(a_job("1.4", **job), 2, "127.0.0.1", 29_500, "/c", "/n", "/g", deadline_ms=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "portion",
    [None, Portion(Mode.MPS, 300, 1024), Portion(Mode.MIG, 143, 1024, mig_profile="1g.10gb", mig_offset=0)],
    ids=["whole", "mps", "mig"],
)
def test_every_variable_of_a_task_is_documented(portion: Portion | None) -> None:
    page = (PAGES / "job-environment.md").read_text("utf-8")
    slot = Slot(0, "worker", "n0", (0,), portion)
    surroundings = around(array=Array((4,)), array_of="1", parallel=ParallelPlan())
    names = environment_of(slot, Placement((slot,), (("n0", 0),)), surroundings)
    undocumented = [name for name in names if name not in PASSED_ON and f"`{name}`" not in page]
    # What CUDA counts devices by is a setting of ours, not a thing to read.
    assert undocumented == ["CUDA_DEVICE_ORDER"]


def test_what_the_job_file_sets_does_not_change_what_is_promised() -> None:
    slot = Slot(0, "worker", "n0", (0,))
    surroundings = around()
    lying = replace(surroundings.job, execution=Execution(env=(("PHALANX_JOB_ID", "9"), ("RANK", "7"), ("A", "b"))))
    found = environment_of(slot, Placement((slot,)), replace(surroundings, job=lying))
    assert (found["PHALANX_JOB_ID"], found["RANK"], found["A"]) == ("1.4", "0", "b")


def test_ranks_have_no_gaps_after_members_have_left() -> None:
    slots = (Slot(0, "worker", "n0", (0,)), Slot(3, "worker", "n0", (3,)))
    found = environment_of(slots[1], Placement(slots), around())
    assert (found["RANK"], found["WORLD_SIZE"], found["PHALANX_RANK"]) == ("1", "2", "3")


def test_a_task_knows_where_each_of_its_devices_is_in_the_parallel_plan() -> None:
    slots = (Slot(0, "worker", "n0", (0, 1)), Slot(1, "worker", "n1", (4, 5)))
    placement = Placement(slots, (("n0", 0), ("n0", 1), ("n1", 4), ("n1", 5)))
    found = environment_of(slots[1], placement, around(parallel=ParallelPlan(tp=2, pp=2)))
    coordinates = [found[f"PHALANX_{name}_RANK"] for name in ("TP", "PP", "DP")]
    assert coordinates == ["0,1", "1,1", "0,0"]


def test_the_plan_that_a_task_is_told_is_that_of_the_size_its_gang_has() -> None:
    slots = tuple(Slot(i, "worker", "n0", (i,)) for i in range(4))
    placement = Placement(slots, tuple(("n0", i) for i in range(4)))
    found = environment_of(slots[2], placement, around(parallel=ParallelPlan(tp=2, dp=8)))
    assert found["PHALANX_PARALLEL"] == "tp=2,pp=1,dp=2"
    assert (found["RANK"], found["PHALANX_TP_RANK"], found["PHALANX_DP_RANK"]) == ("2", "0", "1")


def test_every_capability_is_documented() -> None:
    page = (PAGES / "backends.md").read_text("utf-8")
    assert list(MEANING) == list(Capability)
    for capability, meaning in MEANING.items():
        assert f"| `{capability.value}` | {meaning} |" in page


def test_the_local_backend_is_there_and_an_unknown_one_is_refused_with_those_there_are() -> None:
    assert "local" in backend_names()
    with pytest.raises(UnknownBackend, match="local"):
        open_backend("nosuch", None)  # type: ignore[arg-type]
