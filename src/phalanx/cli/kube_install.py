"""`phalanx kube install --print`: the manifests that put phalanx into a cluster."""

from __future__ import annotations

import click

from phalanx.cli.output import as_yaml


@click.command()
@click.option("--print", "is_printed", is_flag=True, help="Print the manifests. Nothing is applied by this verb.")
@click.option("--namespace", default="phalanx", show_default=True, help="Namespace that it runs in.")
@click.option("--name", default="phalanx", show_default=True, help="Name of all objects.")
@click.option("--image", default="", help="Image that it runs.  [default: phalanx:VERSION]")
@click.option("--scheduler-name", default="phalanx", show_default=True, help="As of `phalanx kube`.")
@click.option("--policy", default="phalanx", show_default=True, metavar="NAME", help="As of `phalanx kube`.")
@click.option("--shadow", is_flag=True, help="Print an account for `shadow` and `snapshot` alone, which may only read.")
def install(
    is_printed: bool, namespace: str, name: str, image: str, scheduler_name: str, policy: str, shadow: bool
) -> None:
    """Print plain manifests for `kubectl apply -f -`: an account with the least rights, and two replicas.

    Of the replicas the holder of a Lease schedules. Metrics and probes are on a port of their own. phalanx defines no
    custom resources.
    """
    from importlib.metadata import version

    from phalanx.kube.install.manifests import Site, looking_on, scheduling

    if not is_printed:
        raise click.UsageError("expected --print: phalanx kube install --print | kubectl apply -f -")
    said = (("--scheduler-name", scheduler_name), ("--policy", policy))
    arguments = tuple(part for option, value in said if value != "phalanx" for part in (option, value))
    site = Site(name, namespace, image or f"phalanx:{version('phalanx').partition('+')[0]}", arguments)
    manifests = looking_on(site) if shadow else scheduling(site)
    click.echo("---\n".join(as_yaml(each) for each in manifests), nl=False)
