"""`phalanx import volcano|kai`: queues of other schedulers as `queues` of a cluster file."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cluster.formats.kai_queues import read_kai_queues
from phalanx.cluster.formats.queue_data import queue_data
from phalanx.cluster.formats.queue_tree import Imported
from phalanx.cluster.formats.volcano_queues import read_volcano_queues


def volcano(text: str, source: str) -> list[dict[str, Any]]:
    """The queues of Volcano."""
    return _section(read_volcano_queues(text, source), source)


def kai(text: str, source: str) -> list[dict[str, Any]]:
    """The queues of KAI-Scheduler."""
    return _section(read_kai_queues(text, source), source)


def _section(imported: Imported, source: str) -> list[dict[str, Any]]:
    """The section of a cluster file. What has no counterpart in it is named on stderr."""
    for note in imported.notes:
        click.echo(f"phalanx: {source}: {note}", err=True)
    return [{"queues": queue_data(imported.queues)}]
