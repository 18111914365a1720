"""Stores that fail, stall, fill up or forbid: bounded patience, and errors that say what to do."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from layouts import all_same_bits, blank, model, pieces_of, save
from processes import run_alone

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import (
    Medium,
    Retry,
    StoreError,
    StoreUnreachable,
    commit,
    load_into,
    newest_intact,
    open_medium,
    steps,
    write_step,
)
from phalanx.train.checkpoint.store.media.local import in_words

pytestmark = pytest.mark.needs("torch")

QUICK = Retry(attempts=4, first_wait_s=0.001, longest_wait_s=0.002, call_timeout_s=20.0)


class Flaky(MemoryFileSystem):
    """An object store in memory that fails the next few calls, or answers none until it is let go."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failures_left: ClassVar[int] = 0
    calls: ClassVar[int] = 0
    let_go: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def reset(cls) -> None:
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.failures_left = cls.calls = 0
        cls.let_go = threading.Event()
        cls.let_go.set()

    def answer(self) -> None:
        type(self).calls += 1
        self.let_go.wait(30)
        if self.failures_left:
            type(self).failures_left -= 1
            raise OSError("503 Slow Down")

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self.answer()
        return super().open(path, mode, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self.answer()
        content: bytes = super().cat_file(path, start, end, **options)
        return content

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.answer()
        return super().ls(path, detail, **options)


@pytest.fixture
def flaky() -> Iterator[type[Flaky]]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    Flaky.reset()
    yield Flaky
    Flaky.let_go.set()


def place() -> Medium:
    return open_medium("flaky://bucket/run", retry=QUICK)


def test_a_store_that_fails_now_and_then_is_asked_again(flaky: type[Flaky]) -> None:
    whole = model(2)
    flaky.failures_left = 3
    write_step(place(), 1, 0, 1, pieces_of(whole, "fsdp", 0, 1), {"a": 1})
    flaky.failures_left = 3
    commit(place(), 1, [0])
    found = blank()
    flaky.failures_left = 3
    load_into(place(), 1, pieces_of(found, "fsdp", 0, 1))
    assert all_same_bits(found, whole)


def test_a_store_that_keeps_failing_is_given_up_in_bounded_time_and_named(flaky: type[Flaky]) -> None:
    flaky.failures_left = 10**6
    with pytest.raises(StoreUnreachable, match=r"flaky://bucket/run.*failed 4 times, last with OSError: 503 Slow Down"):
        write_step(place(), 1, 0, 1, pieces_of(model(1), "fsdp", 0, 1), {})
    assert flaky.calls == QUICK.attempts


def test_a_store_that_never_answers_is_given_up_in_bounded_time(flaky: type[Flaky]) -> None:
    flaky.let_go.clear()
    stalled = open_medium("flaky://bucket/run", retry=Retry(attempts=2, first_wait_s=0.001, call_timeout_s=0.05))
    with pytest.raises(StoreUnreachable, match=r"no answer within 0.05 s"):
        newest_intact(stalled)


def test_a_save_that_a_failing_store_cut_short_leaves_the_older_step_in_charge(flaky: type[Flaky]) -> None:
    write_step(place(), 1, 0, 1, pieces_of(model(1), "fsdp", 0, 1), {})
    commit(place(), 1, [0])
    write_step(place(), 2, 0, 1, pieces_of(model(2), "fsdp", 0, 1), {})

    def fail(phase: str) -> None:
        if phase == "metadata":
            flaky.failures_left = 10**6

    with pytest.raises(StoreUnreachable):
        commit(place(), 2, [0], on_phase=fail)
    flaky.failures_left = 0
    found = newest_intact(place())
    assert found is not None
    assert found.step.step == 1


def test_what_is_not_there_is_not_asked_for_twice(flaky: type[Flaky]) -> None:
    assert steps(place()) == []
    assert place().size("nothing") is None


def test_a_medium_can_be_sent_to_another_process() -> None:
    medium = open_medium("s3://bucket/run", retry=QUICK, key="abc")
    assert pickle.loads(pickle.dumps(medium)) == medium
    assert medium.child("a").url == "s3://bucket/run/a"


def test_an_unknown_kind_of_store_is_named() -> None:
    with pytest.raises(StoreError, match="nowhere://x: Protocol not known: nowhere"):
        steps("nowhere://x")


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(StoreError, match="path of a checkpoint directory is empty"):
        steps("")


def test_a_file_url_is_a_directory_like_any_other(tmp_path: Path) -> None:
    save(f"file://{tmp_path}", 3, model(1))
    assert [each.step for each in steps(tmp_path)] == [3]


def test_a_path_through_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*directory"):
        write_step(tmp_path / "file" / "run", 1, 0, 1, [], {})


def write_with_small_files(root: str) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        write_step(root, 2, 0, 1, [Piece.whole("w", torch.zeros(1_000_000))], {})
    except StoreError as error:
        return str(error)
    return "written"


def write_as_nobody(root: str) -> str:
    os.setuid(65534)
    try:
        write_step(root, 2, 0, 1, [], {})
    except StoreError as error:
        found = newest_intact(root)
        return f"{found.step.step if found else None} {error}"
    return "written"


def test_a_disk_that_takes_no_more_is_reported_and_the_older_step_stays_good(tmp_path: Path) -> None:
    """A limit on the size of files stops the writing half way, as a full disk does."""
    save(str(tmp_path), 1, model(1))
    assert "cannot write" in run_alone(write_with_small_files, str(tmp_path))
    found = newest_intact(tmp_path)
    assert found is not None
    assert found.step.step == 1
    assert not list(tmp_path.glob("**/*.tmp"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody with fewer rights")
def test_a_lost_permission_is_reported_in_words(tmp_path: Path) -> None:
    save(str(tmp_path), 1, model(1))
    for each in (tmp_path, *tmp_path.parents[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    said = run_alone(write_as_nobody, str(tmp_path))
    assert said.startswith("1 cannot write")
    assert "Permission denied; let this user write there" in said


def test_a_full_disk_comes_with_advice(tmp_path: Path) -> None:
    """The device that is always full."""
    message = "No space left on device; free space there, or keep fewer steps"
    with pytest.raises(StoreError, match=message), in_words("x"), open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
