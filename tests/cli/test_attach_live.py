"""`phalanx attach` in a real terminal, to tasks of a real server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Phalanx, until
from screen import Screen

from phalanx.cli.attach import DetachKeys, keys_of
from phalanx.cli.exit import Exit

DETACH = "\x10\x11"
SHELL = """
import os, signal, sys
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size(), flush=True))
print("ready", sys.stdin.isatty(), sys.stdout.isatty(), flush=True)
while True:
    try:
        said = input()
    except KeyboardInterrupt:
        said = "interrupted"
    if said == "end":
        sys.exit(7)
    print("heard", said, flush=True)
"""


@pytest.fixture
def shell(phalanx: Phalanx) -> Iterator[str]:
    arguments = ("--kind", "interactive", "--gpus", "1", "-o", "json")
    job = phalanx("submit", *arguments, "--", "python3", "-c", SHELL).data["id"]
    until(lambda: "ready" in phalanx("logs", job).out)
    yield job
    phalanx("cancel", job)


def test_a_task_is_typed_into_left_and_found_again_as_it_was(phalanx: Phalanx, shell: str) -> None:
    assert "ready True True" in phalanx("logs", shell).out
    with Screen("attach", shell) as screen:
        screen.see("ctrl-p,ctrl-q detaches")
        screen.type("one\r")
        screen.see("heard one")
        screen.type("\x03\r")
        screen.see("heard interrupted")
        screen.type(DETACH)
        assert f"detached; job {shell} goes on" in screen.see(f"phalanx attach {shell}")
        assert screen.end() == 0
    assert phalanx("job", shell, "-o", "json").data["state"] == "running"
    with Screen("attach", shell, "--task", "0", "--detach-keys", "ctrl-a,d") as screen:
        screen.see("ctrl-a,d detaches")
        screen.type("two\r")
        screen.see("heard two")
        screen.type("end\r")
        assert screen.end() == 7
    assert phalanx("wait", shell).code == Exit.JOB_FAILED
    assert "heard one" in phalanx("logs", shell).out


def test_the_window_of_the_task_is_that_of_who_is_attached(shell: str) -> None:
    with Screen("attach", shell, rows=50, columns=132) as screen:
        screen.see("size 132 50")
        screen.resize(30, 100)
        screen.see("size 100 30")


def test_two_see_the_same_and_one_that_is_killed_hurts_neither_the_other_nor_the_task(shell: str) -> None:
    with Screen("attach", shell) as first, Screen("attach", shell) as second:
        first.see("detaches")
        second.see("detaches")
        with Screen("attach", shell) as third:
            third.see("detaches")
            third.type("all\r")
            third.see("heard all")
        first.see("heard all")
        second.see("heard all")
        second.type("still\r")
        first.see("heard still")


def test_what_comes_down_a_pipe_is_typed(
    phalanx: Phalanx, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = tmp_path / "typed"
    typed.write_text("one\nend\n")
    with typed.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        shown = phalanx("attach", shell)
    assert shown.code == 7
    assert "heard one" in shown.out


def test_it_is_audited(phalanx: Phalanx, shell: str) -> None:
    with Screen("attach", shell) as screen:
        screen.see("detaches")
    audit = phalanx("audit", "-o", "json").data
    assert ("attach to job", shell, "task 0") in [(each["verb"], each["target"], each["detail"]) for each in audit]


def test_a_stranger_is_not_let_in(phalanx: Phalanx, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    phalanx("users", "add", "mallory", "--role", "member")
    token = phalanx("tokens", "add", "of-mallory", "--user", "mallory").out.strip()
    with monkeypatch.context() as mallory:
        mallory.setenv("PHALANX_TOKEN", token)
        for verb in ("attach", "exec"):
            shown = phalanx(verb, shell)
            assert (shown.code, shown.out) == (Exit.REFUSED, "")
            assert "belongs to" in shown.err


def test_a_task_without_a_terminal_says_what_to_do_instead(phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch) -> None:
    job = phalanx("submit", "-o", "json", "--", "sleep", "600").data["id"]
    until(lambda: phalanx("job", job, "-o", "json").data["state"] == "running")
    with open(os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        shown = phalanx("attach", job)
        assert shown.code == Exit.ERROR
        assert "task 0 has no terminal" in shown.err
        assert "phalanx exec" in shown.err
        assert "has no task 9" in phalanx("attach", job, "--task", "9").err
        phalanx("cancel", job)
        phalanx("wait", job)
        assert phalanx("attach", job).code == Exit.REFUSED


def test_keys_that_begin_a_detachment_and_do_not_end_it_are_typed() -> None:
    keys = DetachKeys(keys_of("ctrl-p,ctrl-p,ctrl-q"))
    assert keys.passed_on(b"a\x10") == b"a"
    assert keys.passed_on(b"\x10") == b""
    assert keys.passed_on(b"\x10") == b"\x10"
    assert keys.passed_on(b"b") == b"\x10\x10b"
    assert keys.passed_on(b"\x10\x10\x11more") is None


@pytest.mark.parametrize("said", ["", "ctrl-", "ctrl-ü", "f1", "ctrl-1", "a,,b"])
def test_keys_that_there_are_not_are_a_usage_error(phalanx: Phalanx, said: str) -> None:
    shown = phalanx("attach", "1", "--detach-keys", said)
    assert (shown.code, "--detach-keys" in shown.err) == (Exit.USAGE, True)
