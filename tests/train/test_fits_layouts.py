"""Checkpoints that megatron-core and DeepSpeed wrote themselves (`foreign/make.py`), read bit by bit."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from pathlib import Path

import pytest
import torch

from phalanx.cli.checkpoint import checkpoint
from phalanx.cli.main import run
from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, Shared
from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import Corrupt, load_into, steps
from phalanx.train.checkpoint.store.reading.deepspeed import read_deepspeed

FOREIGN = Path(__file__).parent / "foreign"


def expected(name: str) -> dict[str, tuple[str, list[int], str]]:
    told = json.loads((FOREIGN / name / "expected.json").read_text("utf-8"))
    return {key: tuple(each) for key, each in told.items()}


def seen(tensor: torch.Tensor) -> tuple[str, list[int], str]:
    content = tensor.detach().contiguous().numpy().tobytes()
    return str(tensor.dtype), list(tensor.shape), hashlib.sha256(content).hexdigest()[:16]


def loaded_from(folder: Path, shapes: dict[str, tuple[str, list[int], str]]) -> dict[str, torch.Tensor]:
    tensors = {
        name: torch.zeros(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
        for name, (dtype, shape, _) in shapes.items()
    }
    load_into(str(folder), None, [Piece.whole(name, tensor) for name, tensor in tensors.items()], objects=())
    return tensors


@pytest.fixture(params=["zero-2", "zero-3"])
def zero(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOREIGN / request.param, tmp_path / request.param))


def test_tensors_that_megatron_saved_on_two_ranks_are_loaded_whole() -> None:
    wanted = expected("megatron")
    found = loaded_from(FOREIGN / "megatron", wanted)
    assert {name: seen(tensor) for name, tensor in found.items()} == wanted


def test_what_zero_cut_into_flat_partitions_is_whole_again_with_the_moments(zero: Path) -> None:
    found = read_deepspeed(zero)
    wanted = expected(zero.name)
    assert {name: seen(tensor) for name, tensor in found.tensors.items() if name in wanted} == wanted
    assert found.step == 3
    assert {float(value) for name, value in found.tensors.items() if name.endswith(".step")} == {3.0}
    assert found.tensors.keys() - wanted == {name for name in found.tensors if name.endswith(".step")}


def test_a_training_goes_on_from_what_deepspeed_saved(zero: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    assert run(checkpoint, ["reshard", str(zero), folder, "--ranks", "3"]) == 0
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5.0)
    parts = {"model": model, "optimizer": optimizer}
    with Checkpointer(parts, [Shared(folder)], job=f"test-{uuid.uuid4()}", signals=()) as checkpointer:
        assert checkpointer.load() is not None
        assert checkpointer.completed == 3
    wanted = expected(zero.name)
    for name, parameter in model.named_parameters():
        assert seen(parameter) == wanted[f"model.{name}"]
        moments = optimizer.state[parameter]
        assert [seen(moments[key]) for key in ("exp_avg", "exp_avg_sq")] == [
            wanted[f"optimizer.state.{name}.{key}"] for key in ("exp_avg", "exp_avg_sq")
        ]
        assert moments["step"] == 3
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_a_folder_of_deepspeed_is_not_trained_over(zero: Path) -> None:
    model = torch.nn.Linear(3, 2)
    with (
        Checkpointer({"model": model}, [Shared(str(zero))], job=f"test-{uuid.uuid4()}", signals=()) as checkpointer,
        pytest.raises(PhalanxError, match=r"holds checkpoints of DeepSpeed.*phalanx checkpoint reshard"),
    ):
        checkpointer.load()
    assert steps(str(zero)) == []


def test_a_latest_of_another_kind_is_no_checkpoint_of_deepspeed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "logs")
    with Checkpointer(
        {"model": torch.nn.Linear(3, 2)}, [Shared(str(tmp_path))], job=f"test-{uuid.uuid4()}", signals=()
    ) as checkpointer:
        assert checkpointer.load() is None


def test_a_partition_that_is_missing_or_cut_short_is_named(zero: Path) -> None:
    name = next((zero / "global_step3").glob("*zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    content = name.read_bytes()
    name.write_bytes(content[: len(content) // 2])
    with pytest.raises(Corrupt, match=f"{name.name} cannot be read"):
        read_deepspeed(zero)
    name.unlink()
    with pytest.raises(Corrupt, match="the partition of rank 0 is missing"):
        read_deepspeed(zero)


def test_tensor_parallel_checkpoints_of_deepspeed_are_refused(zero: Path) -> None:
    name = next((zero / "global_step3").glob("*zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    shutil.copy(name, name.with_name(name.name.replace("mp_rank_00", "mp_rank_01")))
    with pytest.raises(PhalanxError, match=r"tensor or pipeline parallelism .* is not read"):
        read_deepspeed(zero)


def test_reading_a_foreign_file_runs_none_of_its_code(zero: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "sprung",)

    name = zero / "global_step3" / next(each.name for each in (zero / "global_step3").glob("*model_states.pt"))
    saved = torch.load(name, weights_only=False)
    torch.save({**saved, "more": Trap()}, name)
    assert read_deepspeed(zero).step == 3
    assert not (tmp_path / "sprung").exists()
