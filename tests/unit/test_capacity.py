"""How many nodes are enough: targets as they are written, the search, and answers that hold when they are run again."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.capacity.demand import most_nodes, peak_gpus
from phalanx.capacity.search import least_holding, least_near
from phalanx.capacity.target import Figure, Target, TargetError
from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import flat
from phalanx.simulate.trace import Trace, TraceJob
from results import a_job_result, a_waiting_job

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples" / "cluster-simulate.yaml")
SACCT = str(ROOT / "tests" / "data" / "traces" / "sacct.txt")
BUSY = "synthetic:jobs=300,load=1.1,shape=gavel"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `phalanx capacity`: its exit code, and what it printed on stdout and stderr."""

    def said(*arguments: str) -> tuple[int, str, str]:
        code = run(cli, ("capacity", "--workers", "1", *arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return said


def test_a_target_is_a_figure_of_some_jobs_and_a_limit() -> None:
    target = Target.parse("p95 queued(gpus>=8, queue=research) < 10m")
    assert target.below_s == 600
    assert str(target.figure) == "p95 queued(gpus>=8,queue=research)"
    assert target.figure.is_of(16, "research/llm")
    assert not target.figure.is_of(4, "research")
    assert not target.figure.is_of(8, "researchers")
    assert Target.parse("mean jct(gpus<8)<1h").figure.is_of(7, "any")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected FIGURE < TIME"),
        ("p95 queued", "expected FIGURE < TIME, such as 'p95 queued(gpus=8) < 10m'"),
        ("p95 queued < soon", "soon: expected a time above 0"),
        ("p95 queued < 0s", "0s: expected a time above 0"),
        ("p95 sleep < 1h", "expected mean, max or p1 to p99, then one of queued, wait, jct"),
        ("p0 queued < 1h", "expected mean, max or p1 to p99"),
        ("p100 queued < 1h", "expected mean, max or p1 to p99"),
        ("p95 queued(gpus=x) < 1h", "gpus=x: expected a number of GPUs of at least 1"),
        ("p95 queued(queue>a) < 1h", "queue>a: expected gpus=8, gpus>=16 or queue=NAME"),
        ("p95 queued(gpus<8)", "expected FIGURE < TIME"),
        ("p95 queued(user=a) < 1h", "user=a: expected gpus=8, gpus>=16 or queue=NAME"),
    ],
)
def test_a_target_that_cannot_be_read_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(TargetError) as error:
        Target.parse(text)
    assert message in str(error.value)
    assert error.value.exit_code == 2


def test_a_job_that_never_starts_waits_for_ever_unless_no_node_could_help() -> None:
    jobs = [a_job_result(str(number), start_s=float(number)) for number in range(1, 20)] + [a_waiting_job("w", gpus=64)]
    queued = Figure.parse("p95 queued")
    assert queued.of(jobs) == 19.0
    assert Figure.parse("max queued").of(jobs) == float("inf")
    assert Figure.parse("mean queued").of(jobs) == float("inf")
    assert Figure.parse("max queued").of(jobs, without={"w": 64}) == 19.0
    assert Figure.parse("max queued(gpus=3)").of(jobs) is None


@given(st.data(), st.integers(1, 5), st.integers(1, 500), st.integers(0, 500))
def test_the_search_finds_the_least_number_that_holds(data: st.DataObject, width: int, floor: int, more: int) -> None:
    most = floor + more
    truth, guess = data.draw(st.integers(floor, most)), data.draw(st.integers(floor, most))
    tried: list[int] = []

    def holds(numbers: Any) -> list[bool]:
        tried.extend(numbers)
        return [number >= truth for number in numbers]

    assert least_holding(floor, most, guess, holds, width) == truth
    assert least_near(floor, most, guess, holds, width) == truth
    assert all(floor <= number <= most for number in tried)
    assert least_near(floor, most, guess, lambda numbers: [False for _ in numbers], width) is None


def test_the_peak_is_what_jobs_would_hold_if_none_waited() -> None:
    jobs = (TraceJob("1", 0, 100, 8), TraceJob("2", 50, 100, 4), TraceJob("3", 100, 100, 8))
    assert peak_gpus(Trace("t", jobs)) == 12
    assert most_nodes(flat(2, 8), Trace("t", jobs)) >= 3


def test_the_answer_holds_when_it_is_run_again_with_other_seeds_and_one_node_less_does_not(say: Any) -> None:
    limit_s = 1200.0
    code, out, err = say(
        *("--cluster", CLUSTER, "--trace", BUSY, "--policy", "backfill", "--load", "+30%", "--seeds", "4"),
        *("--target", "p95 queued(gpus=1) < 20m", "-o", "json"),
    )
    assert code == Exit.OK, err
    (found,) = json.loads(out)
    nodes = found["answer"]["nodes"]
    assert found["reached"]
    assert found["answer"]["figures"][0]["high"] < limit_s
    assert found["check"]["figures"][0]["mean"] < limit_s
    assert [point["nodes"] for point in found["curve"]] == sorted(point["nodes"] for point in found["curve"])
    again = phalanx.compare(
        CLUSTER, BUSY, ["backfill"], vary=f"nodes={nodes - 1}:{nodes}", seeds=6, seed=100, load="+30%"
    )
    figure = Figure.parse("p95 queued(gpus=1)")
    less, enough = (
        fmean(figure.of(result.jobs) or 0.0 for result in again if result.setup["nodes"] == count)
        for count in (nodes - 1, nodes)
    )
    assert enough < limit_s
    (below,) = (point for point in found["curve"] if point["nodes"] == nodes - 1)
    assert below["figures"][0]["high"] >= limit_s
    assert less > enough


def test_a_target_that_no_number_of_nodes_reaches_tells_the_best_that_can_be_reached(say: Any) -> None:
    trace = "synthetic:jobs=60,load=0.9,shape=gavel"
    code, out, _ = say("--cluster", CLUSTER, "--trace", trace, "--seeds", "2", "--target", "mean jct < 1m")
    assert code == Exit.ERROR
    assert "no number of nodes reaches mean jct < 1m: " in out
    assert "is the best; more change nothing" in out


@pytest.mark.parametrize(
    ("rows", "target", "told"),
    [
        (("1,0,60,8", "2,0,60,8", "3,0,60,8"), "max queued < 10s", "3 nodes (24 GPUs) hold max queued < 10s: 0ms"),
        (("1,0,60,8",), "max queued < 10s", "1 node (8 GPUs) hold"),
        (("1,0,0,8", "2,5,0,8", "3,60,0,1"), "max queued < 10s", "2 nodes (16 GPUs) hold"),
    ],
)
def test_traces_of_one_job_of_jobs_all_at_once_and_of_no_length(
    rows: tuple[str, ...], target: str, told: str, say: Any, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(("job_id,submit_s,duration_s,gpus", *rows)))
    code, out, err = say("--cluster", CLUSTER, "--trace", str(trace), "--seeds", "2", "--target", target)
    assert code == Exit.OK
    assert told.replace("0ms", "0s") in out
    assert ("all jobs are submitted at once" in err) == all(row.split(",")[1] == "0" for row in rows)


def test_jobs_that_no_number_of_nodes_starts_are_named_and_left_out(say: Any, tmp_path: Path) -> None:
    cluster, trace = tmp_path / "cluster.yaml", tmp_path / "trace.csv"
    cluster.write_text("nodes: [{count: 2, gpus: 8}]\nqueues: [{name: a, limit: {gpus: 4}}]\n")
    trace.write_text("job_id,submit_s,duration_s,gpus,queue\n1,0,60,4,a\nbig,30,60,8,a\n3,90,60,4,a\n")
    arguments = ("--cluster", str(cluster), "--trace", str(trace), "--seeds", "2")
    code, out, err = say(*arguments, "--target", "p95 queued < 10m")
    assert code == Exit.OK
    assert "1 node (8 GPUs) hold" in out
    assert "1 job starts with no number of nodes and counts in no figure; the largest: big, of 8 GPUs" in err
    code, _, err = say(*arguments, "--target", "p95 queued(gpus=8) < 10m")
    assert code == Exit.ERROR
    assert "p95 queued(gpus=8): no job of the runs is one of these; 1 that start with no number of nodes" in err


def test_a_figure_of_jobs_that_the_trace_does_not_have_is_refused_before_any_run(say: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\n1,0,60,4\n2,50,60,1\n")
    code, _, err = say("--cluster", CLUSTER, "--trace", str(trace), "--target", "p95 queued(gpus=8) < 10m")
    assert code == Exit.ERROR
    assert "p95 queued(gpus=8): no job of the trace is one of these; GPUs: 1, 4; queues: default" in err


def test_a_journal_says_what_its_cluster_would_have_cost_and_how_long_jobs_would_have_waited(
    say: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = str(tmp_path / "run.jsonl")
    assert run(cli, ("simulate", "--cluster", CLUSTER, "--trace", BUSY, "--journal", journal)) == Exit.OK
    arguments = ("--seeds", "3", "--nodes", "8:10:2", "--price", "2", "-o", "json")
    capsys.readouterr()
    code, out, err = say("--trace", journal, "--policy", "backfill", *arguments)
    assert code == Exit.OK, err
    found = json.loads(out)
    assert [(point["nodes"], point["usd_month"]) for point in found] == [(8, 93440.0), (10, 116800.0)]
    assert all(point["usd_held"] == pytest.approx(2 * point["gpu_hours"]["mean"]) for point in found)
    queued = {each["figure"]: each for each in found[0]["figures"]}["mean queued"]
    assert queued["low"] < queued["mean"] < queued["high"]


def test_slurms_history_is_read_as_it_was_printed(say: Any) -> None:
    code, out, err = say(
        "--cluster", str(ROOT / "examples" / "cluster-three-types.yaml"), "--trace", SACCT, "-o", "json"
    )
    assert code == Exit.OK, err
    assert json.loads(out)[0]["gpu_hours"]["mean"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", "0"), "start 0: expected more than 0"),
        (("--nodes", "9:8"), "expected a start of at most 8"),
        (("--nodes", "8.5"), "expected whole numbers of nodes"),
        (("--like", "x9"), "there is no node 'x9' in the cluster"),
        (("--price", "-1"), "-1"),
        (("--figure", "p95"), "expected mean, max or p1 to p99"),
        (("--load", "more"), "load more: expected a number"),
    ],
)
def test_bad_options_are_told_in_one_line(arguments: tuple[str, ...], message: str, say: Any) -> None:
    code, out, err = say("--cluster", CLUSTER, "--trace", BUSY, *arguments)
    assert code != Exit.OK
    assert out == ""
    assert message in err
    assert "Traceback" not in err
