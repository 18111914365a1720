"""Deadlines: who met theirs, who did not, how late they were, and that it is said where there are deadlines only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import flat
from phalanx.simulate.figures.metrics import summarize
from phalanx.simulate.simulation import Setup
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.studies.table import comparison_rows
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS
from results import a_job_result, a_waiting_job, some_totals, too_large

ROWS = "job_id,submit_s,duration_s,gpus,deadline_s\nlong,0,1000,1,\nlate,0,600,1,700\nsoon,0,300,1,300\n"
CLUSTER = "nodes: [{count: 1, gpus: 1, gpu_type: V100}]\n"


def test_each_deadline_is_met_missed_or_still_to_come() -> None:
    jobs = [
        a_job_result("on time"),
        a_job_result("just on time"),
        a_job_result("late"),
        a_job_result("failed before", state="failed"),
        a_job_result("cancelled before", state="cancelled"),
        a_job_result("failed after", state="failed"),
        a_job_result("runs on past it", state="running", end_s=None),
        a_job_result("runs on", state="running", end_s=None),
        a_waiting_job("never fits"),
        a_job_result("has none"),
    ]
    deadlines_s = {"on time": 200.0, "just on time": 110.0, "late": 100.0}
    deadlines_s |= {"failed before": 200.0, "cancelled before": 110.0, "failed after": 50.0}
    deadlines_s |= {"runs on past it": 120.0, "runs on": 400.0, "never fits": 500.0}
    totals = some_totals(never_fit=too_large("never fits"), end_s=150.0)
    figures = summarize(jobs, totals, deadlines_s=deadlines_s)["deadlines"]
    late_s = figures.pop("late_s")
    assert figures == {"jobs": 7, "met": 2, "missed": 4, "open": 1}
    assert late_s == {"mean": pytest.approx((10 + 60 + 30) / 7, abs=1e-6), "p50": 0.0, "p95": 60.0, "p99": 60.0}


def results_of(*policies: str) -> list[Any]:
    """One GPU; worked by hand: in the order of submission 1,000 + 600 + 300 s; by deadlines 300 + 600 + 1,000 s."""
    jobs = (
        TraceJob("long", 0, 1_000_000, 1),
        TraceJob("late", 0, 600_000, 1, deadline_ms=700_000),
        TraceJob("soon", 0, 300_000, 1, deadline_ms=300_000),
    )
    setups = (Setup(flat(1, 1), Trace("three", jobs), policy, costs=NO_COSTS) for policy in policies)
    return [run_one(setup, setup.policy) for setup in setups]


def test_policies_are_compared_by_the_deadlines_they_meet_and_by_how_late_they_are() -> None:
    first, by_deadline = results_of("fifo", "edf")
    assert first.summary["deadlines"] == {
        "jobs": 2,
        "met": 0,
        "missed": 2,
        "open": 0,
        "late_s": {"mean": 1250.0, "p50": 900.0, "p95": 1600.0, "p99": 1600.0},
    }
    assert by_deadline.summary["deadlines"]["met"] == 1
    rows = [row.texts() for row in comparison_rows([first, by_deadline])]
    assert [row["deadlines_met"] for row in rows] == ["0", "1 *"]
    assert rows[0]["mean_late"] == "20m 50s"
    assert rows[1]["mean_late"].endswith(" *")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "trace.csv").write_text(ROWS)
    (tmp_path / "plain.csv").write_text(ROWS.replace(",700\n", ",\n").replace(",300\n", ",\n"))
    return "--cluster", str(tmp_path / "cluster.yaml"), "--costs", "none", "--trace", str(tmp_path / "trace.csv")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(cli, arguments) == Exit.OK, capsys.readouterr().err
    return capsys.readouterr().out


def test_one_run_tells_in_words_and_in_json(files: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "simulate", *files, "--policy", "fifo").splitlines()
    assert "DEADLINES  0 of 2 met, 2 missed" in lines
    assert lines[-1].split() == ["after", "the", "deadline", "20m", "50s", "15m", "0s", "26m", "40s", "26m", "40s"]
    assert json.loads(said(capsys, "simulate", *files, "--policy", "fifo", "-o", "json"))["deadlines"]["missed"] == 2
    early = said(capsys, "simulate", *files, "--policy", "fifo", "--until", "500s")
    assert "DEADLINES  0 of 2 met, 1 missed, 1 not yet due" in early.splitlines()


def test_a_comparison_has_columns_of_them(files: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    policies = ("--policy", "fifo", "--policy", "edf")
    head, *_ = said(capsys, "compare", *files, *policies).splitlines()
    assert "DEADLINES MET" in head
    assert "MEAN LATE" not in head
    head, *_ = said(capsys, "compare", *files, *policies, "-o", "wide").splitlines()
    assert "MEAN LATE" in head


@pytest.mark.needs("plotly")
def test_a_report_has_them_too(files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    said(capsys, "compare", *files, "--policy", "fifo", "--policy", "edf", "--report", str(page))
    text = page.read_text()
    assert "deadlines met<small>↑ higher</small>" in text
    assert "mean late<small>↓ lower</small>" in text


def test_without_deadlines_nothing_is_said_of_them(
    files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = (*files[:-1], str(tmp_path / "plain.csv"))
    told = [
        said(capsys, "simulate", *plain, "--policy", "edf", "-o", output) for output in ("table", "wide", "json")
    ] + [said(capsys, "compare", *plain, "--policy", "edf", "-o", output) for output in ("table", "wide", "json")]
    assert not any("deadline" in text.lower() or "mean late" in text.lower() for text in told)
