"""Batch scripts of Slurm: what each option becomes, and what is said of those that cannot be honoured."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from phalanx.workload.formats.native import read_job
from phalanx.workload.formats.sbatch import PREAMBLE, Batch, SbatchError, parse_options, read_sbatch, seconds_of


def batch(*lines: str, body: str = "python train.py", shebang: str = "#!/bin/bash") -> Batch:
    script = "\n".join([shebang, *(f"#SBATCH {line}" for line in lines), body]) + "\n"
    return read_sbatch(script, "job.sh")


def keys(*lines: str) -> dict[str, Any]:
    found = batch(*lines).keys
    return {key: value for key, value in found.items() if key not in ("command", "name")}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["--gres=gpu:4"], {"gpus": 4}),
        (["--gres=gpu:h100:4"], {"gpus": 4, "gpu_type": "H100"}),
        (["-G 8", "-n 2"], {"gang": [{"role": "worker", "replicas": 2, "gpus": 4}]}),
        (
            ["-N2", "--gpus-per-node=a100:8"],
            {"gang": [{"role": "worker", "replicas": 2, "gpus": 8, "gpu_type": "A100"}]},
        ),
        (["-N 2", "--ntasks-per-node=8", "--gres=gpu:8"], {"gang": [{"role": "worker", "replicas": 16, "gpus": 1}]}),
        (["-n 3", "--gpus-per-task=2"], {"gang": [{"role": "worker", "replicas": 3, "gpus": 2}]}),
        (["-c 16", "--mem=64G"], {"cpus": 16, "memory_gb": 64.0}),
        (["--gpus=2", "--mem-per-gpu=32G", "--cpus-per-gpu=4"], {"gpus": 2, "cpus": 8, "memory_gb": 64.0}),
        (["-c 4", "--mem-per-cpu=2048"], {"cpus": 4, "memory_gb": 8.0}),
        (["-t 1-12:00:00"], {"max_run": "129600s"}),
        (["--time=UNLIMITED"], {}),
        (["--array=0-31%4"], {"array": "0-31%4"}),
        (
            ["-d afterok:12:13,afterany:14"],
            {
                "after": [
                    {"job": "12", "on": "success"},
                    {"job": "13", "on": "success"},
                    {"job": "14", "on": "end"},
                ]
            },
        ),
        (["--begin=now+1hour"], {"begin": "+1h"}),
        (["--deadline=2030-01-31T08:00+01:00"], {"deadline": "2030-01-31T08:00+01:00"}),
        (["-C ib&fast"], {"node_selector": {"slurm/feature-ib": "true", "slurm/feature-fast": "true"}}),
        (["--prefer=ib&fast"], {"prefer": {"slurm/feature-ib=true": 1, "slurm/feature-fast=true": 1}}),
        (["-w n7"], {"node_selector": {"phalanx/node": "n7"}}),
        (["-w n[1-3] -x n2"], {"node_selector": {"phalanx/node": "n1,n3"}}),
        (["-x n[08-10],login"], {"node_selector": {"phalanx/node": "!n08,n09,n10,login"}}),
        (
            ["-p gpu", "-A ml", "-q high"],
            {"labels": {"slurm/partition": "gpu", "slurm/account": "ml", "slurm/qos": "high"}},
        ),
        (["--signal=USR1@120"], {"grace": "120s"}),
        (["--export=NONE,A=b"], {"env": {"A": "b"}, "inherit_env": False}),
        (["--nice=10"], {"priority": -10}),
        (["-D /work"], {"workdir": "/work"}),
        (["--requeue"], {}),
    ],
)
def test_an_option_becomes_keys_of_a_job_file(lines: list[str], expected: dict[str, Any]) -> None:
    assert keys(*lines) == expected


@pytest.mark.parametrize(
    "lines", [["-N 2", "--gres=gpu:4", "-t 60", "-c 8"], ["--array=1-3", "-d afterok:7"], ["--signal=B:TERM@60"]]
)
def test_what_comes_of_a_script_is_a_job_file(lines: list[str]) -> None:
    import json

    job = read_job(json.dumps(batch(*lines).keys), "job.sh")
    assert job.execution.command[:2] == ("/bin/bash", "-c")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--mail-type=END", "no mail"),
        ("--output=x.%j", "phalanx logs"),
        ("--signal=USR1@60", "SIGTERM"),
        ("--exclusive", "leaves of its nodes"),
        ("-N 2", "share a node"),
        ("--export=ALL", "PATH"),
        ("--begin=2030-01-31T08:00", "UTC"),
    ],
)
def test_an_option_that_is_not_honoured_is_named_with_its_line(line: str, word: str) -> None:
    (told,) = batch(line).told
    assert told.startswith("job.sh:2: --")
    assert word in told


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--hold", "--hold"),
        ("--exclude=n[1", "bracket"),
        ("--exclude='n 1'", "n[1-4]"),
        ("-w n[2-1] ", "n[1-4]"),
        ("-x n[1-9999][1-9999]", "more names than any cluster has"),
        ("-x n[1-5000]", "expected at most 4096"),
        (f"-x n[0-{'9' * 5000}]", "a range such as 1-8"),
        ("-w n1 -x n[1-2]", "none of the nodes"),
        ("-C 'a|b'", "features"),
        ("--prefer='a|b'", "features"),
        ("--gres=gpu:2,shard:1", "gpu:N"),
        ("--gres=gpu:0x", "gpu:N"),
        ("--gpus=3 -n 2", "divided among 2 tasks"),
        ("--gpus=3 --gres=gpu:2", "different numbers"),
        ("--dependency=singleton", "afterok:ID"),
        ("--time=soon", "HH:MM:SS"),
        ("--mem=lots", "64G"),
        ("--nodes=x", "a range such as 2-4"),
        ("--no-such-thing=1", "--no-such-thing"),
        ("-Z 1", "no such option"),
        ("--time", "needs a value"),
        ("train", "expected an option"),
        ("--comment='x", "job.sh:2"),
        ("--ntasks=0", "at least 1"),
    ],
)
def test_an_option_that_would_change_what_is_computed_is_refused_with_its_line(line: str, word: str) -> None:
    with pytest.raises(SbatchError, match=r"^job\.sh|^--") as refused:
        batch(line)
    assert word in str(refused.value)


def test_options_of_the_command_line_come_before_those_of_the_script() -> None:
    options, rest = parse_options(["-t", "5", "--gres=gpu:1", "job.sh", "-t", "9"], "command line")
    found = read_sbatch("#!/bin/sh\n#SBATCH -t 60\ntrue\n", "job.sh", (), options)
    assert (found.keys["max_run"], found.keys["gpus"], rest) == ("300s", 1, ["job.sh", "-t", "9"])


def test_lines_behind_the_first_command_are_no_options() -> None:
    assert batch("-t 5", body="true\n#SBATCH -t 60").keys["max_run"] == "300s"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 1800), ("1:30", 90), ("2:00:00", 7200), ("1-6", 108_000), ("1-00:30", 88_200)]
)
def test_time_limits_are_those_of_slurm(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


def test_a_script_of_python_is_run_by_python_and_another_is_refused() -> None:
    found = batch("-t 5", shebang="#!/usr/bin/env python3", body="print(1)").keys["command"]
    assert found[:2] == ["python3", "-c"]
    with pytest.raises(SbatchError, match="perl"):
        batch(shebang="#!/usr/bin/perl")
    with pytest.raises(SbatchError, match="#!/bin/bash"):
        read_sbatch("echo hi\n", "job.sh")


@pytest.mark.parametrize(
    "line",
    [
        "srun echo a b",
        "srun -n 4 --gres=gpu:1 -N2 echo a b",
        "srun -l --mpi=none -- echo a b",
        "srun --ntasks 4 echo a b",
    ],
)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_srun_in_a_script_runs_its_command_in_the_task(line: str, shell: str) -> None:
    env = {"PATH": "/usr/bin:/bin", "RANK": "3", "WORLD_SIZE": "4"}
    text = f"{PREAMBLE}{line}\necho $SLURM_PROCID"
    assert subprocess.check_output([shell, "-c", text], env=env, text=True) == "a b\n3\n"
