"""`phalanx platforms`: files that say what the job asks for, and what is lost in translation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

JOB = Path(__file__).parents[2] / "examples" / "job-gang.yaml"


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(cli, ["platforms", *arguments, "-o", "json"]) == Exit.OK
    return {row["platform"]: row for row in json.loads(capsys.readouterr().out)}


def test_each_platform_has_a_file_with_the_nodes_gpus_and_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = rows(capsys, str(JOB), "--write", str(tmp_path), "--image", "me/train:1")
    files = {name: yaml.safe_load(Path(row["file"]).read_text()) for name, row in found.items()}
    command = ["python", "train.py", "--config", "7b.yaml"]
    assert files["skypilot"]["num_nodes"] == 4
    assert files["skypilot"]["resources"]["accelerators"] == "H100:8"
    assert files["sagemaker"]["ResourceConfig"]["InstanceType"] == "ml.p5.48xlarge"
    assert files["sagemaker"]["AlgorithmSpecification"]["ContainerEntrypoint"] == command
    assert [pool["replicaCount"] for pool in files["vertex"]["jobSpec"]["workerPoolSpecs"]] == ["1", "3"]
    assert files["databricks"]["tasks"][0]["spark_python_task"]["python_file"] == "train.py"
    assert files["kubeflow"]["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 4
    assert files["aws-batch"]["nodeProperties"]["numNodes"] == 4


def test_what_is_lost_is_named_and_what_is_kept_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, str(JOB))
    assert "topology" in found["skypilot"]["lost"]
    assert "gang" in found["databricks"]["lost"]
    assert "queue" not in found["kubeflow"]["lost"]
    assert "deadline" not in found["vertex"]["lost"], "the job has none"


def test_spot_capacity_is_cheaper_and_its_useful_hours_are_dearer_than_its_hours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, spot = rows(capsys, str(JOB)), rows(capsys, str(JOB), "--spot")
    for name in ("skypilot", "sagemaker", "vertex"):
        assert spot[name]["usd_gpu_h"] < plain[name]["usd_gpu_h"] == plain[name]["usd_useful_gpu_h"]
        assert spot[name]["usd_useful_gpu_h"] > spot[name]["usd_gpu_h"]
    assert spot["kubeflow"]["usd_gpu_h"] is None


@pytest.mark.parametrize(
    ("job", "arguments", "told"),
    [
        ("command: true\ngang: [{gpus: 8}]\n", ("--only", "slurm"), "expected one of skypilot"),
        ("command: true\ngang: [{gpus: 8}]\n", ("--write", "/nowhere"), "there is no such folder"),
        ("command: true\ngang: [{cpus: 8}]\n", (), "no whole GPUs"),
        ("command: true\ngang: [{role: a, gpus: 8}, {role: b, gpus: 4}]\n", (), "several kinds"),
        ("command: true\ngang: [{gpus: 8, gpu_type: Z9}]\n", (), "unknown GPU type 'Z9'"),
    ],
)
def test_a_job_that_cannot_be_translated_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: str, arguments: tuple[str, ...], told: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"version: 1\nname: job\n{job}")
    assert run(cli, ["platforms", str(path), *arguments]) != Exit.OK
    printed = capsys.readouterr().err
    assert told in printed
    assert "Traceback" not in printed
