"""Way 2: the training goes on while the state is written.

    python async_checkpoint.py --directory /tmp/lab --die-at 37
    python async_checkpoint.py --directory /tmp/lab            # goes on from step 37: memory has survived

The state is copied into shared host memory at every step, which outlives this process, and from there written to disk
by another process. A killed trainer finds its last step in memory; after a reboot, or with --forget, it finds the last
step on disk, if one was written by then: that process needs seconds to start, and a step that is due while the disk is
busy is made up for later. Things to try: kill at another step and run on with --forget; look at the directory with
`phalanx checkpoint ls` while it trains.
"""

from __future__ import annotations

import os
import time

from training import Training, arguments, maybe_die

from phalanx.train.checkpoint import Checkpointer, Host, Retention, RngState, Shared


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--forget", action="store_true", help="do not look into memory, so that only the disk remembers"
    )
    options = parser.parse_args()
    training = Training(options.width)
    state = {
        "model": training.model,
        "optimizer": training.optimizer,
        "schedule": training.schedule,
        "data": training.data,
        "rng": RngState(),
    }
    disk = Shared(options.directory, every=options.every, keep=Retention(last=3))
    tiers = [disk] if options.forget else [Host(every=1, slots=3), disk]
    # Under another name the memory of the trainer before is not found. What goes to disk passes through memory anyway.
    job = f"lab, process {os.getpid()}" if options.forget else None
    with Checkpointer(state, tiers, job=job) as checkpointer:
        loaded = checkpointer.load()
        print(f"starting at step {checkpointer.completed}" + (f", from {loaded.tier}" if loaded else ""))
        stood_s = 0.0
        began = time.perf_counter()
        while checkpointer.completed < options.steps:
            loss = training.step()
            before = time.perf_counter()
            goes_on = checkpointer.step(metrics={"loss": loss})
            stood_s += time.perf_counter() - before
            step = checkpointer.completed
            if step % options.every == 0:
                print(f"step {step}: loss {loss:.3f}, on disk: {checkpointer.durable_step}")
            maybe_die(step, options.die_at)
            if not goes_on:
                break
        took_s = time.perf_counter() - began
        print(
            f"step {checkpointer.completed}: digest {training.digest()}, stood still {stood_s:.3f} s of {took_s:.3f} s"
        )


if __name__ == "__main__":
    main()
