"""`phalanx top`: the cluster on one screen, kept up to date."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.client import Client, Refused, Unreachable, connect
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.output import Column, cell, laid_out, wants_colour
from phalanx.cli.simulated import banner_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EVERY_S = 2.0
NODES_MAX, JOBS_MAX = 10_000, 200
HEALTH_STYLE = {"healthy": "green", "spare": "blue", "suspect": "yellow", "draining": "cyan", "failed": "red"}
STATE_STYLE = {"running": "green", "starting": "cyan", "stopping": "yellow", "suspended": "magenta", "pending": "dim"}


@click.command()
@click.option("--once", is_flag=True, help="Print the screen once and exit.")
def top(once: bool) -> None:
    """Show nodes and jobs full-screen, refreshed every 2 s; `q` quits."""
    from rich.console import Console
    from rich.live import Live

    client, console = connect(), Console(highlight=False, color_system="auto" if wants_colour() else None)
    if once:
        console.print(screen(client, console))
        return
    if not sys.stdout.isatty():
        raise Refused("top needs a terminal; for a pipe there is `top --once`, `jobs -o json` and `nodes -o json`")
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                live.update(screen(client, console), refresh=True)
            except Unreachable as error:
                live.update(f"[red]{error}", refresh=True)
            if _pressed_q(EVERY_S):
                return


def screen(client: Client, console: Console) -> RenderableType:
    """The whole screen: a line for the cluster, nodes as they fit, jobs in the rest."""
    from rich.console import Group

    cluster = client.get("/cluster")
    nodes = list(client.items("/nodes", NODES_MAX))
    live = list(client.items("/jobs", JOBS_MAX, state="running,starting,stopping,suspended"))
    waiting = list(client.items("/jobs", JOBS_MAX, state="waiting", order="oldest"))
    head = _head(cluster, nodes, live, waiting)
    grid = _grid(nodes, console.width, rows_max=max(console.height // 3, 3))
    jobs_max = max(console.height - 7 - grid.count("\n"), 5)
    return Group(head, "", grid, "", _jobs([*live, *waiting][:jobs_max], console.width))


def _head(cluster: dict[str, Any], nodes: list[dict[str, Any]], live: list[Any], waiting: list[Any]) -> str:
    from rich.markup import escape

    gpus, used = cluster.get("gpus") or 0, cluster.get("gpus_used") or sum(node.get("gpus_used") or 0 for node in nodes)
    share = used / gpus if gpus else 0
    bar = "█" * round(share * 20)
    banner = banner_of(cluster.get("simulated_nodes") or 0)
    return (
        f"[bold]{escape(cell(cluster.get('name', 'cluster')))}[/]  {time.strftime('%H:%M:%S')}  "
        f"policy {escape(cell(cluster.get('policy')))}  nodes {len(nodes)}  "
        f"running {len(live)}  pending {len(waiting)}\n"
        f"GPUs {used}/{gpus} [green]{bar:·<20}[/] {share:.0%}" + (f"\n[yellow]{banner}[/]" if banner else "")
    )


def _grid(nodes: list[dict[str, Any]], width: int, rows_max: int) -> str:
    """Nodes side by side: a name, and a mark for each GPU that is used (█) or free (·)."""
    cells = [_node(node) for node in nodes]
    if not cells:
        return "no nodes"
    cell_width = max(length for _, length in cells) + 2
    per_row = max(width // cell_width, 1)
    rows = [cells[i : i + per_row] for i in range(0, len(cells), per_row)]
    lines = ["".join(text + " " * (cell_width - length) for text, length in row) for row in rows[:rows_max]]
    hidden = sum(map(len, rows[rows_max:]))
    return "\n".join([*lines, f"… and {hidden} more nodes"] if hidden else lines)


def _node(node: dict[str, Any]) -> tuple[str, int]:
    gpus, used = node.get("gpus") or 0, node.get("gpus_used") or 0
    marks = "█" * used + "·" * (gpus - used)
    style = HEALTH_STYLE.get(node["health"], "white")
    name = cell(node["name"])
    return f"[{style}]{name}[/] {marks}", len(name) + 1 + len(marks)


def _jobs(jobs: list[dict[str, Any]], room: int) -> RenderableType:
    columns = [column for column in COLUMNS if not column.wide]
    layout = laid_out([job_row(job) for job in jobs], columns, room)
    if layout is None:
        return "the terminal is too narrow for a table of jobs"
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, width, right in zip(layout.columns, layout.widths, layout.rights, strict=True):
        table.add_column(column.title, justify="right" if right else "left", overflow="fold", width=width)
    for values in layout.rows:
        pairs = zip(layout.columns, values, strict=True)
        table.add_row(*(Text(value, _style(column, value)) for column, value in pairs))
    return table


def _style(column: Column, value: str) -> str:
    return STATE_STYLE.get(value, "") if column.key == "state" else ""


@contextmanager
def _keys() -> Iterator[None]:
    """Has keys come one by one, without an echo."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed_q(within_s: float) -> bool:
    if not sys.stdin.isatty():
        time.sleep(within_s)
        return False
    return bool(select.select([sys.stdin], [], [], within_s)[0]) and sys.stdin.read(1) in ("q", "Q")
