"""Network namespaces as hosts of one machine: each has an address of its own, and a cable that can be pulled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

SUBNET = "10.213.77"
LINE = str(Path(__file__).with_name("line.py"))


class Hosts:
    """So many hosts on one switch, until the `with` block ends. They and the machine do not reach one another."""

    def __init__(self, count: int, long_lines: Sequence[int] = ()) -> None:
        """`long_lines` are the hosts whose cable a program forwards, which `delay` goes for."""
        self.count = count
        self._name = f"phalanx-{os.getpid()}"
        self._long = tuple(long_lines)
        self._lines: dict[int, subprocess.Popen[str]] = {}

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self._unmake()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unmake()

    def address(self, host: int) -> str:
        return f"{SUBNET}.{host + 1}"

    def command(self, host: int) -> list[str]:
        """What stands before a command that is to run on that host; the process is the command's own."""
        return ["ip", "netns", "exec", self._host(host)]

    def signal(self, host: int, number: int) -> None:
        """To all processes of the host."""
        told = subprocess.run(["ip", "netns", "pids", self._host(host)], check=True, capture_output=True, text=True)
        for pid in map(int, told.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def cut(self, host: int) -> None:
        """Pulls the cable: nothing reaches the host, and no connection is closed."""
        self._ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def heal(self, host: int) -> None:
        self._ip("-n", self._switch, "link", "set", f"port{host}", "up")

    def slow_down(self, host: int) -> None:
        """Has so few bytes a second reach the host that a step takes much longer, and heartbeats wait behind it."""
        slow = ("root", "tbf", "rate", "2mbit", "burst", "16kb", "latency", "400ms")
        self._run("tc", "-n", self._switch, "qdisc", "replace", "dev", f"port{host}", *slow)

    def speed_up(self, host: int) -> None:
        self._run("tc", "-n", self._switch, "qdisc", "delete", "dev", f"port{host}", "root")

    def delay(self, host: int, seconds: float, lost: float = 0.0) -> None:
        """Has all that the host sends and gets be so long on its way, and a part of it never arrive."""
        said = self._lines[host].stdin
        assert said is not None
        said.write(f"{seconds} {lost}\n")
        said.flush()

    @property
    def _switch(self) -> str:
        return f"{self._name}-switch"

    def _host(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _make(self) -> None:
        self._ip("netns", "add", self._switch)
        self._ip("-n", self._switch, "link", "add", "bridge0", "type", "bridge")
        self._ip("-n", self._switch, "link", "set", "bridge0", "up")
        for host in range(self.count):
            name, port = self._host(host), f"port{host}"
            self._ip("netns", "add", name)
            self._lay_line(host, name, port) if host in self._long else self._lay_cable(name, port)
            self._ip("-n", self._switch, "link", "set", port, "master", "bridge0")
            self._ip("-n", self._switch, "link", "set", port, "up")
            self._ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self._ip("-n", name, "link", "set", device, "up")

    def _lay_cable(self, name: str, port: str) -> None:
        ends = ("type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("-n", self._switch, "link", "add", port, *ends)

    def _lay_line(self, host: int, name: str, port: str) -> None:
        command = ["ip", "netns", "exec", self._switch, sys.executable, LINE, port, f"far{host}"]
        line = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines[host] = line
        assert line.stdout is not None
        if not line.stdout.readline():
            raise OSError(f"the line of host {host} could not be made: is there /dev/net/tun?")
        self._ip("-n", self._switch, "link", "set", f"far{host}", "netns", name, "name", "eth0")

    def _unmake(self) -> None:
        for line in self._lines.values():
            line.communicate()
        for name in (*(self._host(host) for host in range(self.count)), self._switch):
            with suppress(subprocess.CalledProcessError):
                self._ip("netns", "delete", name)

    def _ip(self, *words: str) -> None:
        self._run("ip", *words)

    def _run(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)
