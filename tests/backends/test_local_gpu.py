"""What the local backend does with a real GPU: found, shown to the one task that has it, and shared by MPS."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.gpus import find_gpus
from phalanx.backends.local.host.machine import device_names, local_cluster
from phalanx.backends.local.orders import Yard
from phalanx.cluster.device import Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import AttemptEnded, Outcome
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Execution, Job

pytestmark = pytest.mark.needs("gpu")

LOOK = """
import torch
print(torch.cuda.device_count(), torch.cuda.get_device_name(0))
print((torch.ones(8).cuda() * 2).sum().item())
"""


def run_on_gpu(data: Path, portion: Portion | None, tasks: int) -> list[str]:
    """Runs tasks on the first GPU and gives what each printed."""
    cluster = local_cluster()
    node = cluster.nodes[0].name
    job = Job("1", Gang((Role("worker", tasks, tasks, Task(1)),)), execution=Execution((sys.executable, "-c", LOOK)))
    backend = LocalBackend(Yard(data, device_names=device_names(cluster)), lambda _: job)
    woken = threading.Event()
    backend.wake = woken.set
    slots = tuple(Slot(rank, "worker", node, (0,), portion) for rank in range(tasks))
    backend.carry_out(Start(ActionId(1, "1", 1, 0), Placement(slots)), 0)
    ended: list[AttemptEnded] = []
    while not ended and woken.wait(240):
        woken.clear()
        ended += [event for event in backend.events(0) if isinstance(event, AttemptEnded)]
    backend.close()
    folder = data / "jobs" / "1" / "1"
    assert ended[0].outcome is Outcome.SUCCEEDED, [path.read_text() for path in folder.glob("*.err")]
    return [(folder / f"{rank}.out").read_text() for rank in range(tasks)]


def test_the_gpus_of_this_machine_are_found_with_their_type_and_memory() -> None:
    [node] = local_cluster().nodes
    assert node.gpus == len(find_gpus())
    assert node.gpu_type
    assert node.gpu_memory_gb > 1


def test_a_task_sees_the_one_gpu_it_has(tmp_path: Path) -> None:
    [printed] = run_on_gpu(tmp_path, None, 1)
    assert printed.startswith("1 ")
    assert printed.splitlines()[1] == "16.0"


@pytest.mark.needs("mps")
def test_two_tasks_share_a_gpu_by_mps(tmp_path: Path) -> None:
    printed = run_on_gpu(tmp_path, Portion(Mode.MPS, 300, 20_000), 2)
    assert [each.splitlines()[1] for each in printed] == ["16.0", "16.0"]
    assert (tmp_path / "backend" / "mps" / "log").is_dir()
