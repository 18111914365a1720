"""Inside the job: checkpoints, and whatever else a training needs to survive."""

from __future__ import annotations
