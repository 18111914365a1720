"""The live tensors of a state, and what tells at little cost whether they are laid out as they were before.

Between two snapshots of a training hardly anything about its state changes but the values. Finding that out must be
much cheaper than planning anew: names are not put together, nothing is detached, and all comparing is of plain lists.
No tensor is held on to: a state may be moved to another device between snapshots to free the memory it lay in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter, eq, is_
from typing import Any, NamedTuple

import torch
from torch import nn

PLAIN_TENSORS: frozenset[type] = frozenset({torch.Tensor, nn.Parameter})
SHAPE, DTYPE = attrgetter("shape"), attrgetter("dtype")


class Survey(NamedTuple):
    """Some tensors in order, and the keys and identities of what they were found in: equal while names are."""

    keys: list[Any]
    tensors: list[torch.Tensor]


class Mark(NamedTuple):
    """What a survey was like: which tensors, where, of which shapes and types.

    The device is no part of it, for addresses tell devices apart.
    """

    keys: list[Any]
    identities: list[int]
    addresses: list[int]
    shapes: list[torch.Size]
    types: list[torch.dtype]
    specs: list[Any]
    """Mesh and placements where tensors are distributed, otherwise nothing.

    They are held on to, which the tensors are not, so that another one never has the same identity.
    """

    def fits(self, survey: Survey, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether a survey with these local tensors finds everything as it was. Goes column by column, without a loop
        in Python; shapes are compared as they come, since thousands of new tuples would wake the garbage collector."""
        return (
            self.keys == survey.keys
            and self.identities == list(map(id, survey.tensors))
            and self.addresses == list(map(torch.Tensor.data_ptr, tensors))
            and all(map(eq, map(SHAPE, tensors), self.shapes))
            and all(map(is_, map(DTYPE, tensors), self.types))
            and (not self.specs or all(map(is_, specs_of(survey.tensors), self.specs)))
        )


def mark_of(survey: Survey, tensors: Sequence[torch.Tensor]) -> Mark:
    return Mark(
        survey.keys,
        list(map(id, survey.tensors)),
        list(map(torch.Tensor.data_ptr, tensors)),
        list(map(SHAPE, tensors)),
        list(map(DTYPE, tensors)),
        [] if tensors is survey.tensors else specs_of(survey.tensors),
    )


def locals_of(survey: Survey) -> list[torch.Tensor] | None:
    """This rank's parts of the tensors; None where some are of a kind whose layout cannot be told quickly."""
    kinds = set(map(type, survey.tensors))
    if kinds <= PLAIN_TENSORS:
        return survey.tensors
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None or not kinds <= PLAIN_TENSORS | {distributed.DTensor}:
        return None
    tensors = [getattr(tensor, "_local_tensor", tensor) for tensor in survey.tensors]
    return tensors if set(map(type, tensors)) <= PLAIN_TENSORS else None


def specs_of(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [getattr(tensor, "_spec", None) for tensor in tensors]


def survey_module(module: nn.Module) -> Survey | None:
    """What `module.state_dict()` would give; None where a module has ways of its own to make it."""
    survey = Survey([], [])
    return survey if _visit(module, "", survey) else None


def _visit(module: nn.Module, prefix: str, survey: Survey) -> bool:
    """Goes the way of `state_dict`: own parameters, own buffers, children."""
    if not is_plain(module):
        return False
    # These bring parameters into the form in which they are saved: FSDP2 puts its shards back.
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, False)
    keys, tensors = survey
    keys.append(id(module))
    for key, parameter in module._parameters.items():
        if parameter is not None:
            keys.append(key)
            tensors.append(parameter)
    if module._buffers:
        passing = module._non_persistent_buffers_set
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in passing:
                keys.append(key)
                tensors.append(buffer)
    for key, child in module._modules.items():
        if child is not None:
            keys.append(key)
            if not _visit(child, f"{prefix}{key}.", survey):
                return False
    return True


def is_plain(module: nn.Module) -> bool:
    """Whether `state_dict` gives a module's own parameters and persistent buffers, and nothing else."""
    kind: Any = type(module)
    return not module._state_dict_hooks and "state_dict" not in module.__dict__ and _is_plain_kind(kind)


@cache
def _is_plain_kind(kind: type[Any]) -> bool:
    names = ("state_dict", "_save_to_state_dict", "get_extra_state")
    return all(getattr(kind, name) is getattr(nn.Module, name) for name in names)


def parameters_of(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """As `module.named_parameters()`, several times as fast: each once, by the first of its names."""
    seen: set[int] = set()
    for prefix, each in module.named_modules():
        dot = f"{prefix}." if prefix else ""
        for key, parameter in each._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield dot + key, parameter
