"""`phalanx kube extender`: phalanx decides, and kube-scheduler binds."""

from __future__ import annotations

import os
import signal
from functools import partial
from types import FrameType

import click

from phalanx.cli.kube_lease import lease_settings

PORT_MAX = 65_535
LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.option("--kubeconfig", metavar="FILE", help="As of `phalanx kube`.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
@click.option(
    "--scheduler-name",
    default="default-scheduler",
    show_default=True,
    help="Decide on pods with this schedulerName: that of the profile of kube-scheduler.",
)
@click.option("--policy", default="phalanx", show_default=True, metavar="NAME", help="The policy.")
@click.option("--topology", multiple=True, metavar="LABEL", help="As of `phalanx kube`.")
@click.option("--queue-label", default="", metavar="LABEL", help="As of `phalanx kube`.")
@click.option(
    "--listen",
    default="127.0.0.1:9465",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Where kube-scheduler asks. It shows no credentials: leave it to this machine, or to a network of its own.",
)
@click.option("--lease", metavar="NAMESPACE/NAME", help="As of `phalanx kube`: only the holder is ready to be asked.")
@click.option(
    "--lease-duration",
    type=click.IntRange(min=2),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="As of `phalanx kube`.",
)
def extender(
    kubeconfig: str | None,
    context: str | None,
    scheduler_name: str,
    policy: str,
    topology: tuple[str, ...],
    queue_label: str,
    listen: str,
    lease: str | None,
    lease_duration: int,
) -> None:
    """Decide for kube-scheduler, as an extender of it: filter, prioritize, preempt and bind.

    Pods that hold GPUs, or start with others, go where phalanx places them; of a gang none does before all can. All
    other pods are left to kube-scheduler.
    """
    from phalanx.kube.api.access import find_access
    from phalanx.kube.api.client import Client
    from phalanx.kube.extender.run import ExtenderRun
    from phalanx.kube.extender.server import Server
    from phalanx.kube.lease import Lease
    from phalanx.kube.nodes import TOPOLOGY_LABELS
    from phalanx.kube.settings import Settings
    from phalanx.simulate.plugins import resolve_policy

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise click.BadParameter(f"expected ADDRESS:PORT, got {listen!r}", param_hint="--listen")
    address = host.strip("[]")
    if address not in LOCAL:
        click.echo(f"{listen}: whoever reaches this can have pods bound", err=True)
    access = find_access(kubeconfig, context, os.environ)
    settings = Settings(scheduler_name, resolve_policy(policy), topology or TOPOLOGY_LABELS, queue_label=queue_label)
    leased = lease_settings(lease, lease_duration) if lease is not None else None
    with Client(access) as client:
        held = Lease(client, leased) if leased is not None else None
        run = ExtenderRun(client, settings, lease=held, say=partial(click.echo, err=True))

        def end(signum: int, frame: FrameType | None) -> None:
            run.close()

        with Server((address, int(port)), run) as server:
            before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
            try:
                run.run(lambda: click.echo(f"extending {access} at {address}:{server.port}", err=True))
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)
