"""Agents on hosts of their own: a part that is cut off goes nowhere, and an agent that was paused is no member."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launch, Launched, launching

from phalanx.bench.launch.hosts import Hosts

PORT = 29400
GROWING = """
while not os.path.exists(until):
    # The launcher ends a job whose steps do not grow.
    beat(time.time_ns())
    time.sleep(0.02)
"""
LEASE_S = 1

pytestmark = pytest.mark.needs("namespaces")


class Agents:
    """One launcher on each host, and others in their place."""

    def __init__(self, launch: Launch, hosts: Hosts) -> None:
        self.launch, self.hosts = launch, hosts
        self.all: list[Launched] = []
        self.of_host = {host: self.start(host) for host in range(hosts.count)}

    def start(self, host: int) -> Launched:
        before = self.hosts.command(host)

        class OnHost(Launched):
            def launcher(self, options: tuple[str, ...]) -> list[str]:
                return [*before, *super().launcher(options)]

        self.launch.kind = OnHost
        where = ("--rdzv-endpoint", f"{self.hosts.address(0)}:{PORT}", "--local-addr", self.hosts.address(host))
        conf = ("--rdzv-conf", f"lease={LEASE_S},last_call_timeout=1", "--max-restarts", "1000")
        self.all.append(self.launch(GROWING, "--nnodes", f"2:{self.hosts.count}", *where, *conf))
        return self.all[-1]

    def newest(self) -> int:
        return max(self.launch.epochs(), default=0)

    def worlds(self) -> dict[int, list[tuple[int, int]]]:
        """By epoch: the rank of each agent that began it, and how many ranks it was told of."""
        found: dict[int, list[tuple[int, int]]] = {}
        for agent in self.all:
            for epoch, rank, size in re.findall(r"epoch (\d+): ranks (\d+) to \d+ of (\d+)", agent.errors()):
                found.setdefault(int(epoch), []).append((int(rank), int(size)))
        return found

    def one_epoch_at_a_time(self) -> bool:
        """Whether no epoch had two worlds, a rank twice, or a minority of the hosts."""
        return all(
            len({size for _, size in agents}) == 1
            and len({rank for rank, _ in agents}) == len(agents)
            and agents[0][1] >= 2
            for agents in self.worlds().values()
        )


ECHO = """
import socket, sys, time
listener = socket.create_server((sys.argv[1], 5000))
print("listens", flush=True)
connection, _ = listener.accept()
while received := connection.recv(65536):
    connection.sendall(received)
"""
ASK = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000))
def answered_after(count):
    began = time.monotonic()
    connection.sendall(bytes(count))
    while count:
        count -= len(connection.recv(65536))
    return time.monotonic() - began
print(min(answered_after(1) for _ in range(5)), answered_after(200_000))
"""


def test_on_a_long_line_all_is_late_and_what_is_lost_comes_in_the_end() -> None:
    with Hosts(2, long_lines=[1]) as hosts:
        hosts.delay(1, 0.03, lost=0.02)
        near, address = [*hosts.command(0), sys.executable, "-c"], hosts.address(0)
        with subprocess.Popen([*near, ECHO, address], stdout=subprocess.PIPE) as echo:
            assert echo.stdout is not None
            echo.stdout.readline()
            far = [*hosts.command(1), sys.executable, "-c", ASK, address]
            least_s, _ = map(float, subprocess.run(far, check=True, capture_output=True, timeout=60).stdout.split())
        assert least_s >= 2 * 0.03


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launching(tmp_path) as launch:
        yield launch


def test_a_host_that_is_cut_off_stops_its_ranks_and_joins_again_and_the_others_go_on(launch: Launch) -> None:
    with Hosts(3) as hosts:
        agents = Agents(launch, hosts)
        launch.world(3)
        epoch = agents.newest()
        hosts.cut(2)
        launch.world(2, epochs_before=epoch)
        launch.until(lambda: "no quorum" in agents.of_host[2].errors(), "the one that is cut off stops its ranks")
        epoch = agents.newest()
        hosts.heal(2)
        launch.world(3, epochs_before=epoch)
        assert agents.one_epoch_at_a_time()
        launch.let_go()
        assert [agent.wait() for agent in agents.all] == [0, 0, 0]


def test_the_leader_is_paused_for_longer_than_its_lease_and_comes_back_as_another_agent(launch: Launch) -> None:
    with Hosts(3) as hosts:
        agents = Agents(launch, hosts)
        launch.world(3)
        epoch = agents.newest()
        # The founder, whose host is the endpoint.
        paused = agents.of_host[0].process
        paused.send_signal(signal.SIGSTOP)
        launch.world(2, epochs_before=epoch)
        epoch = agents.newest()
        paused.send_signal(signal.SIGCONT)
        launch.world(3, epochs_before=epoch)
        assert "went on without this agent" in agents.of_host[0].errors()
        assert agents.one_epoch_at_a_time()
        launch.let_go()
        assert [agent.wait() for agent in agents.all] == [0, 0, 0]


@pytest.mark.long
def test_through_cuts_pauses_and_deaths_there_is_one_epoch_at_a_time(launch: Launch) -> None:
    drawn = random.Random(7)
    with Hosts(4) as hosts:
        agents = Agents(launch, hosts)
        launch.world(4)
        for _ in range(5):
            # Where new agents ask for the run is one host's; the others need it to join.
            kind, host = drawn.choice(["cut", "pause", "kill"]), drawn.randrange(1, 4)
            epoch, process = agents.newest(), agents.of_host[host].process
            if kind == "cut":
                hosts.cut(host)
            else:
                process.send_signal(signal.SIGSTOP if kind == "pause" else signal.SIGKILL)
            launch.world(3, epochs_before=epoch)
            epoch = agents.newest()
            if kind == "cut":
                hosts.heal(host)
            elif kind == "pause":
                process.send_signal(signal.SIGCONT)
            else:
                agents.of_host[host] = agents.start(host)
            launch.world(4, epochs_before=epoch)
        assert len(agents.worlds()) >= 10
        assert agents.one_epoch_at_a_time()
        launch.let_go()
        assert [agent.wait() for agent in agents.of_host.values()] == [0] * 4
        assert "Traceback" not in "".join(agent.errors() for agent in agents.all)
