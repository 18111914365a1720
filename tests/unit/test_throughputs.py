"""Throughputs: measured speeds of models on GPU types, and what the simulator makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import Cluster, Node
from phalanx.simulate.simulation import Setup
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.throughputs import ThroughputError, gaps, missing_models, read_throughputs

OURS = [
    {"model": "ResNet-18", "batch": 32, "gpus": 1, "steps_per_s": {"V100": 10.0, "K80": 2.0}},
    {"model": "ResNet-18", "batch": 32, "gpus": 4, "steps_per_s": {"V100": 30.0, "K80": 3.0}},
]
GAVELS = {
    "k80": {"('ResNet-18 (batch size 32)', 1)": {"null": 2.0, "('LM (batch size 5)', 1)": [1.0, 0.5]}},
    "v100": {"('ResNet-18 (batch size 32)', 1)": {"null": 10.0}},
    "v100_unconsolidated": {"('ResNet-18 (batch size 32)', 1)": {"null": 9.0}},
}


def write(path: Path, told: object) -> str:
    path.write_text(json.dumps(told))
    return str(path)


@pytest.mark.parametrize("told", [OURS, GAVELS], ids=["ours", "gavel's"])
def test_both_forms_are_read_alike(told: object, tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", told))
    assert found.relative("K80", "V100", "resnet18 (batch size 32)", 1) == 0.2
    assert found.relative("K80", "V100", "ResNet-18", 1) == 0.2
    assert found.relative("A100", "V100", "ResNet-18", 1) is None
    assert found.relative("K80", "V100", "BERT", 1) is None


def test_of_several_numbers_of_gpus_the_next_smaller_one_counts(tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", OURS))
    assert [found.relative("K80", "V100", "ResNet-18", gpus) for gpus in (1, 3, 4, 64)] == [0.2, 0.2, 0.1, 0.1]


def test_a_simulated_job_runs_at_the_speed_that_was_measured(tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", OURS))
    cluster = Cluster((Node("k80", (), 1, "K80"), *(Node(f"v{i}", (), 1, "V100") for i in range(2))))
    jobs = tuple(TraceJob(f"j{i}", 0, 100_000, 1, model="ResNet-18") for i in range(3))
    result = run_one(Setup(cluster, Trace("t", jobs), "fifo", costs=NO_COSTS, throughputs=found), "fifo")
    assert sorted(job.jct_s or 0 for job in result.jobs) == [100.0, 100.0, 500.0]


def test_a_type_goes_by_any_of_its_names(tmp_path: Path) -> None:
    told = [{"model": "a", "steps_per_s": {"nvidia-tesla-v100": 4.0, "A100": 12.0, "ours": 2.0}}]
    found = read_throughputs(write(tmp_path / "t.json", told))
    assert found.relative("A100-80", "V100", "a", 1) == 3
    assert found.relative("Ours", "V100-16GB", "a", 1) == 0.5


def test_types_of_a_model_may_be_told_one_by_one(tmp_path: Path) -> None:
    rates = {("V100", 32): 6.0, ("K80", 64): 1.0, ("K80", 32): 2.0, ("V100", 64): 5.0}
    told = [{"model": "a", "batch": batch, "steps_per_s": {name: rate}} for (name, batch), rate in rates.items()]
    found = read_throughputs(write(tmp_path / "t.json", told))
    assert found.relative("V100", "K80", "a (batch size 32)", 1) == 3
    assert found.relative("V100", "K80", "a (batch size 64)", 1) == 5
    assert found.relative("V100", "K80", "a", 1) == 3


def test_what_is_said_of_any_batch_goes_before_what_was_measured_with_one(tmp_path: Path) -> None:
    one = {"model": "a", "batch": 32, "steps_per_s": {"V100": 6.0, "K80": 2.0}}
    told = [one, {"model": "a", "steps_per_s": {"V100": 4.0, "K80": 1.0}}]
    found = read_throughputs(write(tmp_path / "t.json", told))
    assert found.relative("V100", "K80", "a", 1) == 4
    assert found.relative("V100", "K80", "a (batch size 32)", 1) == 3


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([{"model": "a", "steps_per_s": {"V100": 10**400}}], "entry 1: V100: expected steps a second"),
        ([{"model": "a", "steps_per_s": {"V100": 1e-300}}], "entry 1: V100: expected steps a second"),
        ([{"model": "a", "steps_per_s": {"V100": float("inf")}}], "entry 1: V100: expected steps a second"),
    ],
)
def test_numbers_that_are_none_are_refused(told: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ThroughputError, match=message):
        read_throughputs(write(tmp_path / "t.json", told))


def test_a_batch_that_is_none_is_part_of_the_name(tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", [{"model": "a", "steps_per_s": {"V100": 1.0}}]))
    assert found.knows("a (batch size 8)")
    assert not found.knows(f"a (batch size {'8' * 5000})")


def test_what_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ThroughputError, match="expected throughputs, found values nested without end"):
        read_throughputs(str(path))
    deep = write(path, {"v100": {"(" * 1_000: {"null": 1.0}}})
    with pytest.raises(ThroughputError, match=r"expected \('model', gpus\)"):
        read_throughputs(deep)
    deeper = write(path, {"v100": {"-" * 100_000 + "1": {"null": 1.0}}})
    with pytest.raises(ThroughputError, match=r"expected \('model', gpus\)"):
        read_throughputs(deeper)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            [{"model": "a", "steps_per_s": {"V100": 1}}, {"model": "A", "steps_per_s": {"v100": 2}}],
            "entry 2: v100: was",
        ),
        ([{"model": "a", "steps_per_s": {"A100": 1, "A100-80": 2}}], "entry 1: A100-80: was told in entry 1"),
    ],
)
def test_what_is_told_twice_is_refused(told: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ThroughputError, match=message):
        read_throughputs(write(tmp_path / "t.json", told))


@pytest.mark.needs("highspy")
@pytest.mark.parametrize("objective", ["fairness", "makespan", "finish_time"])
def test_gavel_goes_by_what_was_measured_also_where_that_lacks_a_v100(objective: str, tmp_path: Path) -> None:
    """An A100 and a T4; odd is ten times as fast on the T4, even on the A100. Each has its own, from the beginning."""
    told = [
        {"model": "odd", "steps_per_s": {"T4": 10.0, "A100": 1.0}},
        {"model": "even", "steps_per_s": {"T4": 1.0, "A100": 10.0}},
    ]
    found = read_throughputs(write(tmp_path / "t.json", told))
    cluster = Cluster((Node("a", (), 4, "A100-80"), Node("t", (), 4, "T4")))
    jobs = tuple(TraceJob(f"j{i}", 0, 36_000_000, 1, model="odd" if i < 4 else "even") for i in range(8))
    policy = f"gavel:objective={objective}"
    result = run_one(Setup(cluster, Trace("t", jobs), policy, costs=NO_COSTS, throughputs=found), policy)
    assert [job.jct_s for job in result.jobs] == [3600.0] * 4 + [36000.0] * 4


MIXED = Cluster((Node("k0", (), 2, "K80"), Node("k1", (), 2, "K80"), Node("v0", (), 1, "V100")))
NOT_ON_K80 = [{"model": "big", "gpus": 1, "steps_per_s": {"V100": 3.0, "K80": 0}}]


@pytest.mark.parametrize("policy", ["fifo:skip=true", "phalanx", "gavel", "las"])
def test_a_job_never_goes_where_its_model_was_measured_and_cannot_run(policy: str, tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", NOT_ON_K80))
    jobs = tuple(TraceJob(f"j{i}", 0, 100_000, 1, model="big" if i < 3 else "other") for i in range(6))
    result = run_one(Setup(MIXED, Trace("t", jobs), policy, costs=NO_COSTS, throughputs=found), policy)
    assert result.summary["jobs"]["completed"] == 6
    assert {job.nodes for job in result.jobs if job.job_id in ("j0", "j1", "j2")} == {("v0",)}


def test_a_job_that_can_run_on_no_type_of_the_cluster_never_starts(tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", NOT_ON_K80))
    cluster = Cluster((Node("k0", (), 2, "K80"),))
    jobs = (TraceJob("j0", 0, 1000, 1, model="big"), TraceJob("j1", 0, 1000, 1, gpu_type="K80", model="big"))
    result = run_one(Setup(cluster, Trace("t", jobs), "fifo:skip=true", throughputs=found), "fifo")
    assert (result.summary["jobs"]["completed"], result.summary["never_fit"]["cluster"]["jobs"]) == (0, 2)


def test_its_duration_is_measured_where_it_can_run(tmp_path: Path) -> None:
    told = [{"model": "big", "steps_per_s": {"V100": 3.0, "K80": 0, "P100": 1.5}}]
    found = read_throughputs(write(tmp_path / "t.json", told))
    cluster = Cluster((Node("p", (), 2, "P100"), Node("k", (), 2, "K80"), Node("v", (), 1, "V100")))
    jobs = tuple(TraceJob(f"j{i}", 0, 100_000, 1, model="big") for i in range(3))
    result = run_one(Setup(cluster, Trace("t", jobs), "fifo", costs=NO_COSTS, throughputs=found), "fifo")
    assert {job.nodes: job.jct_s for job in result.jobs} == {("p",): 100.0, ("v",): 50.0}


def test_what_a_file_does_not_tell_of_a_cluster_is_noted(tmp_path: Path) -> None:
    told = [*NOT_ON_K80, {"model": "new", "steps_per_s": {"A100": 5.0}}, {"model": "half", "steps_per_s": {"V100": 5}}]
    path = write(tmp_path / "t.json", told)
    models = ("big", "big", "new", "half", "bert")
    trace = Trace("t", tuple(TraceJob(f"j{i}", 0, 1, 1, model=model) for i, model in enumerate(models)))
    assert list(gaps(read_throughputs(path), trace, MIXED)) == [
        f"{path} has nothing of model bert (1 jobs): they go by the catalogue",
        f"{path} has nothing of model new but on A100-80 (1 jobs): they go by the catalogue",
        f"{path} has nothing of model half on K80 (1 jobs): there they go by the catalogue",
        f"{path} has 0 steps a second for model big (2 jobs): they never go to K80",
    ]
    old = Cluster((Node("k0", (), 2, "K80"),))
    assert list(gaps(read_throughputs(path), trace, old))[-1].endswith("(2 jobs): they never start here")


def test_models_of_which_nothing_was_measured_are_named(tmp_path: Path) -> None:
    found = read_throughputs(write(tmp_path / "t.json", OURS))
    jobs = tuple(TraceJob(f"j{i}", 0, 1, 1, model=model) for i, model in enumerate(("resnet18", "bert", "bert")))
    assert missing_models(found, Trace("t", jobs)) == {"bert": 2}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([], "expected throughputs, found none"),
        ([{"model": "a", "steps_per_s": {"V100": -1}}], "entry 1: V100: expected steps a second, not negative"),
        ([{"model": "a", "steps_per_s": {"V100": 1}, "gpu": 1}], "entry 1: unknown key 'gpu'; known are model"),
        ([{"model": "a", "gpus": 0, "steps_per_s": {"V100": 1}}], "entry 1: gpus: expected a whole number, at least 1"),
        ([{"steps_per_s": {"V100": 1}}], "entry 1: model: expected the name of a model"),
        ({"v100": {"ResNet": {"null": 1.0}}}, "v100: ResNet: expected ('model', gpus)"),
        ("x", "expected a list of throughputs"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(told: object, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", told)
    with pytest.raises(ThroughputError) as error:
        read_throughputs(path)
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_models_of_synthetic_jobs_are_noted_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("nodes: [{count: 1, gpus: 4, gpu_type: K80}, {count: 2, gpus: 4, gpu_type: V100}]")
    measured = write(tmp_path / "t.json", OURS)
    trace = ["--trace", "synthetic:jobs=20,shape=gavel", "--vary", "load=0.5:0.6:0.1", "--throughputs", measured]
    assert (
        run(cli, ["compare", "--cluster", str(tmp_path / "c.yaml"), *trace, "--policy", "fifo", "--workers", "1"]) == 0
    )
    assert f"note: {measured} has nothing of model " in capsys.readouterr().err


def test_the_verb_takes_a_file_and_notes_models_that_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("nodes: [{count: 1, gpus: 1, gpu_type: K80}, {count: 2, gpus: 1, gpu_type: V100}]")
    rows = "".join(f"j{i},0,100,1,{model}\n" for i, model in enumerate(("ResNet-18", "ResNet-18", "bert")))
    (tmp_path / "t.csv").write_text(f"job_id,submit_s,duration_s,gpus,model\n{rows}")
    files = ["--cluster", str(tmp_path / "c.yaml"), "--trace", str(tmp_path / "t.csv")]
    measured = write(tmp_path / "t.json", OURS)
    assert run(cli, ["simulate", *files, "--policy", "fifo", "--throughputs", measured, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["jobs"]["completed"] == 3
    assert f"note: {measured} has nothing of model bert (1 jobs): they go by the catalogue" in err
