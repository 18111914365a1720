"""One epoch at a time, over a network that loses, delays and parts agents, and while some are paused."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.train.launch.epoch import Agent, Epoch, is_quorum, replaced
from phalanx.train.launch.replica import Message, Replica, Timing

TIMING = Timing(beat_s=1.0, lease_s=5.0)


def agent(number: int) -> Agent:
    return Agent(f"a{number}", "host", 1000 + number, slots=1)


class Net:
    """Agents in virtual time. What each holds to count is written down, to be audited."""

    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.replicas = {"a0": Replica.founding(agent(0), TIMING, 0.0)}
        for number in range(1, count):
            self.replicas[f"a{number}"] = Replica(agent(number), TIMING, 0.0)
        self.next = count
        self.paused: set[str] = set()
        self.dead: set[str] = set()
        self.side: dict[str, int] = {}
        self.flying: list[tuple[float, Message]] = []
        self.counted: dict[int, Epoch] = {}
        self.leaders: dict[int, str] = {}

    def connected(self, one: str, other: str) -> bool:
        return self.side.get(one, 0) == self.side.get(other, 0)

    def step(self, dt: float, loss: float) -> None:
        self.now += dt
        due = [message for at, message in self.flying if at <= self.now]
        self.flying = [each for each in self.flying if each[0] > self.now]
        self.random.shuffle(due)
        for message in due:
            to = message.to
            if to in self.dead or to not in self.replicas or not self.connected(message.source, to):
                continue
            if to in self.paused:
                # A paused process finds its messages when it wakes.
                self.flying.append((self.now + 1, message))
                continue
            self.replicas[to].receive(Message.of(message.said()), self.now)
        for name, replica in self.replicas.items():
            if name not in self.paused and name not in self.dead:
                replica.tick(self.now)
            self.send(replica, loss)
        self.audit()

    def send(self, replica: Replica, loss: float) -> None:
        for message in replica.outbox:
            if self.random.random() >= loss:
                self.flying.append((self.now + self.random.random() * 2, message))
        replica.outbox.clear()

    def propose(self) -> None:
        """Each agent that believes to lead makes an epoch of a few agents."""
        for name, replica in self.replicas.items():
            epoch = replica.epoch
            if name in self.paused | self.dead or not replica.leads(self.now) or replica.is_pending() or epoch is None:
                continue
            there = [each for each in self.replicas if each not in self.dead]
            share = self.random.choice([0.3, 0.8])
            chosen = [each for each in there if self.random.random() < share] or [name]
            members = tuple(self.replicas[each].me for each in chosen)
            replica.propose(Epoch(epoch.number + 1, members, "running", why=f"by {name}"), self.now)

    def audit(self) -> None:
        for name, replica in self.replicas.items():
            epoch = replica.epoch
            if epoch is not None:
                assert self.counted.setdefault(epoch.number, epoch) == epoch
            if replica.role == "leader":
                assert self.leaders.setdefault(replica.term, name) == name


@given(st.integers(0, 2**32), st.integers(2, 5), st.data())
def test_no_two_agents_ever_hold_different_epochs_of_one_number(seed: int, count: int, data: st.DataObject) -> None:
    net = Net(seed, count)
    for _ in range(data.draw(st.integers(5, 40))):
        event = net.random.choice(
            ["propose", "propose", "propose", "part", "part", "heal", "pause", "wake", "kill", "join"]
        )
        names = [name for name in net.replicas if name not in net.dead]
        chosen = net.random.choice(names)
        if event == "propose":
            net.propose()
        elif event == "part":
            net.side = {name: net.random.randrange(2) for name in names}
            net.propose()
        elif event == "heal":
            net.side = {}
        elif event == "pause":
            net.paused.add(chosen)
        elif event == "wake":
            net.paused.clear()
        elif event == "kill" and len(names) > 2 and net.random.random() < 0.3:
            net.dead.add(chosen)
            for replica in net.replicas.values():
                replica.lost(chosen, net.now)
        elif event == "join" and len(names) < 6:
            net.replicas[f"a{net.next}"] = Replica(agent(net.next), TIMING, net.now)
            net.next += 1
        for _ in range(net.random.randrange(1, 8)):
            net.step(net.random.random() * 2, loss=0.1)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(3, 6), st.integers(0, 5))
def test_the_loss_of_any_one_agent_of_three_or_more_leaves_a_leader_with_the_newest_epoch(
    seed: int, count: int, lost: int
) -> None:
    net = Net(seed, count)
    members = tuple(agent(number) for number in range(count))
    net.replicas["a0"].propose(Epoch(1, members, "running"), 0.0)
    for _ in range(20):
        net.step(0.5, loss=0.0)
    dead = f"a{lost % count}"
    net.dead.add(dead)
    for replica in net.replicas.values():
        replica.lost(dead, net.now)
    for _ in range(60):
        net.step(0.5, loss=0.0)
    leaders = [name for name, each in net.replicas.items() if name not in net.dead and each.leads(net.now)]
    assert len(leaders) == 1
    leader = net.replicas[leaders[0]]
    assert leader.epoch is not None
    assert leader.epoch.members == members
    assert not leader.is_pending()


def test_an_agent_that_was_paused_for_longer_than_its_lease_leads_nothing_when_it_wakes() -> None:
    net = Net(0, 3)
    members = tuple(agent(number) for number in range(3))
    net.replicas["a0"].propose(Epoch(1, members, "running"), 0.0)
    for _ in range(20):
        net.step(0.5, loss=0.0)
    net.paused.add("a0")
    for _ in range(40):
        net.step(0.5, loss=0.0)
    other = next(each for name, each in net.replicas.items() if name != "a0" and each.leads(net.now))
    rest = tuple(member for member in members if member.name != "a0")
    other.propose(Epoch(2, rest, "running"), net.now)
    for _ in range(10):
        net.step(0.5, loss=0.0)
    assert not net.replicas["a0"].leads(net.now)
    net.paused.clear()
    for _ in range(40):
        net.step(0.5, loss=0.0)
    assert net.replicas["a0"].role == "learner"
    assert other.leads(net.now)


def test_a_leader_without_a_quorum_stops_leading_within_its_lease() -> None:
    net = Net(0, 3)
    net.replicas["a0"].propose(Epoch(1, tuple(agent(number) for number in range(3)), "running"), 0.0)
    for _ in range(20):
        net.step(0.5, loss=0.0)
    assert net.replicas["a0"].leads(net.now)
    net.side = {"a0": 1}
    for _ in range(12):
        net.step(0.5, loss=0.0)
    assert not net.replicas["a0"].leads(net.now)


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True), st.sets(st.sampled_from("abcdefg")))
def test_of_two_parts_at_most_one_is_a_quorum(voters: list[str], part: set[str]) -> None:
    rest = frozenset(voters) - part
    assert not (is_quorum(voters, frozenset(part)) and is_quorum(voters, rest))
    assert is_quorum(voters, frozenset(voters))


def test_a_new_agent_takes_the_place_of_the_lost_one_in_the_order_of_ranks() -> None:
    a, b, c, d, e = (agent(number) for number in range(5))
    assert replaced([a, b, c], [a, c, d], limit=4) == (a, d, c)
    assert replaced([a, b, c], [a, c], limit=4) == (a, c)
    assert replaced([a, b, c], [a, b, c, d, e], limit=4) == (a, b, c, d)
