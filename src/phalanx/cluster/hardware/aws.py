"""Instance types of AWS."""

from __future__ import annotations

from phalanx.cluster.hardware.rows import HYPERSCALERS, InstanceRow, Source

SHAPES: dict[str, Source] = {
    "AWS": ("AWS EC2 accelerated instance pages; CPUs and memory as in SkyPilot catalog v8", "2026-11-15"),
}

EAST_LIST: Source = (
    "SkyPilot catalog v8 (commit 00148f2), us-east-1 list price; date of reading",
    "2026-11-15",
)
EAST_SPOT: Source = (
    "SkyPilot catalog v8 (commit 00148f2), median over us-east-1 zones; date of reading",
    "2026-11-15",
)
OHIO_SPOT: Source = (
    "SkyPilot catalog v8 (commit 00148f2), median over us-east-2 zones; date of reading",
    "2026-11-15",
)
US_SPOT: Source = (
    "SkyPilot catalog v8 (commit 00148f2), median over zones in the US; date of reading",
    "2026-11-15",
)
AWS_LIST: Source = ("AWS EC2 list price, us-east-1, not re-checked", "2025")
AWS_SPOT: Source = ("Approximate: usual us-east-1 spot price, not re-checked", "2025")
AWS_RETIRED: Source = ("AWS EC2 list price, us-east-1, before the family retired, not re-checked", "2023")
AWS_RETIRED_SPOT: Source = ("Approximate: 30 % of list, the family has retired", "2023")
P5E_BLOCK: Source = ("AWS Capacity Block price, us-east-2; not sold on demand", "2024-12")
TRN2_BLOCK: Source = ("Approximate: AWS Capacity Block price; not sold on demand, not re-checked", "2025")

INSTANCES: tuple[InstanceRow, ...] = (
    InstanceRow("p2.8xlarge", "AWS", "K80", 8, 32, 488, 10, (7.20, AWS_RETIRED), (2.16, AWS_RETIRED_SPOT)),
    InstanceRow("p2.16xlarge", "AWS", "K80", 16, 64, 732, 25, (14.40, AWS_RETIRED), (4.32, AWS_RETIRED_SPOT)),
    InstanceRow("p3.2xlarge", "AWS", "V100", 1, 8, 61, 10, (3.06, EAST_LIST), (0.394, EAST_SPOT)),
    InstanceRow("p3.16xlarge", "AWS", "V100", 8, 64, 488, 25, (24.48, EAST_LIST), (2.78, EAST_SPOT)),
    InstanceRow("p3dn.24xlarge", "AWS", "V100-32", 8, 96, 768, 100, (31.212, EAST_LIST), (7.27, EAST_SPOT)),
    InstanceRow("g4dn.xlarge", "AWS", "T4", 1, 4, 16, 25, (0.526, AWS_LIST), (0.21, AWS_SPOT)),
    InstanceRow("g4dn.metal", "AWS", "T4", 8, 96, 384, 100, (7.824, EAST_LIST), (2.96, EAST_SPOT)),
    InstanceRow("g5.4xlarge", "AWS", "A10G", 1, 16, 64, 25, (1.624, EAST_LIST), (0.66, EAST_SPOT)),
    InstanceRow("g5.48xlarge", "AWS", "A10G", 8, 192, 768, 100, (16.288, AWS_LIST), (6.5, AWS_SPOT)),
    InstanceRow("p4d.24xlarge", "AWS", "A100-40", 8, 96, 1152, 400, (21.9576, HYPERSCALERS), (8.00, EAST_SPOT)),
    InstanceRow("p4de.24xlarge", "AWS", "A100-80", 8, 96, 1152, 400, (27.4471, HYPERSCALERS), (9.31, EAST_SPOT)),
    InstanceRow("g6.2xlarge", "AWS", "L4", 1, 8, 32, 10, (0.9776, EAST_LIST), (0.476, EAST_SPOT)),
    InstanceRow("g6.24xlarge", "AWS", "L4", 4, 96, 384, 50, (6.6752, EAST_LIST), (2.92, EAST_SPOT)),
    InstanceRow("g6e.2xlarge", "AWS", "L40S", 1, 8, 64, 20, (2.2421, EAST_LIST), (0.918, EAST_SPOT)),
    InstanceRow("g6e.48xlarge", "AWS", "L40S", 8, 192, 1536, 400, (30.1312, EAST_LIST), (10.37, EAST_SPOT)),
    InstanceRow("p5.48xlarge", "AWS", "H100", 8, 192, 2048, 3200, (55.04, HYPERSCALERS), (21.15, EAST_SPOT)),
    InstanceRow("p5e.48xlarge", "AWS", "H200", 8, 192, 2048, 3200, (43.26, P5E_BLOCK), (19.54, US_SPOT)),
    InstanceRow("p5en.48xlarge", "AWS", "H200", 8, 192, 2048, 3200, (63.296, EAST_LIST), (17.21, EAST_SPOT)),
    InstanceRow("p6-b200.48xlarge", "AWS", "B200", 8, 192, 2048, 3200, (113.9328, EAST_LIST), (21.73, OHIO_SPOT)),
    InstanceRow("trn2.48xlarge", "AWS", "Trainium2", 16, 192, 2048, 3200, (35.76, TRN2_BLOCK), (23.06, OHIO_SPOT)),
)
