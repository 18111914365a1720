"""`phalanx kube install --print`: the manifests that put phalanx into a cluster."""

from __future__ import annotations

import click

from phalanx.cli.output import as_yaml


@click.command()
@click.option("--print", "is_printed", is_flag=True, help="Print the manifests. Nothing is applied by this verb.")
@click.option("--namespace", default="phalanx", show_default=True, help="Namespace that it runs in.")
@click.option("--name", default="phalanx", show_default=True, help="Name of all objects.")
@click.option("--image", default="", help="Image that it runs.  [default: phalanx:VERSION]")
@click.option("--scheduler-name", default=None, help="As of `phalanx kube`, or of its extender.")
@click.option("--policy", default="phalanx", show_default=True, metavar="NAME", help="As of `phalanx kube`.")
@click.option("--shadow", is_flag=True, help="Print an account for `shadow` and `snapshot` alone, which may only read.")
@click.option("--extender", is_flag=True, help="Print what runs `phalanx kube extender`, for kube-scheduler to ask.")
def install(
    is_printed: bool,
    namespace: str,
    name: str,
    image: str,
    scheduler_name: str | None,
    policy: str,
    shadow: bool,
    extender: bool,
) -> None:
    """Print plain manifests for `kubectl apply -f -`: an account with the least rights, and two replicas.

    Of the replicas the holder of a Lease schedules. Metrics and probes are on a port of their own. phalanx defines no
    custom resources.
    """
    from importlib.metadata import version

    from phalanx.kube.install.manifests import Site, extending, looking_on, scheduling

    if not is_printed:
        raise click.UsageError("expected --print: phalanx kube install --print | kubectl apply -f -")
    if shadow and extender:
        raise click.UsageError("expected --shadow or --extender, got both: print one after the other")
    usual = "default-scheduler" if extender else "phalanx"
    said = (("--scheduler-name", scheduler_name or usual, usual), ("--policy", policy, "phalanx"))
    arguments = tuple(part for option, value, default in said if value != default for part in (option, value))
    site = Site(name, namespace, image or f"phalanx:{version('phalanx').partition('+')[0]}", arguments)
    manifests = looking_on(site) if shadow else extending(site) if extender else scheduling(site)
    click.echo("---\n".join(as_yaml(each) for each in manifests), nl=False)
