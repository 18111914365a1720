"""`phalanx kube`: phalanx as the scheduler of a Kubernetes cluster."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

import click

from phalanx.cli.kube_extender import extender
from phalanx.cli.kube_install import install
from phalanx.cli.kube_lease import lease_settings
from phalanx.cli.kube_shadow import shadow, snapshot
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.kube.api.access import Access
    from phalanx.kube.lease import LeaseSettings
    from phalanx.kube.metrics import Endpoint
    from phalanx.kube.run import Run
    from phalanx.kube.settings import Settings


PORT_MAX = 65_535


@click.group(invoke_without_command=True)
@click.pass_context
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig file. Default: $KUBECONFIG, the service account of the pod, or ~/.kube/config.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
@click.option(
    "--scheduler-name", default="phalanx", show_default=True, help="Schedule the pods with this schedulerName."
)
@click.option("--policy", default="phalanx", show_default=True, metavar="NAME", help="The policy.")
@click.option(
    "--topology",
    multiple=True,
    metavar="LABEL",
    help="Node label of a topology level; repeatable, outermost first. Default: the common labels.",
)
@click.option(
    "--journal",
    metavar="FILE",
    help="Write events and decisions to this file; an existing one is replaced. Default: no journal.",
)
@click.option(
    "--lease",
    metavar="NAMESPACE/NAME",
    help="One of several replicas, of which the one with this Lease schedules. Default: no Lease.",
)
@click.option(
    "--lease-duration",
    type=click.IntRange(min=2),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="After this time without a renewal another replica takes over.",
)
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="Answer /metrics, /healthz and /readyz here. Default: no port.",
)
@click.option(
    "--preempt-others-below",
    type=int,
    metavar="PRIORITY",
    help="Evict pods of other schedulers with GPUs and a priority below this for pods of a higher one. Default: never.",
)
@click.option(
    "--queue-label",
    default="",
    metavar="LABEL",
    help="Label of pods that names the queue of those whose group names none, as kueue.x-k8s.io/queue-name.",
)
@click.option(
    "--volcano-jobs",
    is_flag=True,
    help="Make the pods of Volcano Jobs too (batch.volcano.sh), for clusters without Volcano's own controller.",
)
def kube(
    ctx: click.Context,
    kubeconfig: str | None,
    context: str | None,
    scheduler_name: str,
    policy: str,
    topology: tuple[str, ...],
    journal: str | None,
    lease: str | None,
    lease_duration: int,
    listen: str | None,
    preempt_others_below: int | None,
    queue_label: str,
    volcano_jobs: bool,
) -> None:
    """Schedule the pods of a Kubernetes cluster that name this scheduler, gangs all or nothing."""
    if ctx.invoked_subcommand is not None:
        return
    from phalanx.kube.api.access import find_access
    from phalanx.kube.nodes import TOPOLOGY_LABELS
    from phalanx.kube.settings import Settings
    from phalanx.simulate.plugins import resolve_policy

    access = find_access(kubeconfig, context, os.environ)
    settings = Settings(
        scheduler_name, resolve_policy(policy), topology or TOPOLOGY_LABELS, preempt_others_below, queue_label
    )
    leased = lease_settings(lease, lease_duration) if lease is not None else None
    address = _address(listen) if listen is not None else None
    with contextlib.ExitStack() as stack:
        file: BinaryIO | None = stack.enter_context(Path(journal).open("wb")) if journal is not None else None
        _schedule(access, settings, file, leased, volcano_jobs, address)


kube.add_command(extender)
kube.add_command(install)
kube.add_command(snapshot)
kube.add_command(shadow)


def _address(listen: str) -> tuple[str, int]:
    """Where to listen."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise click.BadParameter(f"expected ADDRESS:PORT, got {listen!r}", param_hint="--listen")
    return host.strip("[]"), int(port)


def _schedule(
    access: Access,
    settings: Settings,
    journal: BinaryIO | None,
    leased: LeaseSettings | None,
    volcano_jobs: bool,
    listen: tuple[str, int] | None,
) -> None:
    """Schedules until SIGTERM or SIGINT."""
    from phalanx.kube.api.client import Client
    from phalanx.kube.lease import Lease
    from phalanx.kube.run import Run
    from phalanx.kube.volcano.controller import Controller

    with Client(access) as client:
        jobs = Controller(client, settings.scheduler) if volcano_jobs else None
        lease = Lease(client, leased) if leased is not None else None
        run = Run(client, settings, journal, lease, jobs, say=partial(click.echo, err=True))

        def end(signum: int, frame: FrameType | None) -> None:
            run.close()

        def ready() -> None:
            nodes, bound = len(run.mirror.nodes), len(run.scheduler.roster.owner)
            click.echo(f"scheduling {access}: nodes {nodes}, pods of ours that are bound {bound}", err=True)

        stack = contextlib.ExitStack()
        if listen is not None:
            port = stack.enter_context(_endpoint(listen, run)).port
            click.echo(f"metrics and probes at {listen[0]}:{port}", err=True)
        before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            run.run(ready)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            stack.close()


def _endpoint(listen: tuple[str, int], run: Run) -> Endpoint:
    try:
        from phalanx.kube.metrics import Endpoint, Figures
    except ModuleNotFoundError as error:
        raise PhalanxError(
            f"--listen needs {error.name}: pip install '.[server]' in the folder of phalanx's sources"
        ) from error
    return Endpoint(listen, run.pulse, Figures(run.pulse, run.scheduler.roster.steps, run.answers))
