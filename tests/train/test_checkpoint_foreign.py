"""A folder that another tool wrote is loaded where that is possible, and otherwise refused."""

from __future__ import annotations

import io
import pickle
import uuid
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, RngState, Shared
from phalanx.train.checkpoint.store import steps
from phalanx.train.checkpoint.store.dcp import MetadataUnpickler


def trained(seed: int, count: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 + seed)
    for _ in range(count):
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    return model, optimizer


def write_dcp(state: dict[str, Any], folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it runs in one process
        dcp.save(state, checkpoint_id=folder)


def checkpointer(folder: Path, **parts: Any) -> Checkpointer:
    return Checkpointer(parts, [Shared(folder, every=1)], job=f"test-{uuid.uuid4()}", signals=())


def test_a_checkpoint_of_torchs_own_is_loaded_and_training_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    model, optimizer = trained(1, 3)
    state = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}
    write_dcp(state, tmp_path)
    fresh, its_optimizer = trained(2, 0)
    with checkpointer(tmp_path, model=fresh, optimizer=its_optimizer, rng=RngState()) as loading:
        loaded = loading.load()
        assert loaded is not None
        assert (loaded.step, loaded.tier, loading.completed) == (0, "dcp", 0)
        assert torch.equal(fresh.weight, model.weight)
        theirs, ours = optimizer.state[model.weight], its_optimizer.state[fresh.weight]
        assert all(torch.equal(ours[key], theirs[key]) for key in ("step", "exp_avg", "exp_avg_sq"))
        assert its_optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
        loading.step()
        loading.wait()
    assert [each.step for each in steps(tmp_path)] == [1]
    with checkpointer(tmp_path, model=fresh, optimizer=its_optimizer, rng=RngState()) as again:
        loaded = again.load()
        assert loaded is not None
        assert (loaded.step, loaded.tier) == (1, "shared")


def test_a_checkpoint_of_torchs_own_with_other_names_is_refused_and_they_are_told(tmp_path: Path) -> None:
    model, optimizer = trained(1, 3)
    write_dcp({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    fresh, its_optimizer = trained(2, 0)
    with (
        checkpointer(tmp_path, model=fresh, optimizer=its_optimizer) as loading,
        pytest.raises(PhalanxError, match=r"with other names: it has optimizer\.state\.\d\..* and the state has not"),
    ):
        loading.load()


def test_a_checkpoint_of_torchs_own_without_the_optimiser_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained(1, 3)
    write_dcp({"model": model.state_dict()}, tmp_path)
    with (
        checkpointer(tmp_path, model=model, optimizer=optimizer) as loading,
        pytest.raises(PhalanxError, match="it has nothing of optimizer"),
    ):
        loading.load()


def test_files_of_torch_save_are_refused_with_the_folder_and_what_to_do(tmp_path: Path) -> None:
    model, _ = trained(1, 0)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with checkpointer(tmp_path, model=model) as loading:
        with pytest.raises(PhalanxError) as caught:
            loading.load()
        said = str(caught.value)
        assert str(tmp_path) in said
        assert "model.pt" in said
        assert "expected steps of phalanx" in said
        assert "torch.load" in said


def test_folders_of_torchs_own_checkpoints_are_refused_by_name(tmp_path: Path) -> None:
    model, _ = trained(1, 0)
    write_dcp({"model": model.state_dict()}, tmp_path / "step-100")
    with checkpointer(tmp_path, model=model) as loading, pytest.raises(PhalanxError, match=r"\(step-100\)"):
        loading.load()


def test_logs_and_settings_beside_the_steps_are_nobodys_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "plots").mkdir()
    model, _ = trained(1, 0)
    with checkpointer(tmp_path, model=model) as loading:
        assert loading.load() is None


@pytest.mark.parametrize("module", ["metadata", "filesystem", "planner"])
@pytest.mark.parametrize("name", ["os.getpid", "os", "FileSystemWriter", "dataclass", "SavePlan.__init__.__globals__"])
def test_an_index_from_elsewhere_runs_no_code(module: str, name: str) -> None:
    """A name with dots is what a module imports, or what that has: `filesystem` has `os`."""
    named = (text.encode() for text in (f"torch.distributed.checkpoint.{module}", name))
    pushed = b"".join(b"\x8c" + bytes([len(text)]) + text for text in named)
    index = b"\x80\x04" + pushed + b"\x93)R."
    with pytest.raises(pickle.UnpicklingError, match="which no index needs"):
        MetadataUnpickler(io.BytesIO(index)).load()
