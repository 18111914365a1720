"""`phalanx what-if`: two futures of a saved run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

ROOT = Path(__file__).parents[2]
RUN = (
    *("simulate", "--cluster", str(ROOT / "examples" / "cluster-small.yaml")),
    *("--trace", "synthetic:jobs=60,load=2.0,shape=gavel", "--policy", "backfill", "--until", "12h"),
)


@pytest.fixture
def saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A run that was saved half way."""
    path = str(tmp_path / "half.sim")
    assert run(cli, [*RUN, "--save", path]) == Exit.OK
    capsys.readouterr()
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb that succeeds; what it printed on stdout."""

    def said(*arguments: str) -> str:
        assert run(cli, arguments) == Exit.OK, capsys.readouterr().err
        return capsys.readouterr().out

    return said


def a_job(tmp_path: Path, gpus: int, duration: str = "duration: 2h") -> str:
    path = tmp_path / f"job-{gpus}.yaml"
    path.write_text(f"version: 1\nname: mine\ncommand: [train]\ngpus: {gpus}\n{duration}\n")
    return str(path)


def test_the_future_as_it_is_is_that_of_resume(saved: str, say: Any) -> None:
    futures = json.loads(say("what-if", "--state", saved, "--fail", "gpu0", "-o", "json"))
    resumed = json.loads(say("simulate", "--resume", saved, "-o", "json"))
    assert futures["as_it_is"] | {"run": None} == resumed | {"run": None}


def test_the_fork_is_at_the_moment_asked_for_and_not_at_the_last_event_before(
    saved: str, say: Any, tmp_path: Path
) -> None:
    futures = json.loads(say("what-if", "--state", saved, "--job", a_job(tmp_path, 1), "-o", "json"))
    assert futures["now_s"] == 12 * 3600
    (job,) = futures["jobs"]
    assert job["start_s"] - job["wait_s"] == 12 * 3600


def test_a_failing_node_delays_others_and_saves_nothing(saved: str, say: Any) -> None:
    before = Path(saved).read_bytes()
    futures = json.loads(say("what-if", "--state", saved, "--fail", "gpu0", "--fail", "gpu1", "-o", "json"))
    assert futures["others"]["later"] > 0
    assert futures["what_if"]["lost_gpu_s"] > futures["as_it_is"]["lost_gpu_s"]
    assert Path(saved).read_bytes() == before


def test_a_job_that_is_submitted_now_is_told_its_start_and_end(saved: str, say: Any, tmp_path: Path) -> None:
    futures = json.loads(say("what-if", "--state", saved, "--job", a_job(tmp_path, 8), "-o", "json"))
    (job,) = futures["jobs"]
    assert job["job_id"] == "61"
    assert job["state"] == "succeeded"
    assert job["start_s"] >= futures["now_s"]
    assert job["end_s"] == pytest.approx(job["start_s"] + 7200)
    assert futures["what_if"]["jobs"]["completed"] == futures["as_it_is"]["jobs"]["completed"] + 1


@pytest.mark.parametrize(
    ("checkpoint", "end_s"),
    [("", 300 + 900), ("checkpoint: {}", 300 + 800), ("checkpoint: {cost: 20s}", 300 + 800)],
)
def test_a_job_that_is_stopped_goes_on_from_what_it_saves_and_loses_all_if_it_saves_nothing(
    checkpoint: str, end_s: int, say: Any, tmp_path: Path
) -> None:
    cluster, trace, saved = tmp_path / "one.yaml", tmp_path / "two.csv", str(tmp_path / "begin.sim")
    cluster.write_text("version: 1\nname: one\nnodes: [{name: n0, gpus: 8}]\n")
    trace.write_text("job_id,submit_s,duration_s,gpus\n1,0,10,1\n2,200,100,8\n")
    options = ("--policy", "srtf", "--costs", "none", "--until", "100s", "--save", saved)
    say("simulate", "--cluster", str(cluster), "--trace", str(trace), *options)
    mine = a_job(tmp_path, 8, f"duration: 900s\n{checkpoint}")
    (job,) = json.loads(say("what-if", "--state", saved, "--job", mine, "-o", "json"))["jobs"]
    assert job["end_s"] == end_s


def test_more_nodes_let_jobs_end_sooner(saved: str, say: Any) -> None:
    futures = json.loads(say("what-if", "--state", saved, "--add-nodes", "8", "-o", "json"))
    assert futures["others"]["sooner"] > 0
    assert futures["what_if"]["wait_s"]["mean"] < futures["as_it_is"]["wait_s"]["mean"]
    assert futures["what_if"]["gpu_allocated"] < futures["as_it_is"]["gpu_allocated"]


def test_another_policy_takes_over_at_the_fork(saved: str, say: Any) -> None:
    futures = json.loads(say("what-if", "--state", saved, "--policy", "srtf", "-o", "json"))
    assert futures["what_if"]["preemptions"] > futures["as_it_is"]["preemptions"]
    assert futures["what_if"]["jobs"]["completed"] == futures["as_it_is"]["jobs"]["completed"]


def test_a_policy_with_a_solver_can_take_over(saved: str, say: Any) -> None:
    futures = json.loads(say("what-if", "--state", saved, "--policy", "gavel", "-o", "json"))
    assert futures["what_if"]["jobs"]["completed"] == futures["as_it_is"]["jobs"]["completed"]


def test_people_get_both_futures_and_what_becomes_of_the_job(saved: str, say: Any, tmp_path: Path) -> None:
    shown = say("what-if", "--state", saved, "--job", a_job(tmp_path, 8), "--job", a_job(tmp_path, 64)).splitlines()
    assert shown[0].startswith("FUTURE")
    assert [line[:8] for line in shown[1:3]] == ["as it is", "what if "]
    assert "other jobs end: " in shown[4]
    assert shown[5].startswith("job 61 (mine) starts at ")
    assert shown[6].startswith("job 62 (mine) does not start: no part of this cluster could ever hold it")
    assert say("what-if", "--state", saved, "--fail", "gpu0", "-o", "name") == "as it is\nwhat if\n"


@pytest.mark.parametrize("example", ["3d-parallel-70b", "array", "elastic", "gang", "single-gpu"])
def test_jobs_of_the_examples_start_on_the_cluster_of_the_guide(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, state = str(ROOT / "examples" / "cluster-simulate.yaml"), str(tmp_path / "state.sim")
    trace = ("--trace", "synthetic:jobs=5,load=0.5,shape=gavel")
    assert run(cli, ["simulate", "--cluster", cluster, *trace, "--until", "1h", "--save", state]) == Exit.OK
    capsys.readouterr()
    assert run(cli, ["what-if", "--state", state, "--job", str(ROOT / "examples" / f"job-{example}.yaml")]) == Exit.OK
    shown = capsys.readouterr()
    assert " starts at " in shown.out
    assert "does not start" not in shown.out
    assert "never fit" not in shown.err


def test_what_a_job_asks_for_that_no_node_has_is_told(saved: str, tmp_path: Path, capsys: Any) -> None:
    job = a_job(tmp_path, 1, "duration: 2h\ncpus: 1000")
    assert run(cli, ["what-if", "--state", saved, "--job", job]) == Exit.OK
    note = "note: 1 job never fits its cluster: job 61 asks for 1 GPU, with more CPUs than a node has\n"
    assert capsys.readouterr().err == note


def test_jobs_of_several_files_may_wait_for_one_another(saved: str, say: Any, tmp_path: Path) -> None:
    first, second = a_job(tmp_path, 1, "duration: 2h\narray: 0-1"), tmp_path / "second.yaml"
    second.write_text("name: second\ncommand: x\ngpus: 1\nduration: 1h\nafter: [mine]\n")
    told = json.loads(say("what-if", "--state", saved, "--job", str(second), "--job", first, "-o", "json"))["jobs"]
    jobs = {job["job_id"]: job for job in told}
    assert list(jobs) == ["62.0", "62.1", "61"]
    assert jobs["61"]["start_s"] >= max(jobs["62.0"]["end_s"], jobs["62.1"]["end_s"])


def test_jobs_that_wait_for_one_another_in_a_circle_are_refused(saved: str, tmp_path: Path, capsys: Any) -> None:
    first, second = a_job(tmp_path, 1, "duration: 2h\nafter: [second]"), tmp_path / "second.yaml"
    second.write_text("name: second\ncommand: x\ngpus: 1\nduration: 1h\nafter: [mine]\n")
    assert run(cli, ["what-if", "--state", saved, "--job", first, "--job", str(second)]) == Exit.ERROR
    assert "none could ever start: mine -> second -> mine" in capsys.readouterr().err


def test_a_job_without_a_duration_is_taken_to_run_for_ever(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["what-if", "--state", saved, "--job", a_job(tmp_path, 1, "")]) == Exit.OK
    captured = capsys.readouterr()
    assert "gives no duration" in captured.err
    assert "is running at the end" in captured.out


@pytest.mark.parametrize(
    ("arguments", "line", "code"),
    [
        ((), "Say what happens", Exit.USAGE),
        (("--fail", "gpu9"), "--fail: there is no node 'gpu9': ", Exit.NOT_FOUND),
        (("--job", "nowhere.yaml"), "nowhere.yaml: No such file or directory", Exit.ERROR),
        (("--fail", "gpu0", "--until", "noon"), "until noon: expected a time", Exit.ERROR),
        (("--policy", "fastest"), "fastest", Exit.ERROR),
        (("--policy", "fifo", "--policy", "sjf"), "--policy is given 2 times (fifo, sjf)", Exit.USAGE),
        (
            ("--fail", "gpu0", "--until", "11h"),
            "half.sim was saved at 12h 0m (43,200 s) of virtual time, and no run goes back",
            Exit.ERROR,
        ),
        (("--add-nodes", "some"), "expected a number from 1 to", Exit.ERROR),
        (("--add-nodes", "2:gpu9"), "there is no node 'gpu9'", Exit.NOT_FOUND),
    ],
)
def test_bad_input_is_told_in_one_line(
    arguments: tuple[str, ...], line: str, code: Exit, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["what-if", "--state", saved, *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err.splitlines()[-1]


def test_a_cluster_that_is_a_number_has_no_nodes_to_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "half.sim")
    assert run(cli, [*RUN, "--placement", "count", "--save", path]) == Exit.OK
    assert run(cli, ["what-if", "--state", path, "--fail", "pool"]) == Exit.ERROR
    assert "it has no nodes that could fail" in capsys.readouterr().err


def test_a_job_that_can_never_fit_its_queue_does_not_start_and_the_future_goes_on(tmp_path: Path, say: Any) -> None:
    cluster, trace, half = tmp_path / "cluster.yaml", tmp_path / "trace.csv", str(tmp_path / "half.sim")
    cluster.write_text("nodes: [{count: 1, gpus: 8}]\nqueues: [{name: a, limit: {gpus: 4}}]\n")
    trace.write_text("job_id,submit_s,duration_s,gpus,queue\n1,0,60,4,a\n2,30,60,8,a\n")
    say("simulate", "--cluster", str(cluster), "--trace", str(trace), "--until", "10s", "--save", half)
    job = Path(a_job(tmp_path, 8))
    job.write_text(job.read_text() + "queue: a\n")
    futures = json.loads(say("what-if", "--state", half, "--job", str(job), "-o", "json"))
    [mine] = futures["jobs"]
    assert (mine["state"], mine["start_s"]) == ("waiting", None)
    assert mine["why"] == f"job {mine['job_id']} asks for 8 GPUs, but the queue a can have 4 at most: its limit is 4"
    assert (futures["as_it_is"]["jobs"]["never_fit"], futures["what_if"]["jobs"]["never_fit"]) == (1, 2)
    assert "does not start: job 3 asks for 8 GPUs" in say("what-if", "--state", half, "--job", str(job))
