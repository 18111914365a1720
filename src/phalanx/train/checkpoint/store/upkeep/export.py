"""Weights for the world outside: safetensors files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.errors import NoSuchStep, StoreError
from phalanx.train.checkpoint.store.manifest import StoredTensor, dtype_named
from phalanx.train.checkpoint.store.media.medium import Root, open_medium
from phalanx.train.checkpoint.store.reading.load import fill_from
from phalanx.train.checkpoint.store.reading.source import Source

SHARD_BYTES = 4 << 30
INDEX = "model.safetensors.index.json"


def export_safetensors(source: Source, root: Root, *, prefix: str = "", shard_bytes: int = SHARD_BYTES) -> list[str]:
    """Writes the tensors whose names begin with `prefix`, without it, into the directory `root`; gives the file names.

    Up to `shard_bytes` go into one file, `model.safetensors`; more are spread over several with an index beside them,
    as the transformers library reads them. Objects (step, RNG, …) are not weights and stay behind.
    """
    import safetensors.torch

    chosen = {name: each for name, each in source.manifest.tensors.items() if name.startswith(prefix)}
    if not chosen:
        raise NoSuchStep(f"{source.directory.url}: no tensor's name begins with {prefix!r}")
    refuse_if_ambiguous(chosen, prefix)
    shards = list(in_shards(chosen, shard_bytes))
    medium = open_medium(root)
    names = [shard_name(number, len(shards)) for number in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        content = safetensors.torch.save(read_shard(source, shard, prefix), {"format": "pt"})
        medium.write(name, partial(put, content))
    if len(shards) > 1:
        where = {each.removeprefix(prefix): name for name, shard in zip(names, shards, strict=True) for each in shard}
        index = {"metadata": {"total_size": sum(map(stored_bytes, chosen.values()))}, "weight_map": where}
        medium.write(INDEX, partial(put, json.dumps(index, indent=2).encode()))
        names.append(INDEX)
    return names


def put(content: bytes, file: BinaryIO) -> int:
    return file.write(content)


def refuse_if_ambiguous(chosen: dict[str, StoredTensor], prefix: str) -> None:
    nameless = [name for name in chosen if name == prefix]
    if nameless:
        raise StoreError(f"{prefix!r} is the whole name of a tensor; give a shorter prefix")


def in_shards(tensors: dict[str, StoredTensor], shard_bytes: int) -> Iterator[dict[str, StoredTensor]]:
    """The tensors in their order, cut where a shard would grow too large; a tensor is never cut."""
    shard: dict[str, StoredTensor] = {}
    size = 0
    for name, tensor in tensors.items():
        more = stored_bytes(tensor)
        if shard and size + more > shard_bytes:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor
        size += more
    yield shard


def read_shard(source: Source, shard: dict[str, StoredTensor], prefix: str) -> dict[str, torch.Tensor]:
    tensors = {name: torch.zeros(each.shape, dtype=dtype_named(each.dtype)) for name, each in shard.items()}
    fill_from(source, [Piece.whole(name, each) for name, each in tensors.items()])
    return {name.removeprefix(prefix): each for name, each in tensors.items()}


def shard_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"


def stored_bytes(tensor: StoredTensor) -> int:
    return math.prod(tensor.shape) * dtype_named(tensor.dtype).itemsize
