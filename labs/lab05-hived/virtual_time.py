"""Virtual time for pods: asked for in the order they came, run for as long as they say, put back in line if preempted.

Who goes where is decided by phalanx.compat.hived alone.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.compat.hived import HivedScheduler
from phalanx.workload.formats.hived import read_hived
from phalanx.workload.formats.openpai import hived_pods, read_openpai

HERE = Path(__file__).parent
MINUTES = re.compile(r"--minutes (\d+)")


@dataclass(frozen=True)
class Event:
    """Something that happened to a pod: starts, ends, preempted or refused."""

    minute: int
    what: str
    pod: str
    node: str = ""
    why: str = ""


@dataclass
class Lab:
    """A cluster with one configuration, the jobs submitted to it, and what happened."""

    config: str
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = (HERE / self.config).read_text()
        self.scheduler = HivedScheduler(text)
        self.skus = read_hived(text, self.config).skus
        self._agenda: list[tuple[int, int, str, Any]] = []
        self._waiting: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._minutes: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._serial = 0

    def submit(self, minute: int, file: str, name: str = "") -> None:
        """A job file is submitted, under another name if one is given."""
        text = (HERE / "jobs" / file).read_text()
        if name:
            text = re.sub(r"^name: .*$", f"name: {name}", text, flags=re.MULTILINE)
        job = read_openpai(text, file)
        pods = list(hived_pods(job, self.skus))
        for pod in pods:
            script = MINUTES.search(" ".join(job.roles[0].commands))
            self._pods[pod["name"]] = pod
            self._minutes[pod["name"]] = int(script.group(1)) if script else 1
        self._plan(minute, "arrive", pods)

    def run(self) -> list[Event]:
        """Everything that happens, until nothing is left to happen."""
        while self._agenda:
            minute = self._agenda[0][0]
            while self._agenda and self._agenda[0][0] == minute:
                _, _, what, about = heapq.heappop(self._agenda)
                if what == "arrive":
                    self._waiting.update({pod["name"]: pod for pod in about})
                elif self._starts.get(about[0]) == about[1]:
                    self._end(minute, about[0], "ends")
            self._ask(minute)
        return self.events

    def at(self, pod: str, what: str) -> list[int]:
        """The minutes at which something happened to a pod."""
        return [event.minute for event in self.events if (event.pod, event.what) == (pod, what)]

    def nodes(self, pod: str) -> list[str]:
        """The nodes a pod has started on, one after another."""
        return [event.node for event in self.events if (event.pod, event.what) == (pod, "starts")]

    def _ask(self, minute: int) -> None:
        for name, pod in list(self._waiting.items()):
            try:
                answer = self.scheduler.schedule(pod)
                if answer.kind == "preempt":
                    for victim in answer.victims:
                        self._put_back(minute, victim)
                    answer = self.scheduler.schedule(pod)
            except ValueError as error:
                del self._waiting[name]
                self.events.append(Event(minute, "refused", name, why=str(error)))
                continue
            if answer.kind == "bind":
                del self._waiting[name]
                self._starts[name] = minute
                self.events.append(Event(minute, "starts", name, str(answer.node)))
                self._plan(minute + self._minutes[name], "end", (name, minute))

    def _put_back(self, minute: int, victim: str) -> None:
        self._end(minute, victim, "preempted")
        self._waiting[victim] = self._pods[victim]

    def _end(self, minute: int, name: str, what: str) -> None:
        del self._starts[name]
        self.scheduler.delete(name)
        self.events.append(Event(minute, what, name))

    def _plan(self, minute: int, what: str, about: Any) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (minute, self._serial, what, about))
