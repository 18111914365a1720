"""`phalanx autoscale`: nodes for pending jobs, as many as a forecast bears out, and none that stay idle."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.files import text_of
from phalanx.cli.output import say
from phalanx.errors import PhalanxError
from phalanx.folders import default_data

if TYPE_CHECKING:
    from phalanx.backends.ray.scaling.forecast import States
    from phalanx.backends.ray.scaling.sizes import Answer

EVERY_S = 10


class ScaleError(PhalanxError):
    """What is to be sized cannot be."""


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--data", metavar="DIR", help="Data directory of the server.  [default: that of `up`]")
@click.option(
    "--to",
    "target",
    type=click.Choice(["print", "kuberay", "ray"]),
    default="print",
    show_default=True,
    help="Print sizes, change a RayCluster of KubeRay, or state the demand to Ray's autoscaler.",
)
@click.option("--raycluster", metavar="NAMESPACE/NAME", default="", help="The RayCluster, for --to kuberay.")
@click.option("--kubeconfig", metavar="FILE", default="", help="How to reach the API server, for --to kuberay.")
@click.option("--every", "every_s", type=click.IntRange(1, 3600), default=EVERY_S, show_default=True, metavar="SECONDS")
@click.option("--once", is_flag=True, help="Look once. Nothing is known to be idle then.")
def autoscale(
    file: str, data: str | None, target: str, raycluster: str, kubeconfig: str, every_s: int, once: bool
) -> None:
    """Size the groups of nodes of FILE by the pending jobs of the server on this machine.

    Before a node is asked for, the engine decides as if it were there: the number is the fewest nodes that start all
    pending jobs that can be started, of the cheapest group first, and is told with its price. Nodes that were idle for
    long leave.
    """
    from phalanx.backends.ray.scaling.groups import read_groups
    from phalanx.backends.ray.scaling.sizes import Scaler

    if (target == "kuberay") != bool(raycluster):
        raise click.UsageError("--to kuberay and --raycluster NAMESPACE/NAME go together")
    scaler = Scaler(read_groups(text_of(file), file))
    states = _states_in(data or default_data())
    while True:
        answer = scaler.look(states, int(time.time() * 1000))
        _tell(answer)
        if target == "kuberay":
            _change_raycluster(raycluster, kubeconfig, answer)
        elif target == "ray":
            _state_demand(states)
        if once:
            return
        time.sleep(every_s)


def _states_in(data: str) -> States:
    """The State of a server's store, each time anew."""
    from phalanx.server.options import Options
    from phalanx.server.store.database import open_reader
    from phalanx.server.store.recovery import recover

    url = os.environ.get("PHALANX_STORE") or Options(data=data).store_url
    if url.startswith("sqlite") and not Path(data, "phalanx.db").exists():
        raise ScaleError(f"{data}: there is no store of a server; say with --data where `phalanx up` has it")
    database = open_reader(url)

    def states() -> Any:
        with database.reading() as connection:
            return recover(connection, url)

    return states


def _tell(answer: Answer) -> None:
    for forecast in answer.forecasts:
        say(str(forecast), err=True)
    for note in answer.notes:
        say(note, err=True)
    for size in answer.sizes:
        leave = f", without {', '.join(size.leave)}" if size.leave else ""
        say(f"{size.group}: {size.nodes} node{'' if size.nodes == 1 else 's'}{leave}")


def _change_raycluster(name: str, kubeconfig: str, answer: Answer) -> None:
    from phalanx.backends.ray.scaling.kuberay import patch_of
    from phalanx.kube.api.access import find_access
    from phalanx.kube.api.client import Client

    namespace, _, short = name.partition("/")
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{short}"
    with Client(find_access(kubeconfig or None, None, os.environ)) as client:
        patch = patch_of(client.get(path, dict[str, Any]), answer.sizes)
        if patch:
            client.patch(path, patch, "json-patch")
            say(f"changed {name}: {json.dumps(patch)}", err=True)


def _state_demand(states: States) -> None:
    from phalanx.backends.ray.entry import address
    from phalanx.backends.ray.scaling.demand import request, requests_of

    request(address(), requests_of(states()))
