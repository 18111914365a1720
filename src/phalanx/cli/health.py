"""`phalanx health`: checks of this machine, for prologs of jobs and between them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.reliability.options import SECONDS

if TYPE_CHECKING:
    from phalanx.faults.health.checks import Result

REASON_MAX = 200

COLUMNS = (Column("check"), Column("state"), Column("told", "SEEN"))
QUICK = ("disk", "clock", "kernel-log", "gpus")
DEEP = ("gpu-memory", "links")
SAID = ("dcgm", "node-problems", "nvrx")
SOURCE = "FILE|URL"


@click.group()
def health() -> None:
    """Check whether this machine is fit for jobs."""


@health.command()
@click.option(
    "--only", multiple=True, type=click.Choice((*QUICK, *DEEP, *SAID)), help="Only this check; may be repeated."
)
@click.option("--deep", is_flag=True, help="Write and read memory of the GPUs, and sum up over their links, as well.")
@click.option("--disk", metavar="DIR", help="Folder to write to. Default: that of temporary files.")
@click.option("--kernel-log", default="", metavar="FILE", help="Kernel log to read. Default: what dmesg prints.")
@click.option("--dcgm", metavar=SOURCE, help="Also ask dcgm-exporter, such as http://localhost:9400/metrics.")
@click.option("--node-problems", metavar=SOURCE, help="Also ask node-problem-detector: http://localhost:20257/metrics.")
@click.option("--nvrx", metavar="SOCKET", help="Also ask NVRx's node check, such as /var/run/nvhcd.sock.")
@click.option("--drain", metavar="NODE", help="If a check fails, drain this node, or only the GPUs that are to blame.")
@click.option(
    "--drain-max",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.2,
    show_default=True,
    help="Drain none if more than this share of the nodes would be out of service; one may be in any case.",
)
@click.option("--timeout", type=SECONDS, metavar="TIME", help="Time for all checks. Default: 30s, with --deep 2m.")
@output_option
def run(
    only: tuple[str, ...],
    deep: bool,
    disk: str | None,
    kernel_log: str,
    dcgm: str | None,
    node_problems: str | None,
    nvrx: str | None,
    drain: str | None,
    drain_max: float,
    timeout: float | None,
    output: Output,
) -> int:
    """Check the disk, the clock, the kernel log (XID codes) and the GPUs of this machine.

    DCGM and node-problem-detector are asked for the figures that they offer to Prometheus, at an address or in a file;
    NVRx's node check on its socket, which needs grpcio.

    With --deep, which needs torch and takes half of the free memory of each GPU, patterns are written to that memory
    and read back, and all GPUs sum up numbers over their links by NCCL; two processes by gloo, without two GPUs.

    Exits with 1 if a check failed or hung, so that it can be the prolog of a job or a cron job that drains the node.
    A check that this machine cannot make, such as that of GPUs without any, is skipped.
    """
    from phalanx.faults.health.checks import FAILED, HUNG, UNANSWERED, run_checks

    said = {name: at for name, at in zip(SAID, (dcgm, node_problems, nvrx), strict=True) if at}
    for name in only:
        if name in SAID and name not in said:
            raise click.UsageError(f"--only {name}: say where with --{name}")
    arguments = {"disk": disk or tempfile.gettempdir(), "kernel-log": kernel_log, **said}
    timeout_s = timeout or (120.0 if deep else 30.0)
    names = only or ((QUICK + DEEP if deep else QUICK) + tuple(said))
    found = list(run_checks([(name, arguments.get(name, "")) for name in names], timeout_s))
    emit([{"check": each.check, "state": each.state, "told": each.told} for each in found], COLUMNS, output)
    bad = [each for each in found if each.state in (FAILED, HUNG)]
    # One that does not answer tells nothing of the node: a wrong address would drain them all.
    if bad and drain is not None:
        _drain(drain, bad, drain_max)
    return Exit.ERROR if bad or any(each.state == UNANSWERED for each in found) else Exit.OK


def _drain(node: str, bad: Sequence[Result], share_max: float) -> None:
    """Drains GPUs where they alone are to blame, else the node."""
    from phalanx.cli.client import connect
    from phalanx.cli.drain import drain_node

    gpus = sorted({gpu for each in bad for gpu in each.gpus}) if all(each.gpus for each in bad) else []
    reason = "; ".join(f"{each.check}: {each.told}" for each in bad)[:REASON_MAX]
    drain_node(connect(), node, gpus, reason, share_max)
