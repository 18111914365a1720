"""torch.distributed.checkpoint's index file, written for its reader and read from its writer."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as metadata_module
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from phalanx.train.checkpoint.collection import collector_at_rest
from phalanx.train.checkpoint.store.errors import Corrupt, StoreError
from phalanx.train.checkpoint.store.layout import METADATA
from phalanx.train.checkpoint.store.manifest import (
    Chunk,
    Manifest,
    StoredFile,
    StoredObject,
    StoredTensor,
    dtype_name,
    dtype_named,
)
from phalanx.train.checkpoint.store.media.medium import Medium

METADATA_MODULE = "torch.distributed.checkpoint.metadata"
SAFE_NAMES = {
    *(("torch.distributed.checkpoint.filesystem", name) for name in ("_StorageInfo", "_StoragePrefix")),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
    ("collections", "OrderedDict"),
    # Megatron-Core keeps the plans of all ranks beside the index.
    *(
        ("torch.distributed.checkpoint.planner", name)
        for name in ("SavePlan", "TensorWriteData", "WriteItem", "WriteItemType")
    ),
}


def metadata_bytes(tensors: dict[str, StoredTensor], objects: dict[str, StoredObject], url: str) -> bytes:
    """The `.metadata` file for a step of ours."""
    with collector_at_rest():
        return pickle.dumps(metadata_of(tensors, objects, url))


def metadata_of(tensors: dict[str, StoredTensor], objects: dict[str, StoredObject], url: str) -> Metadata:
    # Equal sizes are one object, which is pickled once.
    size = cache(torch.Size)
    described: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    where: dict[MetadataIndex, _StorageInfo] = {}
    for fqn, tensor in tensors.items():
        boxes = [ChunkStorageMetadata(size(each.offsets), size(each.sizes)) for each in tensor.chunks]
        properties = TensorProperties(dtype=dtype_named(tensor.dtype))
        described[fqn] = TensorStorageMetadata(properties, torch.Size(tensor.shape), boxes)
        for number, chunk in enumerate(tensor.chunks):
            info = _StorageInfo(sys.intern(chunk.file), chunk.item, chunk.item_bytes)
            where[MetadataIndex(fqn, chunk.offsets, number)] = info
    for fqn, value in objects.items():
        described[fqn] = BytesStorageMetadata()
        where[MetadataIndex(fqn)] = _StorageInfo(value.file, value.item, value.item_bytes)
    # One key a name: a nested state dict is flattened to such names before DCP looks them up.
    paths = {fqn: (fqn,) for fqn in described}
    return Metadata(described, paths, where, StorageMeta(checkpoint_id=url), CURRENT_DCP_VERSION)


def read_foreign(directory: Medium) -> Manifest:
    """A manifest for a directory that DCP wrote: the same boxes and places, with no digests, for DCP keeps none."""
    metadata = unpickle(directory)
    tensors: dict[str, StoredTensor] = {}
    objects: dict[str, StoredObject] = {}
    for fqn, described in metadata.state_dict_metadata.items():
        if isinstance(described, TensorStorageMetadata):
            chunks = [foreign_chunk(directory, metadata, fqn, each) for each in described.chunks]
            tensors[fqn] = StoredTensor(tuple(described.size), dtype_name(described.properties.dtype), chunks)
        else:
            info = place(directory, metadata, MetadataIndex(fqn))
            objects[fqn] = StoredObject(info.relative_path, info.offset, info.length, "")
    names = sorted({info.relative_path for info in metadata.storage_data.values()})
    files = {name: StoredFile(directory.size(name) or 0, "") for name in names}
    return Manifest(0, 0, [], 0, True, tensors, objects, files)


def foreign_chunk(directory: Medium, metadata: Metadata, fqn: str, box: ChunkStorageMetadata) -> Chunk:
    info = place(directory, metadata, MetadataIndex(fqn, box.offsets))
    sizes = tuple(box.sizes)
    # The whole box is one slab: without digests of parts there is nothing to check a part against.
    rows = max(1, sizes[0]) if sizes else 1
    return Chunk(tuple(box.offsets), sizes, info.relative_path, info.offset, info.length, 0, rows, ())


def place(directory: Medium, metadata: Metadata, index: MetadataIndex) -> _StorageInfo:
    info = metadata.storage_data.get(index)
    if not isinstance(info, _StorageInfo):
        raise Corrupt(directory.url, [f"{METADATA} does not say where {index.fqn} at {index.offset} lies"])
    if getattr(info, "transform_descriptors", None):
        raise StoreError(
            f"{directory.url}: {index.fqn} was written through {info.transform_descriptors}, expected plain"
        )
    return info


def unpickle(directory: Medium) -> Metadata:
    try:
        content = directory.read(METADATA)
    except FileNotFoundError:
        raise Corrupt(directory.url, [f"{METADATA} is missing"]) from None
    try:
        metadata = MetadataUnpickler(io.BytesIO(content)).load()
    except Exception as error:
        raise Corrupt(directory.url, [f"{METADATA} cannot be read: {error}"]) from error
    if not isinstance(metadata, Metadata):
        raise Corrupt(directory.url, [f"{METADATA} holds a {type(metadata).__name__}"])
    return metadata


def member_of(kind: Any, name: str) -> Any:
    """A member of an enum, which some releases of Python write as an attribute of it; nothing else is given out."""
    if isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__:
        return kind[name]
    raise pickle.UnpicklingError(f"it asks for the attribute {name!r}, which no index needs")


def _is_of_metadata(module: str, name: str) -> bool:
    """Whether a class of DCP's metadata is named: not what its module imports, nor by `a.b` what that has."""
    found = getattr(metadata_module, name, None) if module == METADATA_MODULE else None
    return isinstance(found, type) and found.__module__ == METADATA_MODULE


class MetadataUnpickler(pickle.Unpickler):
    """Reads what DCP's index is made of and nothing else: an index from somewhere must not run code here."""

    def find_class(self, module: str, name: str, /) -> Any:
        dtype = getattr(torch, name, None) if module == "torch" else None
        if isinstance(dtype, torch.dtype | torch.layout):
            return dtype
        if (module, name) in SAFE_NAMES or _is_of_metadata(module, name):
            found: Callable[..., Any] = super().find_class(module, name)
            return found
        if (module, name) == ("builtins", "getattr"):
            return member_of
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no index needs")
