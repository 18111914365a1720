"""`phalanx backends`: what carries decisions out, what each can do, and why it cannot do the rest."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from phalanx.backends.capability import MEANING, Capability
from phalanx.backends.registry import Setting, backend_names, offer_of
from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.workload.job import Job

COLUMNS = (Column("backend"), Column("capability"), Column("here"), Column("why_not"), Column("means", wide=True))


@click.command()
@click.option("--live", is_flag=True, help="List the backends of the server. Default: those of this machine.")
@output_option
def backends(live: bool, output: Output) -> None:
    """List the backends and their capabilities on this machine. Plans use no capability that is missing."""
    offers = _offers_of_server() if live else _offers_of_machine()
    emit([row for name, lacks in offers.items() for row in _rows(name, lacks)], COLUMNS, output)


def _offers_of_server() -> dict[str, Mapping[str, str]]:
    found = connect().get("/backends")["items"]
    return {backend["name"]: backend["lacks"] | backend.get("simulated", {}) for backend in found}


def _offers_of_machine() -> dict[str, Mapping[str, str]]:
    from phalanx.backends.local.host.machine import local_cluster

    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder), _no_job, local_cluster())
        offers = {name: offer_of(name, setting) for name in backend_names()}
        return {name: _by_name(offer.lacks | offer.simulated) for name, offer in offers.items()}


def _by_name(lacks: Mapping[Capability, str]) -> dict[str, str]:
    return {str(lack): why for lack, why in lacks.items()}


def _no_job(job: str) -> Job:
    raise LookupError(f"there is no job {job}: this backend is only asked what it could do")


def _rows(name: str, lacks: Mapping[str, str]) -> list[dict[str, object]]:
    return [
        {
            "backend": name,
            "capability": capability.value,
            "here": capability.value not in lacks,
            "why_not": lacks.get(capability.value, ""),
            "means": meaning,
        }
        for capability, meaning in MEANING.items()
    ]
