"""One agent's copy of the newest epoch, and its part in agreeing on the next: Raft, with a log of one entry.

An epoch counts when a quorum of its members and a quorum of the members before it have it. A leader needs the votes of
both. So no minority goes on by itself, an agent that was paused finds its term gone, and any agent's loss leaves the
newest epoch with the rest. What an agent knows is in its memory alone: one that is started again is another agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from phalanx.train.launch.epoch import Agent, Epoch, is_quorum


@dataclass(frozen=True, slots=True)
class Timing:
    """How often a leader shows itself, and how long an agent that is not heard of counts as there."""

    beat_s: float = 0.5
    lease_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Message:
    """From one replica to another."""

    kind: Literal["append", "ack", "ask", "vote", "stale", "out"]
    source: str
    to: str
    term: int
    entry_term: int = 0
    epoch: Epoch | None = None
    before: Epoch | None = None
    """The epoch before, while the other does not count yet: a quorum of its members is needed too."""
    committed: int = 0
    agreed: bool = False

    def said(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Message:
        epochs = {key: None if said[key] is None else Epoch.of(said[key]) for key in ("epoch", "before")}
        return cls(**{**said, **epochs})


class Replica:
    """The part of one agent. It is told the time and what it hears; what it would send stands in `outbox`."""

    def __init__(self, me: Agent, timing: Timing, now: float) -> None:
        self.me, self._timing = me, timing
        self.term = 0
        self.role: Literal["learner", "follower", "candidate", "leader"] = "learner"
        self.leader: str | None = None
        self.outbox: list[Message] = []
        self._voted: str | None = None
        self._entry_term = 0
        self._accepted: Epoch | None = None
        self._before: Epoch | None = None
        """The epoch before the accepted one, while that is not committed."""
        self._committed = -1
        self._votes: set[str] = set()
        self._acks: set[str] = set()
        self._heard: dict[str, float] = {}
        self._heard_leader = now
        self._next_beat = now

    @classmethod
    def founding(cls, me: Agent, timing: Timing, now: float) -> Replica:
        """The first agent of a run: it leads itself alone, until more join."""
        replica = cls(me, timing, now)
        replica.term, replica._entry_term = 1, 1
        replica.role, replica.leader = "leader", me.name
        replica._accepted, replica._committed = Epoch(0, (me,)), 0
        return replica

    @property
    def epoch(self) -> Epoch | None:
        """The newest epoch that counts, as far as this agent knows."""
        accepted = self._accepted
        if accepted is not None and accepted.number > self._committed:
            return self._before
        return accepted

    def leads(self, now: float) -> bool:
        """Whether this agent leads, and a quorum has said so within the lease."""
        return self.role == "leader" and self._is_backed(now)

    def is_pending(self) -> bool:
        """Whether an epoch was proposed and does not count yet."""
        return self._accepted is not None and self._accepted.number > self._committed

    def propose(self, epoch: Epoch, now: float) -> None:
        """Has the leader ask all for the next epoch."""
        assert self.role == "leader"
        assert self._accepted is not None
        assert not self.is_pending()
        assert epoch.number == self._accepted.number + 1
        self._before, self._accepted, self._entry_term = self._accepted, epoch, self.term
        self._acks = {self.me.name}
        # New members have the lease to answer in.
        for name in epoch.names:
            self._heard.setdefault(name, now)
        self._append(now)
        self._commit_if_agreed()

    def tick(self, now: float) -> None:
        """What is due by the clock."""
        if self.role == "leader":
            if not self._is_backed(now):
                self.role, self.leader = "follower", None
                self._heard_leader = now
            elif now >= self._next_beat:
                self._append(now)
        elif self.role != "learner" and now >= self._heard_leader + self._patience():
            self._stand(now)

    def lost(self, name: str, now: float) -> None:
        """The connection of an agent was closed: its process has ended."""
        self._heard.pop(name, None)
        if name == self.leader and self.role == "follower":
            self.leader = None
            # In the order of ranks, so that they do not stand against one another.
            self._heard_leader = now - self._timing.lease_s

    def receive(self, message: Message, now: float) -> None:
        """Takes a message in."""
        if message.kind == "out":
            self._leave(message)
            return
        if message.kind == "ask" and self._refuses(message, now):
            return
        if message.term < self.term:
            if message.kind == "append":
                self._send("stale", message.source)
            return
        if message.term > self.term:
            self.term, self._voted = message.term, None
            if self.role != "learner":
                self.role, self.leader = "follower", None
        if message.kind == "append":
            self._take(message, now)
        elif message.kind == "ack":
            self._count_ack(message, now)
        elif message.kind == "ask":
            self._answer(message, now)
        elif message.kind == "vote":
            self._count_vote(message, now)

    def _take(self, message: Message, now: float) -> None:
        """An epoch from the leader of this term, new or known."""
        assert message.epoch is not None
        if self.role == "learner" and self.me.name not in message.epoch.names:
            return
        self.role, self.leader, self._heard_leader = "follower", message.source, now
        known = -1 if self._accepted is None else self._accepted.number
        if (message.entry_term, message.epoch.number) >= (self._entry_term, known):
            self._accepted, self._before, self._entry_term = message.epoch, message.before, message.entry_term
            self._committed = max(self._committed, message.committed)
        self._send("ack", message.source, epoch=message.epoch, entry_term=message.entry_term)

    def _count_ack(self, message: Message, now: float) -> None:
        if self.role != "leader" or self._accepted is None or message.epoch is None:
            return
        self._heard[message.source] = now
        if (message.entry_term, message.epoch.number) == (self._entry_term, self._accepted.number):
            self._acks.add(message.source)
            self._commit_if_agreed()

    def _answer(self, message: Message, now: float) -> None:
        """A vote is given once a term, to one that knows no less."""
        mine = (self._entry_term, -1 if self._accepted is None else self._accepted.number)
        theirs = (message.entry_term, -1 if message.epoch is None else message.epoch.number)
        if self.role != "learner" and self._voted in (None, message.source) and theirs >= mine:
            self._voted = message.source
            self._heard_leader = now
            self._send("vote", message.source, agreed=True)

    def _refuses(self, message: Message, now: float) -> bool:
        """An agent that was left out is told; while a leader is heard, its term is not disturbed."""
        epoch = self.epoch
        known = -1 if message.epoch is None else message.epoch.number
        if epoch is not None and message.source not in epoch.names and known <= epoch.number and not self.is_pending():
            self._send("out", message.source, epoch=epoch)
            return True
        if self.role == "leader":
            return self._is_backed(now)
        return self.leader is not None and now < self._heard_leader + self._timing.lease_s

    def _leave(self, message: Message) -> None:
        """This agent is in no epoch any more. It can come back as another one."""
        assert message.epoch is not None
        known = -1 if self._accepted is None else self._accepted.number
        if message.epoch.number >= known and self.me.name not in message.epoch.names:
            self.role, self.leader = "learner", None
            self._accepted, self._before, self._committed = message.epoch, None, message.epoch.number

    def _count_vote(self, message: Message, now: float) -> None:
        if self.role != "candidate" or not message.agreed:
            return
        self._votes.add(message.source)
        self._heard[message.source] = now
        if self._agree(self._votes):
            self._lead(now)

    def _stand(self, now: float) -> None:
        """Asks for the votes of the next term."""
        self.role, self.leader, self._voted = "candidate", None, self.me.name
        self.term += 1
        self._votes = {self.me.name}
        self._heard_leader = now
        if self._agree(self._votes):
            self._lead(now)
            return
        for name in self._others():
            self._send("ask", name, epoch=self._accepted, entry_term=self._entry_term)

    def _lead(self, now: float) -> None:
        """Begins to lead: what was proposed before counts once it is agreed on in this term."""
        assert self._accepted is not None
        self.role, self.leader, self._entry_term = "leader", self.me.name, self.term
        self._acks = {self.me.name}
        self._heard = dict.fromkeys(self._votes, now)
        self._append(now)
        self._commit_if_agreed()

    def _commit_if_agreed(self) -> None:
        assert self._accepted is not None
        if self.is_pending() and self._agree(self._acks):
            self._committed = self._accepted.number
            # At once, so that all begin together; those that are left out hear it too.
            self._append(self._next_beat - self._timing.beat_s)
            self._before = None
            if self.me.name not in self._accepted.names:
                self.role, self.leader = "learner", None

    def _append(self, now: float) -> None:
        self._next_beat = now + self._timing.beat_s
        before = self._before if self.is_pending() else None
        for name in self._others():
            self._send("append", name, epoch=self._accepted, before=before, entry_term=self._entry_term)

    def _agree(self, names: set[str]) -> bool:
        """Whether these are a quorum of each epoch that may count."""
        return all(is_quorum(epoch.names, frozenset(names)) for epoch in self._voting())

    def _is_backed(self, now: float) -> bool:
        recent = {name for name, at in self._heard.items() if now < at + self._timing.lease_s}
        return self._agree({self.me.name, *recent})

    def _voting(self) -> Sequence[Epoch]:
        newest = [self._accepted] if self._accepted is not None else []
        return [*newest, self._before] if self.is_pending() and self._before is not None else newest

    def _others(self) -> list[str]:
        epochs = [each for each in (self._accepted, self._before) if each is not None]
        names = dict.fromkeys(name for epoch in epochs for name in epoch.names)
        return [name for name in names if name != self.me.name]

    def _patience(self) -> float:
        """Longer for later members, so that the first of them stands alone."""
        names = self._accepted.names if self._accepted is not None else ()
        place = names.index(self.me.name) if self.me.name in names else len(names)
        return self._timing.lease_s + self._timing.beat_s * place

    def _send(self, kind: Any, to: str, **facts: Any) -> None:
        self.outbox.append(Message(kind, self.me.name, to, self.term, committed=self._committed, **facts))
