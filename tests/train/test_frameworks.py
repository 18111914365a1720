"""Trainings of other libraries under the launcher: killed and told to leave, they end as if undisturbed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import NOTES, Launch, Launched, launching

from phalanx.bench.launch import warm

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
KILLED, LEAVES, STEPS = 13, 19, 28

PROGRAM = f"""
import importlib
sys.path.insert(0, {str(EXAMPLES)!r})
from phalanx.bench.checkpoint.drill import fork_background
from phalanx.train.checkpoint import Checkpointer, background

# Writers that each import torch would take most of the time.
background.start_process = fork_background
folder = out + ".run"
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["FIRST"] == "yes"
disturbed = False
step = Checkpointer.step

def disturbs(checkpointer, metrics=None):
    goes_on = step(checkpointer, metrics)
    if disturbed and is_first and checkpointer.completed == {KILLED} and note_rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if disturbed and not is_first and os.environ["FIRST"] == "yes" and checkpointer.completed == {LEAVES}:
        note("waits")
        while not os.path.exists(os.environ["PHALANX_NOTICE_FILE"]):
            time.sleep(0.01)
    return goes_on

Checkpointer.step = disturbs
note_rank = int(os.environ["RANK"])
module = importlib.import_module(os.environ["EXAMPLE"])
if is_first:
    module.main(folder + ".undisturbed", *END)
disturbed = True
module.main(folder, *END)
"""


class Example(Launched):
    """A launcher of an example, whose ranks fork from a process that has imported its library."""

    prelude = NOTES

    def interpreter(self) -> str:
        return warm.python()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launching(tmp_path) as launch:
        launch.kind = Example
        yield launch


def run(launch: Launch, example: str, preload: str, first: str, end: int) -> Launched:
    options = (
        "--nproc-per-node",
        "2",
        "--standby",
        "2",
        "--preload",
        f"{preload},phalanx.bench.checkpoint.drill,phalanx.train.checkpoint.checkpointer",
    )
    program = f"END = [{end}]\n{PROGRAM}"
    return launch(program, *options, EXAMPLE=example, FIRST=first, OMP_NUM_THREADS="1")


@pytest.mark.parametrize(
    ("example", "preload", "end"),
    [
        pytest.param("train_huggingface", "transformers.trainer", 4, marks=pytest.mark.needs("transformers")),
        pytest.param("train_lightning", "lightning.pytorch", 4, marks=pytest.mark.needs("lightning")),
        pytest.param("train_fsdp2", "torch.distributed.fsdp", STEPS, marks=pytest.mark.needs("torch")),
    ],
)
def test_a_training_that_is_killed_and_preempted_ends_with_the_weights_of_the_undisturbed_one(
    launch: Launch, example: str, preload: str, end: int, capfd: pytest.CaptureFixture[str]
) -> None:
    first = run(launch, example, preload, "yes", end)
    launch.until(lambda: len(launch.notes("waits")) == 2, f"both ranks are at step {LEAVES}, after a restart")
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143, first.errors()
    assert "ended by SIGKILL" in first.errors()
    second = run(launch, example, preload, "no", end)
    assert second.wait() == 0, second.errors()
    told = capfd.readouterr().out
    assert len(re.findall(rf"{STEPS} steps, weights", told)) == 2, told
    assert len(set(re.findall(r"weights (\w+)", told))) == 1, told
