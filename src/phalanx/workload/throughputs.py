"""Throughputs: steps a second of models on GPU types, as somebody measured them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BATCH = re.compile(r"\(?\s*batch\s*(?:size)?\s*[=:]?\s*(\d+)\s*\)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one model does with a batch on so many GPUs, by GPU type. A batch of 0 is any.

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
        for row in self.rows:
            name, _ = _parts(row.model)
            alone = dict(row.steps_per_s)
            for gpu_type, other, rate in row.beside:
                if alone.get(gpu_type, 0.0) > 0 and rate > 0:
                    self._kept.setdefault((gpu_type, (name, row.batch), _parts(other)), rate / alone[gpu_type])
            for batch in dict.fromkeys((row.batch, 0)):
                by_gpus = self._by_model.setdefault((name, batch), {})
                by_gpus.setdefault(row.gpus, dict(row.steps_per_s))

    def knows(self, model: str) -> bool:
        """Whether anything was measured of a model."""
        return self._found(model) is not None

    def relative(self, gpu_type: str, reference: str, model: str, gpus: int) -> float | None:
        """How fast a job is on one type where it is 1 on another; None if that was not measured on both.

        With a number of GPUs that was not measured, by the next smaller one that was, else the smallest.
        """
        by_gpus = self._found(model)
        if by_gpus is None:
            return None
        counts = [count for count in by_gpus if count <= gpus]
        steps = by_gpus[max(counts) if counts else min(by_gpus)]
        here, there = steps.get(gpu_type.upper(), 0.0), steps.get(reference.upper(), 0.0)
        return here / there if here > 0 and there > 0 else None

    def kept(self, gpu_type: str, model: str, other: str) -> float | None:
        """What a model keeps of its speed at the same time as another on one GPU; None if that was not measured."""
        return self._kept.get((gpu_type.upper(), _parts(model), _parts(other)))

    def _found(self, model: str) -> dict[int, dict[str, float]] | None:
        name, batch = _parts(model)
        return self._by_model.get((name, batch)) or self._by_model.get((name, 0))


def _parts(model: str) -> tuple[str, int]:
    """The name of a model without anything but letters and figures, and the batch that it names."""
    found = _BATCH.search(model)
    name = _BATCH.sub("", model)
    return "".join(each for each in name.casefold() if each.isalnum()), int(found[1]) if found else 0


def batch_of(model: str) -> int:
    """The batch that is part of a model's name; 0 if none is."""
    return _parts(model)[1]
