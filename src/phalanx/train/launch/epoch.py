"""An epoch: one world of agents and its outcome. Its number only grows and is the fencing token of all it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["gathering", "running", "succeeded", "failed", "left"]


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: a name that is never used again, where it listens, how many ranks it runs."""

    name: str
    host: str
    port: int
    slots: int
    master_port: int = 0
    """A port that is free on its host, where rank 0 may listen."""
    task: int = -1
    """The task of the scheduler's gang that it runs in; -1 where there is none."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Agent:
        return cls(**said)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What all agents agree on. Members stand in the order of ranks."""

    number: int
    members: tuple[Agent, ...]
    state: State = "gathering"
    restarts: int = 0
    """Restarts after failures, of those that the budget allows."""
    why: str = ""
    """Why the epoch before ended, or why the job failed."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Epoch:
        return cls(**{**said, "members": tuple(Agent.of(each) for each in said["members"])})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def is_over(self) -> bool:
        return self.state in ("succeeded", "failed", "left")

    @property
    def world_size(self) -> int:
        return sum(member.slots for member in self.members)

    def shared_hosts(self) -> dict[str, int]:
        """Hosts with several agents, and how many. One that no other host reaches has them on purpose."""
        counts = Counter(member.host for member in self.members)
        return {host: count for host, count in counts.items() if count > 1 and not host.startswith("127.")}

    def first_rank(self, name: str) -> int:
        """The rank of an agent's first worker."""
        return sum(member.slots for member in self.members[: self.names.index(name)])


def is_quorum(voters: Sequence[str], present: frozenset[str]) -> bool:
    """Whether those present decide for all voters: more than half, or half with the first of them.

    Any two quorums of the same voters have one in common, so no two decide differently.
    """
    there = sum(name in present for name in voters)
    return 2 * there > len(voters) or (2 * there == len(voters) and voters[0] in present)


def replaced(members: Sequence[Agent], present: Sequence[Agent], limit: int) -> tuple[Agent, ...]:
    """The members that are still present, with new agents in the places of lost ones, then after them."""
    here = {agent.name: agent for agent in present}
    known = {member.name for member in members}
    fresh = [agent for agent in present if agent.name not in known]
    seats: list[Agent] = []
    for member in members:
        if member.name in here:
            seats.append(here[member.name])
        elif fresh:
            seats.append(fresh.pop(0))
    return tuple([*seats, *fresh][:limit])
