"""`phalanx attach`: the terminal of a running task."""

from __future__ import annotations

import click

from phalanx.cli.complete import job_argument
from phalanx.cli.context import current_context
from phalanx.cli.line import attended, is_terminal, open_line, piped, size_asked

DETACH = "ctrl-p,ctrl-q"


@click.command()
@job_argument
@click.option(
    "--task", "--rank", "rank", type=click.IntRange(0), default=0, show_default=True, help="Number of the task."
)
@click.option(
    "--detach-keys",
    default=DETACH,
    show_default=True,
    metavar="KEYS",
    help="Key sequence that detaches: letters, or ctrl- and a letter, separated by commas.",
)
def attach(job: str, rank: int, detach_keys: str) -> int | None:
    """Attach this terminal to a task of the interactive job ID.

    Ctrl-C goes to the task. Detaching leaves the job running. The exit code is that of the task, or 0 after detaching.
    """
    keys = DetachKeys(keys_of(detach_keys))
    at_terminal = is_terminal()
    query = [("rank", str(rank)), *(size_asked() if at_terminal else [])]
    with open_line(current_context(), job, "attach", query) as line:
        if not at_terminal:
            return piped(line)
        click.echo(f"attached to task {rank} of job {job}; {detach_keys} detaches", err=True)
        code = attended(line, keys)
    if code is None:
        click.echo(f"\ndetached; job {job} goes on, `phalanx attach {job}` comes back to it", err=True)
    return code


def keys_of(said: str) -> bytes:
    """The bytes that keys send, as they are said: `ctrl-p,ctrl-q`, or `ctrl-a,d`."""
    return b"".join(_key(word) for word in said.split(","))


def _key(word: str) -> bytes:
    letter = word.removeprefix("ctrl-")
    if len(letter) != 1 or not letter.isascii() or not letter.isprintable():
        raise click.UsageError(f"--detach-keys: '{word}': expected a letter, or one with ctrl, such as ctrl-p")
    if letter == word:
        return letter.encode()
    if letter.lower() not in "abcdefghijklmnopqrstuvwxyz[\\]^_@":
        raise click.UsageError(f"--detach-keys: '{word}': ctrl goes with a letter, as in ctrl-p")
    return bytes([ord(letter.upper()) & 0x1F])


class DetachKeys:
    """Keys on their way to the task. Those that may be the beginning of a detachment wait for the next."""

    def __init__(self, sequence: bytes) -> None:
        self._sequence = sequence
        self._held = b""

    def passed_on(self, typed: bytes) -> bytes | None:
        """What goes to the task; None once all the keys that detach were pressed."""
        passed = b""
        for key in (typed[at : at + 1] for at in range(len(typed))):
            self._held += key
            if self._held == self._sequence:
                return None
            while self._held and not self._sequence.startswith(self._held):
                passed, self._held = passed + self._held[:1], self._held[1:]
        return passed
