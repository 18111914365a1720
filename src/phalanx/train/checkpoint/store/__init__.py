"""Checkpoints at rest: directories in torch.distributed.checkpoint's format, checked, fenced, loaded on any shape."""

from __future__ import annotations

from phalanx.train.checkpoint.store.commit import commit
from phalanx.train.checkpoint.store.errors import (
    AccessRefused,
    Corrupt,
    DirectoryInUse,
    FencedOut,
    Incomplete,
    NoSuchStep,
    RankMissing,
    StoreError,
    StoreUnreachable,
)
from phalanx.train.checkpoint.store.fence import Fence, claim
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium
from phalanx.train.checkpoint.store.media.retry import Retry
from phalanx.train.checkpoint.store.mismatch import Mismatch, ShapeMismatch
from phalanx.train.checkpoint.store.reading.load import Loaded, load_into
from phalanx.train.checkpoint.store.reading.source import Source
from phalanx.train.checkpoint.store.step import Step, steps
from phalanx.train.checkpoint.store.upkeep.chosen import chosen
from phalanx.train.checkpoint.store.upkeep.comparing import Difference, differences
from phalanx.train.checkpoint.store.upkeep.copying import StepExists, copy_step
from phalanx.train.checkpoint.store.upkeep.export import export_safetensors
from phalanx.train.checkpoint.store.upkeep.resharding import reshard
from phalanx.train.checkpoint.store.upkeep.retention import Retention, retire
from phalanx.train.checkpoint.store.upkeep.verify import Broken, Intact, newest_intact, problems
from phalanx.train.checkpoint.store.write import Written, write_step

__all__ = [
    "AccessRefused",
    "Broken",
    "Corrupt",
    "Difference",
    "DirectoryInUse",
    "Fence",
    "FencedOut",
    "Incomplete",
    "Intact",
    "Loaded",
    "Medium",
    "Mismatch",
    "NoSuchStep",
    "RankMissing",
    "Retention",
    "Retry",
    "Root",
    "ShapeMismatch",
    "Source",
    "Step",
    "StepExists",
    "StoreError",
    "StoreUnreachable",
    "Written",
    "chosen",
    "claim",
    "commit",
    "copy_step",
    "differences",
    "export_safetensors",
    "load_into",
    "newest_intact",
    "open_medium",
    "problems",
    "reshard",
    "retire",
    "steps",
    "write_step",
]
