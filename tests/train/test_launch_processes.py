"""Launchers with real ranks: what is started, what is noticed, what goes on."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from launching import Launch, launching
from processes import free_port


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launching(tmp_path) as launch:
        yield launch


def nodes(most: str, port: int, conf: str = "lease=3,last_call_timeout=1") -> tuple[str, ...]:
    return ("--nnodes", most, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", conf)


def test_a_rank_that_is_killed_is_started_again_with_the_others_and_named(launch: Launch) -> None:
    launched = launch("train()", "--nproc-per-node", "2")
    launch.world(2)
    victim = next(note for note in launch.notes("began") if note["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert launched.wait() == 0
    assert launch.epochs() == {1: [0, 1], 2: [0, 1]}
    assert [note["restarts"] for note in launch.notes("began")] == [0, 0, 1, 1]
    assert "rank 1 on 127.0.0.1: ended by SIGKILL" in launched.errors()


def test_an_error_of_the_program_is_told_with_its_line_and_not_tried_again(launch: Launch) -> None:
    launched = launch("assert rank != 1, 'no such shape'\ntrain()", "--nproc-per-node", "2")
    assert launched.wait() == 1
    assert launch.epochs() == {1: [0, 1]}
    assert "rank 1 on 127.0.0.1: AssertionError: no such shape" in launched.errors()
    assert "assert rank != 1" in launched.errors()
    assert "bootstrap.py" not in launched.errors()


def test_a_program_that_is_not_there_is_told_with_its_folder_and_without_a_traceback(launch: Launch) -> None:
    launched = launch("os.remove(__file__)\nos._exit(9)")
    assert launched.wait() == 1
    assert f"No such file or directory: '{launch.folder}/rank.py'" in launched.errors()
    assert "Traceback" not in launched.errors()


def test_restarts_end_when_no_step_is_done(launch: Launch) -> None:
    launched = launch("beat(1)\nos._exit(9)", "--max-restarts", "50")
    assert launched.wait() == 1
    assert len(launch.epochs()) == 4
    assert "exit code 9; no step was done in 3 cycles, the last is 1" in launched.errors()


def test_a_hang_names_the_rank_that_does_not_wait_for_others(launch: Launch) -> None:
    program = """
beat(1)
if restarts:
    train()
elif rank == 1:
    signal.pause()
else:
    time.sleep(100)  # all_reduce(gradients)
"""
    launched = launch(program, "--nproc-per-node", "2", "--hang-timeout", "1")
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert launched.wait() == 0
    assert "epoch 2: running, rank 1 on 127.0.0.1: no progress: for" in launched.errors()
    assert "in <module>" in launched.errors()


def test_a_rank_that_raised_and_is_long_in_ending_is_named_by_its_error_while_others_wait_for_it(
    launch: Launch,
) -> None:
    program = """
import atexit
beat(1)
if restarts:
    train()
elif rank == 1:
    atexit.register(time.sleep, 10_000)
    raise RuntimeError("bad batch")
else:
    time.sleep(10_000)  # all_reduce(gradients)
"""
    launched = launch(program, "--nproc-per-node", "2", "--hang-timeout", "1")
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert launched.wait() == 0
    assert "epoch 2: running, rank 1 on 127.0.0.1: RuntimeError: bad batch" in launched.errors()


def test_a_rank_that_takes_long_to_end_after_its_program_is_no_hang(launch: Launch) -> None:
    program = """
import atexit
def end():
    while not launcher_looked():
        time.sleep(0.02)
def launcher_looked():
    # Well past the time-out, by the clock that the launcher goes by.
    return time.time() > returned + 3
beat(1)
returned = time.time()
atexit.register(end)
"""
    launched = launch(program, "--hang-timeout", "1")
    assert launched.wait() == 0
    assert launch.epochs() == {1: [0]}


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(launch: Launch) -> None:
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntrain()"
    launched = launch(program, "--shutdown-timeout", "0.5")
    launch.world(1)
    launched.process.terminate()
    assert launched.wait() == 143


def test_ranks_that_wait_for_one_that_failed_do_not_have_the_whole_grace(launch: Launch) -> None:
    program = """
if restarts == 0 and rank == 0:
    while len(open(out).read().splitlines()) < 2:
        time.sleep(0.01)
    os._exit(7)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
train()
"""
    launched = launch(program, "--nproc-per-node", "2", "--max-restarts", "1", "--shutdown-timeout", "1000")
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert launched.wait() == 0


def test_a_rank_that_ended_by_an_error_of_anothers_end_is_not_waited_for(launch: Launch) -> None:
    program = """
import atexit
if restarts:
    train()
    sys.exit()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 0:
    while len(open(out).read().splitlines()) < 2:
        time.sleep(0.01)
    os._exit(7)
# A little less than what ranks have to end after a failure.
atexit.register(lambda: (time.sleep(4), note("ended by itself")))
raise RuntimeError("Connection closed by peer")
"""
    launched = launch(program, "--nproc-per-node", "2", "--shutdown-timeout", "1000")
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert launched.wait() == 0
    assert launch.notes("ended by itself") == []
    assert "epoch 2: running, rank 0 on 127.0.0.1: exit code 7" in launched.errors()


def test_ranks_save_and_leave_when_the_launcher_is_told_to_end(launch: Launch) -> None:
    launched = launch("train()", "--nproc-per-node", "2")
    launch.world(2)
    launched.process.terminate()
    assert launched.wait() == 143
    assert sorted(note["rank"] for note in launch.notes("saved")) == [0, 1]


def test_a_standby_has_imported_what_it_should_before_it_is_a_rank(launch: Launch) -> None:
    program = "note('warm' if 'xml.dom.minidom' in sys.modules else 'cold')\ntrain()"
    launched = launch(program, "--standby", "1", "--preload", "xml.dom.minidom,no.such.module")
    launch.world(1)
    launch.until(lambda: launch.notes("warm") or launch.notes("cold"), "the first rank")
    # By now the launcher has started the standby of the next epoch.
    os.kill(launch.notes("began")[0]["pid"], signal.SIGKILL)
    launch.until(lambda: launch.notes("warm"), "a rank that was a standby")
    launch.let_go()
    assert launched.wait() == 0


def test_an_agent_joins_when_its_standbys_are_warm_and_the_others_go_on_until_then(launch: Launch) -> None:
    port, modules = free_port(), launch.folder / "modules"
    modules.mkdir()
    begun, release = launch.folder / "begun", launch.folder / "release"
    (modules / "heavy.py").write_text(
        "import os, time\n"
        f"open({str(begun)!r}, 'w').close()\n"
        f"while not os.path.exists({str(release)!r}):\n"
        "    time.sleep(0.02)\n"
    )
    launch("train()", *nodes("1:3", port))
    launch.world(1)
    path = os.pathsep.join([str(modules), str(Path(__file__).parents[2] / "src")])
    launch("train()", *nodes("1:3", port), "--standby", "1", "--preload", "heavy", PYTHONPATH=path)
    launch.until(begun.exists, "the standby imports")
    # One that comes later, and is ready, does not wait for it.
    launch("train()", *nodes("1:3", port))
    launch.world(2, epochs_before=1)
    release.touch()
    launch.world(3, epochs_before=2)
    launch.let_go()


def test_agents_come_and_go_by_plan_and_the_loss_of_the_leader_stops_nothing(launch: Launch) -> None:
    port = free_port()
    first = launch("train()", *nodes("1:3", port))
    launch.world(1)
    second, third = (launch("train()", *nodes("1:3", port)) for _ in range(2))
    launch.world(3)
    assert len(launch.notes("saved")) == len(launch.notes("began")) - 3
    epoch = max(launch.epochs())
    first.process.kill()
    launch.world(2, epochs_before=epoch)
    epoch = max(launch.epochs())
    third.process.terminate()
    assert third.wait() == 0
    launch.world(1, epochs_before=epoch)
    launch.let_go()
    assert second.wait() == 0
    # One epoch at a time: no epoch has a rank twice.
    assert all(len(set(ranks)) == len(ranks) for ranks in launch.epochs().values())


def test_an_agent_that_was_paused_for_longer_than_its_lease_comes_back_as_another(launch: Launch) -> None:
    port = free_port()
    agents = [launch("train()", *nodes("2:3", port, "lease=1,last_call_timeout=1")) for _ in range(3)]
    launch.world(3)
    epoch = max(launch.epochs())
    paused = agents[2].process
    paused.send_signal(signal.SIGSTOP)
    launch.world(2, epochs_before=epoch)
    epoch = max(launch.epochs())
    paused.send_signal(signal.SIGCONT)
    launch.world(3, epochs_before=epoch)
    launch.let_go()
    assert [agent.wait() for agent in agents] == [0, 0, 0]
    assert "went on without this agent" in agents[2].errors()
    assert all(ranks == list(range(len(ranks))) for ranks in launch.epochs().values())


def test_a_world_that_never_has_enough_agents_is_told(launch: Launch) -> None:
    launched = launch("train()", *nodes("2:3", free_port(), "join_timeout=1"))
    assert launched.wait() == 1
    assert "at least 2 agents are needed (--nnodes), 1 came in 1 s: 127.0.0.1" in launched.errors()


def test_a_port_that_another_program_has_is_told(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        launched = launch("train()", *nodes("2", other.getsockname()[1], "join_timeout=1"))
        assert launched.wait() == 1
    assert "is the port taken by another program?" in launched.errors()


def test_two_runs_at_one_endpoint_are_told_apart(launch: Launch) -> None:
    port = free_port()
    launch("train()", *nodes("2", port), "--rdzv-id", "one")
    launch.until(lambda: "waits for others" in "".join(each.errors() for each in launch._all), "the first agent")
    other = launch("train()", *nodes("2", port), "--rdzv-id", "two")
    assert other.wait() == 1
    assert "the agents there run 'one', and this is 'two' (--rdzv-id)" in other.errors()


def test_a_launcher_too_many_says_that_it_waits_and_ends_with_the_run(launch: Launch) -> None:
    port = free_port()
    agents = [launch("train()", *nodes("2", port)) for _ in range(3)]
    launch.world(2)
    launch.until(lambda: any("has its 2 agents already" in agent.errors() for agent in agents), "a spare")
    launch.let_go()
    assert [agent.wait() for agent in agents] == [0, 0, 0]
    assert sum("this agent was not needed: all ranks ended with 0" in agent.errors() for agent in agents) == 1
    assert launch.epochs() == {1: [0, 1]}


def test_a_rank_that_floods_its_log_and_raises_all_of_it_is_named_and_its_agent_is_not_lost(launch: Launch) -> None:
    # What is tested is the connection, which such a report broke; not how long an agent may be silent.
    patient, port = "lease=60,last_call_timeout=1", free_port()
    launch("train()", *nodes("2", port, patient))
    launch.until(lambda: "waits for others" in launch._all[0].errors(), "the first agent")
    program = """
if restarts == 0:
    flood = "x" * 100_000
    for _ in range(20):
        print(flood, file=sys.stderr)
    raise RuntimeError(flood * 20)
train()
"""
    launch(program, *nodes("2", port, patient))
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert ": RuntimeError: xxx" in launch._all[0].errors()
    assert "was lost" not in launch._all[0].errors()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a disk")
def test_on_a_full_disk_ranks_run_and_are_started_again(launch: Launch, small_disk: Path) -> None:
    with suppress(OSError), (small_disk / "filling").open("wb", buffering=0) as filling:
        while filling.write(bytes(4096)):
            pass
    program = "if restarts == 0 and rank == 1: os._exit(9)\ntrain()"
    launched = launch(program, "--nproc-per-node", "2", TMPDIR=str(small_disk))
    launch.world(2, epochs_before=1)
    launch.let_go()
    assert launched.wait() == 0
    assert "rank 1 on 127.0.0.1: exit code 9" in launched.errors()
