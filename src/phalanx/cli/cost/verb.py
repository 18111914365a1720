"""The group of verbs about costs."""

from __future__ import annotations

import click

from phalanx.cli.cost.own_or_rent import own_or_rent
from phalanx.cli.cost.spot import spot


@click.group()
def cost() -> None:
    """Calculate what spot capacity costs, and whether owning GPUs pays. Nothing is rented or called."""


cost.add_command(spot)
cost.add_command(own_or_rent)
