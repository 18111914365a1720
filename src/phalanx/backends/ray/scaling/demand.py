"""What pending gangs ask for, as requests of Ray's own autoscaler: a bundle for each task."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from phalanx.backends.ray.nodes import ASK_S, NoCluster
from phalanx.engine.state.state import State
from phalanx.workload.gang import Role

Request = dict[str, Any]
TYPE_LABEL = "ray.io/accelerator-type"

_PROGRAM = """
import json, os, sys
import ray
from ray.autoscaler.sdk import request_resources
ray.init(sys.argv[1], log_to_driver=False, configure_logging=False, logging_level="ERROR")
asked = json.loads(sys.argv[2])
labels = [each["labels"] for each in asked]
request_resources(bundles=[each["bundle"] for each in asked], bundle_label_selectors=labels)
os._exit(0)
"""


def requests_of(state: State) -> list[Request]:
    """The bundles of all that runs and of all pending gangs at their smallest.

    What runs is asked for as well: Ray's autoscaler takes the requests for all that the cluster is to have.
    """
    found: list[Request] = []
    for record in state.jobs.values():
        if record.final is None and not record.held and not record.cancelled:
            for role in record.job.gang.roles:
                found += _of_role(role, 1)
    return found


def request(address: str, requests: list[Request]) -> None:
    """States the demand to Ray's autoscaler, in place of what was stated before."""
    program = [sys.executable, "-c", _PROGRAM, address, json.dumps(requests)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=ASK_S, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise NoCluster(f"Ray at {address}: {lines[-1] if lines else 'it did not take the request'}")


def _of_role(role: Role, times: int) -> Iterator[Request]:
    times *= role.replicas_min
    if role.members:
        for member in role.members:
            yield from _of_role(member, times)
        return
    task = role.task
    wants = {"GPU": float(task.gpus), "CPU": task.cpus_milli / 1000, "memory": task.memory_mb * 2.0**20}
    bundle = {name: amount for name, amount in wants.items() if amount}
    labels = {TYPE_LABEL: task.gpu_types[0]} if len(task.gpu_types) == 1 else {}
    if bundle:
        yield from ({"bundle": bundle, "labels": labels} for _ in range(times))
