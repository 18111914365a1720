"""What a server says when it is stopped from the keyboard, and that it is true."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from running import Server, eventually


def stopped(server: Server) -> str:
    """What it says after Ctrl-C."""
    os.kill(server.process_id(), signal.SIGINT)
    told = iter(server.told, "")
    line = next(line for line in told if "the server stops" in line)
    server.stop()
    return line


def test_it_says_what_goes_on_and_how_it_comes_back(folder: Path) -> None:
    options = ("--backend", "local", "--simulate", "--nodes", "1", "--gpus", "1")
    server = Server(folder, *options).start()
    running = server.submit(gpus=1, command=["sleep", "600"], grace="1s")
    server.wait(running["id"], "running")
    server.submit(gpus=1, command=["true"])
    line = stopped(server)
    assert "1 job goes on without it and keeps its GPUs" in line
    assert f"`phalanx up --data {folder}`, with the same options, finds it again" in line
    assert "1 job stays pending until then" in line
    again = Server(folder, *options).start()
    assert again.wait(running["id"], "running")["attempts"] == 1
    again.client.post(f"/jobs/{running['id']}:cancel").raise_for_status()
    eventually(lambda: again.client.get("/jobs", params={"state": "succeeded"}).json()["items"])
    assert "no job runs" in stopped(again)


def test_ctrl_c_at_a_terminal_reaches_up_alone(folder: Path) -> None:
    # A terminal signals all processes of the group. Parts that end by themselves look like failures.
    server = Server(folder, "--backend", "rehearsal", prefix=("setsid",)).start()
    group = os.getpgid(server.process_id())
    assert group not in [os.getpgid(server.pid(part)) for part in ("loop", "api", "planner")]
    os.killpg(group, signal.SIGINT)
    told = "".join(iter(server.told, ""))
    assert ("the server stops" in told, "is started again" in told) == (True, False)
    server.stop()


def test_ctrl_c_before_it_is_ready_is_answered_too(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal")
    server.begin()
    children = Path(f"/proc/{server.process_id()}/task/{server.process_id()}/children")
    eventually(children.read_text)
    assert "the server stops" in stopped(server)
