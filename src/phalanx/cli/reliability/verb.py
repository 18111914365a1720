"""The group of all verbs about reliability."""

from __future__ import annotations

import click

from phalanx.cli.reliability.check import check
from phalanx.cli.reliability.design import design
from phalanx.cli.reliability.figures import ettr, intervals, mttf, published, tornado
from phalanx.cli.reliability.lemons import lemons
from phalanx.cli.reliability.llama import llama_3
from phalanx.cli.reliability.logs import draw, fit
from phalanx.cli.reliability.sizes import replicas, spares, storage
from phalanx.cli.reliability.sources import causes, symptoms, xid


@click.group()
def reliability() -> None:
    """Calculate what failures cost a training job, and design for them.

    Failure rates come from a profile: a published one (see `phalanx reliability causes`) with settings after a colon,
    such as llama-3:scale=0.5 or byterobust:per_1000_node_days=2.3.
    """


for verb in (
    causes,
    symptoms,
    xid,
    mttf,
    ettr,
    intervals,
    tornado,
    replicas,
    spares,
    storage,
    published,
    llama_3,
    fit,
    lemons,
    draw,
    design,
    check,
):
    reliability.add_command(verb)
