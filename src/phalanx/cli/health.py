"""`phalanx health`: checks of this machine, for prologs of jobs and between them."""

from __future__ import annotations

import tempfile

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.reliability.options import SECONDS

COLUMNS = (Column("check"), Column("state"), Column("told", "SEEN"))
QUICK = ("disk", "clock", "kernel-log", "gpus")
DEEP = ("gpu-memory", "links")


@click.group()
def health() -> None:
    """Check whether this machine is fit for jobs."""


@health.command()
@click.option("--only", multiple=True, type=click.Choice((*QUICK, *DEEP)), help="Only this check; may be repeated.")
@click.option("--deep", is_flag=True, help="Write and read memory of the GPUs, and sum up over their links, as well.")
@click.option("--disk", metavar="DIR", help="Folder to write to. Default: that of temporary files.")
@click.option("--kernel-log", default="", metavar="FILE", help="Kernel log to read. Default: what dmesg prints.")
@click.option("--timeout", type=SECONDS, metavar="TIME", help="Time for all checks. Default: 30s, with --deep 2m.")
@output_option
def run(
    only: tuple[str, ...], deep: bool, disk: str | None, kernel_log: str, timeout: float | None, output: Output
) -> int:
    """Check the disk, the clock, the kernel log (XID codes) and the GPUs of this machine.

    With --deep, which needs torch and takes half of the free memory of each GPU, patterns are written to that memory
    and read back, and all GPUs sum up numbers over their links by NCCL; two processes by gloo, without two GPUs.

    Exits with 1 if a check failed or hung, so that it can be the prolog of a job or a cron job that drains the node.
    A check that this machine cannot make, such as that of GPUs without any, is skipped.
    """
    from phalanx.faults.health.checks import FAILED, HUNG, run_checks

    arguments = {"disk": disk or tempfile.gettempdir(), "kernel-log": kernel_log}
    timeout_s = timeout or (120.0 if deep else 30.0)
    names = only or (QUICK + DEEP if deep else QUICK)
    found = list(run_checks([(name, arguments.get(name, "")) for name in names], timeout_s))
    emit([{"check": each.check, "state": each.state, "told": each.told} for each in found], COLUMNS, output)
    return Exit.ERROR if any(each.state in (FAILED, HUNG) for each in found) else Exit.OK
