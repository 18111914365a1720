"""Steps at rest: written by ranks, committed last, read back bit by bit, in DCP's own format."""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from layouts import LAYOUTS, all_same_bits, blank, model, pieces_of, same_bits, save
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import (
    Incomplete,
    NoSuchStep,
    RankMissing,
    ShapeMismatch,
    StoreError,
    commit,
    load_into,
    newest_intact,
    steps,
    write_step,
)

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(autouse=True)
def _dcp_alone() -> object:
    """DCP warns that it runs without a process group, which is what these tests want."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.distributed\..*")
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\..*")
        yield


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("root", ["local", "memory"])
def test_what_is_saved_comes_back_bit_by_bit(layout: str, root: str, tmp_path: Path) -> None:
    place = str(tmp_path) if root == "local" else f"memory://steps/{layout}"
    whole = model(1)
    save(place, 40, whole, layout, world=3)
    found = blank()
    loaded = load_into(place, 40, pieces_of(found, "replicated", 0, 1))
    assert all_same_bits(found, whole)
    assert loaded.step is not None
    assert loaded.step.step == 40
    assert loaded.objects["step"] == 40
    assert torch.equal(loaded.objects["rng.rank2"], torch.arange(5))


def test_only_a_committed_step_counts(tmp_path: Path) -> None:
    whole = model(1)
    save(str(tmp_path), 10, whole)
    for rank in range(2):
        write_step(tmp_path, 20, rank, 2, pieces_of(model(2), "fsdp", rank, 2), {})
    assert [each.step for each in steps(tmp_path)] == [10]
    found = newest_intact(tmp_path)
    assert found is not None
    assert found.step.step == 10
    assert [each.step for each in found.passed_over] == [20]
    assert "no commit mark" in str(found.passed_over[0])


@pytest.mark.parametrize("phase", ["waited", "metadata", "manifest"])
def test_a_commit_that_dies_before_the_mark_leaves_the_older_step_in_charge(phase: str, tmp_path: Path) -> None:
    class DeathError(Exception):
        pass

    def die(reached: str) -> None:
        if reached == phase:
            raise DeathError

    save(str(tmp_path), 10, model(1))
    for rank in range(2):
        write_step(tmp_path, 20, rank, 2, pieces_of(model(2), "fsdp", rank, 2), {})
    with pytest.raises(DeathError):
        commit(tmp_path, 20, range(2), on_phase=die)
    found = newest_intact(tmp_path)
    assert found is not None
    assert found.step.step == 10
    # The ranks' parts are still there: committing again ends what was begun.
    assert commit(tmp_path, 20, range(2)).step == 20
    found = newest_intact(tmp_path)
    assert found is not None
    assert found.step.step == 20


def test_a_loss_that_is_no_number_does_not_spoil_the_mark(tmp_path: Path) -> None:
    write_step(tmp_path, 1, 0, 1, [], {})
    commit(tmp_path, 1, [0], metrics={"loss": float("nan"), "accuracy": 0.5, "norm": float("inf")})
    assert [each.metrics for each in steps(tmp_path)] == [{"accuracy": 0.5}]


def test_a_step_saved_again_stays_good_until_it_is_committed_again(tmp_path: Path) -> None:
    save(str(tmp_path), 10, model(1))
    for rank in range(2):
        write_step(tmp_path, 10, rank, 2, pieces_of(model(2), "fsdp", rank, 2), {})
    for seed in (1, 2):
        found = blank()
        load_into(tmp_path, None, pieces_of(found, "replicated", 0, 1))
        assert all_same_bits(found, model(seed))
        commit(tmp_path, 10, range(2), timeout_s=0.1) if seed == 1 else None
    assert len(list(tmp_path.glob("*/*.distcp"))) == 2


def test_dcp_loads_what_we_saved(tmp_path: Path) -> None:
    whole = model(3)
    step = save(str(tmp_path), 7, whole, "grid", world=4)
    found = {**blank(), "step": None, "rng.rank1": torch.zeros(4, dtype=torch.int64)}
    dcp.load(found, checkpoint_id=step.url)
    assert found["step"] == 7
    assert all(same_bits(found[name], tensor) for name, tensor in whole.items())


def test_dcp_loads_our_names_into_a_nested_state(tmp_path: Path) -> None:
    weight = torch.randn(6, 4)
    write_step(tmp_path, 1, 0, 1, [Piece.whole("model.layer.weight", weight)], {"optimizer.lr": 0.5})
    step = commit(tmp_path, 1, [0])
    state = {"model": {"layer.weight": torch.zeros(6, 4)}, "optimizer": {"lr": 0.0}}
    dcp.load(state, checkpoint_id=step.url)
    assert torch.equal(state["model"]["layer.weight"], weight)
    assert state["optimizer"]["lr"] == 0.5


def test_dcps_own_tools_convert_our_step(tmp_path: Path) -> None:
    whole = model(3)
    step = save(str(tmp_path), 7, whole)
    dcp_to_torch_save(step.url, tmp_path / "whole.pt")
    found = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert all(same_bits(found[name], tensor) for name, tensor in whole.items())


def test_we_load_what_dcp_saved(tmp_path: Path) -> None:
    state = {"model": model(5), "epoch": 3, "nested": {"deep": [1, 2, "x"]}}
    dcp.save(state, checkpoint_id=tmp_path)
    found = blank()
    pieces = [Piece.whole(f"model.{name}", tensor) for name, tensor in found.items()]
    loaded = load_into(tmp_path, None, pieces)
    assert all_same_bits(found, state["model"])
    assert loaded.step is None
    assert loaded.objects["epoch"] == 3


def test_a_part_of_what_dcp_saved_is_cut_out(tmp_path: Path) -> None:
    whole = torch.randn(9, 5)
    dcp.save({"w": whole}, checkpoint_id=tmp_path)
    part = torch.zeros(4, 2)
    load_into(tmp_path, None, [Piece("w", (9, 5), (3, 1), (4, 2), part.dtype, part)])
    assert torch.equal(part, whole[3:7, 1:3])


def test_a_flipped_bit_in_what_dcp_saved_is_noticed(tmp_path: Path) -> None:
    dcp.save({"w": torch.zeros(4000)}, checkpoint_id=tmp_path)
    data = next(tmp_path.glob("*.distcp"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        load_into(tmp_path, None, [Piece.whole("w", torch.zeros(4000))])


def test_an_index_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / ".metadata").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(StoreError, match="mkdir"):
        load_into(tmp_path, None, [])
    assert not (tmp_path / "sprung").exists()


def test_an_object_that_would_run_code_needs_trust(tmp_path: Path) -> None:
    write_step(tmp_path, 1, 0, 1, [], {"path": Path("/somewhere")})
    commit(tmp_path, 1, [0])
    with pytest.raises(StoreError, match="trusted=True"):
        load_into(tmp_path, 1, [])
    assert load_into(tmp_path, 1, [], trusted=True).objects == {"path": Path("/somewhere")}


def test_an_object_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="'lock' of type"):
        write_step(tmp_path, 1, 0, 1, [], {"lock": threading.Lock()})
    assert steps(tmp_path) == []


def test_a_rank_that_never_writes_is_named(tmp_path: Path) -> None:
    for rank in (0, 2, 5):
        write_step(tmp_path, 3, rank, 6, pieces_of(model(1), "fsdp", rank, 6), {})
    with pytest.raises(RankMissing, match="rank 1,3-4 of 6") as caught:
        commit(tmp_path, 3, range(6), timeout_s=0.2)
    assert caught.value.missing == (1, 3, 4)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), StoreError)


def test_a_commit_waits_for_a_rank_that_is_late(tmp_path: Path) -> None:
    write_step(tmp_path, 3, 0, 2, pieces_of(model(1), "fsdp", 0, 2), {})
    late = threading.Timer(0.2, write_step, (tmp_path, 3, 1, 2, pieces_of(model(1), "fsdp", 1, 2), {}))
    late.start()
    assert commit(tmp_path, 3, range(2), timeout_s=30).step == 3
    late.join()


def test_pieces_that_leave_a_hole_are_not_committed(tmp_path: Path) -> None:
    write_step(tmp_path, 3, 0, 1, [Piece("w", (4, 4), (0, 0), (3, 4), torch.float32, torch.zeros(3, 4))], {})
    with pytest.raises(Incomplete, match=r"w \[4, 4\] has 12 of 16 elements"):
        commit(tmp_path, 3, [0])
    assert commit(tmp_path, 3, [0], whole=False).step == 3


def test_what_a_partial_step_does_not_hold_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    half = Piece("w", (4,), (0,), (2,), torch.float32, torch.ones(2))
    write_step(tmp_path, 3, 0, 2, [half], {})
    commit(tmp_path, 3, [0], whole=False)
    mine = torch.zeros(2)
    load_into(tmp_path, 3, [Piece("w", (4,), (0,), (2,), torch.float32, mine)])
    assert mine.all()
    more = torch.zeros(3)
    with pytest.raises(StoreError, match=r"w: rank 0 wants 12 bytes at \[1\], found 4"):
        load_into(tmp_path, 3, [Piece("w", (4,), (1,), (3,), torch.float32, more)])
    assert not more.any()


def test_pieces_that_overlap_are_not_committed(tmp_path: Path) -> None:
    for rank, low in enumerate((0, 1)):
        piece = Piece("w", (4,), (low,), (3,), torch.float32, torch.zeros(3))
        write_step(tmp_path, 3, rank, 2, [piece], {})
    with pytest.raises(Incomplete, match="overlap, at"):
        commit(tmp_path, 3, range(2))


def test_ranks_that_disagree_on_a_shape_are_not_committed(tmp_path: Path) -> None:
    for rank, size in enumerate((3, 4)):
        write_step(tmp_path, 3, rank, 2, [Piece.whole("w", torch.zeros(size))], {})
    with pytest.raises(Incomplete, match=r"w is float32 \[4\] on rank 1 and float32 \[3\]"):
        commit(tmp_path, 3, range(2))


def test_each_replicated_piece_is_written_once_and_by_different_ranks(tmp_path: Path) -> None:
    whole = {f"layer{number}": torch.full((100,), float(number)) for number in range(40)}
    written = [
        write_step(tmp_path, 1, rank, 4, [Piece.whole(name, each, rank, 4) for name, each in whole.items()], {})
        for rank in range(4)
    ]
    commit(tmp_path, 1, range(4))
    found = {name: torch.zeros(100) for name in whole}
    load_into(tmp_path, 1, [Piece.whole(name, each) for name, each in found.items()])
    assert all_same_bits(found, whole)
    assert all(each.bytes > 0 for each in written)
    assert sum(each.bytes for each in written) < 1.5 * sum(2048 for _ in whole)


def test_a_view_of_a_large_buffer_is_written_alone(tmp_path: Path) -> None:
    buffer = torch.randn(1_000_000)
    written = write_step(tmp_path, 1, 0, 1, [Piece.whole("w", buffer[500:600])], {})
    assert written.bytes < 5000
    commit(tmp_path, 1, [0])
    found = torch.zeros(100)
    load_into(tmp_path, 1, [Piece.whole("w", found)])
    assert torch.equal(found, buffer[500:600])


def test_a_tensor_that_does_not_lie_in_row_order_is_saved_and_filled_by_its_indices(tmp_path: Path) -> None:
    whole = torch.randn(6, 9)
    write_step(tmp_path, 1, 0, 1, [Piece.whole("w", whole.t())], {})
    commit(tmp_path, 1, [0])
    found = torch.zeros(6, 9)
    load_into(tmp_path, 1, [Piece.whole("w", found.t())])
    assert torch.equal(found, whole)


def test_several_threads_write_several_files(tmp_path: Path) -> None:
    whole = model(4)
    written = write_step(tmp_path, 1, 0, 1, pieces_of(whole, "fsdp", 0, 1), {"a": 1}, threads=3)
    assert len(written.files) == 3
    commit(tmp_path, 1, [0])
    found = blank()
    load_into(tmp_path, 1, pieces_of(found, "fsdp", 0, 1))
    assert all_same_bits(found, whole)


def test_a_large_tensor_is_read_in_part(tmp_path: Path) -> None:
    whole = torch.randn(3000, 2048)
    write_step(tmp_path, 1, 0, 1, [Piece.whole("w", whole)], {})
    commit(tmp_path, 1, [0])
    part = torch.zeros(10, 2048)
    loaded = load_into(tmp_path, 1, [Piece("w", (3000, 2048), (1500, 0), (10, 2048), part.dtype, part)])
    assert torch.equal(part, whole[1500:1510])
    assert loaded.bytes_read <= 2 * (4 << 20)


def test_a_parameter_is_filled_though_it_wants_gradients(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 3)
    saved = {name: each.detach().clone() for name, each in layer.named_parameters()}
    write_step(tmp_path, 1, 0, 1, [Piece.whole(name, each) for name, each in saved.items()], {})
    commit(tmp_path, 1, [0])
    torch.nn.init.zeros_(layer.weight)
    load_into(tmp_path, 1, [Piece.whole(name, each) for name, each in layer.named_parameters()])
    assert torch.equal(layer.weight, saved["weight"])


def test_a_changed_model_is_reported_parameter_by_parameter_and_nothing_changes(tmp_path: Path) -> None:
    write_step(tmp_path, 1, 0, 1, [Piece.whole(name, torch.ones(3, 4)) for name in ("a", "b", "c", "old")], {})
    commit(tmp_path, 1, [0])
    wanted = {
        "a": torch.zeros(3, 4),
        "b": torch.zeros(3, 5),
        "c": torch.zeros(3, 4, dtype=torch.bfloat16),
        "new": torch.zeros(1),
    }
    pieces = [Piece.whole(name, each) for name, each in wanted.items()]
    with pytest.raises(ShapeMismatch) as caught:
        load_into(tmp_path, 1, pieces)
    assert [each.fqn for each in caught.value.report] == ["b", "c", "new"]
    assert caught.value.unused == ("old",)
    for line in (
        "b: the model has float32 [3, 5], the checkpoint float32 [3, 4]",
        "c: the model has bfloat16 [3, 4], the checkpoint float32 [3, 4]",
        "new: the model has float32 [1], the checkpoint has none of this name",
        "only in the checkpoint: old",
    ):
        assert line in str(caught.value)
    assert not wanted["a"].any()

    loaded = load_into(tmp_path, 1, pieces, strict=False)
    assert wanted["a"].all()
    assert not wanted["b"].any()
    assert [each.fqn for each in loaded.mismatches] == ["b", "c", "new"]


def test_only_the_objects_asked_for_are_read(tmp_path: Path) -> None:
    save(str(tmp_path), 1, model(1))
    assert load_into(tmp_path, 1, [], objects=["step"]).objects == {"step": 1}
    with pytest.raises(StoreError, match="no object 'epoch'; there are: "):
        load_into(tmp_path, 1, [], objects=["epoch"])


def test_a_step_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(NoSuchStep, match="no checkpoint"):
        load_into(tmp_path, None, [])
    save(str(tmp_path), 4, model(1))
    with pytest.raises(NoSuchStep, match="no step 5; there are: 4"):
        load_into(tmp_path, 5, [])


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (lambda: Piece("w", (4,), (2,), (3,), torch.float32, torch.zeros(3)), "outside"),
        (lambda: Piece("w", (4, 1), (2,), (2,), torch.float32, torch.zeros(2)), "differ"),
        (lambda: Piece("w", (4,), (0,), (4,), torch.float32, torch.zeros(3)), "the tensor has shape"),
        (lambda: Piece("w", (4,), (0,), (4,), torch.float64, torch.zeros(4)), "the tensor is"),
        (lambda: Piece.whole("w", torch.zeros(4), 2, 2), "replica 2 of 2"),
    ],
)
def test_a_piece_that_makes_no_sense_is_refused(piece: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        piece()  # type: ignore[operator]


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="rank 3 of 3"):
        write_step(tmp_path, 1, 3, 3, [], {})
    with pytest.raises(StoreError, match="step -1"):
        write_step(tmp_path, -1, 0, 1, [], {})
    with pytest.raises(StoreError, match="on meta"):
        write_step(tmp_path, 1, 0, 1, [Piece.whole("w", torch.zeros(4, device="meta"))], {})
    with pytest.raises(StoreError, match="at least one rank"):
        commit(tmp_path, 1, [])
    assert steps(tmp_path) == []
