"""`phalanx import`: files of other schedulers as native ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from phalanx.cli.files import text_of
from phalanx.cli.output import as_json, as_yaml
from phalanx.errors import PhalanxError


class UnknownFormatError(PhalanxError):
    """No reader of that name."""

    exit_code = 3


@click.command("import")
@click.argument("format_", metavar="FORMAT")
@click.argument("file", metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "name"]),
    default="yaml",
    show_default=True,
    help="Format: YAML documents, one JSON list, or names only.",
)
def import_(format_: str, file: str, output: str) -> None:
    """Convert FILE, written for another scheduler, to files of phalanx and print them.

    FORMAT is `openpai` (a job of protocol version 2), `hived` (a configuration, or a pod with HiveD's annotation),
    `volcano` or `kai` (manifests of queues), or `sbatch` (a batch script of Slurm). Queues become the `queues` of a
    cluster file. A setting of theirs that phalanx does not have is refused, or named on stderr.
    """
    if format_ not in READERS:
        raise UnknownFormatError(f"there is no format {format_!r} to import (there is: {', '.join(READERS)})")
    documents = READERS[format_](text_of(file), file)
    match output:
        case "json":
            click.echo(as_json(documents))
        case "name":
            for document in documents:
                for named in [document] if "name" in document else document["queues"]:
                    click.echo(named["name"])
        case _:
            click.echo("---\n".join(as_yaml(document) for document in documents), nl=False)


def _openpai(text: str, source: str) -> Sequence[dict[str, Any]]:
    from phalanx.workload.formats.openpai import native_jobs, read_openpai
    from phalanx.workload.formats.written import job_file

    return [job_file(job) for job in native_jobs(read_openpai(text, source))]


def _hived(text: str, source: str) -> Sequence[dict[str, Any]]:
    from phalanx.cluster.cell_cluster import cluster_of
    from phalanx.cluster.formats.hived import read_hived
    from phalanx.workload.formats.hived_pod import documents, is_pod, native_job, read_manifest
    from phalanx.workload.formats.written import cluster_file, job_file

    parts = documents(text, source)
    if is_pod(*parts[0]):
        # Pods of one group are one job, whichever of them is read first.
        jobs = {job.name: job for job in (native_job(*read_manifest(*part)) for part in parts)}
        return [job_file(job) for job in jobs.values()]
    return [cluster_file(cluster_of(read_hived(text, source)).cluster)]


def _volcano(text: str, source: str) -> Sequence[dict[str, Any]]:
    from phalanx.cli.import_queues import volcano

    return volcano(text, source)


def _kai(text: str, source: str) -> Sequence[dict[str, Any]]:
    from phalanx.cli.import_queues import kai

    return kai(text, source)


def _sbatch(text: str, source: str) -> Sequence[dict[str, Any]]:
    from phalanx.workload.formats.sbatch import read_sbatch

    batch = read_sbatch(text, source)
    for line in batch.told:
        click.echo(f"not honoured: {line}", err=True)
    return [batch.keys]


READERS: Mapping[str, Callable[[str, str], Sequence[dict[str, Any]]]] = {
    "openpai": _openpai,
    "hived": _hived,
    "volcano": _volcano,
    "kai": _kai,
    "sbatch": _sbatch,
}
