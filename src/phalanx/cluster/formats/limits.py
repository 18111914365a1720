"""The largest cluster a file may describe. What is larger is a mistake in the file, and said so before it is built."""

from __future__ import annotations

from phalanx.document import Limits

CLUSTER_LIMITS = Limits(text=64 * 1024 * 1024, values=2_000_000)
NODES_MAX = 200_000
GPUS_MAX = 2_000_000
GPUS_PER_NODE_MAX = 1024
GPU_MEMORY_GB_MAX = 100_000
GPU_TYPES_MAX = 1000
NICS_MAX = 1024
LABELS_MAX = 256
TAINTS_MAX = 64
TIERS_MAX = 64
STORAGE_GB_MAX = 1_000_000_000_000
PRICE_USD_H_MAX = 1_000_000
LEVELS_MAX = 16
DOMAINS_MAX = 50_000
OVERCOMMIT_MAX = 100
GB_S_MIN, GB_S_MAX = 0.001, 1_000_000
LATENCY_US_MAX = 60_000_000
