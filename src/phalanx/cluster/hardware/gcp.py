"""Instance types of Google Cloud."""

from __future__ import annotations

from phalanx.cluster.hardware.rows import InstanceRow, Source

SHAPES: dict[str, Source] = {
    "GCP": ("Google Compute Engine and Cloud TPU pages; GPU shapes as in SkyPilot catalog v8", "2026-11-15"),
}

CENTRAL_LIST: Source = (
    "SkyPilot catalog v8 (commit 006059e), us-central1, VM plus accelerators; date of reading",
    "2026-11-15",
)
CENTRAL_SPOT: Source = (
    "SkyPilot catalog v8 (commit 006059e), us-central1 spot, VM plus accelerators; date of reading",
    "2026-11-15",
)
GCP_BILLING: Source = (
    "Google Cloud Billing catalog, us-central1, 8 x a3-highgpu-1g, as gathered by silybench",
    "2026-09-26",
)
GCP_BILLING_ULTRA: Source = ("Google Cloud Billing catalog, us-central1, as gathered by tanod", "2026-10-13")
GCP_LIST: Source = ("Google Cloud list price, us-central1, not re-checked", "2025")
GCP_SPOT: Source = ("Approximate: usual us-central1 spot price, not re-checked", "2025")

INSTANCES: tuple[InstanceRow, ...] = (
    InstanceRow("a2-highgpu-1g", "GCP", "A100-40", 1, 12, 85, 24, (3.6734, CENTRAL_LIST), (1.8039, CENTRAL_SPOT)),
    InstanceRow("a2-highgpu-8g", "GCP", "A100-40", 8, 96, 680, 100, (29.3871, CENTRAL_LIST), (14.4308, CENTRAL_SPOT)),
    InstanceRow("a2-ultragpu-8g", "GCP", "A100-80", 8, 96, 1360, 100, (40.55, GCP_LIST), (20.2, GCP_SPOT)),
    InstanceRow("g2-standard-4", "GCP", "L4", 1, 4, 16, 10, (0.7068, GCP_LIST), (0.28, GCP_SPOT)),
    InstanceRow("g2-standard-96", "GCP", "L4", 8, 96, 384, 100, (8.0, GCP_LIST), (3.2, GCP_SPOT)),
    InstanceRow("a3-highgpu-8g", "GCP", "H100", 8, 208, 1872, 1000, (87.8328, GCP_BILLING), (52.568, GCP_BILLING)),
    InstanceRow("a3-megagpu-8g", "GCP", "H100", 8, 208, 1872, 1800, (92.2143, CENTRAL_LIST), (28.1701, CENTRAL_SPOT)),
    InstanceRow(
        "a3-ultragpu-8g",
        "GCP",
        "H200",
        8,
        224,
        2952,
        3600,
        (83.492, GCP_BILLING_ULTRA),
        (50.0856, GCP_BILLING_ULTRA),
    ),
    InstanceRow("a4-highgpu-8g", "GCP", "B200", 8, 224, 3968, 3600, (90.216, CENTRAL_LIST), (32.6064, CENTRAL_SPOT)),
    InstanceRow("v3-8", "GCP", "TPU-v3", 4, 96, 340, 100, (8.0, GCP_LIST), (2.4, GCP_SPOT)),
    InstanceRow("ct4p-hightpu-4t", "GCP", "TPU-v4", 4, 240, 407, 100, (12.88, GCP_LIST), (5.6, GCP_SPOT)),
    InstanceRow("ct5lp-hightpu-4t", "GCP", "TPU-v5e", 4, 112, 192, 100, (4.8, GCP_LIST), (1.9, GCP_SPOT)),
    InstanceRow("ct5p-hightpu-4t", "GCP", "TPU-v5p", 4, 208, 448, 200, (16.8, CENTRAL_LIST), (3.3428, CENTRAL_SPOT)),
    InstanceRow("ct6e-standard-4t", "GCP", "TPU-v6e", 4, 180, 720, 400, (10.8, CENTRAL_LIST), (2.1768, CENTRAL_SPOT)),
)
