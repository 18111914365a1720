"""What the local backend does beyond what every backend must: real processes, real limits, real containers."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_job
from images import engine_settings, image_of_this_machine
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.cgroup import find_grounds
from phalanx.backends.local.host.processes import process
from phalanx.backends.local.host.unix_user import identity_named
from phalanx.backends.local.logs.files import log_files
from phalanx.backends.local.orders import Yard
from phalanx.backends.local.session import NoSession, open_session
from phalanx.backends.local.wire import connect_to
from phalanx.errors import PhalanxError
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Resize, Start, Stop
from phalanx.protocol.event import AttemptEnded, Done, Event, Failed, Outcome
from phalanx.workload.job import Execution, Job, Kind, Probe, ProbeKind

PATIENCE_S = 240.0
START = ActionId(1, "7", 1, 0)
STOP = ActionId(1, "7", 1, 1)


class Bench:
    """One job on a local backend, without an engine."""

    def __init__(self, data: Path, **yard: object) -> None:
        self.data = data
        self.job: Job = a_job("7")
        self.woken = threading.Event()
        self.backend = LocalBackend(Yard(data, pens=find_grounds(), **yard), lambda _: self.job)  # type: ignore[arg-type]
        self.backend.wake = self.woken.set
        self.seen: list[Event] = []

    def start(self, *command: str, tasks: int = 1, execution: Execution | None = None, **job: object) -> Event:
        """Starts the job and waits for the answer."""
        execution = replace(execution or Execution(), command=command)
        self.job = replace(a_job("7", 1, (1, 8), grace_ms=500), execution=execution, **job)  # type: ignore[arg-type]
        self.backend.carry_out(Start(START, Placement(slots(tasks))), 1_000_000)
        return self.wait(lambda event: isinstance(event, Done | Failed) and event.action == START)

    def wait(self, match: Callable[[Event], bool]) -> Event:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            self.seen += self.backend.events(0)
            for event in self.seen:
                if match(event):
                    return event
            self.woken.wait(1)
            self.woken.clear()
        raise AssertionError(f"it never came; there were {self.seen}")

    def end(self) -> AttemptEnded:
        event = self.wait(lambda event: isinstance(event, AttemptEnded))
        assert isinstance(event, AttemptEnded)
        return event

    def stop(self, grace_ms: int = 500) -> None:
        self.backend.carry_out(Stop(STOP, grace_ms, "cancelled"), 0)
        self.wait(lambda event: event == Done(STOP))

    def printed(self, rank: int = 0, stream: str = "out") -> str:
        logs = {(log.rank, log.stream): log.path for log in log_files(self.data, "7", 1)}
        return logs[rank, stream].read_text()


def slots(count: int) -> tuple[Slot, ...]:
    return tuple(Slot(rank, "worker", "n0", (rank,)) for rank in range(count))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(**yard: object) -> Bench:
        benches.append(Bench(tmp_path, **yard))
        return benches[-1]

    yield make
    for bench in benches:
        bench.backend.adopt((), 0)
        deadline_s = time.monotonic() + PATIENCE_S
        while any((tmp_path / "backend" / "live").iterdir()) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        bench.backend.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


def until(what: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline_s, "it never came to be"
        time.sleep(0.02)


def test_a_task_finds_its_rank_its_devices_and_its_rendezvous_in_its_environment(make: Callable[..., Bench]) -> None:
    bench = make(environment=lambda job, attempt: {"PHALANX_PROGRESS_URL": f"http://here/{job}/{attempt}"})
    bench.start("env", tasks=2, execution=Execution(env=(("COLOUR", "green"),)), max_run_ms=60_000)
    bench.end()
    env = dict(line.split("=", 1) for line in bench.printed(1).splitlines())
    expected = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "CUDA_VISIBLE_DEVICES": "1",
        "PHALANX_JOB_ID": "7",
        "PHALANX_ATTEMPT": "1",
        "PHALANX_RANK": "1",
        "PHALANX_WORLD_SIZE": "2",
        "PHALANX_RESTART_COUNT": "0",
        "PHALANX_DEADLINE": "1060",
        "PHALANX_PROGRESS_URL": "http://here/7/1",
        "COLOUR": "green",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert env["MASTER_PORT"].isdigit()
    assert Path(env["PHALANX_CHECKPOINT_DIR"]).is_dir()


@pytest.mark.parametrize(("own", "seconds"), [((), "91"), ((("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"),), "5")])
def test_a_launcher_leaves_its_workers_the_grace_of_the_job_unless_that_says_otherwise(
    bench: Bench, own: tuple[tuple[str, str], ...], seconds: str
) -> None:
    bench.start("sh", "-c", "echo $TORCH_ELASTIC_SHUTDOWN_TIMEOUT", execution=Execution(env=own), grace_ms=90_001)
    bench.end()
    assert bench.printed().strip() == seconds


def test_a_task_gets_nothing_of_the_servers_environment_but_what_every_program_needs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    bench.start("env")
    bench.end()
    assert "DATABASE_PASSWORD" not in bench.printed()


def test_a_secret_is_a_variable_and_one_that_may_not_be_used_fails_the_start(make: Callable[..., Bench]) -> None:
    def secrets(job: Job) -> dict[str, str]:
        if "NONE" in job.execution.secrets:
            raise PhalanxError("secret 'NONE': there is no grant")
        return {"KEY": "abc"}

    bench = make(secrets=secrets)
    bench.start("sh", "-c", "echo $KEY", execution=Execution(secrets=("KEY",)))
    bench.end()
    assert bench.printed() == "abc\n"
    holders = [path for path in bench.data.rglob("*") if path.is_file() and "abc" in path.read_text(errors="replace")]
    logs = [path for path in holders if path.suffix == ".out"]
    assert all(path.stat().st_mode & 0o007 == 0 for path in logs)
    assert all(path.stat().st_mode & 0o077 == 0 for path in holders if path not in logs)
    bench.job = replace(bench.job, execution=Execution(("true",), secrets=("NONE",)))
    bench.backend.carry_out(Start(ActionId(1, "7", 2, 0), Placement(slots(1))), 0)
    refused = bench.wait(lambda event: isinstance(event, Failed | Done) and event.action.attempt == 2)
    assert isinstance(refused, Failed)
    assert "secret 'NONE'" in refused.reason


def test_notice_comes_as_a_file_and_a_signal_with_the_time_that_is_left(bench: Bench) -> None:
    bench.start("sh", "-c", "trap 'cat $PHALANX_NOTICE_FILE; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    until(lambda: bench.printed() == "ready\n")
    before_ms = time.time() * 1000
    bench.stop(grace_ms=20_000)
    notice = json.loads(bench.printed().splitlines()[1])
    assert notice["reason"] == "cancelled"
    assert 0 < notice["until_ms"] - before_ms <= 25_000


def test_tasks_are_told_which_gang_comes_before_any_of_them_leaves(bench: Bench) -> None:
    script = "trap 'cat $PHALANX_GANG_FILE; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    bench.start("sh", "-c", script, tasks=2)
    until(lambda: all(bench.printed(rank) == "ready\n" for rank in (0, 1)))
    resized = ActionId(1, "7", 1, 1)
    kept, _ = slots(2)
    bench.backend.carry_out(Resize(resized, Placement((kept, Slot(2, "worker", "n0", (2,))))), 0)
    bench.wait(lambda event: event == Done(resized))
    during = json.loads(bench.printed(1).splitlines()[1])
    after = json.loads((bench.data / "jobs" / "7" / "1" / "shared" / "gang.json").read_text())
    assert [(task["rank"], task["since"]) for task in during["tasks"]] == [(0, 1), (1, 1)]
    assert [(task["rank"], task["since"]) for task in during["next"]["tasks"]] == [(0, 1), (2, 2)]
    assert during["next"]["tasks"] == after["tasks"]
    assert "next" not in after


def test_a_task_runs_in_a_folder_of_its_job_unless_it_names_one(bench: Bench) -> None:
    bench.start("pwd")
    bench.end()
    assert bench.printed().strip() == str(bench.data / "jobs" / "7" / "work")


def test_a_folder_that_is_not_there_is_named(bench: Bench) -> None:
    refused = bench.start("pwd", execution=Execution(workdir="/no/such/folder"))
    assert isinstance(refused, Failed)
    assert not refused.retryable
    assert "workdir '/no/such/folder'" in refused.reason


def test_a_job_with_nothing_to_run_is_refused(bench: Bench) -> None:
    refused = bench.start()
    assert isinstance(refused, Failed)
    assert "`command`" in refused.reason


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run tasks as somebody else")
def test_a_task_runs_as_the_user_it_is_given(make: Callable[..., Bench], tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o755)
    bench = make(identity=lambda job: identity_named("nobody"))
    bench.start("sh", "-c", "id -u; echo $HOME; touch mine")
    assert bench.end().exit_code == 0, bench.printed(stream="err")
    assert bench.printed().splitlines() == [str(pwd.getpwnam("nobody").pw_uid), pwd.getpwnam("nobody").pw_dir]


def test_what_runs_is_ended_with_all_it_brought_forth_once_its_folder_is_deleted(bench: Bench) -> None:
    bench.start("sh", "-c", "echo $$; setsid sleep 600 & echo $!; wait")
    until(lambda: len(bench.printed().split()) == 2)
    pids = [int(pid) for pid in bench.printed().split()]
    shepherd = json.loads((bench.data / "jobs" / "7" / "1" / "state.json").read_text())["pid"]
    shutil.rmtree(bench.data / "jobs" / "7")
    ended = bench.end()
    assert (ended.outcome, ended.reason) == (Outcome.LOST, "lost: the folder of the attempt was deleted")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*pids, shepherd)))
    assert not (bench.data / "jobs" / "7").exists()


def test_an_unknown_user_is_refused(make: Callable[..., Bench]) -> None:
    refused = make(identity=lambda job: identity_named("nosuchuser")).start("true")
    assert isinstance(refused, Failed)
    assert "no such user" in refused.reason


def test_a_command_can_be_run_beside_a_task_in_its_surroundings(bench: Bench) -> None:
    bench.start("sleep", "600")
    script = "echo rank $PHALANX_RANK; read word; echo got $word; exit 5"
    session = open_session(bench.data, "7", 1, 0, ("sh", "-c", script))
    session.write(b"hello\n")
    printed = b""
    while chunk := session.read():
        printed += chunk
    assert printed == b"rank 0\ngot hello\n"
    assert session.wait(PATIENCE_S) == 5
    session.close()


def test_a_command_beside_a_task_can_have_a_terminal(bench: Bench) -> None:
    bench.start("sleep", "600")
    session = open_session(bench.data, "7", 1, 0, ("sh", "-c", "tty >/dev/null && stty size"), terminal=(40, 132))
    assert session.read().strip() == b"40 132"
    assert session.wait(PATIENCE_S) == 0
    session.close()


def test_hanging_up_ends_the_command_beside_a_task(bench: Bench) -> None:
    bench.start("sleep", "600")
    session = open_session(bench.data, "7", 1, 0, ("sh", "-c", "echo $$; sleep 600"))
    pid = int(session.read())
    session.close()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_no_command_can_be_run_beside_what_does_not_run(bench: Bench) -> None:
    with pytest.raises(NoSession, match="does not run"):
        open_session(bench.data, "7", 1, 0, ("true",))
    bench.start("sleep", "600")
    session = open_session(bench.data, "7", 1, 3, ("true",))
    with pytest.raises(NoSession, match="task 3"):
        session.wait(PATIENCE_S)
    session.close()


def test_a_task_of_a_service_is_restarted_when_it_ends(bench: Bench) -> None:
    bench.start(
        "sh",
        "-c",
        "echo $PHALANX_TASK_RESTART_COUNT; test $PHALANX_TASK_RESTART_COUNT = 2 && sleep 600",
        kind=Kind.SERVICE,
    )
    until(lambda: bench.printed() == "0\n1\n2\n")
    told = [line for line in bench.printed(stream="err").splitlines() if line.startswith("phalanx: exit 1: task 0")]
    assert [line.rpartition("; ")[2] for line in told] == [
        "it is started again in 0.1 s",
        "it is started again in 0.2 s",
    ]
    assert not any(isinstance(event, AttemptEnded) for event in bench.backend.events(0))
    bench.stop()


def test_a_service_goes_on_even_if_its_tasks_exit_with_0(bench: Bench) -> None:
    bench.start("sh", "-c", "echo again; exit 0", tasks=2, kind=Kind.SERVICE)
    until(lambda: bench.printed().count("again") >= 2)
    bench.stop()


def test_a_task_of_a_service_that_gives_up_again_and_again_ends_the_attempt(bench: Bench) -> None:
    bench.start("sh", "-c", "exit 9", kind=Kind.SERVICE)
    ended = bench.end()
    assert ended.exit_code == 9
    assert ended.cause == "exit"


@pytest.mark.parametrize("kind", ["command", "tcp", "http"])
def test_a_task_of_a_service_that_is_not_well_is_restarted(bench: Bench, kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    probe = Probe(
        ProbeKind(kind), port, command=("test", "-e", "well"), interval_ms=50, timeout_ms=2_000, failures_max=2
    )
    execution = Execution(probe=probe)
    bench.start("sh", "-c", "echo $PHALANX_TASK_RESTART_COUNT; sleep 600", kind=Kind.SERVICE, execution=execution)
    until(lambda: bench.printed().startswith("0\n1\n"))


def test_a_task_of_a_service_that_answers_its_probe_is_left_alone(bench: Bench) -> None:
    probe = Probe(ProbeKind.COMMAND, command=("sh", "-c", "echo asked >> asked"), interval_ms=20, failures_max=1)
    bench.start("sh", "-c", "echo began; sleep 600", kind=Kind.SERVICE, execution=Execution(probe=probe))
    asked = bench.data / "jobs" / "7" / "work" / "asked"
    until(lambda: asked.exists() and asked.read_text().count("asked") >= 3)
    assert bench.printed() == "began\n"
    bench.stop()


def rest(bench: Bench, for_ms: int) -> None:
    """Has the shepherd of the job rest, as whoever keeps the turns does."""
    wire = connect_to(str(bench.data / "jobs" / "7" / "1"))
    assert wire is not None
    wire.send({"do": "rest", "for_ms": for_ms})
    wire.close()


def is_frozen(bench: Bench) -> bool:
    state = json.loads((bench.data / "jobs" / "7" / "1" / "state.json").read_text())
    found = process(state["tasks"][0]["pid"])
    return found is not None and found.state == "T"


def test_a_rest_ends_by_itself_when_nobody_is_there_to_end_it(bench: Bench) -> None:
    # Not a shell: one that is stopped inside `vfork` waits for its child, and shows as waiting.
    ticks = "import time\nwhile True:\n    print('tick', flush=True)\n    time.sleep(0.01)"
    bench.start(sys.executable, "-c", ticks)
    until(lambda: rest(bench, 300) or is_frozen(bench))  # type: ignore[func-returns-value]
    printed = bench.printed()
    until(lambda: bench.printed() > printed)
    bench.stop()


def test_a_command_runs_beside_a_task_that_rests(bench: Bench) -> None:
    bench.start("sleep", "600")
    session = open_session(bench.data, "7", 1, 0, ("sh", "-c", "read line; echo $line"))
    rest(bench, 3_600_000)
    until(lambda: is_frozen(bench))
    session.write(b"here\n")
    assert session.read() == b"here\n"
    assert session.wait(PATIENCE_S) == 0
    session.close()
    session = open_session(bench.data, "7", 1, 0, ("echo", "later"))
    assert session.read() == b"later\n"
    session.close()
    assert is_frozen(bench)
    bench.stop()


def test_a_service_is_not_probed_while_it_rests(bench: Bench) -> None:
    probe = Probe(ProbeKind.COMMAND, command=("sh", "-c", "echo asked >> asked"), interval_ms=20, failures_max=1)
    bench.start("sleep", "600", kind=Kind.SERVICE, execution=Execution(probe=probe))
    asked = bench.data / "jobs" / "7" / "work" / "asked"
    until(lambda: asked.exists())
    rest(bench, 3_600_000)
    until(lambda: is_frozen(bench))
    before = asked.read_text()
    rest(bench, 500)
    until(lambda: not is_frozen(bench))
    assert len(asked.read_text()) - len(before) < 5 * len("asked\n"), "twenty-five looks would have been due"
    until(lambda: len(asked.read_text()) > len(before) + 20)
    bench.stop()


def test_an_interactive_job_on_which_nothing_happens_is_ended(bench: Bench) -> None:
    execution = Execution(idle_timeout_ms=400)
    bench.start("sleep", "600", kind=Kind.INTERACTIVE, execution=execution)
    ended = bench.end()
    assert ended.outcome is Outcome.SUCCEEDED
    assert ended.cause == "idle"


def test_an_interactive_job_on_which_something_happens_is_not_ended(bench: Bench) -> None:
    execution = Execution(idle_timeout_ms=2_000)
    script = "for i in $(seq 60); do echo $i; sleep 0.05; done"
    bench.start("sh", "-c", script, kind=Kind.INTERACTIVE, execution=execution)
    assert bench.end().cause == "exit"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a disk")
def test_on_a_full_disk_new_work_is_refused_and_the_old_goes_on_and_its_end_is_told_in_time(small_disk: Path) -> None:
    bench = Bench(small_disk)
    bench.start("sh", "-c", f"while [ ! -e {small_disk}/done ]; do sleep 0.05; done")
    (small_disk / "done.new").touch()
    with suppress(OSError), (small_disk / "filling").open("wb", buffering=0) as filling:
        while filling.write(bytes(4096)):
            pass
    second = ActionId(1, "8", 1, 0)
    bench.backend.carry_out(Start(second, Placement(slots(1))), 0)
    refused = bench.wait(lambda event: isinstance(event, Failed) and event.action == second)
    assert isinstance(refused, Failed)
    assert refused.retryable
    assert "No space left" in refused.reason
    (small_disk / "done.new").rename(small_disk / "done")
    assert not any(isinstance(event, AttemptEnded) for event in bench.seen)
    (small_disk / "filling").unlink()
    assert bench.end().outcome is Outcome.SUCCEEDED
    bench.backend.close()


@pytest.mark.needs("cgroups")
def test_when_its_shepherd_is_killed_nothing_of_a_task_is_left_whatever_it_did_to_its_marks(bench: Bench) -> None:
    bench.start("sh", "-c", "env -i setsid sh -c 'echo $$; exec sleep 1000' & wait")
    until(lambda: bench.printed().endswith("\n"))
    pid = int(bench.printed())
    groups = [path for path in cgroups_of(pid) if path.name.startswith("7.1.")]
    assert groups
    os.kill(json.loads((bench.data / "jobs" / "7" / "1" / "state.json").read_text())["pid"], signal.SIGKILL)
    assert bench.end().outcome is Outcome.LOST
    assert (left := process(pid)) is None or left.state == "Z"
    assert not any(path.exists() for path in groups)


def cgroups_of(pid: int) -> list[Path]:
    """The folders of the control groups that a process is in."""
    names = {line.rstrip().rpartition("/")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()}
    grounds = [str(folder) for folder in find_grounds().values() if folder]
    return [Path(ground) / name for ground in grounds for name in names if name]


@pytest.mark.needs("cgroups")
def test_a_task_is_put_under_its_cpu_limit(bench: Bench) -> None:
    gang = a_job("7", 1, task={"cpus_milli": 200}).gang
    bench.start("sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; cat /proc/self/cgroup; times", gang=gang)
    bench.end()
    assert re.search(r"phalanx/7\.1\.[0-9a-f]{8}\.0", bench.printed())


def test_a_start_whose_shepherd_does_not_come_up_has_failed_for_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    failed = bench.start("true")
    assert isinstance(failed, Failed)
    assert failed.retryable
    assert "shepherd.log" in failed.reason


def test_an_image_without_an_engine_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    refused = bench.start("true", execution=Execution(image="ubuntu"))
    assert isinstance(refused, Failed)
    assert not refused.retryable
    assert "podman, docker, apptainer" in refused.reason


@pytest.mark.needs("podman")
def test_a_task_runs_in_the_image_it_names_and_leaves_nothing_behind(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = image_of_this_machine(tmp_path)
    monkeypatch.setenv("CONTAINERS_CONF", str(engine_settings(tmp_path)))
    script = "echo rank $PHALANX_RANK of $WORLD_SIZE; cat /etc/hostname 2>/dev/null; test ! -e /work; exec sleep 600"
    execution = Execution(image=image, env=(("COLOUR", "green"),))
    assert bench.start("/bin/sh", "-c", script, tasks=2, execution=execution) == Done(START)
    until(lambda: "rank 1 of 2" in bench.printed(1))
    session = open_session(bench.data, "7", 1, 0, ("/bin/sh", "-c", "echo $COLOUR"))
    assert session.read() == b"green\n"
    session.close()
    bench.stop()
    listed = subprocess.run(["podman", "ps", "--all", "--quiet"], check=True, capture_output=True, timeout=60).stdout
    assert listed == b""
