"""What Slurm's users type, against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import Phalanx


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "train.sh"
    file.write_text(
        "#!/bin/bash\n#SBATCH --job-name=typed -n 2\n#SBATCH --gpus-per-task=1 --mail-type=END\n"
        'srun --cpu-bind=none sh -c \'echo "rank $SLURM_PROCID of $SLURM_NTASKS: $1"\' sh "$1"\n'
    )
    return str(file)


def test_a_batch_script_runs_and_is_cancelled_and_listed_by_slurms_verbs(phalanx: Phalanx, script: str) -> None:
    done = phalanx("sbatch", "--wait", "--parsable", script, "hello")
    assert done.code == 0, done.err
    assert "--mail-type=END: no mail is sent" in done.err
    job = done.out.strip().splitlines()[0]
    assert job.isdecimal()
    printed = phalanx("logs", job, "--all-ranks").out
    assert "rank 0 of 2: hello" in printed
    assert "rank 1 of 2: hello" in printed
    listed = phalanx("squeue", "-t", "all", "-n", "typed", "-h").out.split()
    assert listed[:3] == [job, "default", "typed"]
    assert "CD" in listed


def test_jobs_are_cancelled_by_name(phalanx: Phalanx) -> None:
    phalanx("sbatch", "--parsable", "-J", "sleepy", "--wrap", "sleep 600")
    assert "sleepy" in phalanx("squeue", "--me", "--name", "sleepy").out
    assert phalanx("scancel", "--name", "sleepy").code == 0
    job = phalanx("squeue", "-h", "-t", "all", "--name", "sleepy").out.split()[0]
    assert phalanx("wait", job).code == 103
    assert phalanx("squeue", "-h", "--name", "sleepy").out == ""


def test_nodes_are_listed_by_type_and_state(phalanx: Phalanx) -> None:
    out = phalanx("sinfo").out.splitlines()
    assert out[0].split() == ["GPUS", "NODES", "STATE", "NODELIST"]
    assert len(out) > 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["sbatch", "--hold", "--wrap", "true"], "--hold"),
        (["sbatch", "--time"], "needs a value"),
        (["scancel"], "expected ID, --name or --user"),
        (["squeue", "-t", "XX"], "state XX"),
        (["sbatch", "/no/such/script"], "/no/such/script"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(phalanx: Phalanx, arguments: list[str], word: str) -> None:
    result = phalanx(*arguments)
    assert result.code in (1, 2)
    assert word in result.err
    assert "Traceback" not in result.err
