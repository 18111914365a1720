"""Quarantine: nodes on which far more fails than on others take no new work, until they have proved themselves.

After a while a node comes back on probation. If the first job that ends there fails, it is in quarantine again, for
twice as long. Where there are canaries, a node has to run one well before it takes other work. Never more than a part
of the nodes are in quarantine, and what an operator says of a node goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from phalanx.cluster.cluster import Health
from phalanx.faults.health.blame import Blame

MINUTE_MS = 60_000
PREFIX = "quarantine: "
"""How reasons of quarantine begin, in the journal and wherever the health of a node is shown."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`chance` bounds how many nodes of all are suspected wrongly. A node must have at least so many `failures`."""

    chance: float = 0.25
    failures: float = 2.5
    share_max: float = 0.2
    first_ms: int = 30 * MINUTE_MS
    longest_ms: int = 24 * 60 * MINUTE_MS


class Standing(StrEnum):
    """How a node stands."""

    QUARANTINE = "quarantine"
    PROVING = "proving"
    PROBATION = "probation"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Until when a node is in quarantine, and how long that lasts, or that it is to prove itself by a canary, or is on
    probation, after so long a one.

    It is `firm` if failures of jobs do not tell why: it was in quarantine before what is known began, or by a canary.
    """

    standing: Standing
    until_ms: int
    lasts_ms: int
    firm: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A node is to have this health."""

    node: str
    health: Health
    reason: str


@dataclass(slots=True)
class Quarantine:
    """The nodes that take no work, and those that have to prove themselves; by a canary, if there `are_canaries`."""

    blame: Blame
    rules: Rules = field(default_factory=Rules)
    are_canaries: bool = False
    sentences: dict[str, Sentence] = field(default_factory=dict)

    def adopt(self, nodes: Iterable[str], now: int) -> None:
        """Nodes that are in quarantine already, as after a restart: their time begins anew."""
        first_ms = self.rules.first_ms
        for node in nodes:
            self.sentences[node] = Sentence(Standing.QUARANTINE, now + first_ms, first_ms, firm=True)

    @property
    def limit(self) -> int:
        """How many nodes may be in quarantine at a time."""
        return int(len(self.blame.books) * self.rules.share_max)

    @property
    def held(self) -> int:
        """How many are."""
        return sum(each.standing is not Standing.PROBATION for each in self.sentences.values())

    def ended(self, job: str, nodes: frozenset[str], failed: bool, now: int) -> Iterator[Change]:
        """A job has ended on nodes. It decides of those that are on probation."""
        self.blame.ended(job, nodes, failed, now)
        for node in sorted(nodes):
            sentence = self.sentences.get(node)
            if sentence is not None and sentence.standing is Standing.PROBATION:
                if not failed:
                    self.release(node, now)
                elif not self.blame.is_guilty(job, now) and self.held < self.limit:
                    yield self._hold(node, 2 * sentence.lasts_ms, f"{job} failed there on probation", now)

    def release(self, node: str, now: int) -> None:
        """A node is as good as any other: it was repaired, an operator says so, or it has proved itself."""
        self.sentences.pop(node, None)
        self.blame.forget(node, now)

    def changes(self, health: Mapping[str, Health], now: int) -> Iterator[Change]:
        """What is to become of nodes, which have this health now."""
        for node, sentence in list(self.sentences.items()):
            if health.get(node) is not (Health.HEALTHY if sentence.standing is Standing.PROBATION else Health.SUSPECT):
                # An operator, or whatever repairs nodes, has said otherwise.
                self.release(node, now)
            elif sentence.standing is Standing.QUARANTINE:
                yield from self._let_out(node, sentence, now)
        bad = [node for node in self.blame.accused if node not in self.sentences and self.is_bad(node, now)]
        for node in sorted(bad, key=lambda each: (-self.blame.books[each].failures(now), each)):
            if self.held < self.limit and health.get(node) is Health.HEALTHY:
                yield self._hold(node, self.rules.first_ms, self._why(node, now), now)

    def _let_out(self, node: str, sentence: Sentence, now: int) -> Iterator[Change]:
        if not sentence.firm and not self.is_bad(node, now):
            del self.sentences[node]
            yield Change(node, Health.HEALTHY, f"{PREFIX}over, what failed there failed elsewhere, too")
        elif now >= sentence.until_ms and self.are_canaries:
            self.sentences[node] = replace(sentence, standing=Standing.PROVING)
        elif now >= sentence.until_ms:
            self.sentences[node] = replace(sentence, standing=Standing.PROBATION)
            yield Change(node, Health.HEALTHY, f"{PREFIX}over, the next job that ends there decides")

    def proving(self) -> list[str]:
        """Nodes whose time is over, and that are to run a canary."""
        return [node for node, each in self.sentences.items() if each.standing is Standing.PROVING]

    def proved(self, node: str, well: bool, told: str, now: int) -> Change:
        """The canary of a node has ended: the node is as any other, or in quarantine again, for twice as long."""
        if not well:
            return self._hold(node, 2 * self.sentences[node].lasts_ms, told, now, firm=True)
        self.release(node, now)
        return Change(node, Health.HEALTHY, f"{PREFIX}over, {told}")

    def on_probation(self, node: str, why: str) -> Change:
        """A node cannot run a canary: the next job that ends there decides."""
        self.sentences[node] = replace(self.sentences[node], standing=Standing.PROBATION)
        return Change(node, Health.HEALTHY, f"{PREFIX}over, {why}: the next job that ends there decides")

    def next_ms(self) -> int | None:
        """When a quarantine ends next."""
        ends = [each.until_ms for each in self.sentences.values() if each.standing is Standing.QUARANTINE]
        return min(ends, default=None)

    def _hold(self, node: str, lasts_ms: int, why: str, now: int, firm: bool = False) -> Change:
        lasts_ms = min(lasts_ms, self.rules.longest_ms)
        self.sentences[node] = Sentence(Standing.QUARANTINE, now + lasts_ms, lasts_ms, firm)
        return Change(node, Health.SUSPECT, f"{PREFIX}{why}")

    def is_bad(self, node: str, now: int) -> bool:
        """Whether more fails there than on others, beyond what chance explains among so many nodes."""
        book, nodes = self.blame.books[node], len(self.blame.books)
        # Counts only decay, and of most of 10,000 nodes there is nothing to count.
        if len(book.blamed) < self.rules.failures and book.own.value < self.rules.failures:
            return False
        found = self.blame.evidence(node, now)
        by_jobs = found.failures >= self.rules.failures and found.chance * nodes < self.rules.chance
        by_itself = found.own >= self.rules.failures and found.own_chance * nodes < self.rules.chance
        return by_jobs or by_itself

    def _why(self, node: str, now: int) -> str:
        found = self.blame.evidence(node, now)
        if found.own_chance <= found.chance:
            return f"it failed {found.own:.0f} times, where others lead one to expect {found.own_expected:.1f}"
        what = self.blame.books[node].found_now()
        told = f" or found it amiss ({', '.join(what)})" if what else ""
        return (
            f"{found.failures:.0f} of {found.jobs:.0f} jobs failed there{told}, "
            f"where {found.expected:.1f} are to be expected"
        )
