"""Saved on W ranks in one layout, loaded on W' in another: bitwise, and each byte read once."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from layouts import LAYOUTS, blank, model, pieces_of, same_bits
from processes import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import Corrupt, ShapeMismatch, commit, load_into, write_step
from phalanx.train.checkpoint.store.media.local import LocalMedium

pytestmark = pytest.mark.needs("torch")

WORLDS = (1, 2, 3, 4, 6)
LARGEST = max(WORLDS)
NAMES = list(LAYOUTS)
DEADLINE_S = 240


@dataclass(frozen=True)
class Cell:
    """What one rank saw of one load."""

    saved: int
    loaded: int
    layouts: tuple[str, str]
    rank: int
    is_bitwise: bool
    bytes_read: int
    bytes_received: int


class Counted(LocalMedium):
    """A directory that counts what is really read of its data files."""

    bytes_read: ClassVar[int] = 0
    reading: ClassVar[threading.Lock] = threading.Lock()

    def child(self, name: str) -> Counted:
        return Counted(os.path.join(self.directory, name))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytearray:
        content = LocalMedium.read(self, name, offset, length)
        if name.endswith(".distcp"):
            # A load reads in several threads, and what two add at once would be counted once.
            with self.reading:
                Counted.bytes_read += len(content)
        return content


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """What six processes saw that ran every part of this module once, by the part's name."""
    root = tmp_path_factory.mktemp("reshard")
    gathered: dict[str, list[object]] = {}
    for parts in run_ranks(run_rank, LARGEST, (str(root),), DEADLINE_S):
        for name, values in parts.items():
            gathered.setdefault(name, []).extend(values)
    return gathered


def run_rank(rank: int, root: str) -> dict[str, list[object]]:
    store = dist.FileStore(f"{root}/rendezvous", LARGEST)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=LARGEST, timeout=timedelta(seconds=60))
    groups = {world: dist.new_group(list(range(world))) for world in WORLDS}
    parts = {
        "matrix": matrix(rank, f"{root}/matrix", groups),
        "mismatch": mismatch(rank, f"{root}/mismatch"),
        "damage": damage(rank, f"{root}/damage"),
        "dtensor": dtensors(rank, f"{root}/dtensor"),
        "subset": subset(rank, f"{root}/subset"),
        "dcp": with_dcp(rank, f"{root}/dcp"),
    }
    dist.destroy_process_group()
    return parts


def matrix(rank: int, root: str, groups: dict[int, dist.ProcessGroup]) -> list[object]:
    """Every world size to every other; every layout is saved in, and loaded from, by each pair."""
    whole = model(11)
    cells: list[object] = []
    for world in WORLDS:
        for number, name in enumerate(NAMES):
            if rank < world:
                write_step(root, 100 * world + number, rank, world, pieces_of(whole, name, rank, world), {"seed": 11})
        dist.barrier()
        if rank == 0:
            for number in range(len(NAMES)):
                commit(root, 100 * world + number, range(world), timeout_s=60)
    dist.barrier()
    for saved in WORLDS:
        for loaded in WORLDS:
            if rank < loaded:
                cells.extend(load_cell(root, saved, loaded, rank, groups[loaded], whole))
    return cells


def load_cell(
    root: str, saved: int, loaded: int, rank: int, group: dist.ProcessGroup, whole: dict[str, torch.Tensor]
) -> list[Cell]:
    cells = []
    for number, name in enumerate(NAMES):
        other = NAMES[(number + saved + loaded) % len(NAMES)]
        pieces = pieces_of(blank(), other, rank, loaded)
        before = Counted.bytes_read
        found = load_into(Counted(root), 100 * saved + number, pieces, objects=[], group=group)
        assert found.bytes_read == Counted.bytes_read - before
        right = pieces_of(whole, other, rank, loaded)
        is_bitwise = all(same_bits(one.tensor, two.tensor) for one, two in zip(pieces, right, strict=True))
        counts = (found.bytes_read, found.bytes_received)
        cells.append(Cell(saved, loaded, (name, other), rank, is_bitwise, *counts))
    return cells


def mismatch(rank: int, root: str) -> list[object]:
    """Only rank 4 has another shape; every rank must hear of it."""
    if rank == 0:
        write_step(root, 1, 0, 1, [Piece.whole("w", torch.ones(4))], {})
        commit(root, 1, [0])
    dist.barrier()
    mine = torch.zeros(5 if rank == 4 else 4)
    try:
        load_into(root, 1, [Piece.whole("w", mine)], group=dist.group.WORLD)
    except ShapeMismatch as error:
        return [([each.fqn for each in error.report], bool(mine.any()))]
    return [None]


def damage(rank: int, root: str) -> list[object]:
    """One rank reads damaged bytes: all ranks go to the older step together, or all fail."""
    tensors = {name: torch.arange(1000.0) + number for number, name in enumerate("abcdefgh")}
    if rank == 0:
        for step in (1, 2):
            pieces = [Piece.whole(name, each * step) for name, each in tensors.items()]
            write_step(root, step, 0, 1, pieces, {"step": step})
            commit(root, step, [0])
        file = Path(root, "step-00000002", "__0_0.distcp")
        content = bytearray(file.read_bytes())
        content[content.index((2 * tensors["d"]).numpy().tobytes()) + 77] ^= 4
        file.write_bytes(content)
    dist.barrier()
    found = {name: torch.zeros(1000) for name in tensors}
    pieces = [Piece.whole(name, each) for name, each in found.items()]
    loaded = load_into(root, None, pieces, group=dist.group.WORLD)
    assert loaded.step is not None
    fell_back = all(torch.equal(found[name], each) for name, each in tensors.items())
    try:
        load_into(root, 2, pieces, group=dist.group.WORLD)
    except Corrupt as error:
        named = error.reasons[0]
    return [(loaded.step.step, fell_back, loaded.objects, [each.step for each in loaded.passed_over], named)]


def dtensors(rank: int, root: str) -> list[object]:
    """Real DTensors: rows over six ranks to a grid of two by three, and to copies."""
    flat = init_device_mesh("cpu", (LARGEST,))
    square = init_device_mesh("cpu", (2, 3), mesh_dim_names=("row", "column"))
    torch.manual_seed(0)
    whole = torch.randn(11, 7)
    sharded = distribute_tensor(whole, flat, [Shard(0)])
    write_step(root, 1, rank, LARGEST, [piece_of("w", sharded)], {})
    dist.barrier()
    if rank == 0:
        commit(root, 1, range(LARGEST), timeout_s=60)
    dist.barrier()
    right = []
    for mesh, placements in ((square, [Shard(0), Shard(1)]), (square, [Replicate(), Shard(1)]), (flat, [Replicate()])):
        target = distribute_tensor(torch.zeros(11, 7), mesh, placements)
        load_into(root, 1, [piece_of("w", target)], group=dist.group.WORLD)
        right.append(torch.equal(target.full_tensor(), whole))
    return right


def piece_of(fqn: str, tensor: DTensor) -> Piece:
    local = tensor.to_local()
    _, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return Piece(fqn, tuple(tensor.shape), tuple(offsets), tuple(local.shape), local.dtype, local)


def subset(rank: int, root: str) -> list[object]:
    """A pipeline stage wants its own layers only: what nobody wants is not read."""
    if rank == 0:
        write_step(root, 1, 0, 1, [Piece.whole(name, torch.ones(5000)) for name in "abcdefghijkl"], {})
        commit(root, 1, [0])
    dist.barrier()
    mine = [Piece.whole("abcdefghijkl"[rank], torch.zeros(5000))]
    found = load_into(root, 1, mine, objects=[], group=dist.group.WORLD)
    return [(bool(mine[0].tensor.all()), found.bytes_read, found.bytes_received, found.unused)]


def with_dcp(rank: int, root: str) -> list[object]:
    """DCP saves on six ranks and we load; we save on six ranks and DCP loads; on other meshes each time."""
    flat = init_device_mesh("cpu", (LARGEST,))
    square = init_device_mesh("cpu", (3, 2), mesh_dim_names=("row", "column"))
    torch.manual_seed(1)
    wholes = {"a": torch.randn(13, 6), "b": torch.randn(4, 9)}

    theirs = {name: distribute_tensor(whole, flat, [Shard(0)]) for name, whole in wholes.items()}
    dcp.save({"model": theirs, "epoch": 4}, checkpoint_id=f"{root}/theirs")
    crossed = [Shard(1), Shard(0)]
    targets = {name: distribute_tensor(torch.zeros_like(each), square, crossed) for name, each in wholes.items()}
    pieces = [piece_of(f"model.{name}", each) for name, each in targets.items()]
    loaded = load_into(f"{root}/theirs", None, pieces, group=dist.group.WORLD)
    ours_is_right = all(torch.equal(targets[name].full_tensor(), whole) for name, whole in wholes.items())

    write_step(f"{root}/ours", 1, rank, LARGEST, [piece_of(name, each) for name, each in theirs.items()], {"epoch": 5})
    dist.barrier()
    if rank == 0:
        commit(f"{root}/ours", 1, range(LARGEST), timeout_s=60)
    dist.barrier()
    placements = [Replicate(), Shard(1)]
    state = {name: distribute_tensor(torch.zeros_like(each), square, placements) for name, each in wholes.items()}
    dcp.load({**state, "epoch": 0}, checkpoint_id=f"{root}/ours/step-00000001")
    theirs_is_right = all(torch.equal(state[name].full_tensor(), whole) for name, whole in wholes.items())
    return [(ours_is_right, loaded.objects, theirs_is_right)]


@pytest.mark.parametrize("loaded", WORLDS)
@pytest.mark.parametrize("saved", WORLDS)
def test_every_world_size_loads_what_every_other_saved(saved: int, loaded: int, seen: dict[str, list[Cell]]) -> None:
    cells = [each for each in seen["matrix"] if (each.saved, each.loaded) == (saved, loaded)]
    assert len(cells) == loaded * len(NAMES)
    assert [each for each in cells if not each.is_bitwise] == []


@pytest.mark.parametrize("loaded", WORLDS)
@pytest.mark.parametrize("saved", WORLDS)
def test_the_ranks_together_read_each_byte_once(saved: int, loaded: int, seen: dict[str, list[Cell]]) -> None:
    unique = sum(each.nbytes for each in model(11).values())
    for number, name in enumerate(NAMES):
        cells = [
            each
            for each in seen["matrix"]
            if (each.saved, each.loaded) == (saved, loaded) and each.layouts[0] == NAMES[number]
        ]
        assert sum(each.bytes_read for each in cells) <= 1.05 * unique, name


def test_ranks_share_the_reading(seen: dict[str, list[Cell]]) -> None:
    """Six ranks that want the same copies: none reads more than half of them."""
    cells = [each for each in seen["matrix"] if each.loaded == 6 and each.layouts == ("fsdp", "replicated")]
    read = [each.bytes_read for each in cells]
    assert read
    assert max(read) <= sum(read) / 2
    assert min(read) > 0


def test_a_mismatch_on_one_rank_is_reported_on_all_and_nothing_changes(seen: dict[str, list[object]]) -> None:
    assert seen["mismatch"] == [(["w"], False)] * LARGEST


def test_damage_that_one_rank_finds_sends_all_to_the_older_step(seen: dict[str, list[object]]) -> None:
    for step, fell_back, objects, passed_over, named in seen["damage"]:
        assert (step, fell_back, objects, passed_over) == (1, True, {"step": 1}, [2])
        assert "__0_0.distcp is damaged" in named


def test_dtensors_are_loaded_on_another_mesh(seen: dict[str, list[object]]) -> None:
    assert seen["dtensor"] == [True] * 3 * LARGEST


def test_ranks_load_what_dcp_saved_and_dcp_loads_what_ranks_saved(seen: dict[str, list[object]]) -> None:
    assert seen["dcp"] == [(True, {"epoch": 4}, True)] * LARGEST


def test_what_nobody_wants_is_not_read(seen: dict[str, list[object]]) -> None:
    assert seen["subset"] == [(True, 20_000, 0, tuple("ghijkl"))] * LARGEST
