"""What the leader decides: which epoch comes next, from what agents report. No I/O, and no memory but of the reports.

A new leader knows nothing but the newest epoch; agents tell it the rest again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from phalanx.train.launch.budget import Budget
from phalanx.train.launch.budget import Rules as Restarts
from phalanx.train.launch.cause import Cause, first_of
from phalanx.train.launch.epoch import Agent, Epoch, replaced
from phalanx.train.launch.plan import Plan

Condition = Literal["idle", "running", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How many agents there may be, how long they are waited for, and which restarts are allowed."""

    least: int
    most: int
    last_call_s: float = 2.0
    """How long to wait for more agents once there are enough. None is waited for beyond the most there can be."""
    join_timeout_s: float = 600.0
    settle_s: float = 0.2
    """How long after a failure other agents may tell an earlier cause."""
    restarts: Restarts = field(default_factory=Restarts)
    retry_program_errors: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent tells: of which epoch its workers are, how they are, and whether it is to leave."""

    agent: Agent
    epoch: int
    condition: Condition
    causes: tuple[Cause, ...] = ()
    leaving: bool = False
    step: int | None = None
    busy: tuple[tuple[int, float], ...] = ()
    """Ranks, and the seconds for which they computed a step of late."""

    @property
    def news(self) -> Report:
        """What is worth a message at once; how far and how fast ranks are can wait for the next beat."""
        return replace(self, step=None, busy=())

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Report:
        causes = tuple(Cause.of(each) for each in said["causes"])
        busy = tuple((rank, seconds) for rank, seconds in said["busy"])
        return cls(**{**said, "agent": Agent.of(said["agent"]), "causes": causes, "busy": busy})


class Coordinator:
    """Takes reports in and says which epoch should be next."""

    def __init__(self, rules: Rules, now: float) -> None:
        self._rules = rules
        self._reports: dict[str, Report] = {}
        self._lost: dict[str, float] = {}
        self._arrived = now
        self._gathering_since = now
        self._failing_since: float | None = None
        self._changing_since: float | None = None
        self._budget = Budget()
        self._judged: tuple[int, Cause, Budget] | None = None
        self._plan: Plan | None = None
        self._first_causes: list[Cause] = []

    def planned(self, plan: Plan | None) -> None:
        """What the scheduler says there will be. Without a plan, whichever agents come make the world."""
        self._plan = plan

    def heard(self, report: Report, now: float) -> None:
        name = report.agent.name
        if name in self._lost:
            return
        if name not in self._reports:
            self._arrived = now
        self._reports[name] = report

    def lost(self, name: str, now: float) -> None:
        """An agent has ended, or was silent for longer than its lease."""
        self._reports.pop(name, None)
        self._lost[name] = now

    def take_causes(self) -> list[Cause]:
        """The first causes of failures since the last call."""
        taken, self._first_causes = self._first_causes, []
        return taken

    def why_spare(self, agent: Agent, epoch: Epoch | None) -> str:
        """Why an agent that came has no place in a world that runs; nothing where it has or will have one."""
        if epoch is None or epoch.state != "running" or agent.name in epoch.names:
            return ""
        if self._plan is not None:
            is_taken = agent.task in (member.task for member in epoch.members)
            return f"has an agent of task {agent.task} already" if is_taken else ""
        count = len(epoch.members)
        return f"has its {count} agents already" if count >= self._rules.most else ""

    def busy(self, epoch: Epoch) -> tuple[dict[int, float], dict[int, str]]:
        """The seconds that the ranks of an epoch compute a step, and their hosts."""
        reports = [self._reports[name] for name in epoch.names if name in self._reports]
        told = [(report.agent.host, each) for report in reports if report.epoch == epoch.number for each in report.busy]
        return {rank: seconds for _, (rank, seconds) in told}, {rank: host for host, (rank, _) in told}

    def next(self, epoch: Epoch, now: float) -> Epoch | None:
        """The epoch to propose after this one; None while it should go on."""
        if epoch.is_over:
            return None
        if epoch.state == "gathering":
            return self._gathered(epoch, now)
        if any(name not in self._reports and name not in self._lost for name in epoch.names):
            # A new leader has not heard of all yet, and would leave the rest out.
            return None
        causes = self._causes(epoch)
        if causes:
            return self._failed(epoch, causes, now)
        self._failing_since = None
        conditions = [self._condition(name, epoch) for name in epoch.names]
        if all(condition == "succeeded" for condition in conditions):
            return replace(epoch, number=epoch.number + 1, state="succeeded", why="all ranks ended with 0")
        if "succeeded" in conditions:
            return None
        return self._changed(epoch, now)

    def _present(self) -> list[Agent]:
        here = [report.agent for report in self._reports.values() if not report.leaving]
        return here if self._plan is None else [agent for agent in here if agent.task in self._plan.tasks]

    def _seated(self, epoch: Epoch) -> tuple[Agent, ...]:
        """The agents that are there for the next epoch, in the order of ranks."""
        if self._plan is None:
            return replaced(epoch.members, self._present(), self._rules.most)
        by_task: dict[int, Agent] = {}
        # A second agent of one task, launched twice there, does not take the place of the first.
        for agent in sorted(self._present(), key=lambda agent: agent.name not in epoch.names):
            by_task.setdefault(agent.task, agent)
        return tuple(by_task[task] for task in self._plan.tasks if task in by_task)

    def _is_as_planned(self, agents: tuple[Agent, ...]) -> bool:
        return self._plan is not None and tuple(agent.task for agent in agents) == self._plan.tasks

    def _condition(self, name: str, epoch: Epoch) -> Condition:
        """How an agent's workers of this epoch are. One that has not begun it yet has them idle."""
        report = self._reports.get(name)
        return "idle" if report is None or report.epoch != epoch.number else report.condition

    def _causes(self, epoch: Epoch) -> list[Cause]:
        reports = [self._reports[name] for name in epoch.names if name in self._reports]
        causes = [cause for report in reports if report.epoch == epoch.number for cause in report.causes]
        for member in epoch.members:
            if member.name in self._lost:
                text = f"the agent {member.name} was lost"
                causes.append(Cause("lost agent", -1, member.host, self._lost[member.name], text, agent=member.name))
        return causes

    def _gathered(self, epoch: Epoch, now: float) -> Epoch | None:
        rules, present = self._rules, self._present()
        if self._reports and all(report.leaving for report in self._reports.values()):
            return self._left(epoch)
        members = self._seated(epoch)
        is_late = now >= self._arrived + rules.last_call_s
        is_enough = len(present) >= rules.most or (len(present) >= rules.least and is_late)
        if self._is_as_planned(members) or (self._plan is None and is_enough):
            return replace(epoch, number=epoch.number + 1, members=members, state="running")
        if now >= self._gathering_since + rules.join_timeout_s:
            return self._over(epoch, self._shortage(present))
        return None

    def _shortage(self, present: list[Agent]) -> str:
        hosts = ", ".join(sorted(agent.host for agent in present)) or "none"
        gone = f"; lost: {', '.join(sorted(self._lost))}" if self._lost else ""
        wanted = f"at least {self._rules.least} agents are needed (--nnodes)"
        if self._plan is not None:
            missing = sorted({*self._plan.tasks} - {agent.task for agent in present})
            wanted = f"{len(self._plan.tasks)} agents are planned, missing of task {', '.join(map(str, missing))}"
        return f"{wanted}, {len(present)} came in {self._rules.join_timeout_s:g} s: {hosts}{gone}"

    def _failed(self, epoch: Epoch, causes: list[Cause], now: float) -> Epoch | None:
        """Waits until the first cause is known, and for the backoff; then the epoch without what was lost."""
        if self._failing_since is None:
            self._failing_since = now
        if now < self._failing_since + self._rules.settle_s:
            return None
        if self._judged is None or self._judged[0] != epoch.number:
            budget = replace(self._budget, restarts=epoch.restarts).failed(self._step(epoch))
            self._judged = (epoch.number, first_of(causes), budget)
            self._first_causes.append(self._judged[1])
        _, cause, budget = self._judged
        if cause.is_program and not self._rules.retry_program_errors:
            return self._over(epoch, f"{cause} (an error of the program is not tried again)")
        refusal = budget.refusal(self._rules.restarts)
        if refusal is not None:
            return self._over(epoch, f"{cause}; {refusal}")
        if now < self._failing_since + budget.backoff_s:
            return None
        self._budget = budget
        return self._onward(epoch, now, budget.restarts, str(cause))

    def _changed(self, epoch: Epoch, now: float) -> Epoch | None:
        """A planned change: agents that leave, or that came while there is a place."""
        wanted = self._seated(epoch)
        if set(epoch.names) == {agent.name for agent in wanted}:
            self._changing_since = None
            return None
        is_as_planned = self._is_as_planned(wanted)
        if self._plan is not None and not is_as_planned and not self._any_leaves(epoch):
            # The scheduler brings the others; until they are here, these go on.
            return None
        if self._changing_since is None:
            self._changing_since = now
        if now < self._changing_since + self._rules.settle_s and not is_as_planned:
            # Those that come or leave together make one change.
            return None
        self._changing_since = None
        if not wanted:
            return self._left(epoch)
        left = [name for name in epoch.names if name not in {agent.name for agent in wanted}]
        came = [agent.name for agent in wanted if agent.name not in epoch.names]
        why = "; ".join([*(f"{name} leaves" for name in left), *(f"{name} joins" for name in came)])
        return self._onward(epoch, now, epoch.restarts, why)

    def _onward(self, epoch: Epoch, now: float, restarts: int, why: str) -> Epoch:
        self._failing_since = None
        members = self._seated(epoch)
        least = self._rules.least if self._plan is None else len(self._plan.tasks)
        next_one = replace(epoch, number=epoch.number + 1, members=members, restarts=restarts, why=why)
        if len(members) >= least:
            return replace(next_one, state="running")
        self._gathering_since = self._arrived = now
        return replace(next_one, members=members or epoch.members, state="gathering")

    def _any_leaves(self, epoch: Epoch) -> bool:
        return any(self._reports[name].leaving for name in epoch.names if name in self._reports)

    def _left(self, epoch: Epoch) -> Epoch:
        return replace(epoch, number=epoch.number + 1, state="left", why="all agents were told to leave")

    def _over(self, epoch: Epoch, why: str) -> Epoch:
        return replace(epoch, number=epoch.number + 1, state="failed", why=why)

    def _step(self, epoch: Epoch) -> int | None:
        reports = [self._reports[name] for name in epoch.names if name in self._reports]
        steps = [report.step for report in reports if report.step is not None]
        return max(steps, default=None)
