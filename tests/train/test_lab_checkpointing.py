"""The scripts of lab 2 do what its text says, on a small scale."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
from processes import PRELOAD

from phalanx.train.checkpoint.store import newest_intact, steps

pytestmark = pytest.mark.needs("torch")

LAB = Path(__file__).parents[2] / "labs" / "lab02-checkpointing"
SMALL = ["--steps", "9", "--every", "3", "--width", "16"]
DEADLINE_S = 180


def run_script(name: str, arguments: list[str], output: str) -> None:
    import torch

    torch.set_num_threads(1)
    sys.argv = [name, *arguments]
    sys.path.insert(0, str(LAB))
    # The descriptor itself, so that processes which the script starts print there too.
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    runpy.run_path(str(LAB / name), run_name="__main__")


def run(name: str, output: Path, *arguments: object) -> tuple[int, str]:
    """The exit code of a script of the lab, and what it printed. It is forked from a server that knows torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    script = context.Process(target=run_script, args=(name, [str(each) for each in arguments], str(output)))
    script.start()
    script.join(DEADLINE_S)
    alive = script.is_alive()
    script.kill()
    assert not alive, output.read_text()
    return script.exitcode or 0, output.read_text()


def digest(printed: str) -> str:
    found = re.findall(r"digest (\w+)", printed)
    assert found, printed
    return str(found[-1])


@pytest.fixture(scope="module")
def unfailed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a training that was never killed."""
    place = tmp_path_factory.mktemp("unfailed")
    code, printed = run("pytorch_checkpoint.py", place / "out", "--directory", place, *SMALL)
    assert code == 0
    return digest(printed)


def test_a_training_killed_and_resumed_from_torch_save_ends_as_if_nothing_had_been(
    tmp_path: Path, unfailed: str
) -> None:
    arguments = ["--directory", tmp_path / "run", *SMALL]
    code, printed = run("pytorch_checkpoint.py", tmp_path / "out", *arguments, "--die-at", 5)
    assert code == -signal.SIGKILL
    assert printed.endswith("step 5: killed\n")
    code, printed = run("pytorch_checkpoint.py", tmp_path / "out", *arguments)
    assert code == 0
    assert printed.startswith("starting at step 3\n")
    assert digest(printed) == unfailed


def test_a_training_killed_and_resumed_from_memory_ends_as_if_nothing_had_been(tmp_path: Path, unfailed: str) -> None:
    arguments = ["--directory", tmp_path / "run", *SMALL]
    code, printed = run("async_checkpoint.py", tmp_path / "out", *arguments, "--die-at", 5)
    assert code == -signal.SIGKILL
    code, printed = run("async_checkpoint.py", tmp_path / "out", *arguments)
    assert code == 0
    start = re.match(r"starting at step (\d), from host", printed)
    assert start, printed
    assert int(start[1]) >= 3
    assert digest(printed) == unfailed
    assert steps(tmp_path / "run")


def test_a_training_that_is_told_to_forget_finds_nothing_in_memory(tmp_path: Path, unfailed: str) -> None:
    arguments = ["--directory", tmp_path / "run", *SMALL, "--forget"]
    code, printed = run("async_checkpoint.py", tmp_path / "out", *arguments, "--die-at", 5)
    assert code == -signal.SIGKILL
    code, printed = run("async_checkpoint.py", tmp_path / "out", *arguments)
    assert code == 0
    assert "from host" not in printed
    assert digest(printed) == unfailed


def test_what_one_rank_saved_is_gone_on_with_by_two(tmp_path: Path) -> None:
    arguments = ["--directory", tmp_path / "run", "--every", 2, "--width", 16]
    code, printed = run("distributed_checkpoint.py", tmp_path / "out", *arguments, "--ranks", 1, "--steps", 2)
    assert code == 0
    saved = newest_intact(tmp_path / "run")
    assert saved is not None
    assert (saved.step.step, saved.step.world_size) == (2, 1)
    saved_digest = digest(printed)
    code, printed = run("distributed_checkpoint.py", tmp_path / "out", *arguments, "--ranks", 2, "--steps", 4)
    assert code == 0
    assert f"starting at step 2 on 2 ranks, digest {saved_digest}" in printed
    assert [each.world_size for each in steps(tmp_path / "run")] == [1, 2]


def test_the_benchmark_measures_every_tier_and_draws_it(tmp_path: Path) -> None:
    arguments = [
        "--megabytes",
        1,
        "--rounds",
        1,
        "--directory",
        tmp_path / "disk",
        "--json",
        "--plot",
        tmp_path / "p.html",
    ]
    code, printed = run("io_benchmark.py", tmp_path / "out", *arguments)
    assert code == 0
    rows = json.loads(printed)
    tiers = {"host", "shared memory", "peer", "disk", "object store", "torch.save", "dcp.save"}
    assert tiers <= {row["tier"] for row in rows}
    assert all(row["write_gb_s"] > 0 and row["read_gb_s"] > 0 for row in rows)
    page = (tmp_path / "p.html").read_text()
    assert "shared memory" in page
    assert 'src="http' not in page
