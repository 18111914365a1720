"""`phalanx logs` of several tasks at once, with times, against a real server."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from live import Phalanx, Result, Server, until

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

TURNS = """
import os, time
rank, folder = int(os.environ["PHALANX_RANK"]), os.environ["TURNS"]
for turn in range(4):
    while not os.path.exists(f"{folder}/{turn}") or os.path.exists(f"{folder}/hold {turn}"):
        time.sleep(0.01)
    if turn % 2 == rank:
        print("turn", turn, flush=True)
        time.sleep(0.2)
        open(f"{folder}/{turn + 1}", "w").close()
"""
"""Two tasks that print in turns, further apart than the times of lines are late at most."""


@pytest.fixture
def taking_turns(phalanx: Phalanx, tmp_path: Path) -> tuple[str, Path]:
    folder = tmp_path / "turns"
    folder.mkdir()
    folder.chmod(0o777)
    arguments = ("--tasks", "2", "--gpus", "1", "--env", f"TURNS={folder}", "-o", "json")
    made = phalanx("submit", *arguments, "--", "python3", "-c", TURNS)
    assert made.code == 0, made.err
    return made.data["id"], folder


def begin(folder: Path) -> None:
    (folder / "0").touch()


def test_lines_of_all_tasks_come_in_order_each_after_its_task(phalanx: Phalanx, taking_turns: tuple[str, Path]) -> None:
    job, folder = taking_turns
    begin(folder)
    followed = phalanx("logs", "-f", "--all-ranks", job)
    assert followed.out == "0: turn 0\n1: turn 1\n0: turn 2\n1: turn 3\n"
    assert phalanx("logs", "--all-ranks", job).out == followed.out
    assert phalanx("logs", "--all-ranks", "--tail", "3", job).out == "1: turn 1\n0: turn 2\n1: turn 3\n"
    assert phalanx("logs", "--task", "1", job).out == "turn 1\nturn 3\n"


def test_each_line_tells_when_it_was_written(phalanx: Phalanx, taking_turns: tuple[str, Path]) -> None:
    job, folder = taking_turns
    phalanx("logs", job)
    before = datetime.now(UTC)
    begin(folder)
    phalanx("wait", job)
    told = phalanx("logs", "--timestamps", "--all-ranks", job).out.splitlines()
    assert all(re.fullmatch(rf"{STAMP} [01]: turn \d", line) for line in told)
    moments = [datetime.fromisoformat(line.split()[0]) for line in told]
    assert moments == sorted(moments)
    # Moments are told to the millisecond, and the nearest one may be before.
    assert -0.001 < (moments[0] - before).total_seconds() < 60
    since = told[2].split()[0]
    assert phalanx("logs", "--since", since, "--timestamps", "--all-ranks", job).out.splitlines() == told[2:]
    assert phalanx("logs", "--since", "1h", "--task", "1", job).out == "turn 1\nturn 3\n"


def test_nothing_since_then_is_said(phalanx: Phalanx) -> None:
    job = phalanx("submit", "--wait", "-o", "json", "--", "echo", "once").data["id"]
    later = phalanx("logs", "--timestamps", job).out.split()[0]
    until(lambda: datetime.now(UTC) > datetime.fromisoformat(later))
    shown = phalanx("logs", "--since", "1ms", job)
    assert (shown.code, shown.out) == (0, "")
    assert "nothing was printed since" in shown.err


def test_the_last_lines_are_followed_on(phalanx: Phalanx, taking_turns: tuple[str, Path]) -> None:
    job, folder = taking_turns
    begin(folder)
    until(lambda: "turn 0" in phalanx("logs", job).out)
    shown = phalanx("logs", "-f", "--tail", "1", "--task", "1", job).out.splitlines()
    assert shown[-1] == "turn 3"


def test_all_ranks_are_followed_while_the_server_restarts(
    phalanx: Phalanx, server: Server, taking_turns: tuple[str, Path], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    job, folder = taking_turns
    (folder / "hold 3").touch()
    begin(folder)
    until(lambda: (folder / "3").exists())
    shown, codes = bytearray(), list[int]()

    def printed() -> bytes:
        shown.extend(capfdbinary.readouterr()[0])
        return bytes(shown)

    following = threading.Thread(target=lambda: codes.append(run(cli, ["logs", "-f", "--all-ranks", job])))
    following.start()
    until(lambda: b"turn 2" in printed())
    server.kill()
    server.start()
    (folder / "hold 3").unlink()
    following.join(60)
    assert codes == [0]
    assert printed().decode().splitlines() == ["0: turn 0", "1: turn 1", "0: turn 2", "1: turn 3"]


def test_what_contradicts_itself_is_a_usage_error(phalanx: Phalanx) -> None:
    both: Result = phalanx("logs", "1", "--all-ranks", "--rank", "1")
    assert (both.code, "give one of them" in both.err) == (Exit.USAGE, True)
    assert phalanx("logs", "1", "--since", "yesterday").code == Exit.USAGE
    assert phalanx("logs", "999999", "--all-ranks").code == Exit.NOT_FOUND
