"""What `phalanx usage` shows of the GPU time that the server counts."""

from __future__ import annotations

import pytest

from phalanx.cli.usage import row_of

USED = {"key": "ann", "jobs": 1, "attempts": 1, "lost_gpu_ms": 0, "reported_gpu_ms": 0, "busy_gpu_ms": 0}


@pytest.mark.parametrize(
    ("gpu_ms", "hours"), [(0, 0), (18_000, 0.005), (3, 0.0001), (1_200_000, 0.33), (3_661_000, 1.02)]
)
def test_hours_of_a_short_job_are_not_zero(gpu_ms: int, hours: float) -> None:
    assert row_of({**USED, "gpu_ms": gpu_ms})["gpu_hours"] == hours


def test_what_was_not_reported_as_busy_is_idle() -> None:
    row = row_of({**USED, "gpu_ms": 7_200_000, "reported_gpu_ms": 7_200_000, "busy_gpu_ms": 5_400_000})
    assert (row["idle_gpu_hours"], row["busy"]) == (0.5, "75%")
    assert row_of({**USED, "gpu_ms": 7_200_000})["idle_gpu_hours"] is None
