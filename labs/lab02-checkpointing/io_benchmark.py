"""How fast is each tier? Writes and reads back a state of some megabytes, and draws the result.

    python io_benchmark.py --megabytes 256 --directory /tmp/lab --plot tiers.html

| tier | what is measured |
| --- | --- |
| device | a copy within device memory (needs CUDA) |
| host | a copy into host memory, pinned where there is CUDA |
| shared memory | a copy into /dev/shm, which outlives the process |
| peer | the same, and from there to a peer's memory over a socket, with checksums; here the peer is this machine |
| disk | phalanx's step: data, checksums, fsync, commit mark; read back with every byte checked |
| object store | the same through fsspec, into a store in memory: what the protocol costs, without a network |
| torch.save, dcp.save | the usual ways, beside them; neither waits for the disk unless told |

A rate is the state's size divided by the median time of several rounds. Reads come from the page cache unless the state
is larger than memory: they show what the software costs, not the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.copies.peers import Parcel, PeerServer, fetch, push
from phalanx.train.checkpoint.host.holdings import Holdings, replica_name
from phalanx.train.checkpoint.host.segment import Segment
from phalanx.train.checkpoint.host.slot import Record, Slot, slot_bytes
from phalanx.train.checkpoint.snapshots.arrangement import arrange
from phalanx.train.checkpoint.store import commit, load_into, write_step

TENSORS = 16
State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Result:
    """A tier's rates in GB/s, and whether the state survives the end of the process, and of the machine."""

    tier: str
    write_gb_s: float
    read_gb_s: float
    survives: str


@dataclass(frozen=True)
class Tier:
    """How to write a state to a tier and to read it back; `begin` makes room before each round, untimed."""

    name: str
    survives: str
    write: Callable[[State], object]
    read: Callable[[State], object]
    begin: Callable[[], object] = lambda: None


def tiers(state: State, directory: Path) -> list[Tier]:
    host = {name: torch.empty_like(each, device="cpu", pin_memory=on_cuda()) for name, each in state.items()}
    found = [
        Tier("host", "nothing", lambda s: copy(s, host), lambda s: copy(host, s)),
        in_shared_memory(state),
        in_a_peers_memory(state),
        step_tier("disk", "power cut", str(directory / "steps")),
        step_tier("object store", "as the store promises", "memory://io-benchmark"),
        with_torch_save(directory / "torch"),
        with_dcp(directory / "dcp"),
    ]
    if on_cuda():
        spare = {name: torch.empty_like(each) for name, each in state.items()}
        found.insert(0, Tier("device", "nothing", lambda s: copy(s, spare), lambda s: copy(spare, s)))
    return found


def on_cuda() -> bool:
    return torch.cuda.is_available()


def copy(source: State, target: State) -> None:
    for name, tensor in source.items():
        target[name].copy_(tensor, non_blocking=True)
    if on_cuda():
        torch.cuda.synchronize()


def in_shared_memory(state: State) -> Tier:
    kept = {name: torch.empty_like(each, device="cpu").share_memory_() for name, each in state.items()}
    return Tier("shared memory", "end of process", lambda s: copy(s, kept), lambda s: copy(kept, s))


def in_a_peers_memory(state: State) -> Tier:
    arrangement = arrange(pieces(on_host(state)))
    data_bytes = arrangement.data_bytes
    own, there, back = (new_slot(name, slot_bytes(data_bytes)) for name in ("own-0", replica_name(0, 0), "own-1"))
    holdings = Holdings()
    holdings.put(there)
    peer = PeerServer("127.0.0.1", "token", holdings)
    peer.start()
    address = ("127.0.0.1", peer.port)

    def write(state: State) -> None:
        own.begin(1, 0, data_bytes)
        copy(state, {entry.fqn: own.tensor(entry) for entry in arrangement})
        own.finish(Record(1, 0, 1, arrangement, {}))
        push(address, "token", own, Parcel())

    def read(state: State) -> None:
        fetch(address, "token", 0, 1, lambda header: back)
        copy({entry.fqn: back.tensor(entry) for entry in arrangement}, state)

    return Tier("peer", "loss of the machine", write, read)


def new_slot(name: str, size: int) -> Slot:
    """Room for a snapshot, in shared memory without a name in any file system."""
    descriptor = os.memfd_create(name)
    os.ftruncate(descriptor, size)
    return Slot(Segment(name, descriptor))


def step_tier(name: str, survives: str, root: str) -> Tier:
    def write(state: State) -> None:
        write_step(root, 1, 0, 1, pieces(on_host(state)), {})
        commit(root, 1, [0])

    def begin() -> None:
        # A step is never written twice by the same trainer; the benchmark does.
        shutil.rmtree(root, ignore_errors=True)

    return Tier(name, survives, write, lambda state: load_into(root, 1, pieces(state)), begin)


def with_torch_save(directory: Path) -> Tier:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "state.pt"

    def read(state: State) -> None:
        copy(torch.load(file, weights_only=True), state)

    return Tier("torch.save", "end of process", lambda state: torch.save(state, file), read)


def with_dcp(directory: Path) -> Tier:
    def write(state: State) -> None:
        dcp.save(dict(state), checkpoint_id=directory)

    def read(state: State) -> None:
        dcp.load(dict(state), checkpoint_id=directory)

    return Tier("dcp.save", "end of process", write, read, lambda: shutil.rmtree(directory, ignore_errors=True))


def pieces(state: State) -> list[Piece]:
    return [Piece.whole(name, tensor) for name, tensor in state.items()]


def on_host(state: State) -> State:
    return {name: tensor.cpu() for name, tensor in state.items()}


def measure(tier: Tier, state: State, rounds: int) -> Result:
    size = sum(each.nbytes for each in state.values()) / 1e9
    found = {name: torch.zeros_like(each) for name, each in state.items()}
    writes, reads = [], []
    for _ in range(rounds):
        tier.begin()
        writes.append(seconds(lambda: tier.write(state)))
        reads.append(seconds(lambda: tier.read(found)))
    if not all(torch.equal(found[name], each) for name, each in state.items()):
        raise SystemExit(f"{tier.name}: what came back is not what was written")
    return Result(tier.name, size / statistics.median(writes), size / statistics.median(reads), tier.survives)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def draw(results: list[Result], megabytes: float, file: Path) -> None:
    """A bar for writing and one for reading, a group a tier; on a logarithmic scale, since tiers lie far apart."""
    import plotly.graph_objects as go

    names = [each.tier for each in results]
    figure = go.Figure(
        [
            go.Bar(name="write", x=names, y=[each.write_gb_s for each in results]),
            go.Bar(name="read", x=names, y=[each.read_gb_s for each in results]),
        ]
    )
    figure.update_layout(title=f"Tiers with {megabytes:g} MB", yaxis_title="GB/s", yaxis_type="log", barmode="group")
    figure.write_html(file, include_plotlyjs=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=256, help="size of the state (256)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tier is measured (3)")
    parser.add_argument("--directory", type=Path, required=True, help="on the disk to be measured")
    parser.add_argument("--plot", type=Path, help="draws the result into this HTML file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    # DCP says at every call that it runs in one process only, which is what is wanted here.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.distributed\..*")
    device = "cuda" if on_cuda() else "cpu"
    elements = int(options.megabytes * 1e6 / 4 / TENSORS)
    state = {f"tensor{number}": torch.randn(elements, device=device) for number in range(TENSORS)}
    results = [measure(tier, state, options.rounds) for tier in tiers(state, options.directory)]
    if options.json:
        print(json.dumps([asdict(each) for each in results], indent=2))
    else:
        print(f"{'tier':<16}{'write GB/s':>12}{'read GB/s':>12}  survives")
        for each in results:
            print(f"{each.tier:<16}{each.write_gb_s:>12.2f}{each.read_gb_s:>12.2f}  {each.survives}")
    if options.plot:
        draw(results, options.megabytes, options.plot)


if __name__ == "__main__":
    main()
