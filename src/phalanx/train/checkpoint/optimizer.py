"""An optimiser as a part of the state, its tensors named after the parameters that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from phalanx.train.checkpoint.parts import Kind, copied


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

    def objects(self) -> dict[str, Any]:
        objects: dict[str, Any] = {}
        for name, parameter in self._parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if not isinstance(value, torch.Tensor):
                    objects[f"{self._name}.state.{name}.{key}"] = value
        names = {parameter: name for name, parameter in self._parameters()}
        for number, group in enumerate(self._optimizer.param_groups):
            for key, value in group.items():
                values = [names[parameter] for parameter in value] if key == "params" else copied(value)
                objects[f"{self._name}.param_groups.{number}.{key}"] = values
        return objects

    def prepare(self, saved: Mapping[str, Kind]) -> None:
        for name, parameter in self._parameters():
            state = self._optimizer.state[parameter]
            prefix = f"{self._name}.state.{name}."
            kinds = {full.removeprefix(prefix): kind for full, kind in saved.items() if full.startswith(prefix)}
            for key in [key for key, value in state.items() if isinstance(value, torch.Tensor) and key not in kinds]:
                del state[key]
            for key, kind in kinds.items():
                if key not in state:
                    state[key] = self._make(kind, parameter)

    def accept(self, objects: Mapping[str, Any]) -> None:
        for number, group in enumerate(self._optimizer.param_groups):
            prefix = f"{self._name}.param_groups.{number}."
            saved = {name.removeprefix(prefix): value for name, value in objects.items() if name.startswith(prefix)}
            group.update({key: copied(value) for key, value in saved.items() if key != "params"})
        for name, parameter in self._parameters():
            prefix = f"{self._name}.state.{name}."
            for key, value in objects.items():
                if key.startswith(prefix):
                    self._optimizer.state[parameter][key.removeprefix(prefix)] = copied(value)

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The optimiser's parameters by the names they have in the modules; by number where no module has them."""
        # With one module the names are those that torch's own tools give an optimiser's state.
        alone = len(self._modules) == 1
        names = {
            parameter: name if alone else f"{part}.{name}"
            for part, module in self._modules.items()
            for name, parameter in module.named_parameters()
        }
        number = 0
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                yield names.get(parameter, str(number)), parameter
                number += 1

    def _make(self, kind: Kind, parameter: torch.Tensor) -> torch.Tensor:
        """An empty tensor of the state: cut as the parameter is cut, or a counter where torch keeps counters."""
        shape, dtype = kind
        if shape and shape == tuple(parameter.shape):
            return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
        group = next(g for g in self._optimizer.param_groups if any(p is parameter for p in g["params"]))
        on_device = bool(shape) or bool(group.get("fused")) or bool(group.get("capturable"))
        return torch.empty(shape, dtype=dtype, device=parameter.device if on_device else "cpu")
