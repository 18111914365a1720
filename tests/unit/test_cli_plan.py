"""`phalanx plan --cluster`: what it says is what was planned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import flat
from phalanx.planning import plan as decide_for
from phalanx.workload.after import Circle, bound, by_dependency
from phalanx.workload.array import members
from phalanx.workload.formats.native import read_job
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Dependency, Job

EXAMPLES = Path(__file__).parents[2] / "examples"
TWO_NODES = "nodes: [{count: 2, gpus: 8, gpu_type: H100}]"
ONE_TASK = "gang: [{gpus: 1}]"
ONE = Gang((Role("worker", task=Task(1)),))

Plan = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans the jobs of some texts, named a, b, …, on a cluster."""
    monkeypatch.chdir(tmp_path)

    def plan(*jobs: str, cluster: str = TWO_NODES, code: int = 0, options: Sequence[str] = ()) -> list[dict[str, Any]]:
        Path("cluster.yaml").write_text(cluster)
        names = [f"{chr(ord('a') + number)}.yaml" for number in range(len(jobs))]
        for name, text in zip(names, jobs, strict=True):
            Path(name).write_text(f"version: 1\nname: {name[0]}\ncommand: [x]\n{text}\n")
        assert run(cli, ["plan", "--cluster", "cluster.yaml", *names, *options, "-o", "json"]) == code
        rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out) if code == 0 else []
        return rows

    return plan


def test_a_plan_is_made_now_so_that_times_mean_what_they_say(planned: Plan) -> None:
    past, future = planned("gpus: 1\nbegin: 2020-01-31T08:00Z", "gpus: 1\nbegin: 9000-01-31T08:00Z")
    assert (past["state"], future["state"]) == ("starting", "waiting")
    late, early = planned(
        "gpus: 1\nduration: 1h\ndeadline: 2020-01-31T08:00Z", "gpus: 1\nduration: 1h\ndeadline: 9000-01-31T08:00Z"
    )
    assert (late["deadline"]["can_be_met"], early["deadline"]["can_be_met"]) == (False, True)


def test_a_plan_is_made_at_another_time_if_that_is_asked_for(planned: Plan) -> None:
    closed = TWO_NODES + "\nmaintenance: [{name: m, nodes: ['*'], start: 2030-01-31T08:00Z, for: 1h}]\n"

    def state(at: str) -> str:
        (row,) = planned("gpus: 1\nduration: 2h\npreemptible: false", cluster=closed, options=("--at", at))
        return str(row["state"])

    assert [state(f"2030-01-31T{at}Z") for at in ("05:00", "07:00", "08:30", "09:00")] == [
        "starting",
        "waiting",
        "waiting",
        "starting",
    ]
    planned("gpus: 1", options=("--at", "yesterday"), code=2)


def test_the_gpus_of_an_elastic_job_are_those_it_gets(planned: Plan) -> None:
    small, large = planned("gang: [{replicas: 4, gpus: 1}]", "gang: [{replicas: {min: 1, max: 200}, gpus: 8}]")
    assert (small["gpus"], small["asks"]) == (4, "4")
    assert (large["gpus"], large["gpus_min"], large["gpus_max"], large["asks"]) == (8, 8, 1600, "8-1600")


def test_a_job_that_gets_nothing_has_no_gpus_and_a_reason(planned: Plan) -> None:
    (row,) = planned("gang: [{replicas: 4, gpus: 8}]")
    assert (row["state"], row["gpus"], row["gpus_max"], row["slots"], row["mesh"]) == ("waiting", 0, 32, [], None)
    assert row["why"].startswith("no part of this cluster could ever hold it")


def test_a_job_waits_for_another_by_its_name(planned: Plan) -> None:
    first, second = planned(ONE_TASK, f"{ONE_TASK}\nafter: [a]")
    assert (first["state"], second["state"], second["why"]) == ("starting", "waiting", "it waits for job 1")


def test_a_job_may_wait_for_one_of_a_later_file(planned: Plan) -> None:
    first, second = planned(f"{ONE_TASK}\nafter: [b]", ONE_TASK)
    assert [(row["job"], row["name"], row["state"]) for row in (first, second)] == [
        ("1", "a", "waiting"),
        ("2", "b", "starting"),
    ]
    assert first["why"] == "it waits for job 2"


@pytest.mark.parametrize(
    ("jobs", "shown"),
    [
        ((f"{ONE_TASK}\nafter: [b]", f"{ONE_TASK}\nafter: [a]"), "none could ever start: a -> b -> a"),
        (
            (f"{ONE_TASK}\nafter: [b]", f"{ONE_TASK}\nafter: [c]", f"{ONE_TASK}\nafter: [b]"),
            "none could ever start: b -> c -> b",
        ),
        ((f"{ONE_TASK}\nafter: [a]",), "job a waits for itself: a -> a"),
        ((f"{ONE_TASK}\nafter: ['1']",), "the job 1 cannot wait for itself"),
    ],
)
def test_jobs_that_wait_for_one_another_are_refused_with_the_circle_shown(
    planned: Plan, capsys: pytest.CaptureFixture[str], jobs: tuple[str, ...], shown: str
) -> None:
    planned(*jobs, code=Exit.ERROR)
    assert shown in capsys.readouterr().err


def read(*jobs: str) -> list[Job]:
    """The jobs of some texts, numbered, with the members of arrays."""
    each = (read_job(f"version: 1\ncommand: [x]\n{text}", "x", job_id=str(i)) for i, text in enumerate(jobs, 1))
    return [member for job in each for member in members(job)]


def texts(*jobs: str) -> list[tuple[str, str]]:
    """Whom each of some jobs waits for, once bound."""
    return [(job.id, ",".join(each.job for each in job.after)) for job in bound(read(*jobs))]


def test_names_and_ids_and_arrays_are_bound_to_ids() -> None:
    array, waits = f"name: many\n{ONE_TASK}\narray: 0-1", f"{ONE_TASK}\nafter: [many, '1.1', '1', nobody]"
    assert texts(array, waits) == [("1.0", ""), ("1.1", ""), ("2", "1.0,1.1,1.1,1.0,1.1,nobody")]


def test_a_name_that_several_have_and_a_job_that_waits_for_itself_are_clear_errors() -> None:
    with pytest.raises(ValueError, match="several jobs are named 'x': say which of 1, 2"):
        texts(f"name: x\n{ONE_TASK}", f"name: x\n{ONE_TASK}", f"{ONE_TASK}\nafter: [x]")
    with pytest.raises(ValueError, match="job own waits for itself: own -> own"):
        by_dependency(bound(read(f"name: own\n{ONE_TASK}\narray: 0-2\nafter: [own]")))


def test_who_is_waited_for_comes_first_and_all_else_stays_as_given() -> None:
    jobs = read(ONE_TASK, f"{ONE_TASK}\nafter: ['4']", ONE_TASK, f"{ONE_TASK}\nafter: ['5']", ONE_TASK)
    assert [job.id for job in by_dependency(bound(jobs))] == ["1", "5", "4", "2", "3"]


def test_a_chain_longer_than_the_stack_is_put_in_order_and_a_long_circle_is_shown_shortened() -> None:
    chain = [Job(str(i), ONE, after=(Dependency(str(i + 1)),)) for i in range(5000)]
    assert [job.id for job in by_dependency([*chain, Job("5000", ONE)])][:2] == ["5000", "4999"]
    with pytest.raises(Circle) as error:
        by_dependency([*chain, Job("5000", ONE, after=(Dependency("7"),))])
    assert str(error.value).endswith(
        "7 -> 8 -> 9 -> 10 -> 11 -> 12 -> 13 -> 14 -> 15 -> 16 -> 17 -> 18 -> 19 -> 20 "
        "-> 21 -> 22 -> 23 -> 24 -> 25 -> … -> 7"
    )


def test_a_role_with_members_has_no_task_of_its_own() -> None:
    role = Role("v", task=Task(1), members=(Role("w", task=Task(1)),))
    with pytest.raises(ValueError, match="job j, role v: it has members, so give its task to one of them"):
        decide_for(flat(1, 8), [Job("j", Gang((role,)))])


def test_two_jobs_of_one_name_in_a_circle_are_told_by_their_ids() -> None:
    jobs = read(f"name: x\n{ONE_TASK}\nafter: ['2']", f"name: x\n{ONE_TASK}\nafter: ['1']")
    with pytest.raises(ValueError, match="1 -> 2 -> 1"):
        by_dependency(bound(jobs))


def test_a_file_given_twice_is_two_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "job-single-gpu.yaml")
    assert run(cli, ["plan", "--cluster", str(EXAMPLES / "cluster-small.yaml"), file, file, "-o", "json"]) == 0
    assert [row["job"] for row in json.loads(capsys.readouterr().out)] == ["1", "2"]


def test_what_is_left_does_not_depend_on_the_order_of_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / name) for name in ("job-3d-parallel-70b.yaml", "job-service.yaml")]
    rests = []
    for order in (files, files[::-1]):
        assert run(cli, ["plan", "--cluster", str(EXAMPLES / "cluster-three-types.yaml"), *order]) == 0
        rests.append(capsys.readouterr().out.splitlines()[-1])
    assert rests[0] == rests[1]
    assert "; more tasks like these could use " in rests[0]


def test_the_closing_line_counts_and_says_whose_use_it_speaks_of(
    planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    def closing(cluster: str, job: str) -> str:
        planned(job, cluster=cluster)
        assert run(cli, ["plan", "--cluster", "cluster.yaml", "a.yaml"]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    nodes = "nodes: [{count: 2, gpus: 8}]"
    assert closing(nodes, "gang: [{replicas: 2, gpus: 1}]\ntopology: {required: node}") == (
        "14 of 16 GPUs are free, with room for 1 task of 8; more tasks like these could use 100% of them"
    )
    assert closing(nodes, "gpus: 16") == (
        "16 of 16 GPUs are free, with room for 2 tasks of 8; more tasks like these could use 0% of them"
    )
    assert closing("nodes: [{gpus: 2}]", "gpus: 1") == (
        "1 of 2 GPUs is free, with room for 0 tasks of 2; more tasks like these could use 100% of them"
    )
    assert closing("nodes: [{gpus: 2}]", "gpus: 2") == "0 of 2 GPUs are free"


def test_a_device_that_tasks_share_counts_once(planned: Plan) -> None:
    (row,) = planned("gang: [{replicas: 3, gpus: 1}]\nshare: {fraction: 0.5}", cluster="nodes: [{gpus: 8}]")
    assert (len(row["slots"]), row["gpus"]) == (3, 2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            "gpus: 1\nstorage:\n  disk: 3",
            "a.yaml:3: key 'storage.disk': this cluster has no storage tier 'disk', it has none",
        ),
        ("gpus: 1\ntopology:\n  required: rck", "a.yaml:3: key 'topology.required': this cluster has no level 'rck'"),
        (
            "gang:\n- gpus: 1\n  topology: {preferred: pod}",
            "a.yaml:3: key 'gang[0].topology.preferred': this cluster has no level 'pod'",
        ),
        ("gpus: 1\nafter:\n- b\n- nobody", "a.yaml:4: key 'after[1]': job 1 waits for job 'nobody', which does not"),
        ("gpus: 1\nafter:\n- {job: b}", "a.yaml:3: key 'after[0]': these jobs wait for one another"),
        ("gpus: 1\nafter: [same]\nname: other", "a.yaml:2: key 'after[0]': several jobs are named 'same'"),
        ("gpus: 1\nqueue: none", "a.yaml: Unknown queue 'none' of job 1. Queues: "),
    ],
)
def test_what_only_cluster_and_other_jobs_show_is_told_with_file_line_and_key(
    wrong: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text("nodes: [{count: 2, gpus: 8, rack: r0}]\nqueues: [{name: default}]\n")
    Path("a.yaml").write_text(wrong + "\n" + ("" if "name:" in wrong else "name: a\n"))
    others = {"b": "name: b\ngpus: 1\nafter: [a]\n"} if "{job: b}" in wrong else {"b": "name: b\ngpus: 1\n"}
    if "same" in wrong:
        others |= {"c": "name: same\ngpus: 1\n", "d": "name: same\ngpus: 1\n"}
    for name, text in others.items():
        Path(f"{name}.yaml").write_text(text)
    files = [f"{name}.yaml" for name in ("a", *others)]
    assert run(cli, ["plan", "--cluster", "cluster.yaml", *files]) != 0
    assert told in capsys.readouterr().err


def test_every_kind_of_share_is_shown(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    asks = ("{fraction: 0.5}", "{mps: 30}", "{turns: 2}")
    rows = planned(*(f"{ONE_TASK}\nshare: {ask}" for ask in asks))
    assert [row["share"] for row in rows] == ["fraction 50%", "mps 30%", "turn 1 of 2"]
    portions = [row["slots"][0]["portion"] for row in rows]
    assert [each["mode"] for each in portions] == ["fraction", "mps", "turns"]
    assert [each["compute_permille"] for each in portions[:2]] == [500, 300]
    assert (portions[2]["turn"], portions[2]["turns"]) == (0, 2)
    assert run(cli, ["plan", "--cluster", "cluster.yaml", "a.yaml", "-o", "yaml"]) == 0
    assert "mode: fraction" in capsys.readouterr().out


def test_a_task_with_devices_of_its_own_has_no_portion(planned: Plan) -> None:
    (row,) = planned(ONE_TASK)
    assert (row["share"], row["slots"][0]["portion"]) == ("", None)


def test_a_job_whose_instances_are_being_cut_says_so(planned: Plan) -> None:
    (row,) = planned(f"{ONE_TASK}\nshare: {{mig: 1g.10gb}}")
    assert (row["state"], row["share"]) == ("waiting", "mig 1g.10gb")
    assert row["why"] == "its devices are being cut into the instances it asked for"
    assert row["slots"][0]["portion"]["mig_profile"] == "1g.10gb"


def test_a_mesh_gives_every_rank_its_place_and_its_device(planned: Plan) -> None:
    (row,) = planned("gang: [{replicas: 2, gpus: 8}]\nparallel: {tp: 4, pp: 2, dp: 2}")
    mesh = row["mesh"]
    assert (mesh["tp"], mesh["pp"], mesh["dp"]) == (4, 2, 2)
    assert [each["rank"] for each in mesh["ranks"]] == list(range(16))
    assert all(each["rank"] == (each["dp"] * 2 + each["pp"]) * 4 + each["tp"] for each in mesh["ranks"])
    assert len({(each["node"], each["device"]) for each in mesh["ranks"]}) == 16
    for group in range(0, 16, 4):
        assert len({each["node"] for each in mesh["ranks"][group : group + 4]}) == 1


def test_the_bottleneck_of_a_step_is_the_dimension_that_takes_longest(
    planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    parallel, plain = planned("gang: [{replicas: 2, gpus: 8}]\nparallel: {tp: 8, pp: 1, dp: 2}", ONE_TASK)
    times = {each: parallel["communication"][f"{each}_ms"] for each in ("tp", "pp", "dp")}
    assert parallel["bottleneck"] == max(times, key=times.__getitem__)
    assert sum(times.values()) == pytest.approx(parallel["communication_ms"])
    assert set(parallel["communication"]["all_reduce"]) == {"tp", "dp"}
    assert (plain["bottleneck"], plain["communication"]) == (None, None)
    assert run(cli, ["plan", "--cluster", "cluster.yaml", "a.yaml", "-o", "wide"]) == 0
    assert "BOTTLENECK" in capsys.readouterr().out.splitlines()[0]


def test_tasks_that_share_a_gpu_are_counted_on_the_map(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    half = f"{ONE_TASK}\nshare: {{fraction: 0.5}}"
    planned(half, half, cluster="nodes: [{count: 1, gpus: 2, gpu_type: H100}]")
    assert run(cli, ["plan", "--cluster", "cluster.yaml", "a.yaml", "b.yaml"]) == 0
    assert any(line.endswith(" 2 .") for line in capsys.readouterr().out.splitlines())


def test_what_is_saved_does_not_depend_on_anybody_reading_what_is_printed(tmp_path: Path) -> None:
    saved, (reading, writing) = tmp_path / "state", os.pipe()
    os.close(reading)
    files = ["--cluster", str(EXAMPLES / "cluster-small.yaml"), str(EXAMPLES / "job-single-gpu.yaml")]
    command = [sys.executable, "-m", "phalanx", "plan", *files, "--save", str(saved)]
    with os.fdopen(writing, "wb") as nobody:
        subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, timeout=60, check=False)
    assert len(saved.read_bytes().splitlines()) == 3


def test_a_policy_that_does_not_exist_is_named_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, job = tmp_path / "cluster.yaml", tmp_path / "job.yaml"
    cluster.write_text("nodes: [{count: 1, gpus: 8}]\npolicy: foo\n")
    job.write_text("gpus: 1\ncommand: [true]\n")
    assert run(cli, ["plan", "--cluster", str(cluster), str(job)]) != 0
    assert f"{cluster}:2: key 'policy': unknown policy 'foo'" in capsys.readouterr().err


def test_a_plan_on_a_saved_state_goes_beside_what_runs_there(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    (running,) = planned("gang: [{gpus: 8}]", options=("--save", "state.jsonl"))
    before = Path("state.jsonl").read_bytes()
    Path("small.yaml").write_text("version: 1\nname: small\ncommand: [x]\ngang: [{gpus: 8}]\n")
    Path("large.yaml").write_text("version: 1\nname: large\ncommand: [x]\ngang: [{gpus: 8, replicas: 2}]\n")
    assert run(cli, ["plan", "large.yaml", "small.yaml", "--state", "state.jsonl", "-o", "json"]) == 0
    large, small = json.loads(capsys.readouterr().out)
    assert (large["state"], large["nodes"]) == ("waiting", [])
    assert small["state"] == "starting"
    assert {*running["nodes"], *small["nodes"]} == {"n0", "n1"}
    assert Path("state.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cluster", "cluster.yaml"], "--state of one with those that were there"),
        (["--save", "another"], "go with --cluster"),
    ],
)
def test_a_plan_on_a_saved_state_takes_no_other_cluster(
    options: list[str], said: str, planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(ONE_TASK, options=("--save", "state.jsonl"))
    assert run(cli, ["plan", "a.yaml", "--state", "state.jsonl", *options]) == Exit.USAGE
    assert said in capsys.readouterr().err
    assert not Path("another").exists()
