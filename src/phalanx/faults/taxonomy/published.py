"""What has been published of failures in large clusters."""

from __future__ import annotations

from phalanx.faults.taxonomy.cause import Cause, Domain, Profile, Recovery
from phalanx.faults.taxonomy.fleet import HOURS_PER_DAY, Rate, Unit

COURSE_GPUS = 10_000
LLAMA_GPUS, LLAMA_NODES, LLAMA_DAYS = 16_384, 2_048, 54

_RARE_DAYS = 90.0

COURSE = Profile(
    "course-10k",
    "a cluster of 10,000 GPUs, as a course has it",
    (
        Cause("GPU memory error", Domain.HARDWARE, Recovery.STORAGE, Rate.every(12, COURSE_GPUS, Unit.GPU)),
        Cause(
            "NIC failure",
            Domain.NETWORK,
            Recovery.NODE,
            Rate.every(24, COURSE_GPUS, Unit.LINK),
            "one NIC for each GPU",
        ),
        Cause(
            "node crash", Domain.HARDWARE, Recovery.NODE, Rate.every(48, COURSE_GPUS // 8, Unit.NODE), "8 GPUs a node"
        ),
        Cause(
            "network partition",
            Domain.NETWORK,
            Recovery.REROUTE,
            Rate.every(_RARE_DAYS * HOURS_PER_DAY, COURSE_GPUS // 8, Unit.NODE),
            f"the source says “rare”; taken as once in {_RARE_DAYS:.0f} days",
        ),
    ),
    "SYS-605, Large-Scale Cluster Scheduling and Fault Tolerance, table “Failure Taxonomy”",
    "2025",
)

_META = "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters, HPCA 2025"

RSC_1 = Profile(
    "rsc-1",
    "Meta's RSC-1, 16,000 A100: 6.50 failures in 1,000 node-days, counted on jobs of more than 128 GPUs",
    (Cause("node failure", Domain.HARDWARE, Recovery.NODE, Rate.per_1000_node_days(6.50)),),
    _META,
    "2025-03",
)

RSC_2 = Profile(
    "rsc-2",
    "Meta's RSC-2, 8,000 A100: 2.34 failures in 1,000 node-days, counted on jobs of more than 128 GPUs",
    (Cause("node failure", Domain.HARDWARE, Recovery.NODE, Rate.per_1000_node_days(2.34)),),
    _META,
    "2025-03",
)

LLAMA_COUNTS: tuple[tuple[str, Domain, Recovery, Unit, int], ...] = (
    ("faulty GPU", Domain.HARDWARE, Recovery.NODE, Unit.GPU, 148),
    ("GPU HBM3 memory", Domain.HARDWARE, Recovery.NODE, Unit.GPU, 72),
    ("software bug", Domain.SYSTEM, Recovery.PROCESS, Unit.NODE, 54),
    ("network switch or cable", Domain.NETWORK, Recovery.REROUTE, Unit.LINK, 35),
    ("host maintenance", Domain.FACILITY, Recovery.NODE, Unit.NODE, 32),
    ("GPU SRAM memory", Domain.HARDWARE, Recovery.NODE, Unit.GPU, 19),
    ("GPU system processor", Domain.HARDWARE, Recovery.NODE, Unit.GPU, 17),
    ("NIC", Domain.NETWORK, Recovery.NODE, Unit.LINK, 7),
    ("NCCL watchdog timeout", Domain.SYSTEM, Recovery.PROCESS, Unit.NODE, 7),
    ("silent data corruption", Domain.HARDWARE, Recovery.STORAGE, Unit.GPU, 6),
    ("GPU thermal interface and sensor", Domain.HARDWARE, Recovery.NODE, Unit.GPU, 6),
    ("SSD", Domain.HARDWARE, Recovery.NODE, Unit.NODE, 3),
    ("power supply", Domain.FACILITY, Recovery.NODE, Unit.NODE, 3),
    ("server chassis", Domain.HARDWARE, Recovery.NODE, Unit.NODE, 2),
    ("IO expansion board", Domain.HARDWARE, Recovery.NODE, Unit.NODE, 2),
    ("dependency", Domain.SYSTEM, Recovery.PROCESS, Unit.NODE, 2),
    ("CPU", Domain.HARDWARE, Recovery.NODE, Unit.NODE, 2),
    ("system memory", Domain.HARDWARE, Recovery.NODE, Unit.NODE, 2),
)
"""Unexpected interruptions by component. The counts sum to 419, as the text says; the printed percentages sum to 94.9,
since that of the first row, 30.1, should be 35.3.
"""

_UNITS = {Unit.GPU: LLAMA_GPUS, Unit.NODE: LLAMA_NODES, Unit.LINK: LLAMA_GPUS}

LLAMA_3 = Profile(
    "llama-3",
    "Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 H100",
    tuple(
        Cause(
            name,
            domain,
            recovery,
            Rate.counted(count, LLAMA_DAYS * HOURS_PER_DAY, _UNITS[unit], unit),
            "way of recovery",
        )
        for name, domain, recovery, unit, count in LLAMA_COUNTS
    ),
    "Grattafiori et al., The Llama 3 Herd of Models, table 5; one link for each GPU",
    "2024-07",
)

BYTEROBUST_SHARES: tuple[tuple[str, Domain, Recovery, float], ...] = (
    ("CUDA error", Domain.HARDWARE, Recovery.NODE, 36.1),
    ("code or data adjusted", Domain.USER, Recovery.PROCESS, 17.3),
    ("hang", Domain.SYSTEM, Recovery.PROCESS, 9.9),
    ("InfiniBand error", Domain.NETWORK, Recovery.NODE, 2.9),
    ("drop of MFU", Domain.HARDWARE, Recovery.NODE, 0.8),
    ("NaN value", Domain.HARDWARE, Recovery.STORAGE, 0.3),
    ("other", Domain.SYSTEM, Recovery.PROCESS, 32.7),
)
"""Of 43,264 explicit and 5,948 implicit failures among 778,135 jobs. `other` is what the named shares leave of 100."""

BYTEROBUST = Profile(
    "byterobust",
    "ByteRobust's mix: 43,264 explicit and 5,948 implicit failures among 778,135 jobs; no rate is published",
    tuple(
        Cause(name, domain, recovery, Rate(share / 100, Unit.NODE), "way of recovery; shares only")
        for name, domain, recovery, share in BYTEROBUST_SHARES
    ),
    "Wan et al., Robust LLM Training Infrastructure at ByteDance, SOSP 2025",
    "2025-10",
    mix=True,
)

PROFILES = {each.name: each for each in (COURSE, RSC_1, RSC_2, LLAMA_3, BYTEROBUST)}
