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
from typing import Any

import fsspec
import pytest
import torch
import torch.distributed as dist
from fsspec.implementations.memory import MemoryFileSystem
from processes import free_port, run_ranks
from torch.distributed import HashStore

from phalanx.bench.checkpoint.drill import fork_background
from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, Host, Peer, Retention, Shared, background
from phalanx.train.checkpoint.copies.agreement import Agreement, RankMissingError
from phalanx.train.checkpoint.copies.pace import Pace
from phalanx.train.checkpoint.copies.peers import Parcel, PeerServer, TransferError, fetch, push
from phalanx.train.checkpoint.host.holdings import Holdings, replica_name
from phalanx.train.checkpoint.host.segment import Segment, require_memory
from phalanx.train.checkpoint.host.slot import Record, Slot
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET, Arrangement
from phalanx.train.checkpoint.store import DirectoryInUse, Retry, StoreError, steps
from phalanx.train.checkpoint.store.layout import MARK
from phalanx.train.checkpoint.store.media.local import LocalMedium

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


def test_a_training_whose_first_save_did_not_end_begins_anew(tmp_path: Path) -> None:
    with Checkpointer({"model": model()}, [Shared(tmp_path, every=NEVER)], signals=()) as checkpointer:
        checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
    (mark,) = tmp_path.rglob(MARK)
    mark.unlink()
    with Checkpointer({"model": model()}, [Shared(tmp_path, every=NEVER)], signals=()) as checkpointer:
        assert checkpointer.load() is None
        assert checkpointer.completed == 0


def test_a_checkpoint_that_is_damaged_is_named_and_nothing_begins_anew(tmp_path: Path) -> None:
    with Checkpointer({"model": model()}, [Shared(tmp_path, every=NEVER)], signals=()) as checkpointer:
        checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
    (mark,) = tmp_path.rglob(MARK)
    mark.write_bytes(b"{}")
    with (
        Checkpointer({"model": model()}, [Shared(tmp_path, every=NEVER)], signals=()) as checkpointer,
        pytest.raises(PhalanxError, match="there are checkpoints, and none can be loaded: step 1"),
    ):
        checkpointer.load()


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
    agreement = Agreement(HashStore(), rank=0, world_size=3, timeout_s=0.2)
    checkpointer = Checkpointer({"model": model()}, [Host(every=1)], job=job, signals=(), agreement=agreement)
    assert checkpointer.step()
    assert "rank 1, 2 did not arrive within 0.2 s" in checkpointer.faults[0]
    assert checkpointer.completed == 1
    checkpointer.close()


def test_all_ranks_hear_who_is_missing_also_those_that_are_there() -> None:
    store = HashStore()
    heard: list[tuple[int, ...]] = []

    def take_part(rank: int) -> None:
        with pytest.raises(RankMissingError) as caught:
            Agreement(store, rank, 3, timeout_s=0.2).share("a test", rank)
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


def test_a_tier_that_falls_behind_is_named_once_with_what_it_sustains_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "start_process", fork_background)
    with Checkpointer({"model": model()}, [Host(every=1), Shared(tmp_path, every=1)], signals=()) as checkpointer:
        process = checkpointer._station.background
        assert process is not None
        checkpointer.step()
        checkpointer.wait()
        checkpointer._saver.costs["shared"].busy_s = 1000.0
        os.kill(process.pid, signal.SIGSTOP)
        for _ in range(6):
            assert checkpointer.step()
        os.kill(process.pid, signal.SIGCONT)
        lines = [line for line in checkpointer.faults if "cannot keep up with one save in 1 steps" in line]
        assert lines
        assert "it sustains one in" in lines[0]
        assert len(lines) == len(set(lines))
        assert checkpointer.describe()["late"]["shared"] >= 4


def test_a_slow_durable_write_does_not_hold_back_snapshots_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "start_process", fork_background)
    with Checkpointer({"model": model()}, [Host(every=1), Shared(tmp_path, every=100)], signals=()) as checkpointer:
        process = checkpointer._station.background
        assert process is not None
        # Stopped before it writes anything: a disk cannot be slower.
        os.kill(process.pid, signal.SIGSTOP)
        checkpointer.completed = 99
        for _ in range(6):
            checkpointer.step()
            assert checkpointer._station.memory.holdings.find(0, checkpointer.completed), checkpointer.faults
        assert checkpointer.describe()["skipped"] == 0
        assert not checkpointer.save()
        assert "step 105 is not saved to shared, still busy with the step before" in checkpointer.faults
        os.kill(process.pid, signal.SIGCONT)
        checkpointer.wait()
        assert checkpointer.durable_step == 100
        assert checkpointer.save()


def test_a_lost_permission_is_named_and_a_step_follows_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that cannot be entered any more. A file in its place refuses the superuser too."""
    monkeypatch.setattr(background, "start_process", fork_background)
    root = tmp_path / "run"
    with Checkpointer({"model": model()}, [Host(every=NEVER), Shared(root, every=NEVER)], signals=()) as checkpointer:
        checkpointer.step()
        root.rename(tmp_path / "aside")
        root.write_text("")
        checkpointer.save()
        checkpointer.wait()
        assert f"cannot write {root}" in checkpointer.faults[0]
        assert "training goes on" in checkpointer.faults[0]
        root.unlink()
        (tmp_path / "aside").rename(root)
        assert checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
        assert checkpointer.durable_step == 2


def test_old_steps_that_cannot_be_taken_away_do_not_make_the_new_one_less_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "start_process", fork_background)
    monkeypatch.setattr(LocalMedium, "remove", refuse_to_remove_a_mark)
    tiers = [Host(every=NEVER), Shared(tmp_path, every=NEVER, keep=Retention(last=1))]
    with Checkpointer({"model": model()}, tiers, signals=()) as checkpointer:
        for _ in range(2):
            checkpointer.step()
            checkpointer.save()
            checkpointer.wait()
        assert checkpointer.durable_step == 2
        assert "old steps were not taken away" in checkpointer.faults[0]
        assert [each.step for each in steps(tmp_path)] == [1, 2]


@pytest.mark.parametrize("url", ["memory://run", "simplecache::memory://run"])
def test_a_shared_tier_in_the_memory_of_one_process_is_refused_since_it_is_not_durable(url: str) -> None:
    with pytest.raises(PhalanxError, match=rf"Shared\('{url}'\): .* no step there is durable"):
        Shared(url)


def test_a_store_that_keeps_failing_is_named_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "start_process", fork_background)
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    retry = Retry(attempts=2, first_wait_s=0.001, longest_wait_s=0.001)
    shared = Shared("refusing://bucket/run", every=NEVER, options={"retry": retry})
    with Checkpointer({"model": model()}, [Host(every=NEVER), shared], signals=()) as checkpointer:
        checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
        assert checkpointer.step()
        assert "shared: step 1 was not saved" in checkpointer.faults[0]
        assert "failed 2 times, last with OSError: 503 Slow Down" in checkpointer.faults[0]
        assert checkpointer.durable_step is None


class Refusing(MemoryFileSystem):
    """An object store that takes claims and no data."""

    protocol = "refusing"

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "step-" in path and "w" in mode:
            raise OSError("503 Slow Down")
        return super().open(path, mode, **options)


def refuse_to_remove_a_mark(self: LocalMedium, name: str) -> None:
    if name == MARK:
        raise StoreError(f"cannot remove {name}: Operation not permitted")


def background_of(checkpointer: Checkpointer) -> background.Background:
    process = checkpointer._station.background
    assert process is not None
    return process


def test_a_second_trainer_in_one_directory_is_refused_or_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "start_process", fork_background)
    tiers = [Host(every=NEVER), Shared(tmp_path, every=NEVER)]
    first = Checkpointer({"model": model()}, tiers, job="4821", signals=())
    with pytest.raises(DirectoryInUse, match=r"job 4821 on .* writes here"):
        Checkpointer({"model": model()}, tiers, job="4822", signals=())
    # The same job, started again elsewhere, while the first trainer is cut off and does not know.
    monkeypatch.setenv("LOCAL_RANK", "1")
    second = Checkpointer({"model": model()}, tiers, job="4821", signals=())
    for checkpointer in (first, second):
        assert checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
    assert "FencedOut" in first.faults[0]
    assert "has claimed it with term 2, ours is 1" in first.faults[0]
    assert (first.durable_step, second.durable_step) == (None, 1)
    assert [each.term for each in steps(tmp_path)] == [2]
    second.close()
    first.close()


def lose_a_background(rank: int, port: int, job: str) -> tuple[list[str], int | None, int | None]:
    """Rank 1's background process stops in the middle of taking a copy, and dies."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PHALANX_MACHINE=f"machine-{rank}")
    background.start_process = fork_background  # type: ignore[assignment]
    dist.init_process_group("gloo", rank=rank, world_size=2)
    tiers = [Host(every=NEVER), Peer(copies=2, every=NEVER)]
    # Larger than what sockets hold by themselves.
    with Checkpointer({"model": model(3000)}, tiers, job=job, signals=(), timeout_s=120) as checkpointer:
        checkpointer.step()
        process = background_of(checkpointer)
        if rank == 1:
            os.kill(process.pid, signal.SIGSTOP)
        dist.barrier()
        checkpointer.save()
        dist.barrier()
        if rank == 1:
            os.kill(process.pid, signal.SIGKILL)
        checkpointer.wait()
        before = checkpointer.describe()["replicated_step"]
        dist.barrier()
        assert checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
        after = checkpointer.describe()["replicated_step"]
        dist.barrier()
        faults = list(checkpointer.faults)
    dist.destroy_process_group()
    return faults, before, after


def test_a_peer_that_dies_in_the_middle_of_a_copy_is_named_and_the_next_copy_arrives(job: str) -> None:
    first, second = run_ranks(lose_a_background, 2, (free_port(), job), 200)
    assert "the copy did not reach rank 1" in first[0][0]
    assert "another one was started" in second[0][0]
    assert first[1] is None
    assert (first[2], second[2]) == (2, 2)


def slot(name: str, size: int = 9 << 20) -> Slot:
    fd = os.memfd_create(name)
    os.ftruncate(fd, size)
    return Slot(Segment(name, fd))


def snapshot(step: int, fill: int, rank: int = 3) -> Slot:
    taken = slot("own-0")
    taken.begin(step, rank, 8 << 20)
    taken.segment.view[DATA_OFFSET : DATA_OFFSET + (8 << 20)] = bytes([fill]) * (8 << 20)
    taken.finish(Record(step, rank, 4, Arrangement(()), {}))
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


def test_the_network_is_trainings_own_from_the_first_gradient_to_the_optimiser(job: str) -> None:
    net = torch.nn.Sequential(model(), model())
    optimizer = torch.optim.SGD(net.parameters())
    tiers = [Host(every=NEVER), Peer(every=NEVER)]
    with Checkpointer({"model": net, "optimizer": optimizer}, tiers, job=job, signals=()) as checkpointer:
        pace = checkpointer._station.pace
        loss = net(torch.ones(2)).sum()
        before = pace.is_busy
        loss.backward()
        between = pace.is_busy
        optimizer.step()
        assert (before, between, pace.is_busy) == (False, True, False)


def test_copies_wait_for_gaps_but_not_for_ever() -> None:
    pace = Pace(slot("pace", 4096).segment)
    pace.take()
    threading.Timer(0.05, pace.yield_).start()
    pace.wait(until_s=float("inf"))
    assert not pace.is_busy
    pace.take()
    pace.wait(until_s=0.0)
    assert pace.is_busy, "the copy is due, so it goes now"
