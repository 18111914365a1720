"""What lies in a directory that no trainer of ours has written to yet."""

from __future__ import annotations

from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.media.medium import Medium
from phalanx.train.checkpoint.store.reading.deepspeed import LATEST, STATES_FILE
from phalanx.train.checkpoint.store.step import attempted, holds_dcp

TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp")
"""Files that torch and libraries on it keep weights in. Logs and settings may lie beside our steps."""
SHOWN_MAX = 5


def holds_foreign_checkpoint(medium: Medium) -> bool:
    """Whether a directory without steps of ours is one checkpoint of torch.distributed.checkpoint, which can be loaded.

    Weights in any other form are refused: a training that began anew beside them would look as if it had resumed.
    """
    if attempted(medium):
        return False
    if holds_dcp(medium):
        return True
    names = medium.names()
    if is_of_deepspeed(medium, names):
        raise StoreError(
            f"{medium.url} holds checkpoints of DeepSpeed; expected steps of phalanx (step-00000100.t1) or one "
            f"checkpoint of torch.distributed.checkpoint. `phalanx checkpoint reshard {medium.url} FOLDER --ranks N` "
            f"makes a step of ZeRO's in another folder, to go on from; to begin anew, give the tier an empty folder"
        )
    files = [name for name in names if name.endswith(TORCH_SUFFIXES)]
    folders = [name for name in names if "." not in name and holds_dcp(medium.child(name))]
    if folders:
        raise StoreError(
            f"{medium.url} holds checkpoints of torch.distributed.checkpoint in folders of its own "
            f"({shown(folders)}), and which of them is meant is not known; expected steps of phalanx "
            f"(step-00000100.t1) or one such checkpoint. Name the folder itself to load from it "
            f"(Shared({medium.child(folders[-1]).url!r})), or write it anew with `phalanx checkpoint reshard`"
        )
    if files:
        raise StoreError(
            f"{medium.url} holds files of another kind of checkpoint ({shown(files)}); expected steps of phalanx "
            f"(step-00000100.t1), a checkpoint of torch.distributed.checkpoint (.metadata), or none. To go on from "
            f"these, load them into the model with torch.load before training, and give the tier another folder; to "
            f"begin anew, give it an empty one"
        )
    return False


def is_of_deepspeed(medium: Medium, names: list[str]) -> bool:
    """Whether a folder is one checkpoint of DeepSpeed, or has a file that says which of its folders is the latest."""
    if any(map(STATES_FILE.fullmatch, names)):
        return True
    if LATEST not in names:
        return False
    try:
        tag = bytes(medium.read(LATEST)).decode(errors="replace").strip()
    except (OSError, StoreError):
        # A link to a folder: other tools have a `latest`, too.
        return False
    return tag in names and any(map(STATES_FILE.fullmatch, medium.child(tag).names()))


def shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
