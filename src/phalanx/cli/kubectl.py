"""`kubectl phalanx`: why pods wait, what would start, and the queues, of the cluster that kubectl is at.

kubectl finds it by its name on PATH. It reads the cluster as `phalanx kube snapshot` does, and changes nothing.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import Column, Output, emit, emit_one, output_option, say
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.beside.taken import Taken
    from phalanx.kube.shadow.history import History

WHY = (Column("job"), Column("state"), Column("reason"), Column("why"), Column("nodes"))


class NoSuchPodError(PhalanxError):
    """A name that no pod and no gang has."""


def _options(function: Any) -> Any:
    for option in (
        output_option,
        click.option("--policy", default="phalanx", show_default=True, metavar="NAME", help="Policy of phalanx."),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig."),
        click.option("--kubeconfig", metavar="FILE", help="Kubeconfig file."),
    ):
        function = option(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def plugin() -> None:
    """Explain what waits in a Kubernetes cluster."""


@plugin.command()
@click.argument("name", metavar="POD|GROUP")
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@_options
def why(name: str, namespace: str, kubeconfig: str | None, context: str | None, policy: str, output: Output) -> None:
    """Explain why a pod, or the gang of a group, is pending."""
    from phalanx.engine.why.why import why as answer
    from phalanx.words.reason import because_in

    history, taken = _look(kubeconfig, context, policy)
    found = [each for each in history.watched.values() if _is_meant(each, namespace, name)]
    if not found:
        raise NoSuchPodError(f"{namespace}/{name}: no pod with GPUs and no gang has that name")
    watched = next((each for each in found if each.is_pending), found[-1])
    state = taken.state
    would_start = watched.is_pending and watched.id in state.jobs and state.reason(watched.id) is None
    explained = answer(state, watched.id) if watched.is_pending and not would_start else None
    row = {
        "job": watched.id,
        "state": "pending" if watched.is_pending else "running" if watched.runs else "ended",
        "reason": explained.reason.value if explained is not None and explained.reason else None,
        "why": because_in(state, explained) if explained is not None else "it starts now" if would_start else None,
        "nodes": sorted(dict.fromkeys(watched.nodes.values())) or None,
    }
    emit_one(row, WHY, output)


@plugin.command()
@_options
def plan(kubeconfig: str | None, context: str | None, policy: str, output: Output) -> None:
    """List the pending gangs, and what phalanx would do with each now."""
    from phalanx.cli.kube_shadow import PENDING, pending

    history, taken = _look(kubeconfig, context, policy)
    emit(list(pending(history, taken)), PENDING, output)


@plugin.command()
@_options
def queues(kubeconfig: str | None, context: str | None, policy: str, output: Output) -> None:
    """List the queues with their jobs and GPUs."""
    from phalanx.cli.queues import show
    from phalanx.server.view.lists import queues_in

    _, taken = _look(kubeconfig, context, policy)
    show(queues_in(taken.state), output)


def _is_meant(watched: Any, namespace: str, name: str) -> bool:
    group = getattr(watched.family, "name", "")
    return watched.job.user == namespace and (group == name or any(pod.metadata.name == name for pod in watched.pods))


def _look(kubeconfig: str | None, context: str | None, policy: str) -> tuple[History, Taken]:
    """What there is now."""
    from phalanx.kube.api.access import find_access
    from phalanx.kube.api.client import Client
    from phalanx.kube.shadow.history import history_of
    from phalanx.kube.shadow.recorder import Recorder
    from phalanx.kube.shadow.recording import entries_of
    from phalanx.kube.shadow.state import taken_of

    file = io.BytesIO()
    with Client(find_access(kubeconfig, context, os.environ)) as client:
        Recorder(client, file, lambda line: say(line, err=True)).run(0.0)
    history = history_of(entries_of(file.getvalue()))
    return history, taken_of(history, policy)


def main() -> None:
    """The program that kubectl starts."""
    from phalanx.cli.main import run

    sys.exit(run(plugin))


if __name__ == "__main__":
    main()
