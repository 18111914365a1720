"""Victims: who is stopped for a head that does not fit otherwise: of the lowest priorities, so that the least work is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice

from phalanx.cluster.bits import from_members, members
from phalanx.engine.preempt.charge import Charge
from phalanx.engine.preempt.clearable import ClearableNodes
from phalanx.engine.preempt.excess import Excess
from phalanx.engine.preempt.pruning import Pruning
from phalanx.engine.preempt.slack import Slack
from phalanx.engine.preempt.way import Context, Way
from phalanx.engine.quota.account import GPUS
from phalanx.engine.state.records import AttemptRecord, JobRecord, PreemptionGroup, gpu_permille_of
from phalanx.engine.state.yielding import yields
from phalanx.engine.transaction.suspension import loss_gpu_ms
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import largest_task
from phalanx.policy.policy import Targets
from phalanx.workload.gang import ANYWHERE

SEATINGS_MAX = 400
"""Transaction seatings spent on pruning for one head: a bound on work, counted and never timed."""

NODES_FEW = 256
"""Nodes up to which all are looked at for victims at once."""

CANDIDATES_MAX = 256
"""Victims up to which all together are tried when no single place will do."""

NEWEST_AT_ONCE = 32
"""Attempts, of the newest, that are looked at before it is asked whether their nodes are enough."""

VICTIMS_FEW = 10
"""Attempts up to which every set of them is looked at."""

SETS_MAX = 16
"""Sets of victims tried, cheapest first."""

EVEN = 1 << 20
"""Losses are multiplied by it before they are divided among tasks: whole numbers, however large, compare exactly."""


class VictimSearch:
    """Looks for victims where they are cheapest.

    For each node or domain in which the head would have to lie, the victims that clear it are added up; the cheapest
    sums are tried first. What fits is then pruned, so that every victim left is needed.
    """

    def __init__(self, transaction: Transaction, head: JobRecord, context: Context, way: Way) -> None:
        self.transaction = transaction
        self.context = context
        self.state = transaction.state
        self.head = head
        self.way = way
        self.chosen: list[AttemptRecord] = []
        self._task, self._count = largest_task(head.asked)
        self._ask = self.state.fit.ask(self._task, head.asked)
        self._seatings = 0
        self._mark = 0
        self._loss: dict[str, int] = {}
        self._groups: dict[PreemptionGroup, dict[str, AttemptRecord]] = {}
        self._charge = Charge(())

    def loss(self, attempt: AttemptRecord) -> int:
        """What is lost if an attempt makes way: GPU time since its last durable step, and stopping and restarting."""
        return loss_gpu_ms(self.state, attempt, self.context.now)

    def is_worth_while(self) -> bool:
        """Whether the head may fit without all of whom any may make way, by what can be counted before they do."""
        self._groups = {
            group: attempts
            for group in self.way.groups()
            if (attempts := self.state.runs[group]) and self.way.group_goes(next(iter(attempts.values())))
        }
        if not self._groups:
            return False
        self._charge = Charge(self.way.rank(next(iter(attempts.values()))) for attempts in self._groups.values())
        upper_bound = self.context.upper_bound
        fits_now = self.state.shortfall(self.head) is not None and upper_bound.fits_now()
        if not fits_now and not upper_bound.fits_without(self._up_to, self.context.fresh):
            return False
        return self.way.may_begin(self._groups.values())

    @property
    def _up_to(self) -> int:
        return max(priority for priority, _ in self._groups)

    def run(self) -> GangTrial | None:
        """Finds the victims that lose the least, whatever their order; they are in `chosen` then."""
        if not self._fits_without_all():
            return None
        short = self.state.shortfall(self.head)
        seated = self._best_of_few(short.asked - short.left if short is not None and short.resource == GPUS else 0)
        if seated is not None:
            return seated
        if short is not None and short.resource == GPUS and self.context.upper_bound.fits_now():
            seated = self._free_quota(short.asked - short.left)
            if seated is not None:
                return seated
        clearable = self.state.preemptible_gpus.nodes(self.state.capacity, self._up_to, self._task.gpus)
        for nodes in self._samples(self._reach() & clearable):
            on_node = self._candidates(nodes)
            sets = sorted(self._sets(on_node), key=self._price)[:SETS_MAX]
            for victims in sets:
                seated = self._try(victims)
                if seated is not None:
                    return self._prune(victims, self._dearest_first(victims))
        if short is None and not self._is_intricate() and self._reach().bit_count() > NODES_FEW:
            return None
        # Who only has what the head's queue may not have more of can be anywhere.
        everywhere = self.state.topology.everything if short is not None else self._reach()
        found = {attempt.key: attempt for attempts in self._candidates(everywhere).values() for attempt in attempts}
        cheapest_first = sorted(found.values(), key=lambda attempt: (self._loss[attempt.key], attempt.key))
        cheapest_first = Excess(self.state, self.head).of(cheapest_first)
        if short is not None:
            cheapest_first = cheapest_first[:CANDIDATES_MAX]
        if len(cheapest_first) > CANDIDATES_MAX:
            return None
        return self._add_up(self.way.together(cheapest_first), self._dearest_first)

    def _fits_without_all(self) -> bool:
        """Whether the head may fit without all that make way, as far as they can be counted, and are not too many."""
        if self._is_intricate() or not self._task.gpus or sum(map(len, self._groups.values())) > CANDIDATES_MAX:
            return True
        return self._count_enough(
            [attempt for group in self._groups.values() for attempt in group.values() if self.way.goes(attempt)]
        )

    def _best_of_few(self, over_quota: int) -> GangTrial | None:
        """Where few could be victims every set of them is looked at, the cheapest first: exact, whatever the head."""
        if sum(map(len, self._groups.values())) > VICTIMS_FEW or not self._task.gpus or self._is_intricate():
            return None
        few = [attempt for group in self._groups.values() for attempt in group.values() if self.way.goes(attempt)]
        for attempt in few:
            self._loss[attempt.key] = self._charge.of(self.way.rank(attempt), self.loss(attempt))
        few = self._cheapest_first(few)
        enough = (
            victims
            for victims in self._subsets(few)
            if gpu_permille_of(booking for victim in victims for booking in victim.staying) >= over_quota
            and self._count_enough(victims)
        )
        for victims in islice(enough, SETS_MAX):
            seated = self._try(victims)
            if seated is not None:
                self.chosen = victims
                return seated
        return None

    def _subsets(self, attempts: list[AttemptRecord]) -> Iterator[list[AttemptRecord]]:
        """Every set of attempts that are in the order of their losses, by price: from each the next are the one with
        one more, and the one with its last replaced by the one after.
        """
        sets: list[tuple[tuple[int, int], tuple[int, ...]]] = [(self._price(attempts[:1]), (0,))] if attempts else []
        while sets:
            _, chosen = heappop(sets)
            yield [attempts[i] for i in chosen]
            after = chosen[-1] + 1
            if after < len(attempts):
                for more in ((*chosen, after), (*chosen[:-1], after)):
                    heappush(sets, (self._price([attempts[i] for i in more]), more))

    def _count_enough(self, victims: list[AttemptRecord]) -> bool:
        """Whether there may be room for the head without some, as far as GPUs on nodes tell, wherever these are.

        Where it asks for parts of GPUs they tell nothing: several of its tasks may lie on one, beside others.
        """
        if self._task.share is not None:
            return True
        gained: dict[int, int] = {}
        for attempt in victims:
            for booking in attempt.bookings:
                gained[booking.node] = gained.get(booking.node, 0) + booking.devices.bit_count()
        tasks = self._clear_already(self.state.topology.everything)
        gpus, free = self._task.gpus, self.state.capacity.free
        for node, more in gained.items():
            had = free[node].bit_count()
            tasks += (had + more) // gpus - (had // gpus if self._passes(node) else 0)
        return tasks >= self._count

    def _passes(self, node: int) -> bool:
        return bool(self.state.fit.passing(self._ask) >> node & 1)

    def _free_quota(self, lacking: int) -> GangTrial | None:
        """Where there are devices, but the queue may not have so many: the cheapest who have as much, wherever."""
        on_node = self._candidates(self.state.topology.everything)
        found = {attempt.key: attempt for attempts in on_node.values() for attempt in attempts}
        candidates = self._cheapest_first(found.values())[:CANDIDATES_MAX]
        gains = [gpu_permille_of(attempt.staying) for attempt in candidates]
        if sum(gains) < lacking:
            return None
        victims = self._cheapest(lacking, candidates, gains)
        return self._prune(victims, self._dearest_first(victims)) if self._try(victims) is not None else None

    def displace(self) -> GangTrial | None:
        """Has those behind the head in the order give way, the last first, and spares whoever it can do without.

        The walk ends at the first place that they clear. With one pool of GPUs that is what going through everybody
        in order would give, where each takes what is left if it suffices.
        """
        if self._is_intricate() or not self._task.gpus:
            last_first = list(islice(self._behind(), CANDIDATES_MAX))
            return self._add_up(last_first, lambda victims: victims[::-1])
        free = self.state.capacity.free_total
        if free + self.state.gpus_behind(self.state.rank(self.head)) < self._task.gpus * self._count:
            return None
        clearing = ClearableNodes(self.state, self.head, self._task, self._count)
        walked: list[AttemptRecord] = []
        for attempt in self._behind():
            walked.append(attempt)
            for nodes in clearing.gain(attempt):
                victims = [other for other in walked if any(nodes >> booking.node & 1 for booking in other.bookings)]
                if self._try(victims) is not None:
                    return self._prune(victims, victims[::-1])
                if self._seatings >= SETS_MAX:
                    return None
        return None

    def _behind(self) -> Iterator[AttemptRecord]:
        for attempt in self.state.behind(self.state.rank(self.head)):
            if self.way.goes(attempt) and (not self.state.quotas or yields(self.state, self.head, attempt)):
                yield attempt

    def _add_up(
        self, victims: list[AttemptRecord], spare_first: Callable[[list[AttemptRecord]], list[AttemptRecord]]
    ) -> GangTrial | None:
        """For gangs of several roles or levels: as few of the first victims together as will do."""
        if not victims or len(victims) > CANDIDATES_MAX or self._try(victims) is None:
            return None
        self.transaction.undo_to(self._mark)
        too_few, enough = 0, len(victims)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if self._try(victims[:middle]) is not None:
                self.transaction.undo_to(self._mark)
                enough = middle
            else:
                too_few = middle
        enough_victims = victims[:enough]
        return self._prune(enough_victims, spare_first(enough_victims)) if self._try(enough_victims) else None

    def _is_intricate(self) -> bool:
        """Whether the head is more than so many equal tasks, which the sets by node and domain do not look at."""
        roles = self.head.asked.gang.roles
        return len(roles) > 1 or bool(roles[0].members) or roles[0].topology != ANYWHERE

    def _candidates(self, nodes: int) -> dict[int, list[AttemptRecord]]:
        """Attempts that may be stopped for the head, by node."""
        found: dict[int, list[AttemptRecord]] = {}
        on_node, groups, losses = self.state.on_node, self._groups, self._loss
        for node in members(self._with_groups(nodes)):
            here = []
            for attempt in on_node.get(node, {}).values():
                # Of whom it is known what it loses it is known that it goes.
                if attempt.key in losses:
                    here.append(attempt)
                elif attempt.group in groups and self.way.goes(attempt):
                    losses[attempt.key] = self._charge.of(self.way.rank(attempt), self.loss(attempt))
                    here.append(attempt)
            if here:
                found[node] = here
        return found

    def _with_groups(self, nodes: int) -> int:
        """Of some nodes those on which anybody of the groups is, if these are so few that it is worth while."""
        if sum(map(len, self._groups.values())) > nodes.bit_count():
            return nodes
        found, bit = 0, self.state.topology.bit
        for attempts in self._groups.values():
            for attempt in attempts.values():
                for booking in attempt.bookings:
                    found |= bit[booking.node]
        return nodes & found

    def _reach(self) -> int:
        return self.context.upper_bound.reach(self.context.fresh)

    def _samples(self, reach: int) -> Iterator[int]:
        """Nodes to look at: in a large cluster first those of the newest victims, who have least to lose; then all."""
        if reach.bit_count() > NODES_FEW:
            yield self._of_newest(reach, max(NODES_FEW, 4 * self._count))
        if reach:
            yield reach

    def _of_newest(self, reach: int, count: int) -> int:
        """About `count` nodes of those who started last; where the head must lie in one domain, whole domains."""
        topology = self.state.topology
        required = self.head.asked.gang.topology.required
        of_node = topology.domain_of.get(required)
        # As digits: asking a long integer for a bit takes as long as it is.
        digits = f"{reach:0{len(topology.nodes)}b}"[::-1]
        found: dict[int, None] = {}
        domains: dict[int, None] = {}
        newest = self._newest_first()
        while len(found) < count and (some := list(islice(newest, NEWEST_AT_ONCE))):
            nodes = [booking[0] for attempt in some for booking in attempt.bookings]
            if of_node is not None:
                some_domains = dict.fromkeys([of_node[node] for node in nodes])
                new = [topology.domains[required][each] for each in some_domains if each not in domains]
                domains.update(some_domains)
                nodes = [node for domain in new for node in range(domain.first, domain.last)]
            found.update(dict.fromkeys([node for node in nodes if digits[node] == "1"]))
        return from_members(found, len(topology.nodes))

    def _newest_first(self) -> Iterator[AttemptRecord]:
        return chain.from_iterable(reversed(self._groups[group].values()) for group in sorted(self._groups))

    def _sets(self, on_node: dict[int, list[AttemptRecord]]) -> Iterator[list[AttemptRecord]]:
        """Victims for each single node that would hold the whole head, and for each domain it may spread over."""
        if self.head.asked.gang.gpus_min <= self.state.capacity.gpus_max:
            for node, candidates in on_node.items():
                victims = self._clear(node, self._count, candidates)
                if victims:
                    yield victims
        if self._count > 1:
            yield from self._spread(on_node)

    def _spread(self, on_node: dict[int, list[AttemptRecord]]) -> Iterator[list[AttemptRecord]]:
        """In each domain of the required level, the cheapest nodes to clear beside those that are clear already."""
        topology = self.state.topology
        required = self.head.asked.gang.topology.required
        of_node = topology.domain_of.get(required)
        if of_node is None and required in topology.cluster.levels:
            return
        domains: dict[int, list[tuple[int, int, int, list[AttemptRecord]]]] = {}
        for node, candidates in on_node.items():
            tasks, victims = self._clear_whole(node, candidates)
            if tasks:
                loss = self._price(victims)[0] * EVEN // tasks
                domains.setdefault(of_node[node] if of_node else 0, []).append((loss, node, tasks, victims))
        for index, offers in domains.items():
            everybody = topology.domains[required][index].nodes if of_node else topology.everything
            lacking = self._count - self._clear_already(everybody)
            chosen: dict[str, AttemptRecord] = {}
            for _, _, tasks, victims in sorted(offers, key=lambda offer: offer[:2]):
                if lacking > 0:
                    lacking -= tasks
                    chosen.update((attempt.key, attempt) for attempt in victims)
            if lacking <= 0 and chosen:
                yield list(chosen.values())

    def _clear_whole(self, node: int, candidates: list[AttemptRecord]) -> tuple[int, list[AttemptRecord]]:
        """As many tasks as the node gains by stopping victims, and the victims."""
        if self._task.gpus * 2 > self.state.capacity.gpus_max or not self._task.gpus:
            return 1, self._clear(node, 1, candidates) or []
        free = self.state.capacity.free[node].bit_count()
        gained = sum(self._gain(attempt, node) for attempt in candidates)
        tasks = min((free + gained) // self._task.gpus, self._count)
        return tasks - free // self._task.gpus, self._clear(node, tasks, candidates) or []

    def _gain(self, attempt: AttemptRecord, node: int) -> int:
        return sum([booking.devices.bit_count() for booking in attempt.bookings if booking.node == node])

    def _clear_already(self, nodes: int) -> int:
        capacity = self.state.capacity
        passing = self.state.fit.passing(self._ask) & nodes
        gpus = max(self._task.gpus, 1)
        return sum([(passing & having).bit_count() * (free // gpus) for free, having in capacity.by_free(gpus)])

    def _price(self, victims: list[AttemptRecord]) -> tuple[int, int]:
        return sum([self._loss[attempt.key] for attempt in victims]), len(victims)

    def _clear(self, node: int, tasks: int, candidates: list[AttemptRecord]) -> list[AttemptRecord] | None:
        """The cheapest victims that give so many tasks their GPUs on a node, and then what else they need of it."""
        lacking = self._task.gpus * tasks - self.state.capacity.free[node].bit_count()
        gains = [self._gain(attempt, node) for attempt in candidates]
        if sum(gains) < lacking:
            return None
        chosen = self._cheapest(lacking, candidates, gains)
        if self._short_of_amounts(node, tasks, chosen):
            for attempt in sorted(candidates, key=lambda attempt: self._loss[attempt.key]):
                if attempt not in chosen:
                    chosen.append(attempt)
                    if not self._short_of_amounts(node, tasks, chosen):
                        break
        return chosen

    def _cheapest(self, lacking: int, candidates: list[AttemptRecord], gains: list[int]) -> list[AttemptRecord]:
        """The least loss, then the fewest, that gain so many GPUs: exact, one victim after the other for every gain."""
        if len(candidates) == 1:
            return candidates[:] if lacking > 0 else []
        best: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, 0, ())}
        for i, attempt in enumerate(candidates):
            for had, (loss, count, who) in list(best.items()):
                gained = min(had + gains[i], max(lacking, 0))
                offer = (loss + self._loss[attempt.key], count + 1, (*who, i))
                if gained not in best or offer < best[gained]:
                    best[gained] = offer
        return [candidates[i] for i in best[max(lacking, 0)][2]]

    def _short_of_amounts(self, node: int, tasks: int, chosen: list[AttemptRecord]) -> bool:
        """Whether CPUs, memory or NICs would still be short with the chosen gone."""
        amounts = self.state.capacity.amounts
        for number, amount in self._ask.needs:
            lacking = amount * tasks - amounts[number].free[node]
            if lacking > 0 and lacking > _given(chosen, node, number):
                return True
        return False

    def _try(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Seats the head with the victims gone; leaves both in place if it fits."""
        self._mark = self.transaction.mark()
        self._seatings += 1
        seated = self.way.seat(victims)
        if seated is None:
            self.transaction.undo_to(self._mark)
        return seated

    def _prune(self, victims: list[AttemptRecord], spare_first: list[AttemptRecord]) -> GangTrial:
        """Spares, in the given order, whoever the head can do without."""
        self.transaction.undo_to(self._mark)
        pruning = Pruning(self._fits_without, lambda: self._seatings >= SEATINGS_MAX, self._slack_of(victims))
        self.chosen = pruning.of(victims, spare_first)
        seated = self._try(self.chosen)
        assert seated is not None, f"{self.head.job.id} fitted a moment ago"
        return seated

    def _fits_without(self, victims: list[AttemptRecord]) -> bool:
        fits = self._try(victims) is not None
        self.transaction.undo_to(self._mark)
        return fits

    def _slack_of(self, victims: list[AttemptRecord]) -> Callable[[list[AttemptRecord]], Slack] | None:
        """Tells of fewer victims without a try; not of intricate heads: one may fit with fewer, not with more."""
        if self._is_intricate() or not self._task.gpus or self._task.share is not None:
            return None
        return self.way.slack_of(victims)

    def _cheapest_first(self, victims: Iterable[AttemptRecord]) -> list[AttemptRecord]:
        """Of those who lose as much, who started first comes first; of queues whose running jobs stand in the order the
        last one, or it would be stopped in turn for another of its queue that made way.
        """
        jobs = self.state.jobs
        if self.state.quotas and self.state.policy.targets is not Targets.KEEP:
            last_first = sorted(victims, key=lambda attempt: self.state.order(jobs[attempt.job.id]), reverse=True)
            return sorted(last_first, key=lambda attempt: self._loss[attempt.key])
        return sorted(victims, key=lambda attempt: (self._loss[attempt.key], jobs[attempt.job.id].opened))

    def _dearest_first(self, victims: list[AttemptRecord]) -> list[AttemptRecord]:
        return sorted(victims, key=lambda attempt: -self._loss[attempt.key])


def _given(attempts: list[AttemptRecord], node: int, number: int) -> int:
    """How much of an amount attempts have on a node."""
    return sum(
        amount
        for attempt in attempts
        for booking in attempt.bookings
        if booking.node == node
        for which, amount in booking.needs
        if which == number
    )
