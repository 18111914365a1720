"""Throughputs: measured steps a second of models on GPU types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator

_BATCH = re.compile(r"\(?\s*batch\s*(?:size)?\s*[=:]?\s*(\d{1,9})(?!\d)\s*\)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one model does with a batch on so many GPUs, by GPU type. A batch of 0 is any.

    A rate of 0 says that it was tried and cannot run there, as where its memory is too small.
    `beside` is what it does at the same time as another model on the same GPU: by GPU type and that model.
    """

    model: str
    batch: int
    gpus: int
    steps_per_s: tuple[tuple[str, float], ...]
    beside: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Throughputs:
    """All that was measured. `source` is where it was read from."""

    source: str
    rows: tuple[Throughput, ...]
    _by_model: dict[tuple[str, int], dict[int, dict[str, float]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    _kept: dict[tuple[str, tuple[str, int], tuple[str, int]], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # What is said of any batch goes before what was measured with the first of several.
        for row in sorted(self.rows, key=lambda row: row.batch != 0):
            name = name_of(row.model)
            alone = {type_key(gpu_type): rate for gpu_type, rate in row.steps_per_s}
            for gpu_type, other, rate in row.beside:
                key = type_key(gpu_type)
                if alone.get(key, 0.0) > 0 and rate > 0:
                    self._kept.setdefault((key, (name, row.batch), _parts(other)), rate / alone[key])
            known = self._by_model.setdefault((name, row.batch), {}).setdefault(row.gpus, {})
            known.update({key: rate for key, rate in alone.items() if key not in known})
            self._by_model.setdefault((name, 0), {}).setdefault(row.gpus, known)

    def knows(self, model: str) -> bool:
        """Whether anything was measured of a model."""
        return self._found(model) is not None

    def relative(self, gpu_type: str, reference: str, model: str, gpus: int) -> float | None:
        """How fast a job is on one type where it is 1 on another; None if that was not measured on both.

        With a number of GPUs that was not measured, by the next smaller one that was, else the smallest.
        """
        steps = self.steps_per_s(model, gpus)
        here, there = steps.get(type_key(gpu_type), 0.0), steps.get(type_key(reference), 0.0)
        return here / there if here > 0 and there > 0 else None

    def steps_per_s(self, model: str, gpus: int) -> Mapping[str, float]:
        """What was measured of a model with so many GPUs, by type; of a number that was not as `relative` says."""
        by_gpus = self._found(model)
        if by_gpus is None:
            return {}
        counts = [count for count in by_gpus if count <= gpus]
        return by_gpus[max(counts) if counts else min(by_gpus)]

    def unable(self, model: str, gpus: int, gpu_types: Iterable[str]) -> tuple[str, ...]:
        """Those of the types on which a model was measured and cannot run."""
        steps = self.steps_per_s(model, gpus)
        return tuple(name for name in gpu_types if steps.get(type_key(name)) == 0)

    def kept(self, gpu_type: str, model: str, other: str) -> float | None:
        """What a model keeps of its speed at the same time as another on one GPU; None if that was not measured."""
        return self._kept.get((type_key(gpu_type), _parts(model), _parts(other)))

    def _found(self, model: str) -> dict[int, dict[str, float]] | None:
        name, batch = _parts(model)
        return self._by_model.get((name, batch)) or self._by_model.get((name, 0))


@lru_cache(maxsize=4096)
def type_key(gpu_type: str) -> str:
    """One name for all names of a GPU type: the catalogue's, else its own in capitals."""
    try:
        return accelerator(gpu_type).name
    except UnknownAccelerator:
        return gpu_type.upper()


def _parts(model: str) -> tuple[str, int]:
    """The name of a model without anything but letters and figures, and the batch that it names."""
    found = _BATCH.search(model)
    name = _BATCH.sub("", model)
    return "".join(each for each in name.casefold() if each.isalnum()), int(found[1]) if found else 0


def name_of(model: str) -> str:
    """One name for all ways to write that of a model."""
    return _parts(model)[0]


def batch_of(model: str) -> int:
    """The batch that is part of a model's name; 0 if none is."""
    return _parts(model)[1]
