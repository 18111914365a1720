"""Checkpoints on a real S3 server: uploads in parts, lines that break, servers that die, rights that are missing."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest
import torch
import torch.distributed as dist
from processes import free_port, run_alone, run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from phalanx.bench.checkpoint.drill import fork_background
from phalanx.train.checkpoint import Checkpointer, Host, Shared, background
from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import (
    AccessRefused,
    DirectoryInUse,
    FencedOut,
    Retry,
    StoreError,
    StoreUnreachable,
    claim,
    commit,
    load_into,
    newest_intact,
    open_medium,
    steps,
    write_step,
)
from s3_server import ACCESS_KEY, SECRET_KEY, Line, S3Server, serving

pytestmark = [pytest.mark.needs("torch"), pytest.mark.needs("s3")]

NEVER = 1 << 30
MB = 1 << 20
PART = 5 * MB
"""The least that S3 takes as a part of an upload."""

SOON = {"retries": {"max_attempts": 0}, "connect_timeout": 5, "read_timeout": 10}
"""The driver tries no more than once itself, so that what is tried again is tried by us."""

OPTIONS: dict[str, Any] = {"default_block_size": PART, "config_kwargs": SOON}
PATIENT = Retry(attempts=20, first_wait_s=0.02, longest_wait_s=0.5, call_timeout_s=60)
QUICK = Retry(attempts=2, first_wait_s=0.01)


Trained = tuple[int, int | None, dict[str, bytes]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3") / "server", free_port()) as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture
def root(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a run of its own, on a server that this process and those it starts find and may use."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    # Where no file of this user says otherwise.
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # A file system is kept for the next who asks alike, with the endpoint that was right for the last one.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    return f"s3://bucket/{uuid.uuid4().hex}"


@pytest.fixture
def line(server: S3Server, root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """All that goes to the server goes through this."""
    between = Line(server.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{between.port}")
    yield between
    between.close()


def weights(seed: int, mb: int = 1) -> torch.Tensor:
    return torch.randn(mb * MB // 4, generator=torch.Generator().manual_seed(seed))


def save(root: str, step: int, tensor: torch.Tensor, retry: Retry = PATIENT, term: int = 0) -> None:
    medium = open_medium(root, retry=retry, **OPTIONS)
    write_step(medium, step, 0, 1, [Piece.whole("w", tensor)], {"step": step}, term=term)
    commit(medium, step, [0], term=term)


def loaded(root: str, size: int) -> tuple[int, torch.Tensor]:
    """The newest good step, and what it holds."""
    medium = open_medium(root, retry=QUICK, **OPTIONS)
    found = newest_intact(medium)
    assert found is not None
    tensor = torch.zeros(size)
    load_into(medium, found.step.step, [Piece.whole("w", tensor)])
    return found.step.step, tensor


def object_of(root: str, name: str) -> dict[str, Any]:
    """What the server tells of an object."""
    system = fsspec.filesystem("s3")
    system.invalidate_cache()
    told: dict[str, Any] = system.info(f"{root.removeprefix('s3://')}/{name}")
    return told


def access() -> dict[str, str]:
    """What finds and opens the server. Ranks are forked from a process that is older than this test."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def with_access(rank: int, variables: dict[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
    os.environ.update(variables)
    return function(rank, *arguments)


def sharded(world_size: int) -> nn.Module:
    torch.manual_seed(7)
    return fully_shard(nn.Linear(64, 24), mesh=init_device_mesh("cpu", (world_size,)))


def whole(model: nn.Module) -> dict[str, bytes]:
    put = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in model.named_parameters()}
    return {name: tensor.detach().numpy().tobytes() for name, tensor in put.items()}


def train(rank: int, world_size: int, port: int, root: str, steps_more: int) -> Trained:
    """Where this training begins, what is durable at its end, and the parameters that it then has."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PHALANX_MACHINE=f"machine-{rank}")
    background.start_process = fork_background  # type: ignore[assignment]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = sharded(world_size)
    tiers = [Host(every=NEVER), Shared(root, every=NEVER, options=OPTIONS)]
    with Checkpointer({"model": model}, tiers, job=root, signals=()) as checkpointer:
        checkpointer.load()
        begun = checkpointer.completed
        for _ in range(steps_more):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1)
            checkpointer.step()
        if steps_more:
            checkpointer.save()
            checkpointer.wait()
        durable, found = checkpointer.durable_step, whole(model)
        assert not checkpointer.faults, checkpointer.faults
    dist.destroy_process_group()
    return begun, durable, found


def test_a_training_on_two_ranks_goes_on_from_s3_on_three(root: str) -> None:
    saved = run_ranks(with_access, 2, (access(), train, 2, free_port(), root, 5), 120)
    resumed = run_ranks(with_access, 3, (access(), train, 3, free_port(), root, 0), 120)
    assert saved[0][:2] == (0, 5)
    assert [begun for begun, _, _ in resumed] == [5] * 3
    assert all(found == saved[0][2] for _, _, found in resumed)


def resume_alone(rank: int, root: str) -> tuple[int, bytes]:
    part = nn.Linear(1024, 4096, bias=False)
    with Checkpointer({"model": part}, [Host(), Shared(root)], job=root, signals=()) as checkpointer:
        checkpointer.load()
        return checkpointer.completed, part.weight.detach().numpy().tobytes()


def test_a_state_larger_than_a_part_is_uploaded_in_parts_and_comes_back_whole(root: str) -> None:
    part = nn.Linear(1024, 4096, bias=False)
    tiers = [Host(every=NEVER), Shared(root, every=NEVER, options=OPTIONS)]
    with Checkpointer({"model": part}, tiers, job=root, signals=()) as checkpointer:
        checkpointer.step()
        checkpointer.save()
        assert checkpointer.wait(60)
        assert checkpointer.durable_step == 1, checkpointer.faults
    kept = object_of(root, "step-00000001.t1/__0_0.distcp")
    assert kept["size"] > 16 * MB
    # A server gives the number of parts at the end of the ETag; an object that was put in one piece has none.
    assert int(kept["ETag"].strip('"').partition("-")[2]) >= 2
    assert run_alone(with_access, 0, access(), resume_alone, root) == (1, part.weight.detach().numpy().tobytes())


def test_part_of_an_object_is_read_without_the_rest(root: str, line: Line) -> None:
    medium = open_medium(root, retry=QUICK, **OPTIONS)
    content = os.urandom(12 * MB)
    medium.write("a", lambda file: file.write(content))
    assert medium.read("a", 7 * MB, 100) == content[7 * MB : 7 * MB + 100]
    assert medium.read("a", 12 * MB - 10, 100) == content[-10:]
    assert line.downloaded < MB


def test_a_line_that_breaks_again_and_again_delays_a_save_and_loses_nothing(root: str, line: Line) -> None:
    tensor = weights(1, mb=16)
    breaks_at = [2 * MB, 9 * MB, 20 * MB, 30 * MB]

    def break_now_and_then(uploaded: int) -> None:
        if breaks_at and uploaded >= breaks_at[0]:
            del breaks_at[0]
            line.cut()

    line.on_upload = break_now_and_then
    save(root, 1, tensor)
    assert line.cuts == 4
    number, found = loaded(root, tensor.numel())
    assert number == 1
    assert torch.equal(found, tensor)


def start_after(server: S3Server, gone: threading.Event) -> None:
    gone.wait(60)
    server.start()


def test_a_server_that_dies_in_the_middle_of_a_save_and_comes_back_has_all_of_it(
    root: str, line: Line, server: S3Server
) -> None:
    tensor = weights(2, mb=16)
    killed, gone = threading.Lock(), threading.Event()

    def die_once(uploaded: int) -> None:
        if uploaded > 8 * MB and killed.acquire(blocking=False):
            server.kill()
            gone.set()

    line.on_upload = die_once
    restart = threading.Thread(target=start_after, args=(server, gone))
    restart.start()
    try:
        save(root, 1, tensor)
    finally:
        gone.set()
        restart.join()
    assert line.uploaded > 16 * MB
    number, found = loaded(root, tensor.numel())
    assert number == 1
    assert torch.equal(found, tensor)


def test_a_server_that_dies_in_the_middle_and_stays_away_is_a_fault_and_the_older_step_is_loaded(
    root: str, line: Line, server: S3Server
) -> None:
    old, new = weights(3, mb=8), weights(4, mb=8)
    save(root, 1, old)
    line.uploaded = 0
    line.on_upload = lambda uploaded: server.kill() if uploaded > 6 * MB else None
    try:
        with pytest.raises(StoreUnreachable, match=rf"writing {root}/step-00000002/__0_0.distcp: failed 2 times"):
            save(root, 2, new, QUICK)
    finally:
        line.on_upload = lambda uploaded: None
        server.kill()
        server.start()
    number, found = loaded(root, old.numel())
    assert number == 1
    assert torch.equal(found, old)


def test_a_trainer_hears_of_a_store_that_is_away_and_goes_on(root: str, line: Line, server: S3Server) -> None:
    part = nn.Linear(512, 4096, bias=False)
    shared = Shared(root, every=NEVER, options={**OPTIONS, "retry": QUICK})
    with Checkpointer({"model": part}, [Host(every=NEVER), shared], job=root, signals=()) as checkpointer:
        checkpointer.step()
        checkpointer.save()
        assert checkpointer.wait(60)
        line.uploaded = 0
        line.on_upload = lambda uploaded: server.kill() if uploaded > 6 * MB else None
        try:
            checkpointer.step()
            checkpointer.save()
            checkpointer.wait(60)
            assert checkpointer.step()
        finally:
            line.on_upload = lambda uploaded: None
            server.kill()
            server.start()
        assert "shared: step 2 was not saved" in checkpointer.faults[0]
        assert root in checkpointer.faults[0]
        assert checkpointer.durable_step == 1
        assert checkpointer.save()
        assert checkpointer.wait(60)
        assert checkpointer.durable_step == 3


def test_an_object_that_could_not_be_written_to_its_end_does_not_appear(root: str) -> None:
    medium = open_medium(root, retry=QUICK, **OPTIONS)

    def fail_half_way(file: Any) -> None:
        file.write(os.urandom(12 * MB))
        raise ValueError("half of it")

    with pytest.raises(ValueError, match="half of it"):
        medium.write("half", fail_half_way)
    assert medium.names() == []
    assert unfinished_uploads(root) == []


def unfinished_uploads(root: str) -> list[str]:
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    told = fsspec.filesystem("s3").call_s3("list_multipart_uploads", Bucket=bucket)
    return [upload["Key"] for upload in told.get("Uploads", ()) if upload["Key"].startswith(prefix)]


def test_a_step_whose_mark_is_missing_does_not_count(root: str) -> None:
    save(root, 1, weights(5))
    medium = open_medium(root, retry=QUICK, **OPTIONS)
    write_step(medium, 2, 0, 1, [Piece.whole("w", weights(6))], {})

    def cut_short(phase: str) -> None:
        if phase == "manifest":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit(medium, 2, [0], on_phase=cut_short)
    assert [each.step for each in steps(medium)] == [1]
    assert loaded(root, weights(5).numel())[0] == 1


def test_a_trainer_that_another_one_replaced_commits_nothing_more(root: str) -> None:
    medium = open_medium(root, retry=QUICK, **OPTIONS)
    first = claim(medium, "job")
    write_step(medium, 1, 0, 1, [Piece.whole("w", weights(7))], {}, term=first.term)
    second = claim(medium, "job")
    with pytest.raises(FencedOut, match=f"{root}: job job on .* has claimed it with term {second.term}"):
        commit(medium, 1, [0], term=first.term)
    with pytest.raises(DirectoryInUse, match=r"job job on .* writes here"):
        claim(medium, "another")
    save(root, 1, weights(8), term=second.term)
    assert torch.equal(loaded(root, weights(8).numel())[1], weights(8))


def test_of_many_who_claim_at_once_one_is_the_last(root: str) -> None:
    fences = run_ranks(with_access, 4, (access(), claim_at_once, root), 60)
    terms = sorted(fences)
    assert len(set(terms)) == 4
    left = open_medium(root, **OPTIONS).child(".fence").names()
    assert [name.partition("-")[0] for name in left] == [f"{terms[-1]:08d}"]


def claim_at_once(rank: int, root: str) -> int:
    return claim(open_medium(root, **OPTIONS), "job").term


@pytest.mark.parametrize(
    ("key", "secret"), [(ACCESS_KEY, "wrong"), ("nobody", "wrong"), ("", "")], ids=["secret", "key", "none"]
)
def test_wrong_credentials_are_told_at_once_with_the_url_and_what_to_do(
    root: str, monkeypatch: pytest.MonkeyPatch, key: str, secret: str
) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    with pytest.raises(AccessRefused, match=rf"{root}.*access refused: .*set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS"):
        Checkpointer({"model": nn.Linear(2, 2)}, [Host(), Shared(root)], job=root, signals=())


def test_a_bucket_that_is_not_there_is_named_and_not_made(root: str, server: S3Server) -> None:
    with pytest.raises(StoreError, match=r"s3://typo/run/.*bucket does not exist.*; create the bucket, or correct"):
        claim(open_medium("s3://typo/run", retry=QUICK), "job")
    assert not server.has_bucket("typo")
