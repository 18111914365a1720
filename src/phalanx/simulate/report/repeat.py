"""To repeat it: the command, every run with its digest, and the settings of those that are shown in detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from phalanx.simulate.report.chart import Grid, Labelled
from phalanx.simulate.report.tables import grid_table, setup
from phalanx.simulate.report.text import page_text

COMMAND_LENGTH_MAX = 20_000


class RunOf(NamedTuple):
    """One run: its policy as it was written, the load and nodes it was brought to, if any, its seed and its digest."""

    policy: str
    load: float | None
    seed: int
    digest: str
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """The command line that made a page, and all runs of it, also those that only a curve is made of."""

    command: str = ""
    runs: tuple[RunOf, ...] = ()


NOTHING_TOLD = Repeat()


def repeat_parts(results: Labelled, repeat: Repeat) -> list[str]:
    """What stands under “To repeat it”, as HTML."""
    parts = []
    if repeat.command:
        command = page_text(repeat.command, COMMAND_LENGTH_MAX)
        parts.append(f'<pre class="scroll" tabindex="0" aria-label="The command"><code>{command}</code></pre>')
    if len(repeat.runs) > len(results):
        parts.append(f"<p>{page_text(_told(repeat.runs), COMMAND_LENGTH_MAX)}</p>")
    parts.append(setup(results))
    if len(repeat.runs) > len(results):
        rows = tuple((run.policy, _at(run), str(run.seed), run.digest) for run in repeat.runs)
        table = grid_table(Grid(("policy", _key(repeat.runs), "seed", "digest"), rows), "All runs and their digests")
        parts.append(f"<details><summary>All {len(rows):,} runs and their digests</summary>{table}</details>")
    return parts


def _told(runs: Sequence[RunOf]) -> str:
    key = "Nodes" if _key(runs) == "nodes" else "Loads"
    values = ", ".join(dict.fromkeys(_at(run) for run in runs))
    seeds = list(dict.fromkeys(run.seed for run in runs))
    return (
        f"{len(runs):,} runs. {key}: {values}. Seeds: {len(seeds)} ({', '.join(map(str, seeds))}). "
        "The settings are those of the runs that are shown in detail."
    )


def _key(runs: Sequence[RunOf]) -> str:
    return "nodes" if any(run.nodes is not None for run in runs) else "load"


def _at(run: RunOf) -> str:
    if run.nodes is not None:
        return f"{run.nodes:,}"
    return "the trace's own" if run.load is None else f"{run.load:.6g}"
