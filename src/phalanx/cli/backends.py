"""`phalanx backends`: what carries decisions out, what each can do, and why it cannot do the rest."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from phalanx.backends.capability import MEANING, Offer
from phalanx.backends.registry import Setting, backend_names, offer_of
from phalanx.cli.output import Column, Output, emit, output_option

COLUMNS = (Column("backend"), Column("capability"), Column("here"), Column("why_not"), Column("means", wide=True))


@click.command()
@output_option
def backends(output: Output) -> None:
    """List the backends with their capabilities on this machine. What one lacks, the engine plans without."""
    from phalanx.backends.local.machine import local_cluster

    def nobody(job: str) -> None:
        raise LookupError(job)

    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder), nobody, local_cluster())  # type: ignore[arg-type]
        rows = [row for name in backend_names() for row in _rows(offer_of(name, setting))]
    emit(rows, COLUMNS, output)


def _rows(offer: Offer) -> list[dict[str, object]]:
    return [
        {
            "backend": offer.name,
            "capability": capability.value,
            "here": offer.can(capability),
            "why_not": offer.lacks.get(capability, ""),
            "means": meaning,
        }
        for capability, meaning in MEANING.items()
    ]
