"""A trainer to be killed: it says how far it is and when, as lines of JSON on its standard output.

`python benchmarks/checkpoint_restart.py JOB SIZE STEPS` loads what memory holds, trains, and after the steps waits to
be killed. With STEPS 0 it ends after its first new step, and frees the memory.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

BEGAN_S = time.time()
NEVER = 2**31


def tell(what: str, **details: Any) -> None:
    sys.stdout.write(json.dumps({"what": what, "at_s": time.time(), **details}) + "\n")
    sys.stdout.flush()


def main() -> None:
    job, size, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    import torch

    from checkpoint_model import BILLION, TINY, Training
    from phalanx.train.checkpoint import Checkpointer, Host

    tell("imported")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.empty(1, device=device)
    tell("context")
    training = Training({"billion": BILLION, "tiny": TINY}[size], device)
    training.synchronize()
    tell("built")
    checkpointer = Checkpointer(training.parts, [Host(every=NEVER)], job=job, signals=())
    loaded = checkpointer.load()
    training.synchronize()
    tell("loaded", step=loaded.step if loaded else None, seconds=loaded.seconds if loaded else None)
    training.step()
    training.synchronize()
    tell("first step")
    if not steps:
        checkpointer.close()
        return
    checkpointer.step()
    for _ in range(steps - 1):
        training.step()
        checkpointer.step()
    # Asked for: what is due by itself waits until memory is pinned, which takes longer than a few steps.
    checkpointer.save()
    checkpointer.wait()
    tell("saved", step=checkpointer.completed)
    time.sleep(600)


if __name__ == "__main__":
    tell("python", began_s=BEGAN_S)
    main()
