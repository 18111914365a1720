"""Storage for checkpoints: how much must be written how fast, read back how fast, and kept."""

from __future__ import annotations

from dataclasses import dataclass

STATE_BYTES_PER_PARAMETER = 14
"""Weights in bf16 (2), a copy of them in fp32 (4) and the two moments of Adam in fp32 (8): what a step is saved as."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What checkpoints ask of the storage they go to. Rates are gigabytes a second of the whole cluster."""

    checkpoint_gb: float
    node_gb: float
    burst_gb_s: float
    mean_gb_s: float
    restore_gb_s: float
    capacity_tb: float
    node_burst_gb_s: float


def traffic(
    parameters: float, nodes: int, interval_s: float, write_s: float, reload_s: float, kept: int, readers: int = 1
) -> Traffic:
    """What it takes to write a checkpoint in `write_s` every `interval_s`, to keep so many, and to read it back.

    `readers` is how many times a checkpoint is read at a restore: once if replicas hand on what one of them has read.
    The newest is written beside those that are kept.
    """
    checkpoint_gb = parameters * STATE_BYTES_PER_PARAMETER / 1e9
    return Traffic(
        checkpoint_gb,
        checkpoint_gb / nodes,
        checkpoint_gb / write_s,
        checkpoint_gb / interval_s,
        checkpoint_gb * readers / reload_s,
        checkpoint_gb * (kept + 1) / 1e3,
        checkpoint_gb / write_s / nodes,
    )
