"""The parts of a training state: what each kind of object holds, by the names that torch's own checkpoints use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from phalanx.train.checkpoint.snapshots.survey import Survey, is_plain, survey_module

WHOLE = "phalanx.whole"
"""Under this name and a part's own lies the part's state_dict in one piece, with the types that flattening loses."""


Kind = tuple[tuple[int, ...], torch.dtype]
"""The shape of a whole tensor and the type of its values."""


@runtime_checkable
class Stateful(Protocol):
    """Anything that can say what it is and be told so again."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> Any: ...


class Part(Protocol):
    """A named part: tensors that are copied where they lie, and small values."""

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The live tensors by name."""

    def survey(self) -> Survey | None:
        """The same tensors in the same order, found quickly; None where only `tensors` finds them."""

    def names(self) -> list[str]:
        """The names that `objects` needs; the same for as long as the tensors' names are."""

    def objects(self, names: Sequence[str]) -> dict[str, Any]:
        """Everything but the tensors, copied."""

    def prepare(self, saved: Mapping[str, Kind]) -> None:
        """Makes the tensors that were saved and do not exist yet."""

    def accept(self, objects: Mapping[str, Any]) -> None:
        """Takes the small values, when the tensors have been filled."""


class ModulePart:
    """A module: parameters and persistent buffers."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self._name = name
        self._module = module

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in self._module.state_dict().items():
            if isinstance(value, torch.Tensor):
                yield f"{self._name}.{name}", value

    def survey(self) -> Survey | None:
        return survey_module(self._module)

    def names(self) -> list[str]:
        if all(is_plain(module) for module in self._module.modules()):
            return []
        return [name for name, value in self._module.state_dict().items() if not isinstance(value, torch.Tensor)]

    def objects(self, names: Sequence[str]) -> dict[str, Any]:
        if not names:
            return {}
        state = self._module.state_dict()
        return {f"{self._name}.{name}": state[name] for name in names}

    def prepare(self, saved: Mapping[str, Kind]) -> None:
        """A module has its tensors from the start."""

    def accept(self, objects: Mapping[str, Any]) -> None:
        extra = {name: objects[f"{self._name}.{name}"] for name in self._extra_names(objects)}
        if extra:
            self._module.load_state_dict(extra, strict=False)

    def _extra_names(self, objects: Mapping[str, Any]) -> list[str]:
        prefix = f"{self._name}."
        return [name.removeprefix(prefix) for name in objects if name.startswith(prefix)]


class TensorPart:
    """A tensor by itself."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self._name = name
        self._tensor = tensor

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield self._name, self._tensor.detach()

    def survey(self) -> Survey | None:
        return Survey([], [self._tensor])

    def names(self) -> list[str]:
        return []

    def objects(self, names: Sequence[str]) -> dict[str, Any]:
        return {}

    def prepare(self, saved: Mapping[str, Kind]) -> None:
        """It is here already."""

    def accept(self, objects: Mapping[str, Any]) -> None:
        """It holds nothing else."""


class PlainPart:
    """Any other object with state_dict: schedulers, generators, data positions. What it says is small and is copied."""

    def __init__(self, name: str, thing: Stateful, rank: int) -> None:
        self._thing = thing
        # What differs between ranks must not stand under one name.
        self._per_rank = bool(getattr(thing, "per_rank", False))
        self._name, self._rank = name, rank

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(())

    def survey(self) -> Survey | None:
        return Survey([], [])

    def names(self) -> list[str]:
        return []

    def objects(self, names: Sequence[str]) -> dict[str, Any]:
        name = f"{self._name}.rank{self._rank}" if self._per_rank else self._name
        state = copied(self._thing.state_dict())
        return {f"{WHOLE}.{name}": state, **dict(leaves(name, state))}

    def prepare(self, saved: Mapping[str, Kind]) -> None:
        """It makes what it needs itself."""

    def accept(self, objects: Mapping[str, Any]) -> None:
        for name in (f"{self._name}.rank{self._rank}", f"{self._name}.rank0", self._name):
            if f"{WHOLE}.{name}" in objects:
                self._thing.load_state_dict(copied(objects[f"{WHOLE}.{name}"]))
                return
        # Written by torch.distributed.checkpoint: its own state tells where each value belongs.
        state = filled(self._name, self._thing.state_dict(), objects)
        if state is not None:
            self._thing.load_state_dict(state)


def copied(value: Any) -> Any:
    """The same, with tensors copied to the host, so that what training changes afterwards does not change it."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copied(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(each) for each in value)
    return value


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values of nested mappings by dotted names; lists are entered where they hold mappings or tensors."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(f"{name}.{key}", each)
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping | torch.Tensor) for each in value):
        for number, each in enumerate(value):
            yield from leaves(f"{name}.{number}", each)
    else:
        yield name, value


def filled(name: str, template: Any, objects: Mapping[str, Any]) -> Any:
    """The template with the values that are known by name; None if none is."""
    if not any(known == name or known.startswith(f"{name}.") for known in objects):
        return None
    if isinstance(template, Mapping):
        values = {key: filled(f"{name}.{key}", each, objects) for key, each in template.items()}
        return {key: template[key] if value is None else value for key, value in values.items()}
    return objects.get(name, template)
