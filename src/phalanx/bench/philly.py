"""The real Philly trace, which is not part of the product: it is used where it lies beside the repository."""

from __future__ import annotations

from pathlib import Path

PHILLY = Path(__file__).parents[4] / "shared" / "traces" / "philly" / "philly.csv"
