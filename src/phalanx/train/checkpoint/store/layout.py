"""What things are called in a checkpoint directory.

ROOT/.fence/…                  which trainer may write (see `fence`)
ROOT/step-00000100.t7/         step 100 as saved by the trainer of term 7; without `.t7` where none fenced
    __3_0.distcp               data of rank 3, first file
    .rank-3.json               what rank 3 wrote; taken away when the step is committed
    .metadata                  torch.distributed.checkpoint's index
    manifest.json              ours: every tensor, object and file, with digests
    COMMITTED                  the commit mark, written last
"""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
MARK = "COMMITTED"
METADATA = ".metadata"
FENCE = ".fence"

STEP_NAME = re.compile(r"step-(\d{8,})(?:\.t(\d+))?")
DATA_NAME = re.compile(r"__(\d+)_(\d+)\.distcp")
INDEX_NAME = re.compile(r"\.rank-(\d+)\.json")


def step_name(step: int, term: int) -> str:
    """A directory of its own for each term: no trainer ever writes into what another one wrote."""
    return f"step-{step:08d}" + (f".t{term}" if term else "")


def parse_step_name(name: str) -> tuple[int, int] | None:
    """Step and term of a directory, None for any other name."""
    match = STEP_NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else None


def data_name(rank: int, number: int) -> str:
    return f"__{rank}_{number}.distcp"


def index_name(rank: int) -> str:
    return f".rank-{rank}.json"
