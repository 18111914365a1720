"""`phalanx simulate`: one object for programs, a summary for people, files beside it, and errors in one line."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli import simulate as verb
from phalanx.cli.exit import Exit
from phalanx.cli.interrupt import Interrupt
from phalanx.cli.main import cli, run
from phalanx.cli.progress import TURNS_BETWEEN_LOOKS, Follower
from phalanx.engine.state.state import State
from phalanx.simulate.studies.batch import Stopped

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples" / "cluster-small.yaml")
TRACE = "synthetic:jobs=60,load=2.0,shape=gavel"
RUN = ("simulate", "--cluster", CLUSTER, "--trace", TRACE)


def phalanx(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "phalanx", *arguments]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb that succeeds; what it printed on stdout."""

    def said(*arguments: str) -> str:
        assert run(cli, arguments) == Exit.OK, capsys.readouterr().err
        return capsys.readouterr().out

    return said


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb that fails; its one line, and that it printed nothing else."""

    def refused(*arguments: str) -> str:
        assert run(cli, arguments) == Exit.ERROR
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.splitlines()) == 1
        return captured.err.removeprefix("phalanx: ").strip()

    return refused


def without_run(text: str) -> str:
    """The printed object without what differs between equal runs."""
    before, _, _ = text.partition('  "run": {')
    return before


def test_equal_runs_print_the_same_bytes_but_for_run_whatever_the_hash_seed() -> None:
    texts = [
        subprocess.run(
            phalanx(*RUN, "--policy", "srtf", "-o", "json"),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert without_run(texts[0]) == without_run(texts[1])
    assert '"digest"' in without_run(texts[0])


def test_programs_get_the_object_that_the_design_names(say: Any) -> None:
    summary = json.loads(say(*RUN, "--policy", "sjf:by=gpus", "-o", "json"))
    assert list(summary) == [
        *("schema", "policy", "jobs", "makespan_s", "jct_s", "wait_s", "queued_s", "slowdown", "by_queue"),
        *("by_size", "gpu_allocated", "gpu_busy"),
        *("fragmentation", "preemptions", "moves", "resizes", "lost_gpu_s", "goodput", "fairness", "events", "digest"),
        "run",
    ]
    assert summary["policy"] == "sjf:by=gpus"
    assert summary["jobs"]["submitted"] == 60 == summary["jobs"]["completed"]
    assert summary["run"]["wall_s"] > 0
    assert summary["run"]["peak_mb"] > 10


def test_people_get_a_summary_and_how_long_jobs_took(say: Any) -> None:
    shown = say(*RUN)
    assert "POLICY    phalanx\n" in shown
    assert "JOBS      60 submitted: 60 completed\n" in shown
    assert [line.split("  ")[0] for line in shown.splitlines()[-3:]] == [
        "to completion",
        "to the first start",
        "pending in all",
    ]
    assert "DIGEST" not in shown
    assert "DIGEST" in say(*RUN, "-o", "wide")


def test_the_policy_is_the_clusters_if_none_is_given(say: Any, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("version: 1\nnodes: [{count: 4, gpus: 8}]\npolicy: srtf\n")
    assert say("simulate", "--cluster", str(cluster), "--trace", TRACE, "-o", "name") == "srtf\n"


def test_the_seed_draws_the_synthetic_trace(say: Any) -> None:
    digests = {json.loads(say(*RUN, "--seed", seed, "-o", "json"))["digest"] for seed in ("0", "0", "1")}
    assert len(digests) == 2


def test_a_cluster_and_a_trace_of_others_are_read(say: Any) -> None:
    traces = ROOT / "tests" / "data" / "traces"
    files = ("--cluster", str(traces / "tiresias_cluster.csv"), "--trace", str(traces / "tiresias_jobs.csv"))
    summary = json.loads(say("simulate", *files, "--placement", "count", "--costs", "none", "-o", "json"))
    assert summary["jobs"]["completed"] == summary["jobs"]["submitted"] > 0
    assert summary["lost_gpu_s"] == 0.0


def test_every_placement_runs_and_random_goes_by_the_seed(say: Any) -> None:
    def digest(placement: str, seed: str) -> str:
        # The trace's own seed stays, so that only the placement can make a difference.
        trace = str(ROOT / "tests" / "data" / "traces" / "jobs.csv")
        options = ("--trace", trace, "--placement", placement, "--seed", seed, "-o", "json")
        return str(json.loads(say("simulate", "--cluster", CLUSTER, *options))["digest"])

    for placement in ("count", "pack", "spread", "topology"):
        assert digest(placement, "1") == digest(placement, "2")
    assert digest("random", "1") == digest("random", "1") != digest("random", "2")


def test_a_line_for_each_job_has_the_columns_of_the_design(say: Any, tmp_path: Path) -> None:
    say(*RUN, "--per-job", str(tmp_path / "jobs.csv"))
    with (tmp_path / "jobs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("job_id", "queue", "state", "submit_s", "start_s", "end_s", "wait_s", "queued_s", "jct_s", "gpus"),
        *("attempts", "preemptions", "lost_gpu_s", "nodes"),
    ]
    assert len(rows) == 60
    assert {row["state"] for row in rows} == {"succeeded"}
    assert all(row["nodes"].startswith("gpu") for row in rows)


def test_the_journal_replays_verified_and_answers_why(say: Any, tmp_path: Path) -> None:
    journal = str(tmp_path / "run.jsonl")
    summary = json.loads(say(*RUN, "--policy", "srtf", "--journal", journal, "--until", "12h", "-o", "json"))
    replayed = json.loads(say("replay", "--verify", journal, "-o", "json"))
    assert replayed["digest"] == summary["digest"]
    assert replayed["records"] == summary["events"]
    assert say("why", "1", "--state", journal)


def test_a_run_that_was_saved_goes_on_to_the_same_bytes(say: Any, tmp_path: Path) -> None:
    whole = say(*RUN, "--policy", "srtf", "-o", "json")
    saved = str(tmp_path / "half.sim")
    half = json.loads(say(*RUN, "--policy", "srtf", "--until", "12h", "--save", saved, "-o", "json"))
    assert half["jobs"]["unfinished"] > 0
    assert without_run(say("simulate", "--resume", saved, "-o", "json")) == without_run(whole)
    assert without_run(say("simulate", "--resume", saved, "--policy", "srtf", "-o", "json")) == without_run(whole)


def test_a_resumed_run_keeps_its_setup(refusal: Any, say: Any, tmp_path: Path, capsys: Any) -> None:
    saved = str(tmp_path / "half.sim")
    say(*RUN, "--until", "12h", "--save", saved)
    assert refusal("simulate", "--resume", saved, "--policy", "sjf").endswith(f"phalanx what-if --state {saved}")
    assert "without --journal" in refusal("simulate", "--resume", saved, "--journal", str(tmp_path / "run.jsonl"))
    assert run(cli, [*RUN, "--resume", saved]) == Exit.USAGE
    assert "--cluster is of a new run" in capsys.readouterr().err


def test_a_resumed_run_does_not_go_back(refusal: Any, say: Any, tmp_path: Path) -> None:
    half = str(tmp_path / "half.sim")
    say(*RUN, "--until", "12h", "--save", half)
    told = refusal("simulate", "--resume", half, "--until", "1h")
    assert told == f"--until 1h: {half} was saved at 12h 0m (43,200 s) of virtual time, and no run goes back"
    say("simulate", "--resume", half, "--until", "12h")


def test_a_journal_goes_on_where_it_was_kept_from_the_beginning(say: Any, tmp_path: Path) -> None:
    saved, half, whole = (str(tmp_path / name) for name in ("half.sim", "half.jsonl", "whole.jsonl"))
    say(*RUN, "--until", "12h", "--save", saved, "--journal", half)
    say("simulate", "--resume", saved, "--journal", whole)
    assert Path(whole).read_bytes().startswith(Path(half).read_bytes())
    assert json.loads(say("replay", "--verify", whole, "-o", "json"))["verified"] is True


def test_a_node_that_fails_costs_its_jobs_their_work(say: Any, tmp_path: Path) -> None:
    faults = tmp_path / "faults.csv"
    faults.write_text("at_s,node,health,reason\n90000,gpu0,healthy,\n40000,gpu0,failed,XID 79\n")
    calm = json.loads(say(*RUN, "-o", "json"))
    rough = json.loads(say(*RUN, "--faults", str(faults), "-o", "json"))
    assert rough["jobs"] == calm["jobs"]
    assert rough["lost_gpu_s"] > calm["lost_gpu_s"]


def test_several_loads_and_seeds_make_one_object_with_curves(say: Any) -> None:
    text = say(*RUN, "--vary", "load=0.5:1.0:0.5", "--seeds", "2", "-o", "json")
    varied = json.loads(text)
    assert list(varied) == ["schema", "policy", "runs", "curves", "differences"]
    assert [(each["load"], each["seed"]) for each in varied["runs"]] == [(0.5, 0), (0.5, 1), (1.0, 0), (1.0, 1)]
    wait = next(curve for curve in varied["curves"] if curve["metric"] == "wait_s.mean")
    assert [point["at"] for point in wait["points"]] == [0.5, 1.0]
    assert {point["seeds"] for point in wait["points"]} == {2}


def test_what_belongs_to_one_run_is_refused_for_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, [*RUN, "--seeds", "2", "--per-job", str(tmp_path / "jobs.csv")]) == Exit.USAGE
    assert "--per-job is of one run" in capsys.readouterr().err


@pytest.mark.needs("plotly")
def test_a_report_is_written(say: Any, tmp_path: Path) -> None:
    say(*RUN, "--report", str(tmp_path / "report.html"))
    assert "jobs, decided by the scheduler" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize("placement", ["count", "topology"])
def test_why_a_job_is_too_large_is_told_alike_where_the_cluster_is_a_number(
    placement: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\nhuge,0,60,100\nsmall,1,60,8\n")
    options = ["--trace", str(trace), "--placement", placement, "-o", "json"]
    assert run(cli, ["simulate", "--cluster", CLUSTER, *options]) == Exit.OK
    captured = capsys.readouterr()
    why = json.loads(captured.out)["never_fit"]["cluster"]["why"]
    assert why.startswith("job huge asks for 100 GPUs, and the cluster has ")
    assert why in captured.err


def test_a_job_larger_than_the_cluster_never_fits_and_holds_up_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\nhuge,0,60,64\nsmall,1,60,8\n")
    assert run(cli, ["simulate", "--cluster", CLUSTER, "--trace", str(trace), "-o", "json"]) == Exit.OK
    captured = capsys.readouterr()
    assert json.loads(captured.out)["jobs"] == {
        "submitted": 2,
        "completed": 1,
        "failed": 0,
        "cancelled": 0,
        "never_fit": 1,
        "unfinished": 0,
    }
    assert captured.err == "note: 1 job never fits its cluster: job huge asks for 64 GPUs, and the cluster has 32\n"


QUOTAS = """
name: shared
nodes: [{count: 2, gpus: 8}]
queues:
  - {name: small, limit: {gpus: 4}}
  - {name: large, deserved: {gpus: 12}}
"""

VIRTUAL_CLUSTERS = """
name: shared
levels: [node, socket]
nodes: [{count: 2, gpus: 8, split: {socket: 2}}]
virtual_clusters:
  small: {cells: [{level: socket}]}
  large: {cells: [{level: node}]}
"""


@pytest.fixture
def of_two_sizes(tmp_path: Path) -> Any:
    """The options of a run in which `big` and `bigger` are too large for the queue `small`, and `fits` is not."""
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "job_id,submit_s,duration_s,gpus,queue,cancel_s\n"
        "big,0,60,8,small,\nfits,1,60,4,small,\nbigger,2,60,16,small,30\nother,3,60,8,large,\n"
    )

    def options(cluster: str) -> list[str]:
        path = tmp_path / "cluster.yaml"
        path.write_text(cluster)
        return ["--cluster", str(path), "--trace", str(trace)]

    return options


def test_a_job_that_can_never_fit_its_queue_is_counted_and_the_run_goes_on(
    of_two_sizes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    per_job = tmp_path / "jobs.csv"
    arguments = ["simulate", *of_two_sizes(QUOTAS), "--per-job", str(per_job)]
    assert run(cli, [*arguments, "-o", "json"]) == Exit.OK
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    why = "job bigger asks for 16 GPUs, but the queue small can have 4 at most: its limit is 4"
    assert summary["jobs"] | {"submitted": 4, "completed": 2, "never_fit": 2, "unfinished": 0} == summary["jobs"]
    assert summary["never_fit"] == {"queue": {"jobs": 2, "largest": "bigger", "gpus": 16, "why": why}}
    assert captured.err == f"note: 2 jobs never fit their queue; the largest: {why}\n"
    rows = {row["job_id"]: row for row in csv.DictReader(per_job.read_text().splitlines())}
    assert (rows["big"]["state"], rows["big"]["submit_s"], rows["big"]["attempts"]) == ("waiting", "0.0", "0")
    assert run(cli, arguments) == Exit.OK
    assert "4 submitted: 2 completed, 2 never fit" in capsys.readouterr().out


def test_a_job_that_can_never_fit_its_virtual_cluster_is_counted_and_the_run_goes_on(
    of_two_sizes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["simulate", *of_two_sizes(VIRTUAL_CLUSTERS), "-o", "json"]) == Exit.OK
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert (summary["jobs"]["completed"], summary["never_fit"]["virtual_cluster"]["jobs"]) == (2, 2)
    assert "note: 2 jobs never fit their virtual cluster; the largest: job bigger can never run" in captured.err


def test_a_queue_that_there_is_not_ends_the_run(of_two_sizes: Any, tmp_path: Path, refusal: Any) -> None:
    options = of_two_sizes(QUOTAS.replace("small", "tiny"))
    told = refusal("simulate", *options)
    assert "Unknown queue 'small' of job big. Queues: " in told
    assert "add small to its `queues:`, or leave that section out" in told


def test_queues_that_there_are_not_are_all_told_before_the_first_job_runs(tmp_path: Path, refusal: Any) -> None:
    cluster, trace, journal = tmp_path / "c.yaml", tmp_path / "t.csv", tmp_path / "journal"
    cluster.write_text("version: 1\nnodes: [{count: 1, name: n, gpus: 8}]\nqueues: [{name: a}, {name: b}]\n")
    rows = ["1,0,60,1,a", "2,60,60,1,x", "3,120,60,1,y", "4,180,60,1,x"]
    trace.write_text("\n".join(("job_id,submit_s,duration_s,gpus,queue", *rows)))
    told = refusal("simulate", "--cluster", str(cluster), "--trace", str(trace), "--journal", str(journal))
    assert "Unknown queue 'x' of job 2. Queues: a, b; 3 of 4 jobs are of such queues" in told
    assert "add x, y to its `queues:`" in told


def test_a_run_without_those_who_never_fit_goes_on_where_it_was_saved(
    of_two_sizes: Any, tmp_path: Path, say: Any
) -> None:
    options, half = of_two_sizes(QUOTAS), str(tmp_path / "half.sim")
    say("simulate", *options, "--until", "10s", "--save", half)
    whole = without_run(say("simulate", *options, "-o", "json"))
    assert without_run(say("simulate", "--resume", half, "-o", "json")) == whole


def test_bad_rows_are_dropped_and_counted_if_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\na,0,60,many\nb,1,60,8\n")
    arguments = ["simulate", "--cluster", CLUSTER, "--trace", str(trace)]
    assert run(cli, arguments) == Exit.ERROR
    assert "trace.csv:2: column 'gpus'" in capsys.readouterr().err
    assert run(cli, [*arguments, "--skip-bad-rows"]) == Exit.OK
    told = capsys.readouterr().err
    assert f"dropped: {trace}:2: column 'gpus'" in told
    assert "note: 1 bad row of trace was dropped" in told


@pytest.mark.parametrize("verb", [("trace", "describe"), ("trace", "convert")])
def test_the_first_of_many_bad_rows_are_named(
    verb: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\n" + "a,0,60,many\n" * 7 + "b,1,60,8\n")
    out = [str(tmp_path / "out.csv")] if verb[1] == "convert" else []
    assert run(cli, [*verb, str(trace), *out, "--skip-bad-rows"]) == Exit.OK
    told = capsys.readouterr().err
    assert [f":{line}: column 'gpus'" in told for line in range(2, 9)] == [True] * 5 + [False] * 2
    assert "note: 7 bad rows of trace were dropped, 2 of them not named here" in told


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--trace", "nowhere.csv"), "nowhere.csv: No such file or directory"),
        (("--cluster", "nowhere.yaml"), "nowhere.yaml: No such file or directory"),
        (("--trace", CLUSTER), "not a trace known here"),
        (("--policy", "nope"), "unknown policy 'nope' (known: "),
        (("--policy", "fifo", "--policy", "sjf"), "--policy is given 2 times (fifo, sjf): simulate runs one"),
        (("--policy", "fifo:skip=true,skip=true"), "skip is given twice, as 'true' and as 'true'"),
        (("--policy", "fifo:speed=9"), "policy fifo has no parameter 'speed' (it has: skip)"),
        (("--policy", "./nope.py:Mine"), "./nope.py: there is no such file"),
        (("--costs", "lunch=1h"), "--costs: there is no cost 'lunch'"),
        (("--until", "noon"), "until noon: expected a time since the run began"),
        (("--load", "0"), "expected a load above 0, got 0"),
        (("--faults", "nowhere.csv"), "nowhere.csv: No such file or directory"),
        (("--trace", "synthetic:load=1.5"), "synthetic:load=1.5: jobs= is missing"),
        (("--trace", "synthetic:jobs=few"), "jobs=few: expected a whole number"),
        (("--trace", "synthetic:jobs=9,jobs=8"), "jobs is given twice, as 9 and as 8"),
        (("--trace", "synthetic:size=1"), "size=1: expected key=value, where key is one of jobs, gpus, "),
        (("--save", "nowhere/half.sim"), "--save nowhere/half.sim: there is no folder nowhere"),
        (("--resume", "nowhere.sim"), "--cluster is of a new run"),
        (("--placement", "nope"), "'nope' is not one of 'count', "),
        (("--vary", "load=1"), "--vary load=1: expected KEY=START:STOP:STEP"),
        (
            ("--load", "1", "--vary", "load=0.5:0.9:0.4"),
            "the load is 1 (--load) and is to vary from 0.5 to 0.9 (--vary)",
        ),
        (("--vary", "gpus=1:2:1"), "expected one of load, nodes before '='"),
    ],
)
def test_bad_input_is_told_in_one_line(
    arguments: tuple[str, ...],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(cli, [*RUN, *arguments]) in (Exit.ERROR, Exit.USAGE)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("at_s,node\n", "expected a column 'health', found at_s, node"),
        ("at_s,node,health,why\n", ":1: there is no column 'why' of faults (there is: at_s, node, health, reason)"),
        (
            "at_s,node,health\n5,gpu9,failed\n",
            ":2: column 'node': expected a node of the cluster, such as gpu0, got gpu9",
        ),
        ("at_s,node,health\n5,gpu0,sick\n", ":2: column 'health': expected one of healthy, suspect, draining, failed"),
        ("at_s,node,health\n5,gpu0,failed\n-1,gpu0,healthy\n", ":3: column 'at_s': expected seconds"),
    ],
)
def test_a_bad_row_of_faults_is_named_by_its_line(rows: str, line: str, refusal: Any, tmp_path: Path) -> None:
    faults = tmp_path / "faults.csv"
    faults.write_text(rows)
    assert line in refusal(*RUN, "--faults", str(faults))


def test_faults_need_nodes(refusal: Any, tmp_path: Path) -> None:
    faults = tmp_path / "faults.csv"
    faults.write_text("at_s,node,health\n5,gpu0,failed\n")
    assert "no nodes that could fail" in refusal(*RUN, "--faults", str(faults), "--placement", "count")


RAISING = """
from phalanx.policy.policy import Policy

def order(job, at):
    if at.now > 3_600_000:
        raise KeyError("lunch")
    return (job.submitted_ms,)

Mine = Policy("mine", order=order)
"""


def test_a_policy_that_raises_is_named_with_its_line(
    refusal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RAISING)
    line = refusal(*RUN, "--policy", "./mine.py:Mine")
    assert line.startswith("policy ./mine.py:Mine: order(job ")
    assert line.endswith("raised KeyError: 'lunch' (mine.py, line 6)")


def test_a_policy_of_ones_own_can_be_saved_and_resumed(
    say: Any, refusal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text('from phalanx.policy.policy import Policy\nMine = Policy("mine")\n')
    say(*RUN, "--policy", "./own.py:Mine", "--until", "12h", "--save", "half.sim")
    whole = say(*RUN, "--policy", "./own.py:Mine", "-o", "json")
    resumed = ["simulate", "--resume", "half.sim", "-o", "json"]
    assert without_run(say(*resumed, "--policy", "./own.py:Mine")) == without_run(whole)
    fresh = subprocess.run(phalanx(*resumed), capture_output=True, text=True, check=True)
    assert without_run(fresh.stdout) == without_run(whole)
    assert "note: half.sim was decided by ./own.py:Mine, which is loaded for it" in fresh.stderr
    (tmp_path / "own.py").unlink()
    gone = subprocess.run(phalanx(*resumed), capture_output=True, text=True)
    assert gone.returncode == Exit.ERROR
    assert "./own.py: there is no such file" in gone.stderr
    assert "put the file back" in gone.stderr


def test_the_first_ctrl_c_is_a_wish_and_the_second_an_order() -> None:
    with Interrupt() as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_shows_and_saves_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient(Follower):
        """Somebody who presses Ctrl-C at the hundredth turn."""

        turns = 0

        def __call__(self, state: State) -> None:
            self.turns += 1
            if self.turns == 100:
                signal.raise_signal(signal.SIGINT)
            super().__call__(state)

    monkeypatch.setattr(verb, "Follower", Impatient)
    saved = str(tmp_path / "half.sim")
    assert run(cli, [*RUN, "--save", saved, "-o", "json"]) == Exit.INTERRUPTED
    captured = capsys.readouterr()
    assert json.loads(captured.out)["jobs"]["unfinished"] > 0
    assert "phalanx: interrupted; this is how it was at " in captured.err
    monkeypatch.undo()
    assert run(cli, ["simulate", "--resume", saved, "-o", "json"]) == Exit.OK
    resumed = capsys.readouterr().out
    assert run(cli, [*RUN, "-o", "json"]) == Exit.OK
    assert without_run(capsys.readouterr().out) == without_run(resumed)


def test_a_follower_looks_at_the_clock_once_in_many_turns() -> None:
    told: list[tuple[int, str]] = []
    follower = Follower(Interrupt(), lambda done, line: told.append((done, line)))
    state = State()
    for _ in range(TURNS_BETWEEN_LOOKS - 1):
        follower(state)
    assert not told
    follower(state)
    assert told == [(0, "0s of virtual time, 0 pending jobs")]


def test_a_follower_ends_the_run_when_asked() -> None:
    interrupt = Interrupt()
    interrupt.asked = True
    with pytest.raises(Stopped):
        Follower(interrupt, None)(State())


def test_a_terminal_gets_a_bar_on_stderr_and_a_pipe_does_not() -> None:
    controller, terminal = pty.openpty()
    arguments = phalanx(*RUN, "-o", "json")
    shown = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=terminal, env={**os.environ, "TERM": "xterm"}, check=True
    )
    os.close(terminal)
    written = os.read(controller, 65_536)
    os.close(controller)
    assert b"jobs" in written
    assert json.loads(shown.stdout)["jobs"]["completed"] == 60
    assert subprocess.run(arguments, capture_output=True, check=True).stderr == b""
