"""Files of torch.save that hold objects of another library: read without it, and without running any code of theirs."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from phalanx.train.checkpoint.store.errors import Corrupt

SAFE = {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("builtins", "set"),
    ("torch", "Size"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_parameter_with_state"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.serialization", "_get_layout"),
}


class Inert:
    """Stands for an object of a class that is not known here: what it was made of, and nothing that it could do."""

    def __init__(self, *made_of: Any) -> None:
        self.made_of = made_of

    def __call__(self, *more: Any) -> Inert:
        return Inert(*more)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class InertUnpickler(pickle.Unpickler):
    """Builds tensors and plain containers; anything else becomes an `Inert`."""

    def find_class(self, module: str, name: str, /) -> Any:
        if module == "torch":
            known = getattr(torch, name, None)
            if isinstance(known, torch.dtype) or name.endswith("Storage"):
                return known
        if (module, name) in SAFE:
            return super().find_class(module, name)
        return Inert


def _refuse(*_: Any, **__: Any) -> Any:
    raise pickle.UnpicklingError("it is in the format of torch before 1.6")


def load_inert(path: Path) -> Any:
    """What a file of torch.save holds, on the host. Large tensors stay in the file until they are used."""
    try:
        return torch.load(
            path,
            map_location="cpu",
            mmap=True,
            weights_only=False,
            pickle_module=SimpleNamespace(Unpickler=InertUnpickler, load=_refuse, __name__="inert"),
        )
    except FileNotFoundError:
        raise Corrupt(str(path.parent), [f"{path.name} is missing"]) from None
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise Corrupt(str(path.parent), [f"{path.name} cannot be read: {str(error).splitlines()[0]}"]) from error
