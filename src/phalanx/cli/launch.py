"""`phalanx launch`: starts the ranks of a training on this node, and starts them again."""

from __future__ import annotations

import logging
import os
import sys

import click
from click.core import ParameterSource

from phalanx.errors import PhalanxError
from phalanx.train.launch.options import Options, endpoint_of, nodes_of, settings_of
from phalanx.train.launch.plan import Seat


@click.command(context_settings={"ignore_unknown_options": True, "auto_envvar_prefix": None})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--nnodes",
    metavar="N|MIN:MAX",
    envvar="PET_NNODES",
    default="1",
    show_default=True,
    help="Number of agents, one per node.",
)
@click.option(
    "--nproc-per-node",
    "--nproc_per_node",
    metavar="N",
    envvar="PET_NPROC_PER_NODE",
    default="1",
    show_default=True,
    help="Number of ranks on this node: a number, gpu, cpu or auto.",
)
@click.option("--standalone", is_flag=True, help="Use one node; ignore --nnodes, the endpoint and their variables.")
@click.option(
    "--rdzv-endpoint",
    "--rdzv_endpoint",
    metavar="HOST:PORT",
    envvar="PET_RDZV_ENDPOINT",
    help="Rendezvous address: that of one agent. Required with several nodes. Default port: 29400.",
)
@click.option(
    "--rdzv-id",
    "--rdzv_id",
    metavar="NAME",
    envvar="PET_RDZV_ID",
    default="none",
    help="Name of the run, equal on all nodes. Default: 'none'.",
)
@click.option(
    "--rdzv-backend",
    "--rdzv_backend",
    metavar="NAME",
    envvar="PET_RDZV_BACKEND",
    help="Accepted for compatibility with torchrun; has no effect.",
)
@click.option(
    "--rdzv-conf",
    "--rdzv_conf",
    metavar="KEY=S,…",
    envvar="PET_RDZV_CONF",
    default="",
    help="Times in seconds. Default: last_call_timeout=2,join_timeout=600,lease=5.",
)
@click.option(
    "--master-addr",
    "--master_addr",
    envvar="PET_MASTER_ADDR",
    help="Host of the endpoint, if --rdzv-endpoint is not given.",
)
@click.option(
    "--master-port",
    "--master_port",
    type=int,
    envvar="PET_MASTER_PORT",
    help="Port of the endpoint, with --master-addr. Default: 29400.",
)
@click.option(
    "--local-addr",
    "--local_addr",
    envvar="PET_LOCAL_ADDR",
    default="",
    help="Address of this node. Default: found by the route to the endpoint.",
)
@click.option(
    "--max-restarts",
    "--max_restarts",
    type=int,
    envvar="PET_MAX_RESTARTS",
    default=3,
    show_default=True,
    help="Number of restarts after failures, counted over all agents.",
)
@click.option(
    "--standby",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Number of ranks of this node that start from a warm process, which makes restarts faster.",
)
@click.option(
    "--preload",
    metavar="MODULE,…",
    default="torch",
    show_default=True,
    help="Modules that the warm process imports in advance.",
)
@click.option(
    "--hang-timeout",
    metavar="S",
    type=float,
    default=600.0,
    show_default=True,
    help="Seconds without a reported step after which ranks count as failed; counted from the first step on.",
)
@click.option(
    "--shutdown-timeout",
    "--shutdown_timeout",
    metavar="S",
    type=float,
    envvar="TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    default=30.0,
    show_default=True,
    help="Seconds between SIGTERM and SIGKILL; five at most after a failure.",
)
@click.option(
    "--retry-program-errors",
    is_flag=True,
    help="Restart also after errors of the program, such as ImportError. Default: fail at once.",
)
@click.option("--quiet", "-q", is_flag=True, help="Log only failures.")
def launch(command: tuple[str, ...], quiet: bool, standalone: bool, **given: str) -> int:
    """Start COMMAND as the ranks of a training job on this node, and restart them after failures.

    Run it once on each node. Options and the environment of ranks are those of torchrun:

        phalanx launch --nproc-per-node 8 -- python train.py
    """
    if command and command[0].startswith("-"):
        raise click.NoSuchOption(command[0])
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO, format="phalanx: %(message)s", stream=sys.stderr
    )
    from phalanx.train.launch.agent import run

    try:
        options = options_of(command, standalone, given)
    except PhalanxError as error:
        raise click.UsageError(str(error)) from None
    return run(options)


def options_of(command: tuple[str, ...], standalone: bool, given: dict[str, str]) -> Options:
    """What the command line and its variables ask for."""
    least, most = (1, 1) if standalone else nodes_of(given["nnodes"])
    seat = None if standalone else planned_seat()
    return Options(
        command,
        least,
        most,
        slots_of(given["nproc_per_node"]),
        run_id=given["rdzv_id"],
        endpoint=None if standalone or (most == 1 and seat is None) else endpoint_from(given),
        local_addr=given["local_addr"],
        max_restarts=int(given["max_restarts"]),
        standby=int(given["standby"]),
        preload=tuple(filter(None, given["preload"].split(","))),
        grace_s=float(given["shutdown_timeout"]),
        hang_timeout_s=float(given["hang_timeout"]),
        retry_program_errors=bool(given["retry_program_errors"]),
        seat=seat,
        **settings_of(given["rdzv_conf"]),
    )


def planned_seat() -> Seat | None:
    """The place in the scheduler's gang, where the world is as the scheduler says and no option says otherwise."""
    context = click.get_current_context()
    own = ("nnodes", "rdzv_endpoint", "master_addr")
    is_said = any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in own)
    return None if is_said or "PET_NNODES" not in os.environ else Seat.of(os.environ)


def endpoint_from(given: dict[str, str]) -> tuple[str, int] | None:
    """`--rdzv-endpoint`, else `--master-addr` with its port."""
    if given["rdzv_endpoint"]:
        return endpoint_of(given["rdzv_endpoint"])
    if given["master_addr"]:
        return given["master_addr"], int(given["master_port"] or 29400)
    return None


def slots_of(text: str) -> int:
    """`8`, or how many GPUs or processors there are."""
    if text.isdigit():
        return int(text)
    processors = os.cpu_count() or 1
    if text == "cpu":
        return processors
    if text in ("gpu", "auto"):
        import torch

        gpus = torch.cuda.device_count()
        if text == "gpu" and not gpus:
            raise PhalanxError("--nproc-per-node gpu: torch finds no GPU here")
        return gpus or processors
    raise PhalanxError(f"--nproc-per-node {text}: expected a number, gpu, cpu or auto")
