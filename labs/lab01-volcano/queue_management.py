"""Lab 1: queues of Volcano, made, listed with what their pods use, closed, opened and deleted.

python queue_management.py create research --weight 3 --capability nvidia.com/gpu=8
python queue_management.py list
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.kube.api.access import find_access
from phalanx.kube.api.client import Client

GROUP = "/apis/scheduling.volcano.sh/v1beta1"
GPU = "nvidia.com/gpu"


def create(api: Client, name: str, weight: int, capability: dict[str, str], deserved: dict[str, str]) -> None:
    spec: dict[str, Any] = {"weight": weight}
    if capability:
        spec["capability"] = capability
    if deserved:
        spec["deserved"] = deserved
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    api.post(f"{GROUP}/queues", {**kind, "metadata": {"name": name}, "spec": spec})


def set_state(api: Client, name: str, state: str) -> None:
    """Nothing is started from a closed queue; what runs goes on."""
    api.patch(f"{GROUP}/queues/{name}/status", {"status": {"state": state}}, "merge-patch")


def rows(api: Client) -> list[tuple[str, ...]]:
    """Of each queue its weight, most GPUs and state, the GPUs that its bound pods have, and how many pods wait."""
    queue_of = {
        (group["metadata"]["namespace"], group["metadata"]["name"]): group["spec"].get("queue", "default")
        for group in api.get(f"{GROUP}/podgroups", dict[str, Any])["items"]
    }
    used: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for pod in api.get("/api/v1/pods", dict[str, Any])["items"]:
        metadata = pod["metadata"]
        group = metadata.get("annotations", {}).get("scheduling.k8s.io/group-name", "")
        queue = queue_of.get((metadata["namespace"], group))
        if queue is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        if pod["spec"].get("nodeName"):
            used[queue] += sum(gpus_of(each) for each in pod["spec"]["containers"])
        else:
            waiting[queue] += 1
    found = api.get(f"{GROUP}/queues", dict[str, Any])["items"]
    return [
        (
            name,
            str(queue["spec"].get("weight", 1)),
            str(queue["spec"].get("capability", {}).get(GPU, "-")),
            queue.get("status", {}).get("state", "Open"),
            str(used[name]),
            str(waiting[name]),
        )
        for queue in found
        for name in (queue["metadata"]["name"],)
    ]


def gpus_of(container: dict[str, Any]) -> int:
    resources = container.get("resources", {})
    return int(resources.get("requests", {}).get(GPU, resources.get("limits", {}).get(GPU, 0)))


def show(table: list[tuple[str, ...]]) -> None:
    lines = [("QUEUE", "WEIGHT", "MAX GPUS", "STATE", "GPUS USED", "PODS WAITING"), *table]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def amount(said: str) -> tuple[str, str]:
    name, _, value = said.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"expected RESOURCE=AMOUNT such as {GPU}=8, got {said!r}")
    return name, value


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Queues of Volcano on the cluster of your kubeconfig.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list")
    made = verbs.add_parser("create")
    made.add_argument("name")
    made.add_argument("--weight", type=int, default=1)
    made.add_argument("--capability", type=amount, action="append", default=[], metavar="RESOURCE=AMOUNT")
    made.add_argument("--deserved", type=amount, action="append", default=[], metavar="RESOURCE=AMOUNT")
    for verb in ("close", "open", "delete"):
        verbs.add_parser(verb).add_argument("name")
    return parser.parse_args()


def main() -> None:
    asked = parsed()
    with Client(find_access(None, None, os.environ)) as api:
        match asked.verb:
            case "list":
                show(rows(api))
            case "create":
                create(api, asked.name, asked.weight, dict(asked.capability), dict(asked.deserved))
            case "close":
                set_state(api, asked.name, "Closed")
            case "open":
                set_state(api, asked.name, "Open")
            case "delete":
                api.delete(f"{GROUP}/queues/{asked.name}")


if __name__ == "__main__":
    try:
        main()
    except PhalanxError as error:
        sys.exit(f"queue_management.py: {error}")
