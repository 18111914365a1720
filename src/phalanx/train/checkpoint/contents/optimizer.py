"""An optimiser as a part of the state, its tensors named after the parameters that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import torch

from phalanx.train.checkpoint.contents.parts import Kind, copied
from phalanx.train.checkpoint.snapshots.survey import Survey, parameters_of

Value = TypeVar("Value")
NOTHING: Mapping[str, Any] = {}


class OptimizerPart:
    """Moments and counters as tensors `NAME.state.PARAMETER.KEY`, and the parameter groups.

    Values are put into `optimizer.state` as they are. `load_state_dict` would cast them to the parameter's type, which
    halves the precision of moments kept in float32 beside parameters in bfloat16.
    """

    def __init__(self, name: str, optimizer: torch.optim.Optimizer, modules: Mapping[str, torch.nn.Module]) -> None:
        self._name = name
        self._optimizer = optimizer
        self._modules = modules

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self._parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{self._name}.state.{name}.{key}", value

    def survey(self) -> Survey | None:
        keys: list[Any] = []
        tensors: list[torch.Tensor] = []
        state = self._optimizer.state
        only_tensors = self._holds_only_tensors()
        for group in self._optimizer.param_groups:
            parameters = group["params"]
            # Their names follow from the modules, which are parts of the state themselves.
            keys.extend(map(id, parameters))
            for parameter in parameters:
                found = state.get(parameter, NOTHING)
                if not only_tensors:
                    found = {key: value for key, value in found.items() if isinstance(value, torch.Tensor)}
                keys.extend(found)
                tensors.extend(found.values())
            keys.append(None)
        return Survey(keys, tensors)

    def _holds_only_tensors(self) -> bool:
        """Whether nothing else is remembered of any parameter, as is so with torch's own optimisers."""
        kinds = set(map(type, chain.from_iterable(each.values() for each in self._optimizer.state.values())))
        return all(issubclass(kind, torch.Tensor) for kind in kinds)

    def names(self) -> list[str]:
        return [name for name, _ in self._parameters()]

    def objects(self, names: Sequence[str]) -> dict[str, Any]:
        objects: dict[str, Any] = {}
        groups = self._optimizer.param_groups
        state = self._optimizer.state
        parameters = [] if self._holds_only_tensors() else [p for group in groups for p in group["params"]]
        for name, parameter in zip(names, parameters, strict=False):
            for key, value in state.get(parameter, NOTHING).items():
                if not isinstance(value, torch.Tensor):
                    objects[f"{self._name}.state.{name}.{key}"] = value
        first = 0
        for number, group in enumerate(groups):
            last = first + len(group["params"])
            for key, value in group.items():
                values = list(names[first:last]) if key == "params" else copied(value)
                objects[f"{self._name}.param_groups.{number}.{key}"] = values
            first = last
        return objects

    def prepare(self, saved: Mapping[str, Kind]) -> None:
        kinds_of = self._by_parameter(saved)
        for group in self._optimizer.param_groups:
            # A counter lies where torch keeps counters.
            on_device = bool(group.get("fused")) or bool(group.get("capturable"))
            for parameter in group["params"]:
                state, kinds = self._optimizer.state[parameter], kinds_of.get(id(parameter), {})
                for key in [k for k, value in state.items() if isinstance(value, torch.Tensor) and k not in kinds]:
                    del state[key]
                for key, kind in kinds.items():
                    if key not in state:
                        state[key] = made(kind, parameter, on_device)

    def accept(self, objects: Mapping[str, Any]) -> None:
        for number, group in enumerate(self._optimizer.param_groups):
            prefix = f"{self._name}.param_groups.{number}."
            saved = {name.removeprefix(prefix): value for name, value in objects.items() if name.startswith(prefix)}
            group.update({key: copied(value) for key, value in saved.items() if key != "params"})
        values_of = self._by_parameter(objects)
        for _, parameter in self._parameters():
            for key, value in values_of.get(id(parameter), {}).items():
                self._optimizer.state[parameter][key] = copied(value)

    def _by_parameter(self, saved: Mapping[str, Value]) -> dict[int, dict[str, Value]]:
        """What was saved of this optimiser's state, by the identity of the parameter and the key.

        Names of parameters and keys may have dots in them, and one name may begin with another: every split is tried.
        """
        prefix = f"{self._name}.state."
        named: dict[str, dict[str, Value]] = {name: {} for name, _ in self._parameters()}
        for full, value in saved.items():
            if full.startswith(prefix):
                rest = full.removeprefix(prefix)
                for name, key in splits(rest):
                    if name in named:
                        named[name][key] = value
        return {id(parameter): named[name] for name, parameter in self._parameters()}

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The optimiser's parameters by the names they have in the modules; by number where no module has them."""
        # With one module the names are those that torch's own tools give an optimiser's state.
        alone = len(self._modules) == 1
        names = {
            id(parameter): name if alone else f"{part}.{name}"
            for part, module in self._modules.items()
            for name, parameter in parameters_of(module)
        }
        number = 0
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                yield names.get(id(parameter)) or str(number), parameter
                number += 1


def made(kind: Kind, parameter: torch.Tensor, on_device: bool) -> torch.Tensor:
    """An empty tensor of the state: cut as the parameter is cut, or a counter where torch keeps counters."""
    shape, dtype = kind
    if shape and shape == tuple(parameter.shape):
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    return torch.empty(shape, dtype=dtype, device=parameter.device if shape or on_device else "cpu")


def splits(name: str) -> Iterator[tuple[str, str]]:
    """All ways to cut a name in two at a dot."""
    at = name.find(".")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.find(".", at + 1)
