"""What the jobs of the conformance suite do. A backend under test says how it runs each; some cannot run some."""

from __future__ import annotations

from enum import StrEnum


class Program(StrEnum):
    """A thing for a task to do."""

    FOREVER = "runs until it is stopped"
    SHORT = "runs for a moment and succeeds"
    SUCCEED = "succeeds at once"
    FAIL = "fails at once with exit code 3"
    FAIL_ONCE = "fails at the first attempt and succeeds at the second"
    CRASH = "dies by a segmentation fault"
    HUNGRY = "takes memory until there is none"
    DEAF = "does not mind notice"
    POLITE = "succeeds when it is given notice"
    FAMILY = "has children that leave its process group"
    CHATTY = "prints 20 MB as fast as it can"
    TICKING = "prints a line every few milliseconds"
    RANK_FAILS = "fails in one task and runs for ever in the others"
    NOT_THERE = "cannot be begun at all"


COMMANDS: dict[Program, tuple[str, ...]] = {
    Program.FOREVER: ("sleep", "3600"),
    Program.SHORT: ("sleep", "0.2"),
    Program.SUCCEED: ("true",),
    Program.FAIL: ("sh", "-c", "exit 3"),
    Program.FAIL_ONCE: ("sh", "-c", "test $PHALANX_ATTEMPT -gt 1"),
    Program.CRASH: ("sh", "-c", "kill -SEGV $$"),
    Program.HUNGRY: ("tail", "/dev/zero"),
    Program.DEAF: ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"),
    Program.POLITE: ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done"),
    Program.FAMILY: ("sh", "-c", "setsid sleep 3600 & (setsid sleep 3600 &); sleep 3600"),
    Program.CHATTY: ("sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x"),
    Program.TICKING: ("sh", "-c", "while :; do echo tick; sleep 0.01; done"),
    Program.RANK_FAILS: ("sh", "-c", "test $PHALANX_RANK != $FAILING || exit 7; sleep 3600"),
    Program.NOT_THERE: ("/no/such/program",),
}
