"""The held-out suite: every policy is tuned on the earlier half of a recorded trace, and measured on the later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.main import cli, run
from phalanx.policy.registry import policy, split
from phalanx.simulate.studies.held_out import SETTINGS, measuring, settings_of, tuned_by, tuning
from phalanx.simulate.studies.real import Sampled, halves, philly
from phalanx.simulate.studies.suite import Cell, SuiteError, workloads


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A hundred jobs of 1 to 8 GPUs and a minute to ten, in the order of time."""
    rows = [f"2017-10-09 {7 + i // 60:02}:{i % 60:02}:00,{60 * (1 + i % 10)},{1 + i % 8},60,vc0" for i in range(100)]
    path = tmp_path / "philly.csv"
    path.write_text("\n".join(("timestamp,duration,num_gpus,gpu_time,cluster", *rows, "")))
    return str(path)


def submitted(source: object) -> set[str]:
    assert isinstance(source, Sampled)
    return {job.id for job in source.trace.jobs}


def cell(setting: str, workload: str, seed: int, mean_s: float | None) -> Cell:
    return Cell(workload, setting, 0.9, seed, {"jct_s": {"mean": mean_s}})


def test_no_job_of_the_half_that_is_measured_is_in_the_half_that_policies_are_tuned_on(log: str) -> None:
    recorded = philly(log, 40)
    (earlier,), (later,) = tuning([recorded]).workloads, measuring([recorded], {"fifo": {"fifo": 1.0}}, 3).workloads
    assert len(submitted(earlier.source)) == len(submitted(later.source)) == 50
    assert not submitted(earlier.source) & submitted(later.source)
    assert isinstance(earlier.source, Sampled)
    assert isinstance(later.source, Sampled)
    assert earlier.source.trace.jobs[-1].submit_ms < later.source.trace.jobs[0].submit_ms
    assert earlier.source.digest != later.source.digest
    assert earlier.window is not None
    assert later.window is not None


def test_a_trace_too_short_to_be_cut_in_two_is_refused(log: str) -> None:
    with pytest.raises(SuiteError, match="at least 102 jobs, 51 to draw from in each half, and got 100"):
        halves(philly(log, 51))


def test_a_workload_that_is_made_is_not_cut() -> None:
    with pytest.raises(SuiteError, match="philly: it is made from seeds"):
        halves(workloads(10)[0])


def test_every_setting_can_be_run_and_no_policy_has_more_tries_than_four() -> None:
    for name, settings in SETTINGS.items():
        assert 2 <= len(dict.fromkeys(settings)) == len(settings) <= 4
        assert {split(setting)[0] for setting in settings} == {name}
        for setting in settings:
            assert policy(setting).name == name


def test_a_policy_that_is_given_with_parameters_is_left_as_it_is() -> None:
    assert settings_of(("fifo", "kai:reclaim=false")) == {
        "fifo": ("fifo", "fifo:skip=true"),
        "kai:reclaim=false": ("kai:reclaim=false",),
    }


def test_the_setting_with_the_least_geometric_mean_over_workloads_is_chosen() -> None:
    """`fifo`: 100 and 400, 200 as geometric mean; `fifo:skip=true`: 160 and 160, which is less."""
    times = {("fifo", "a"): 100.0, ("fifo", "b"): 400.0, ("fifo:skip=true", "a"): 160.0, ("fifo:skip=true", "b"): 160.0}
    cells = [cell(setting, where, seed, mean_s) for (setting, where), mean_s in times.items() for seed in (0, 1)]
    assert tuned_by(cells, ("fifo",)) == {
        "fifo:skip=true": {"fifo": pytest.approx(1.25), "fifo:skip=true": pytest.approx(1.0)}
    }


def test_a_setting_that_failed_on_a_seed_is_not_chosen() -> None:
    cells = [cell("fifo", "a", 0, 100.0), cell("fifo", "a", 1, 100.0), cell("fifo:skip=true", "a", 0, 1.0)]
    assert list(tuned_by(cells, ("fifo",))) == ["fifo"]
    assert list(tuned_by([cell("fifo", "a", seed, None) for seed in (0, 1)], ("fifo",))) == []


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(cli, ["compare", "--suite", "held-out", "--workers", "1", "-o", "json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)[0]


def test_policies_are_tuned_and_measured_and_the_page_says_what_was_tried(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, report = tmp_path / "page.md", tmp_path / "page.html"
    arguments = ["--philly", log, "--jobs", "30", "--seeds", "2", "--policy", "fifo", "--policy", "las"]
    arguments += ["--keep", str(tmp_path / "kept"), "--markdown", str(page), "--report", str(report)]
    first = told(capsys, *arguments)
    assert {split(best)[0] for best in first["tuned"]} == {"fifo", "las"}
    assert all(tried[best] == 1.0 == min(tried.values()) for best, tried in first["tuned"].items())
    assert sorted(len(tried) for tried in first["tuned"].values()) == [2, 4]
    assert {row["policy"] for row in first["ranking"]} == set(first["tuned"])
    assert "## How policies were tuned" in page.read_text()
    assert "phalanx compare --suite held-out --seeds 2" in page.read_text()
    assert "How policies were tuned" in report.read_text()
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()}
    assert told(capsys, *arguments) == first
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()} == kept, "nothing ran again"


def test_without_a_recorded_trace_it_says_which_options_give_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["compare", "--suite", "held-out"]) == 1
    assert "give --philly FILE, or --openb-pods FILE and --openb-nodes FILE" in capsys.readouterr().err
