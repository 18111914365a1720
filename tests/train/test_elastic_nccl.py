"""Ranks of `elastic` whose state lies on a GPU: the communicator of NCCL is aborted and made again in one process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from launching import launching
from training import FAULTS, Trained

pytestmark = pytest.mark.needs("gpu", "torch")

STEPS = 12
ON_GPU = "model.cuda(); samples = samples.cuda(); optimizer = Momentum(model.parameters())\n"
BACKEND = "note('backend', backend=str(torch.distributed.get_backend_config()))"


def program(faults: str) -> str:
    """The training of other tests, moved to the GPU before its `Elastic` is made."""
    again = 'elastic = Elastic({"model": model, "optimizer": optimizer, "data": ledger}, folder=out + ".state")\n'
    whole = "def digest_on_host():\n    model.cpu()\n"
    return f"{ON_GPU}{again}{whole}{FAULTS}\n{faults}\ntrain({STEPS}, before_digest=digest_on_host)"


def test_a_step_is_tried_again_with_a_new_communicator_in_the_same_process(tmp_path: Path) -> None:
    digests = []
    for name, faults in (
        ("undisturbed", ""),
        ("failed", f"def at(step):\n    if step == 5: {BACKEND}; fail_once(0)"),
    ):
        (tmp_path / name).mkdir()
        with launching(tmp_path / name) as launch:
            launch.kind = Trained
            launched = launch(program(faults), "--nproc-per-node", "1", "--max-restarts", "0")
            assert launched.wait() == 0, launched.errors()
            digests.append(launch.notes("ended")[0]["digest"])
            if faults:
                assert "cuda:nccl" in launch.notes("backend")[0]["backend"]
                assert "all ranks go on in place at step 5" in launched.errors()
    assert digests[0] == digests[1]


def test_what_waits_for_the_device_hears_that_the_world_has_ended() -> None:
    import torch

    from phalanx.train.elastic.device import Device

    device = Device()
    device.prepare()
    torch.cuda._sleep(20_000_000_000)
    threading.Timer(0.2, device.give_up).start()
    began_s = time.monotonic()
    with pytest.raises(RuntimeError, match="the world has ended"):
        device.wait(60.0)
    assert time.monotonic() - began_s < 5.0
