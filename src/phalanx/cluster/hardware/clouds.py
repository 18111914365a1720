"""Instance types of other clouds: Azure, Lambda and CoreWeave."""

from __future__ import annotations

from phalanx.cluster.hardware.rows import HYPERSCALERS, InstanceRow, Source

SHAPES: dict[str, Source] = {
    "Azure": ("Microsoft Azure VM size pages, not re-checked", "2025"),
    "Lambda": ("Lambda pricing page; the network is approximate, none is published", "2026-09-20"),
    "CoreWeave": ("CoreWeave pricing page; the network is not re-checked", "2026-09-20"),
}

AZURE_LIST: Source = ("Azure list price, eastus, not re-checked", "2025")
AZURE_OLD: Source = ("Azure list price before the size retired, as in S. Luccioni's cloud data", "2023")
AZURE_SPOT: Source = ("Estimate: 40 % of list; no spot price was read", "2026-11-15")
LAMBDA_LIST: Source = ("Lambda pricing page as transcribed by api-evangelist; no spot sold", "2026-09-20")
LAMBDA_OLD: Source = ("SkyPilot catalog v8 (commit 0f40703), no spot sold; date of reading", "2026-11-15")
COREWEAVE_LIST: Source = ("CoreWeave pricing page as transcribed by api-evangelist, North America", "2026-09-20")
COREWEAVE_H200: Source = ("CoreWeave price as gathered by compute-screener", "2026-10-24")
COREWEAVE_SPOT: Source = ("Estimate: 40 % of list, as for H100 there; no spot price was read", "2026-10-24")

INSTANCES: tuple[InstanceRow, ...] = (
    InstanceRow("Standard_NC6s_v2", "Azure", "P100", 1, 6, 112, 6, (2.07, AZURE_OLD), (0.828, AZURE_SPOT)),
    InstanceRow(
        "Standard_NC24ads_A100_v4",
        "Azure",
        "A100-80",
        1,
        24,
        220,
        20,
        (3.673, HYPERSCALERS),
        (1.469, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_NC96ads_A100_v4",
        "Azure",
        "A100-80",
        4,
        96,
        880,
        80,
        (19.108, HYPERSCALERS),
        (7.643, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_ND96asr_A100_v4",
        "Azure",
        "A100-40",
        8,
        96,
        900,
        1600,
        (27.197, HYPERSCALERS),
        (10.879, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_ND96isr_H100_v5",
        "Azure",
        "H100",
        8,
        96,
        1900,
        3200,
        (98.32, HYPERSCALERS),
        (39.328, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_ND96isr_MI300X_v5",
        "Azure",
        "MI300X",
        8,
        96,
        1850,
        3200,
        (48.0, AZURE_LIST),
        (19.2, AZURE_SPOT),
    ),
    InstanceRow("gpu_8x_v100", "Lambda", "V100", 8, 92, 448, 10, (6.32, LAMBDA_OLD), None),
    InstanceRow("gpu_8x_a100_80gb_sxm4", "Lambda", "A100-80", 8, 240, 1800, 100, (22.32, LAMBDA_LIST), None),
    InstanceRow("gpu_8x_h100_sxm5", "Lambda", "H100", 8, 208, 1800, 100, (31.92, LAMBDA_LIST), None),
    InstanceRow("gpu_8x_b200_sxm6", "Lambda", "B200", 8, 208, 2900, 100, (53.52, LAMBDA_LIST), None),
    InstanceRow(
        "gd-8xh100ib-i128",
        "CoreWeave",
        "H100",
        8,
        128,
        2048,
        3200,
        (49.24, COREWEAVE_LIST),
        (19.71, COREWEAVE_LIST),
    ),
    InstanceRow(
        "gd-8xh200ib-i128",
        "CoreWeave",
        "H200",
        8,
        128,
        2048,
        3200,
        (50.44, COREWEAVE_H200),
        (20.18, COREWEAVE_SPOT),
    ),
    InstanceRow("b200-8x", "CoreWeave", "B200", 8, 128, 2048, 3200, (68.8, COREWEAVE_LIST), (34.11, COREWEAVE_LIST)),
    InstanceRow("gb200-4x", "CoreWeave", "GB200", 4, 144, 960, 1600, (42.0, COREWEAVE_LIST), None),
)
