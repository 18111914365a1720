"""Logs line by line: of several tasks in the order of time, however large they are."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.logs.files import ReadStoppedError
from phalanx.backends.local.logs.lines import LINE_BYTES_MAX
from phalanx.backends.local.logs.merged import MergedLogs, Selection
from phalanx.backends.local.logs.times import LogTimes, begin_times, note_time
from phalanx.backends.local.shepherd.log_clock import LogClock
from phalanx.backends.local.shepherd.loop import Loop


class Log:
    """A log that is written at given moments, with what its shepherd notes of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self.path.touch()
        begin_times(str(self.path))

    def write(self, at_ms: int, content: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(content)
        note_time(str(self.path), self.path.stat().st_size, at_ms)


def merged(folder: Path, selection: Selection, is_last: bool = True) -> MergedLogs:
    logs = MergedLogs(folder, selection)
    logs.begin(is_last)
    return logs


def shown(logs: MergedLogs, is_last: bool = True) -> list[tuple[int | None, int, str]]:
    return [(line.at_ms, line.rank, line.text.decode()) for line in logs.lines(is_last)]


def test_lines_of_all_tasks_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    first, second = Log(tmp_path, "0.out"), Log(tmp_path, "10.err")
    first.write(1_000, b"a\nb\n")
    second.write(1_500, b"c\n")
    first.write(2_000, b"d\n")
    in_order = [(1_000, 0, "a"), (1_000, 0, "b"), (1_500, 10, "c"), (2_000, 0, "d")]
    assert shown(merged(tmp_path, Selection())) == in_order
    assert shown(merged(tmp_path, Selection(rank=10))) == [(1_500, 10, "c")]
    assert shown(merged(tmp_path, Selection(stream="out", tail=2))) == [(1_000, 0, "b"), (2_000, 0, "d")]
    assert shown(merged(tmp_path, Selection(since_ms=1_500))) == in_order[2:]
    assert shown(merged(tmp_path, Selection(since_ms=1_000, tail=3))) == in_order[1:]
    assert shown(merged(tmp_path, Selection(tail=0))) == []
    assert shown(merged(tmp_path, Selection(since_ms=2_001))) == []


def test_what_is_written_later_is_read_on_and_a_line_waits_for_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path, "0.out")
    log.write(1_000, b"old\nhalf")
    logs = merged(tmp_path, Selection(tail=0), is_last=False)
    log.write(2_000, b" and half\r\n")
    assert shown(logs, is_last=False) == [(2_000, 0, "half and half")]
    Log(tmp_path, "1.out").write(3_000, b"new task\n")
    log.write(3_500, b"the end")
    assert shown(logs, is_last=False) == [(3_000, 1, "new task")]
    assert shown(logs, is_last=True) == [(3_500, 0, "the end")]


def test_each_state_of_a_bar_of_progress_is_a_line(tmp_path: Path) -> None:
    log = Log(tmp_path, "0.err")
    log.write(1, b"\r10 %\r20 %")
    log.write(2, b"\r100 %\r\n\nnext")
    assert [text for _, _, text in shown(merged(tmp_path, Selection()))] == ["10 %", "20 %", "100 %", "", "next"]


@pytest.mark.parametrize("tail", [1, 4, 1_000])
def test_the_last_lines_are_as_many_as_asked_for_whatever_ends_them(tmp_path: Path, tail: int) -> None:
    for rank in range(3):
        log = Log(tmp_path, f"{rank}.out")
        for at in range(300):
            log.write(at, f"{rank} {at} {'x' * 500}".encode() + (b"\n", b"\r\n", b"\r")[at % 3])
    everything = shown(merged(tmp_path, Selection()))
    assert len(everything) == 900
    assert shown(merged(tmp_path, Selection(tail=tail))) == everything[-tail:]


def test_a_line_that_never_ends_comes_in_parts_and_memory_stays_small(tmp_path: Path) -> None:
    log = Log(tmp_path, "0.out")
    for at in range(64):
        log.write(at, b"x" * (1 << 20))
    tracemalloc.start()
    try:
        lengths = [(len(line.text), line.whole) for line in merged(tmp_path, Selection()).lines(is_last=True)]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert sum(length for length, _ in lengths) == 64 << 20
    assert max(lengths) == (LINE_BYTES_MAX, False)


def test_lines_that_the_shepherd_has_not_seen_yet_have_the_time_of_the_file(tmp_path: Path) -> None:
    log = Log(tmp_path, "0.out")
    log.write(1_000, b"seen\n")
    with log.path.open("ab") as file:
        file.write(b"unseen\n")
    os.utime(log.path, ns=(5_000_000_000, 5_000_000_000))
    assert shown(merged(tmp_path, Selection())) == [(1_000, 0, "seen"), (5_000, 0, "unseen")]


def test_a_log_of_an_older_version_has_lines_and_no_times(tmp_path: Path) -> None:
    (tmp_path / "0.out").write_bytes(b"a\n")
    logs = merged(tmp_path, Selection())
    assert shown(logs) == [(None, 0, "a")]
    undated = logs.undated()
    assert undated is not None
    assert undated.path.name == "0.out"


def test_a_read_that_is_stopped_ends_before_the_log_does(tmp_path: Path) -> None:
    Log(tmp_path, "0.out").write(1_000, b"a\nb\n")
    logs = MergedLogs(tmp_path, Selection(tail=1))
    logs.stop()
    with pytest.raises(ReadStoppedError):
        logs.begin(is_last=True)


def test_many_notes_are_found_again_from_any_side(tmp_path: Path) -> None:
    log = Log(tmp_path, "0.out")
    for at in range(1, 2_001):
        log.write(at * 10, b"12345\n")
    times = LogTimes(str(log.path))
    for at in [1, 2_000, 1_000, 257, 256, 255, 1_999, 3]:
        assert times.at_ms(at * 6) == at * 10
    assert times.offset_since(10_000) == 999 * 6
    assert times.offset_since(0) == 0
    assert times.offset_since(10**9) == 2_000 * 6


def test_the_shepherd_notes_when_a_log_was_last_written_to(tmp_path: Path) -> None:
    clock = LogClock(Loop(lambda: None), AttemptFolder(str(tmp_path)))
    log = tmp_path / "0.out"
    begin_times(str(log))
    for content, at_ms in ((b"one\n", 7_000), (b"two\n", 9_000), (b"set back\n", 8_000)):
        with log.open("ab") as file:
            file.write(content)
        os.utime(log, ns=(0, at_ms * 1_000_000))
        clock.look()
        clock.look()
    assert shown(merged(tmp_path, Selection())) == [(7_000, 0, "one"), (9_000, 0, "two"), (9_000, 0, "set back")]
    assert Path(f"{log}.times").stat().st_size == 3 * 16


def test_millions_of_returns_are_passed_over_quickly_and_end_no_line(tmp_path: Path) -> None:
    log = Log(tmp_path, "0.out")
    log.write(1_000, b"a" + b"\r" * (16 << 20) + b"b\r\r\nc")
    before_s = time.monotonic()
    found = list(merged(tmp_path, Selection()).lines(is_last=True))
    assert time.monotonic() - before_s < 5
    assert [line.text for line in found] == [b"a", b"b", b"", b"c"]
    assert found[-1].end == log.path.stat().st_size
