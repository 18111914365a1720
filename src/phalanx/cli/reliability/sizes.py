"""`phalanx reliability replicas`, `spares` and `storage`: how much of each a job needs."""

from __future__ import annotations

import click

from phalanx.cli.output import Column, Output, emit, emit_one, output_option
from phalanx.cli.reliability.options import SECONDS, fleet_of, gpus_option, node_option, profile_option

REPLICA_COLUMNS = (
    Column("lost"),
    Column("copies"),
    Column("exact"),
    Column("bound", "GEMINI'S BOUND"),
    Column("ring"),
)
SPARE_COLUMNS = (
    Column("nodes"),
    Column("down", "DOWN AT A TIME"),
    Column("spares"),
    Column("warm"),
    Column("failures_per_day", "FAILURES A DAY"),
    Column("requeue_gpu_h", "REQUEUE GPU-H A DAY"),
    Column("warm_gpu_h", "WARM GPU-H A DAY"),
    Column("idle_gpu_h", "IDLE GPU-H A DAY"),
    Column("saved_gpu_h", "SAVED GPU-H A DAY"),
)
STORAGE_COLUMNS = (
    Column("checkpoint_gb", "CHECKPOINT GB"),
    Column("node_gb", "GB A NODE"),
    Column("burst_gb_s", "BURST GB/S"),
    Column("node_burst_gb_s", "BURST GB/S A NODE"),
    Column("mean_gb_s", "MEAN GB/S"),
    Column("restore_gb_s", "RESTORE GB/S"),
    Column("capacity_tb", "CAPACITY TB"),
)


@click.command()
@click.option("--nodes", type=click.IntRange(1, 100_000), required=True, help="Nodes that keep copies.")
@click.option(
    "--copies", type=click.IntRange(1, 64), default=2, show_default=True, help="Copies, the node's own included."
)
@click.option("--lost", type=click.IntRange(1, 64), default=4, show_default=True, help="Nodes lost at once, at most.")
@output_option
def replicas(nodes: int, copies: int, lost: int, output: Output) -> None:
    """Show the chance that checkpoints in the memory of nodes survive when several are lost at once.

    Copies lie in groups, and a ring where the number of copies does not divide that of nodes, as Gemini has it.
    """
    from phalanx.faults.reliability.replicas import gemini_bound, ring_survives, survives

    rows = [
        {
            "lost": each,
            "copies": copies,
            "exact": round(survives(nodes, copies, each), 6),
            "bound": round(gemini_bound(nodes, copies, each), 6),
            "ring": round(ring_survives(nodes, copies, each), 6),
        }
        for each in range(1, min(lost, nodes) + 1)
    ]
    emit(rows, REPLICA_COLUMNS, output)


@click.command()
@gpus_option
@profile_option
@node_option
@click.option("--repair", type=SECONDS, default="24h", show_default=True, metavar="TIME", help="Time to repair a node.")
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.99,
    show_default=True,
    help="Share of the time in which there must be enough.",
)
@click.option(
    "--requeue", type=SECONDS, default="8m", show_default=True, metavar="TIME", help="Time to start on another node."
)
@click.option(
    "--warm-start", type=SECONDS, default="90s", show_default=True, metavar="TIME", help="Time to start on a warm one."
)
@output_option
def spares(
    gpus: int,
    profile: str,
    gpus_per_node: int,
    repair: float,
    quantile: float,
    requeue: float,
    warm_start: float,
    output: Output,
) -> None:
    """Calculate how many spare nodes suffice, and whether keeping some warm pays."""
    from phalanx.faults.reliability.spares import down_share, spares_for, standby, standby_for
    from phalanx.faults.taxonomy.choose import profile_of

    fleet = fleet_of(gpus, gpus_per_node)
    per_hour = profile_of(profile).per_hour(fleet)
    per_node = per_hour / fleet.nodes
    warm = max(standby_for(fleet.nodes, per_node, requeue / 3600, quantile), 1)
    compared = standby(gpus, gpus_per_node, per_hour, warm, requeue, warm_start)
    row = {
        "nodes": fleet.nodes,
        "down": round(down_share(per_node, repair / 3600) * fleet.nodes, 3),
        "spares": spares_for(fleet.nodes, per_node, repair / 3600, quantile),
        "warm": warm,
        "failures_per_day": round(compared.failures, 3),
        "requeue_gpu_h": round(compared.requeue_gpu_h, 1),
        "warm_gpu_h": round(compared.warm_gpu_h, 1),
        "idle_gpu_h": round(compared.idle_gpu_h, 1),
        "saved_gpu_h": round(compared.saved_gpu_h, 1),
    }
    emit_one(row, SPARE_COLUMNS, output)


@click.command()
@gpus_option
@node_option
@click.option(
    "--parameters", type=click.FloatRange(1, 1e16), required=True, help="Parameters of the model, such as 405e9."
)
@click.option("--every", type=SECONDS, required=True, metavar="TIME", help="Time between two checkpoints.")
@click.option("--write", type=SECONDS, required=True, metavar="TIME", help="Time in which one must be written.")
@click.option("--reload", type=SECONDS, required=True, metavar="TIME", help="Time in which one must be read.")
@click.option("--keep", type=click.IntRange(1, 1000), default=3, show_default=True, help="Checkpoints to keep.")
@click.option(
    "--readers", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Times one is read at a restore."
)
@output_option
def storage(
    gpus: int,
    gpus_per_node: int,
    parameters: float,
    every: float,
    write: float,
    reload: float,
    keep: int,
    readers: int,
    output: Output,
) -> None:
    """Calculate the bandwidth and capacity that checkpoints ask of storage."""
    from phalanx.faults.reliability.storage import traffic

    for flag, value in (("--every", every), ("--write", write), ("--reload", reload)):
        if not value:
            raise click.UsageError(f"{flag} is 0: expected a time above 0.")
    if write > every:
        raise click.UsageError(f"--write {write:g}s is longer than --every {every:g}s: writing would never catch up.")
    found = traffic(parameters, fleet_of(gpus, gpus_per_node).nodes, every, write, reload, keep, readers)
    emit_one({column.key: round(getattr(found, column.key), 3) for column in STORAGE_COLUMNS}, STORAGE_COLUMNS, output)
