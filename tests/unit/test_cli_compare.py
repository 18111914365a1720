"""`phalanx compare`: policies side by side, in processes that end with the one that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples" / "cluster-small.yaml")
RUN = ("compare", "--cluster", CLUSTER, "--trace", "synthetic:jobs=60,load=2.0,shape=gavel")
POLICIES = ("--policy", "fifo", "--policy", "sjf", "--policy", "srtf")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb that succeeds; what it printed on stdout."""

    def said(*arguments: str) -> str:
        assert run(cli, arguments) == Exit.OK, capsys.readouterr().err
        return capsys.readouterr().out

    return said


def without_run(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "run"}


def test_programs_get_what_simulate_prints_in_the_order_of_the_policies(say: Any) -> None:
    summaries = json.loads(say(*RUN, *POLICIES, "-o", "json"))
    assert [summary["policy"] for summary in summaries] == ["fifo", "sjf", "srtf"]
    alone = [json.loads(say("simulate", *RUN[1:], "--policy", name, "-o", "json")) for name in ("fifo", "sjf", "srtf")]
    assert list(map(without_run, summaries)) == list(map(without_run, alone))


def test_people_get_a_row_for_each_policy_and_a_star_for_the_best(say: Any) -> None:
    header, *rows = say(*RUN, *POLICIES).splitlines()
    assert header.split("  ")[0] == "POLICY"
    assert "MEAN JCT" in header
    assert [row.split()[0] for row in rows] == ["fifo", "sjf", "srtf"]
    assert any(" *" in row for row in rows)
    assert "JAIN" not in header
    assert "JAIN" in say(*RUN, *POLICIES, "-o", "wide").splitlines()[0]


@pytest.mark.parametrize("several", [(), ("--seeds", "2"), ("--vary", "load=0.5:1.0:0.5", "--seeds", "2")])
def test_a_narrow_terminal_has_all_columns_one_table_below_another(
    several: tuple[str, ...], say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped, *rows = say(*RUN, *POLICIES, *several).splitlines()
    named_by = "POLICY  LOAD" if several else "POLICY"
    monkeypatch.setattr("phalanx.cli.output._room", lambda: 80)
    shown = say(*RUN, *POLICIES, *several).splitlines()
    assert max(map(len, shown)) <= 80
    headers = [line for line in shown if line.startswith(named_by)]
    assert len(headers) > 1
    assert " ".join(headers).replace(named_by, "").split() == piped.removeprefix(named_by).split()
    assert len(shown) == len(headers) * (len(rows) + 1) + len(headers) - 1


def test_a_job_that_can_never_fit_its_queue_ends_no_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, trace = tmp_path / "cluster.yaml", tmp_path / "trace.csv"
    cluster.write_text("nodes: [{count: 1, gpus: 8}]\nqueues: [{name: a, limit: {gpus: 4}}]\n")
    trace.write_text("job_id,submit_s,duration_s,gpus,queue\n1,0,60,4,a\n2,30,60,8,a\n")
    arguments = ["compare", "--cluster", str(cluster), "--trace", str(trace), *POLICIES, "-o", "json"]
    assert run(cli, arguments) == Exit.OK
    captured = capsys.readouterr()
    assert [(each["jobs"]["completed"], each["jobs"]["never_fit"]) for each in json.loads(captured.out)] == [(1, 1)] * 3
    assert captured.err == (
        "note: 1 job never fits its queue: job 2 asks for 8 GPUs, but the queue a can have 4 at most: its limit is 4\n"
    )


def test_seeds_give_intervals_and_loads_give_curves(say: Any) -> None:
    arguments = (*RUN, *POLICIES[:4], "--vary", "load=0.5:1:0.5", "--seeds", "2")
    varied = json.loads(say(*arguments, "-o", "json"))
    assert [each["policy"] for each in varied] == ["fifo", "sjf"]
    for each in varied:
        assert [(one["load"], one["seed"]) for one in each["runs"]] == [(0.5, 0), (0.5, 1), (1.0, 0), (1.0, 1)]
        assert {one["policy"] for one in each["runs"]} == {each["policy"]}
        for curve in each["curves"]:
            assert [point["at"] for point in curve["points"]] == [0.5, 1.0]
            assert all(point["low"] <= point["mean"] <= point["high"] for point in curve["points"])


def test_seeds_of_a_recorded_trace_draw_its_arrivals_anew(say: Any, tmp_path: Path) -> None:
    trace = str(tmp_path / "trace.csv")
    say("trace", "make", "--jobs", "40", "--gpus", "32", "--load", "0.8", "--shape", "gavel", trace)
    table = say(*RUN[:3], "--trace", trace, "--policy", "fifo", "--seeds", "3")
    assert table.splitlines()[1].split()[:2] == ["fifo", "0.8"]
    assert " ± " in table
    (varied,) = json.loads(say(*RUN[:3], "--trace", trace, "--policy", "fifo", "--seeds", "3", "-o", "json"))
    assert len({one["digest"] for one in varied["runs"]}) == 3
    (alone,) = json.loads(say(*RUN[:3], "--trace", trace, "--policy", "fifo", "-o", "json"))
    assert varied["runs"][0]["digest"] == alone["digest"]


@pytest.mark.needs("plotly")
def test_a_report_holds_the_policies_and_the_curves(say: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    say(*RUN, *POLICIES[:4], "--vary", "load=0.5:1:0.5", "--report", str(report))
    page = report.read_text("utf-8")
    assert "in detail: load 1, seed 0" in page
    assert "Against load" in page


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "Missing option '--policy'"),
        (("--policy", "fifo", "--policy", "fifo"), "policy 'fifo' is given twice"),
        (("--policy", "fifo", "--policy", "nope"), "unknown policy 'nope'"),
        (
            ("--policy", "fifo", "--load", "0.9", "--vary", "load=0.5:1.0:0.5"),
            "the load is 0.9 (--load) and is to vary",
        ),
        (("--policy", "fifo", "--report", "nowhere/report.html"), "there is no folder nowhere"),
    ],
)
def test_bad_input_is_told_in_one_line(
    arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, [*RUN, *arguments]) in (Exit.ERROR, Exit.USAGE)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err.splitlines()[-1]


RAISING = """
from phalanx.policy.policy import Policy

def order(job, at):
    raise KeyError("lunch")

Mine = Policy("mine", order=order)
"""


@pytest.mark.long
@pytest.mark.needs("plotly")
def test_the_report_of_several_loads_and_seeds_says_how_to_repeat_all_of_them(say: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("--policy", "las:quantum=60", "--vary", "load=0.5:1:0.5", "--seeds", "2", "--report", str(page))
    (told,) = json.loads(say(*RUN, *options, "-o", "json"))
    text = page.read_text()
    assert f"<code>phalanx compare --cluster {CLUSTER} --trace {RUN[4]} --vary load=0.5:1:0.5 --seeds 2" in text
    assert "4 runs. Loads: 0.5, 1. Seeds: 2 (0, 1)." in text
    assert "las:quantum=60,dims=2" in text
    assert len(told["runs"]) == 4
    for each in told["runs"]:
        assert each["digest"] in text


def test_tiers_have_columns_only_where_there_are_tiers(say: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "job_id,submit_s,duration_s,gpus,tier\n1,0,100,1,{}\n"
    for tier in ("", "premium"):
        trace.write_text(rows.format(tier))
        shown = say(RUN[0], "--cluster", CLUSTER, "--trace", str(trace), "--policy", "fifo", "-o", "wide")
        assert ("PREMIUM SLA" in shown) is (tier == "premium")


def test_a_policy_that_raises_in_another_process_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RAISING)
    assert run(cli, [*RUN, "--policy", "fifo", "--policy", "./mine.py:Mine"]) == Exit.ERROR
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == ["POLICY", "fifo"]
    note, line = captured.err.splitlines()
    assert note == "note: 1 of 2 runs are finished; the others are not in what is shown"
    assert "policy ./mine.py:Mine: order(job 1) raised KeyError: 'lunch' (mine.py, line 5)" in line


@pytest.mark.parametrize("raising", [RAISING, RAISING.replace('KeyError("lunch")', "SystemExit(3)")])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_policy_that_raises_leaves_the_others_what_they_are_whatever_the_order(
    workers: str, raising: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(raising)
    policies = ["--policy", "./mine.py:Mine", "--policy", "fifo", "--policy", "srtf", "--workers", workers]
    assert run(cli, [*RUN, *policies, "-o", "json"]) == Exit.ERROR
    captured = capsys.readouterr()
    assert [summary["policy"] for summary in json.loads(captured.out)] == ["fifo", "srtf"]
    assert "policy ./mine.py:Mine: order(job 1) raised" in captured.err


EMPTY = "job_id,submit_s,duration_s,gpus\n"


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [(EMPTY, [], "has no job to run"), (EMPTY + "1,soon,1,1\n", ["--skip-bad-rows"], "rows that were dropped: 1")],
)
def test_a_trace_without_jobs_is_told_so(
    text: str, options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.csv").write_text(text)
    run_it = ["compare", "--cluster", str(CLUSTER), "--trace", str(tmp_path / "empty.csv"), "--policy", "fifo"]
    assert run(cli, [*run_it, *options]) == Exit.ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert "empty.csv" in line
    assert reason in line


def test_a_process_that_dies_is_told_with_its_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dying.py").write_text(RAISING.replace('raise KeyError("lunch")', "import os; os._exit(9)"))
    assert run(cli, [*RUN, "--policy", "fifo", "--policy", "./dying.py:Mine", "--workers", "2"]) == Exit.ERROR
    assert "policy ./dying.py:Mine: its process died" in capsys.readouterr().err


WAITING = """
import pathlib
from phalanx.policy.policy import Policy

def order(job, at):
    # Opening a pipe waits for somebody at its other end: this run tells that it has begun, and goes no further.
    pathlib.Path("begun").open("w").close()
    pathlib.Path("never").open().close()
    return (0,)

Mine = Policy("mine", order=order)
"""


def test_ctrl_c_ends_all_processes_and_shows_what_is_finished(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WAITING)
    for name in ("begun", "never"):
        os.mkfifo(tmp_path / name)
    policies = ("--policy", "./mine.py:Mine", "--policy", "fifo", "--workers", "2", "-o", "json")
    arguments = [sys.executable, "-m", "phalanx", *RUN, *policies]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        (tmp_path / "begun").open().close()
        # As a terminal does, to every process of the group.
        os.killpg(process.pid, signal.SIGINT)
        # It returns when nobody holds these pipes any more: then no process is left.
        shown, told = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert " of 2 runs are finished" in told
    if shown:
        assert [summary["policy"] for summary in json.loads(shown)] == ["fifo"]
