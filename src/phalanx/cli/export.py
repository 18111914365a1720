"""`phalanx export`: a job file as manifests of another system."""

from __future__ import annotations

import click

from phalanx.cli.files import text_of
from phalanx.cli.output import as_json, as_yaml

RAY_VERSION = "2.60.0"


@click.command()
@click.argument("format_", metavar="FORMAT", type=click.Choice(["rayjob", "raycluster"]))
@click.argument("file", metavar="FILE")
@click.option("--ray-version", default=RAY_VERSION, show_default=True, help="Version of Ray in the image.")
@click.option("--image", default="", help="Image with Ray.  [default: that of the job, or rayproject/ray:VERSION]")
@click.option("--scheduler", default="phalanx", show_default=True, help="The schedulerName of all pods.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="Format of the manifest.",
)
def export(format_: str, file: str, ray_version: str, image: str, scheduler: str, output: str) -> None:
    """Convert the job FILE to a manifest of another system and print it.

    FORMAT is `rayjob` (KubeRay makes a Ray cluster, runs the command of the job on it and takes it away) or
    `raycluster` (a Ray cluster of the size of the job, until it is deleted). What the manifest cannot say is named on
    stderr.
    """
    from phalanx.compat.kuberay import Site, not_said, ray_cluster, ray_job
    from phalanx.workload.formats.native import read_job

    job = read_job(text_of(file), file, "1", 0)
    write = ray_job if format_ == "rayjob" else ray_cluster
    manifest = write(job, Site(ray_version, image, scheduler))
    for line in not_said(job):
        click.echo(f"phalanx: {file}: {line}", err=True)
    click.echo(as_json(manifest) if output == "json" else as_yaml(manifest), nl=output == "json")
