"""Whatever fails beside the training, training goes on, and says what failed."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, Host, Shared
from phalanx.train.checkpoint.holdings import Holdings, replica_name
from phalanx.train.checkpoint.meeting import Meeting, RankMissingError
from phalanx.train.checkpoint.pace import Pace
from phalanx.train.checkpoint.peers import Parcel, PeerServer, TransferError, fetch, push
from phalanx.train.checkpoint.segment import Segment, require_memory
from phalanx.train.checkpoint.slot import DATA_OFFSET, Record, Slot
from phalanx.train.checkpoint.store import steps

NEVER = 1 << 30
TOKEN = "token"


def model(width: int = 2) -> torch.nn.Linear:
    return torch.nn.Linear(width, width)


@pytest.fixture
def job() -> str:
    return f"test-{uuid.uuid4()}"


def test_a_disk_that_refuses_to_take_more_is_named_and_tried_again(tmp_path: Path) -> None:
    tiers = [Host(every=NEVER), Shared(tmp_path, every=NEVER)]
    with Checkpointer({"model": model(64)}, tiers, signals=()) as checkpointer:
        checkpointer.step()
        process = checkpointer._station.background
        assert process is not None
        # The kernel refuses to let a file grow, in the middle of a write, as it does when a disk is full.
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        checkpointer.save()
        assert checkpointer.wait()
        assert "step 1 was not saved" in checkpointer.faults[0]
        assert "training goes on" in checkpointer.faults[0]
        assert checkpointer.durable_step is None
        assert steps(tmp_path) == []
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
        assert checkpointer.durable_step == 2
        os.kill(process.pid, signal.SIGKILL)
        process._process.wait()
        checkpointer.step()
        assert "another one was started" in checkpointer.faults[1]
        checkpointer.save()
        checkpointer.wait()
        assert [each.step for each in steps(tmp_path)] == [2, 3]


def test_a_state_with_nan_is_not_kept_and_the_tensor_is_named(job: str) -> None:
    parts = {"model": model()}
    with Checkpointer(parts, [Host(every=1)], job=job, refuse_nan=True, signals=()) as checkpointer:
        checkpointer.step()
        good = parts["model"].weight.detach().clone()
        with torch.no_grad():
            parts["model"].weight[0, 0] = torch.nan
        checkpointer.step()
        assert "NaN or infinite values in model.weight" in checkpointer.faults[0]
        loaded = checkpointer.load()
        assert loaded is not None
        assert loaded.step == 1
        assert torch.equal(parts["model"].weight, good)


def test_a_rank_that_never_arrives_is_named_and_training_goes_on(job: str) -> None:
    meeting = Meeting(HashStore(), rank=0, world_size=3, timeout_s=0.2)
    checkpointer = Checkpointer({"model": model()}, [Host(every=1)], job=job, signals=(), meeting=meeting)
    assert checkpointer.step()
    assert "rank 1, 2 did not arrive within 0.2 s" in checkpointer.faults[0]
    assert checkpointer.completed == 1
    checkpointer.close()


def test_all_ranks_hear_who_is_missing_also_those_that_are_there() -> None:
    store = HashStore()
    heard: list[tuple[int, ...]] = []

    def take_part(rank: int) -> None:
        with pytest.raises(RankMissingError) as caught:
            Meeting(store, rank, 3, timeout_s=0.2).share("a test", rank)
        heard.append(caught.value.missing)

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [(1,), (1,)]


def test_more_memory_than_there_is_is_refused_before_it_is_taken() -> None:
    with pytest.raises(PhalanxError, match=r"a snapshot needs .* GB of host memory, and .* GB are available"):
        require_memory(1 << 60, "a snapshot")


def slot(name: str, size: int = 9 << 20) -> Slot:
    fd = os.memfd_create(name)
    os.ftruncate(fd, size)
    return Slot(Segment(name, fd))


def snapshot(step: int, fill: int, rank: int = 3) -> Slot:
    taken = slot("own-0")
    taken.begin(step, rank, 8 << 20)
    taken.segment.view[DATA_OFFSET : DATA_OFFSET + (8 << 20)] = bytes([fill]) * (8 << 20)
    taken.finish(Record(step, rank, 4, (), {}))
    return taken


@pytest.fixture
def peer() -> Iterator[PeerServer]:
    holdings = Holdings()
    for number in range(2):
        holdings.put(slot(replica_name(3, number)))
    server = PeerServer("127.0.0.1", TOKEN, holdings)
    server.start()
    yield server
    server.close()


def held(server: PeerServer, step: int) -> bytes | None:
    found = server.holdings.find(3, step)
    return None if found is None else bytes(found.segment.view[DATA_OFFSET : DATA_OFFSET + 1])


def test_a_copy_goes_to_a_peer_and_comes_back(peer: PeerServer) -> None:
    address = ("127.0.0.1", peer.port)
    push(address, TOKEN, snapshot(5, 17), Parcel())
    assert held(peer, 5) == b"\x11"
    back = slot("own-1")
    fetch(address, TOKEN, 3, 5, lambda header: back)
    assert back.complete_step == 5
    assert back.segment.view[DATA_OFFSET + 1000] == 17


def test_a_sender_that_dies_on_the_way_leaves_the_older_copy(peer: PeerServer) -> None:
    address = ("127.0.0.1", peer.port)
    push(address, TOKEN, snapshot(5, 17), Parcel())

    def die() -> None:
        raise ConnectionAbortedError("killed")

    with pytest.raises(ConnectionAbortedError):
        push(address, TOKEN, snapshot(6, 18), Parcel(halfway=die))
    assert held(peer, 6) is None
    assert held(peer, 5) == b"\x11"


def test_a_peer_that_is_dead_or_has_nothing_is_an_error(peer: PeerServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        nobody = ("127.0.0.1", probe.getsockname()[1])
    with pytest.raises(OSError, match="refused"):
        push(nobody, TOKEN, snapshot(5, 17), Parcel())
    with pytest.raises(TransferError, match="no whole copy of rank 3 after step 9"):
        fetch(("127.0.0.1", peer.port), TOKEN, 3, 9, lambda header: slot("own-1"))


def test_strangers_get_nothing(peer: PeerServer) -> None:
    push(("127.0.0.1", peer.port), TOKEN, snapshot(5, 17), Parcel())
    with pytest.raises((TransferError, OSError)):
        fetch(("127.0.0.1", peer.port), "guess", 3, 5, lambda header: slot("own-1"))


def test_copies_wait_for_gaps_but_not_for_ever() -> None:
    pace = Pace(slot("pace", 4096).segment)
    pace.take()
    threading.Timer(0.05, pace.yield_).start()
    pace.wait(until_s=float("inf"))
    assert not pace.is_busy
    pace.take()
    pace.wait(until_s=0.0)
    assert pace.is_busy, "the copy is due, so it goes now"
