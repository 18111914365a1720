"""Tolerations: taints of nodes that keep no task away."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that keeps no task away. An empty key tolerates everything, an empty value any value."""

    key: str = ""
    value: str = ""
    effect: str = ""
