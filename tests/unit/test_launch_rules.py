"""The launcher's rules: causes, restarts, which epoch comes next, and options."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from click.testing import CliRunner

from phalanx.cli.exit import Exit
from phalanx.cli.launch import launch
from phalanx.errors import PhalanxError
from phalanx.train.launch import environment, stacks
from phalanx.train.launch.budget import Budget
from phalanx.train.launch.budget import Rules as Restarts
from phalanx.train.launch.cause import Cause, Ending, cause_of, first_of
from phalanx.train.launch.coordinator import Condition, Coordinator, Report, Rules
from phalanx.train.launch.epoch import Agent, Epoch
from phalanx.train.launch.options import Options, endpoint_of, nodes_of, settings_of

CLOSED = "[..gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:1"


@pytest.mark.parametrize(
    ("ending", "kind", "is_program", "is_cascade"),
    [
        (Ending(0, "h", 1.0, 1, error="ModuleNotFoundError", message="No module named 'x'"), "import", True, False),
        (Ending(0, "h", 1.0, 1, error="SyntaxError", message="invalid syntax"), "syntax", True, False),
        (Ending(0, "h", 1.0, 1, error="FileNotFoundError", message="data.bin"), "missing file", True, False),
        (Ending(0, "h", 1.0, 1, error="AssertionError"), "assertion", True, False),
        (Ending(0, "h", 1.0, 1, error="KeyError", message="'x'"), "program", True, False),
        (Ending(0, "h", 1.0, 2), "argument", True, False),
        (Ending(0, "h", 1.0, 127), "missing file", True, False),
        (Ending(0, "h", 1.0, 7), "exit", False, False),
        (Ending(0, "h", 1.0, signal=signal.SIGKILL), "signal", False, False),
        (Ending(0, "h", 1.0, signal=signal.SIGSEGV), "signal", False, False),
        (Ending(0, "h", 1.0, signal=signal.SIGKILL, oom=True), "out of memory", False, False),
        (Ending(0, "h", 1.0, signal=signal.SIGABRT), "signal", False, True),
        (
            Ending(0, "h", 1.0, 1, error="OutOfMemoryError", message="CUDA out of memory."),
            "out of memory",
            False,
            False,
        ),
        (Ending(0, "h", 1.0, 1, error="RuntimeError", message="CUDA error: device-side assert"), "cuda", False, False),
        (Ending(0, "h", 1.0, 1, error="RuntimeError", message=CLOSED), "collective", False, True),
        (Ending(0, "h", 1.0, 1, error="DistBackendError", message="NCCL watchdog"), "collective", False, True),
        (Ending(0, "h", 1.0, 1, error="RuntimeError", message="odd"), "exception", False, False),
        (Ending(0, "h", 1.0, 1, error="OSError", message="No space left on device"), "exception", False, False),
        (Ending(0, "h", 1.0, hung="it stands at a.py:3 in f"), "hang", False, False),
    ],
)
def test_an_ending_is_told_by_its_kind(ending: Ending, kind: str, is_program: bool, is_cascade: bool) -> None:
    cause = cause_of(ending)
    assert (cause.kind, cause.is_program, cause.is_cascade) == (kind, is_program, is_cascade)


def test_what_is_told_of_an_error_has_a_limit() -> None:
    cause = cause_of(Ending(0, "h", 1.0, 1, error="RuntimeError", message="x" * 10**6, trace="y" * 10**6 + "end"))
    assert len(cause.text) < 2000
    assert len(cause.trace) < 10**5
    assert cause.trace.endswith("end")


def test_the_first_cause_is_not_that_of_a_rank_that_ended_because_of_it() -> None:
    closed = cause_of(Ending(0, "h", 1.0, 1, error="RuntimeError", message=CLOSED))
    killed = cause_of(Ending(3, "h", 1.2, signal=signal.SIGKILL))
    wrong = cause_of(Ending(1, "h", 1.4, 1, error="ValueError", message="shape"))
    assert first_of([closed, wrong, killed]) is killed
    assert str(killed) == "rank 3 on h: ended by SIGKILL"
    assert first_of([closed]) is closed


def test_a_hang_comes_before_what_timed_out_because_of_it() -> None:
    hang = cause_of(Ending(2, "h", 9.0, hung="it stands at a.py:3 in f"))
    late = cause_of(Ending(1, "h", 8.0, 7))
    assert first_of([late, hang]) is hang


def test_restarts_end_when_they_are_used() -> None:
    rules, budget = Restarts(max_restarts=2), Budget()
    refusals = []
    for _ in range(3):
        budget = budget.failed(None)
        refusals.append(budget.refusal(rules))
    assert refusals == [None, None, "all 2 restarts are used (--max-restarts)"]


def test_three_cycles_without_a_step_are_enough() -> None:
    rules, budget = Restarts(max_restarts=100), Budget()
    for step in (5, 9, 9, 9):
        budget = budget.failed(step)
        assert budget.refusal(rules) is None
    assert budget.failed(9).refusal(rules) == "no step was done in 3 cycles, the last is 9"
    assert budget.failed(10).refusal(rules) is None


def test_the_wait_before_a_restart_doubles_until_there_is_progress() -> None:
    budget, waits = Budget(), []
    for step in (3, 3, 3, 3, 3, 4):
        budget = budget.failed(step)
        waits.append(budget.backoff_s)
    assert waits == [0.0, 0.0, 1.0, 2.0, 4.0, 0.0]


def agent(number: int) -> Agent:
    return Agent(f"a{number}", f"h{number}", 1000 + number, slots=2, master_port=5000 + number)


KILLED = Cause("signal", 1, "h0", 1.0, "ended by SIGKILL")


class World:
    """A coordinator and the agents that report to it."""

    def __init__(self, least: int, most: int, **rules: object) -> None:
        self.coordinator = Coordinator(Rules(least, most, settle_s=0.5, **rules), 0.0)  # type: ignore[arg-type]
        self.epoch = Epoch(0, (agent(0),))

    def report(
        self, number: int, now: float, condition: Condition = "running", *causes: Cause, **facts: object
    ) -> None:
        told = Report(agent(number), self.epoch.number, condition, causes, **facts)  # type: ignore[arg-type]
        self.coordinator.heard(told, now)

    def next(self, now: float) -> Epoch | None:
        found = self.coordinator.next(self.epoch, now)
        self.epoch = found or self.epoch
        return found

    def running(self, count: int) -> Epoch:
        for number in range(count):
            self.report(number, 0.0, "idle")
        epoch = self.next(2.0)
        assert epoch is not None
        for number in range(count):
            self.report(number, 2.0)
        return epoch


def test_a_world_that_is_full_begins_at_once_and_one_that_is_not_after_the_last_call() -> None:
    full, enough = World(2, 3), World(2, 3)
    for number in range(3):
        full.report(number, 1.0, "idle")
    assert (full.next(1.0) or full.epoch).state == "running"
    for number in range(2):
        enough.report(number, 1.0, "idle")
    assert enough.next(2.9) is None
    assert (enough.next(3.0) or enough.epoch).names == ("a0", "a1")


def test_a_world_that_never_has_enough_is_told_with_those_that_came() -> None:
    world = World(3, 4, join_timeout_s=60.0)
    for number in range(2):
        world.report(number, 1.0, "idle")
    assert world.next(59.0) is None
    epoch = world.next(60.0)
    assert epoch is not None
    assert epoch.state == "failed"
    assert epoch.why == "at least 3 agents are needed (--nnodes), 2 came in 60 s: h0, h1"


def test_a_rank_that_fails_makes_another_epoch_of_the_same_agents() -> None:
    world = World(2, 2)
    first = world.running(2)
    world.report(0, 3.0, "failed", KILLED)
    assert world.next(3.0) is None
    epoch = world.next(3.5)
    assert epoch is not None
    assert (epoch.number, epoch.state, epoch.restarts, epoch.members) == (2, "running", 1, first.members)
    assert epoch.why == "rank 1 on h0: ended by SIGKILL"


def test_what_an_old_epoch_reports_is_nothing_to_the_new_one() -> None:
    world = World(2, 2)
    old = world.running(2)
    world.report(0, 3.0, "failed", KILLED)
    world.next(3.0)
    world.next(3.5)
    world.coordinator.heard(Report(agent(0), old.number, "failed", (KILLED,)), 4.0)
    assert world.next(5.0) is None


def test_an_error_of_the_program_ends_the_job_unless_it_may_be_tried_again() -> None:
    wrong = Cause("assertion", 0, "h0", 1.0, "AssertionError: no", is_program=True)
    for retries, state in ((False, "failed"), (True, "running")):
        world = World(1, 1, retry_program_errors=retries)
        world.running(1)
        world.report(0, 3.0, "failed", wrong)
        world.next(3.0)
        epoch = world.next(3.5)
        assert epoch is not None
        assert epoch.state == state


def test_a_lost_agent_is_replaced_by_a_spare_in_its_place() -> None:
    world = World(2, 2)
    world.report(0, 0.0, "idle")
    world.report(1, 0.0, "idle")
    world.next(0.0)
    for number in range(3):
        world.report(number, 1.0, "running" if number < 2 else "idle")
    assert world.next(1.0) is None
    world.coordinator.lost("a0", 2.0)
    world.next(2.0)
    epoch = world.next(2.5)
    assert epoch is not None
    assert (epoch.names, epoch.state) == (("a2", "a1"), "running")
    assert "the agent a0 was lost" in epoch.why


def test_with_too_few_left_agents_gather_again() -> None:
    world = World(2, 2)
    world.running(2)
    world.coordinator.lost("a1", 3.0)
    world.next(3.0)
    epoch = world.next(3.5)
    assert epoch is not None
    assert (epoch.state, epoch.names) == ("gathering", ("a0",))
    world.report(0, 4.0, "idle")
    world.report(5, 4.0, "idle")
    epoch = world.next(4.0)
    assert epoch is not None
    assert (epoch.state, epoch.names, epoch.restarts) == ("running", ("a0", "a5"), 1)


def test_agents_that_come_together_make_one_epoch_and_cost_no_restart() -> None:
    world = World(1, 4)
    world.running(2)
    world.report(2, 10.0, "idle")
    assert world.next(10.0) is None
    world.report(3, 10.4, "idle")
    epoch = world.next(10.5)
    assert epoch is not None
    assert (epoch.names, epoch.restarts, epoch.why) == (("a0", "a1", "a2", "a3"), 0, "a2 joins; a3 joins")


def test_an_agent_that_leaves_is_let_go_and_the_others_go_on() -> None:
    world = World(1, 3)
    world.running(3)
    world.report(1, 5.0, "running", leaving=True)
    world.next(5.0)
    epoch = world.next(5.5)
    assert epoch is not None
    assert (epoch.names, epoch.state, epoch.why) == (("a0", "a2"), "running", "a1 leaves")


def test_when_all_leave_it_is_over() -> None:
    world = World(1, 2)
    world.running(2)
    for number in range(2):
        world.report(number, 5.0, "running", leaving=True)
    world.next(5.0)
    assert (world.next(5.5) or world.epoch).state == "left"


def test_a_job_has_succeeded_when_all_ranks_have_and_no_agent_joins_meanwhile() -> None:
    world = World(1, 3)
    world.running(2)
    world.report(0, 3.0, "succeeded")
    world.report(2, 3.0, "idle")
    assert world.next(9.0) is None
    world.report(1, 9.0, "succeeded")
    assert (world.next(9.0) or world.epoch).state == "succeeded"
    assert world.next(10.0) is None


def test_a_new_leader_waits_for_the_reports_of_all_before_it_changes_anything() -> None:
    epoch = Epoch(4, (agent(0), agent(1)), "running")
    coordinator = Coordinator(Rules(1, 2, settle_s=0.5), 0.0)
    coordinator.heard(Report(agent(1), 4, "failed", (KILLED,)), 0.0)
    assert coordinator.next(epoch, 1.0) is None
    coordinator.lost("a0", 5.0)
    assert coordinator.next(epoch, 5.0) is None
    following = coordinator.next(epoch, 5.5)
    assert following is not None
    assert following.names == ("a1",)


def test_a_rank_finds_torchruns_variables() -> None:
    epoch = Epoch(3, (agent(0), replace(agent(1), slots=4)), "running", restarts=2)
    values = environment.of_rank(epoch, "a1", 1, "run", 5)
    expected = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
    assert expected.items() <= values.items()
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == ("h0", "5000")
    assert (values["TORCHELASTIC_RESTART_COUNT"], values["PHALANX_EPOCH"]) == ("2", "3")


def test_a_rank_in_a_collective_waits_and_one_that_sleeps_does_not() -> None:
    frame = (
        '  File "/x/torch/distributed/distributed_c10d.py", line 3 in all_reduce\n  File "/t.py", line 9 in <module>'
    )
    waits = f"Thread 0x1 (most recent call first):\n{frame}"
    sleeps = 'Current thread 0x1 (most recent call first):\n  File "/t.py", line 9 in load'
    assert stacks.is_waiting(waits)
    assert not stacks.is_waiting(sleeps)
    assert stacks.innermost(stacks.newest(f"{waits}\n\n{sleeps}\n")) == "/t.py:9 in load"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Options(()), "no command"),
        (lambda: Options(("x",), 3, 2), "--nnodes 3:2: expected MIN:MAX"),
        (lambda: Options(("x",), slots=0), "--nproc-per-node 0"),
        (lambda: Options(("x",), 1, 2), "--rdzv-endpoint"),
        (lambda: Options(("x",), max_restarts=-1), "--max-restarts -1"),
        (lambda: nodes_of("many"), "--nnodes many"),
        (lambda: endpoint_of("a:b"), "--rdzv-endpoint a:b"),
        (lambda: endpoint_of("a:0"), "--rdzv-endpoint a:0: expected HOST:PORT, with a port from 1 to 65535"),
        (lambda: endpoint_of("a:65536"), "--rdzv-endpoint a:65536"),
        (lambda: settings_of("read_timeout=3"), "--rdzv-conf read_timeout=3: expected one of"),
        (lambda: settings_of("lease=x"), "expected a number of seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: object, said: str) -> None:
    with pytest.raises(PhalanxError, match=said):
        wrong()  # type: ignore[operator]


def test_options_are_read_as_torchrun_reads_them() -> None:
    assert (nodes_of("4"), nodes_of("2:6")) == ((4, 4), (2, 6))
    assert (endpoint_of("host"), endpoint_of("host:1")) == (("host", 29400), ("host", 1))
    assert settings_of("last_call_timeout=5,join_timeout=60") == {"last_call_s": 5.0, "join_timeout_s": 60.0}


def test_options_that_make_no_sense_end_as_wrong_usage_and_not_as_a_failed_job() -> None:
    result = CliRunner().invoke(launch, ["--nnodes", "3:2", "--rdzv-endpoint", "a:1", "--", "python", "train.py"])
    assert (result.exit_code, "--nnodes 3:2: expected MIN:MAX" in result.output) == (Exit.USAGE, True)


def test_agents_that_share_a_host_are_found_but_on_one_that_no_other_host_reaches() -> None:
    agents = [Agent(f"a{number}", host, 1, 1) for number, host in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.1"])]
    assert Epoch(1, tuple(agents)).shared_hosts() == {"10.0.0.1": 2}
    assert Epoch(1, tuple(replace(each, host="127.0.0.1") for each in agents)).shared_hosts() == {}


def test_an_option_that_there_is_not_is_not_taken_for_the_command() -> None:
    result = CliRunner().invoke(launch, ["--nproc-per-nod", "8", "--", "python", "train.py"])
    assert (result.exit_code, "No such option '--nproc-per-nod'" in result.output) == (Exit.USAGE, True)
