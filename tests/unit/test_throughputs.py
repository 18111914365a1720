"""Throughputs: measured speeds of models on GPU types, and what the simulator makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import Cluster, Node
from phalanx.simulate.batch import run_one
from phalanx.simulate.costs import NO_COSTS
from phalanx.simulate.simulation import Setup
from phalanx.simulate.throughputs import ThroughputError, missing_models, read_throughputs
from phalanx.simulate.trace import Trace, TraceJob

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
