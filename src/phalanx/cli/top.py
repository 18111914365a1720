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
from phalanx.cli.job_rows import job_row
from phalanx.cli.output import cell

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EVERY_S = 2.0
NODES_MAX, JOBS_MAX = 10_000, 200
HEALTH_STYLE = {"healthy": "green", "suspect": "yellow", "draining": "cyan", "failed": "red"}
STATE_STYLE = {"running": "green", "starting": "cyan", "stopping": "yellow", "suspended": "magenta", "waiting": "dim"}
JOB_COLUMNS = (("id", "ID"), ("name", "NAME"), ("state", "STATE"), ("gpus", "GPUS"), ("where", "NODES"))
JOB_COLUMNS_TOO = (("queue", "QUEUE"), ("user", "USER"), ("ran", "RAN"), ("age", "AGE"), ("why", "WHY"))


@click.command()
@click.option("--once", is_flag=True, help="Print the screen once and end.")
def top(once: bool) -> None:
    """Show nodes and jobs full-screen, every 2 s; `q` ends it."""
    from rich.console import Console
    from rich.live import Live

    client, console = connect(), Console()
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
    jobs_max = max(console.height - 6 - grid.count("\n"), 5)
    return Group(head, "", grid, "", _jobs([*live, *waiting][:jobs_max]))


def _head(cluster: dict[str, Any], nodes: list[dict[str, Any]], live: list[Any], waiting: list[Any]) -> str:
    gpus, used = cluster.get("gpus") or 0, cluster.get("gpus_used") or sum(node.get("gpus_used") or 0 for node in nodes)
    share = used / gpus if gpus else 0
    bar = "█" * round(share * 20)
    return (
        f"[bold]{cluster.get('name', 'cluster')}[/]  {time.strftime('%H:%M:%S')}  policy {cluster.get('policy')}  "
        f"GPUs {used}/{gpus} [green]{bar:<20}[/] {share:.0%}  nodes {len(nodes)}  "
        f"running {len(live)}  waiting {len(waiting)}"
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


def _jobs(jobs: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    columns = (*JOB_COLUMNS, *JOB_COLUMNS_TOO)
    for _, title in columns:
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for job in jobs:
        row = job_row(job)
        style = STATE_STYLE.get(job["state"], "")
        table.add_row(*(Text(cell(row.get(key)), style=style if key == "state" else "") for key, _ in columns))
    return table


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
