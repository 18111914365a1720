"""What runs inside a training job is tested where torch is.

Test modules here import torch at their top. Where it is missing none is collected, and the run says how to get it;
where PHALANX_REQUIRE demands it, its absence is an error.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

collect_ignore_glob: list[str] = []

if importlib.util.find_spec("torch") is None:
    if {"all", "torch"} & set(os.environ.get("PHALANX_REQUIRE", "").split(",")):
        raise pytest.UsageError("tests/train needs torch, which PHALANX_REQUIRE demands: uv sync --extra train")
    collect_ignore_glob.append("test_*.py")


def pytest_report_header() -> list[str]:
    return ["tests/train is left out without torch: uv sync --extra train"] if collect_ignore_glob else []
