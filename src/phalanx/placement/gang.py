"""Gang placement: the whole gang on the state as it is, or nothing.

The search goes from the tightest level that could hold the gang outwards, tries the fullest domain first, and books
as it goes; what does not work out is undone booking by booking.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import NamedTuple

from phalanx.cluster.bits import lowest, span
from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import CLUSTER, NODE
from phalanx.placement.bounds import Range, domains_within
from phalanx.placement.domain_search import TRIALS_FEW, DomainSearch
from phalanx.placement.exhaustion import TASKS_MAX, way_now
from phalanx.placement.fit import Ask, Fit
from phalanx.placement.pack import Packing
from phalanx.placement.shares import Parts
from phalanx.workload.gang import ANYWHERE, Gang, Role, Topology
from phalanx.workload.job import Job, Kind
from phalanx.workload.parallel import ParallelPlan
from phalanx.workload.shape import are_unheld, has_parts, is_lone, is_single, least_tasks, task_size
from phalanx.workload.sizes import fewer, leaves, whole_steps

ORDERS_MAX = 8
"""Orders in which the roles of a group are seated in trial: after the first few, a role left out goes first."""

TASKS_MANY = 64
"""Tasks from which on it is cheaper to count first which type of GPU holds a gang than to seat it twice."""


class Seat(NamedTuple):
    """A booked task: its role's path and what it takes."""

    role: str
    booking: Booking


class GangTrial(DomainSearch):
    """One attempt to seat a gang. While it lasts its bookings are held; `undo` gives them all back."""

    def __init__(self, fit: Fit, packing: Packing, job: Job) -> None:
        super().__init__(fit, packing, job)
        packing.begin(job)
        self.seats: list[Seat] = []
        self.first_rank = 0
        self._tp = 1
        self._tp_level = NODE

    def seat(self) -> bool:
        """Seats the gang at full size, or, if it is elastic, as large as fits; at least at its minimum."""
        gang = self.job.gang
        if is_lone(gang) or self._is_as_good_as_lone(gang):
            return self._seat_alone(gang.roles[0])
        if not self.fit.types_differ or not self._minds_types():
            return self._seat_all() or self._seat_in_some_way()
        tasks = sum(count for _, count in leaves(gang.roles))
        if tasks > TASKS_MANY and self._seat_on_one_type(tasks):
            return True
        seated = self._seat_all() or self._seat_in_some_way()
        if seated and self._mixes_types():
            self._unmix()
        return seated

    def _minds_types(self) -> bool:
        """Whether the gang is better off on GPUs of one type: replicas of a service do not wait for one another."""
        return self.job.kind is not Kind.SERVICE and self.packing.keeps_types

    def _mixes_types(self) -> bool:
        """Whether the gang has GPUs of several types."""
        type_of = self.capacity.type_of
        first = -1
        for _, booking in self.seats:
            if booking.devices:
                found = type_of[booking.node]
                if found != first and first >= 0:
                    return True
                first = found
        return False

    def _unmix(self) -> None:
        """Moves a gang that is seated to GPUs of one type if there is one that holds as much of it."""
        mixed = list(self.seats)
        self.undo()
        if not self._seat_on_one_type(len(mixed)):
            for seat in mixed:
                self._book(*seat)

    def _seat_on_one_type(self, tasks: int) -> bool:
        """Seats at least so many tasks of the gang, those with GPUs on GPUs of one type; or nothing."""
        for one_type in self._types_with_room(tasks):
            self._keep_to(one_type)
            if self._seat_all() and len(self.seats) >= tasks:
                return True
            self.undo()
        self._keep_to(())
        return False

    def _keep_to(self, one_type: tuple[int, ...]) -> None:
        """Has tasks with GPUs go to those of one type only, or to any."""
        self._one_type = one_type
        self._of_type = self.fit.of_types(self.capacity.gpu_types[number] for number in one_type) if one_type else -1
        self._step += 1

    def _types_with_room(self, tasks: int) -> list[tuple[int, ...]]:
        """Types of GPU that every task of the gang may have, and that so many tasks in all may find room on.

        The type comes first that has the least room: what is left of other types stays for jobs that need more.
        """
        kinds = leaves(self.job.gang.roles)
        asks = [self.fit.ask(role.task, self.job) for role, _ in kinds if role.task.gpus]
        if not asks or any(ask.portions or ask.types != asks[0].types for ask in asks):
            return []
        smallest = min(asks, key=lambda ask: ask.gpus)
        passing = 0
        for ask in asks:
            passing |= self._passes(ask)
        least = tasks - sum(count for role, count in kinds if not role.task.gpus)
        rooms = []
        for number in smallest.types:
            nodes = passing & self.fit.of_types((self.capacity.gpu_types[number],))
            room = sum(map(int.bit_count, self._holding(smallest, nodes)))
            if room >= least:
                rooms.append((room, number))
        return [(number,) for _, number in sorted(rooms)]

    def _seat_all(self) -> bool:
        """Seats the gang at full size, or as large as fits, on any of the nodes that are looked at."""
        gang = self.job.gang
        everywhere = Range(0, len(self.capacity.topology.nodes))
        self._sharing = has_parts(gang.roles)
        plan = self.job.parallel
        if plan is None:
            return self._group(gang.roles, gang.topology, everywhere, "")
        sizes = whole_steps(gang.roles, plan)
        if not sizes:
            return False
        roles = fewer(gang.roles, sizes[0]) if sizes[0] else gang.roles
        return self._seat_whole_groups(plan, roles, everywhere) or self._group(roles, gang.topology, everywhere, "")

    def _seat_in_some_way(self) -> bool:
        """Seats a gang of several kinds of tasks at its smallest, by trying every way there is in a small cluster.

        The role that is seated first takes the best place for itself, which may be the only one of another; and what
        keeps close together without having to may take what other roles need.
        """
        gang = self.job.gang
        is_one_kind = len(gang.roles) == 1 and not gang.roles[0].members
        if is_one_kind or not self.capacity.has_free(self.capacity.open & self.among & self._of_type, gang.gpus_min):
            return False
        domains = self._domains_to_choose_from(gang.topology.required)
        wide = ("", CLUSTER, NODE, *self.capacity.topology.domains)
        if self.job.parallel is not None or not domains or not are_unheld(gang.roles, gang.topology.required, wide):
            return False
        seats = list(islice(least_tasks(gang.roles, ""), TASKS_MAX + 1))
        if len(dict.fromkeys(task for task, _ in seats)) < 2 or any(task.share is not None for task, _ in seats):
            return False
        nodes = way_now(self.fit, self.job, [task for task, _ in seats], self._passes, domains)
        if nodes is None:
            return False
        for (task, path), node in zip(seats, nodes, strict=True):
            self._book_tasks(self.fit.ask(task, self.job), path, node, 1)
        return True

    def _domains_to_choose_from(self, level: str) -> list[Range]:
        """Domains of several nodes that the gang must lie in one of; none where it must lie on one node."""
        topology = self.capacity.topology
        everywhere = Range(0, len(topology.nodes))
        if level in ("", CLUSTER):
            return [everywhere]
        return list(domains_within(topology, level, everywhere)) if level in topology.domains else []

    def _seat_whole_groups(self, plan: ParallelPlan, roles: tuple[Role, ...], within: Range) -> bool:
        """Seats a gang so that the tasks of each tensor-parallel group share a node, at least for one replica of it.

        Such a group sends many times in every layer: one that is torn costs more than any distance between groups. What
        is larger than nodes is kept in one domain whose nodes are joined by faster links than those of other domains.
        """
        if not any(0 < role.task.gpus < plan.tp for role, _ in leaves(self.job.gang.roles)):
            return False
        if plan.tp <= self.capacity.gpus_max and self._seat_in_groups(plan, roles, within, NODE):
            return True
        fast = self._fast_level()
        return fast != NODE and self._seat_in_groups(plan, roles, within, fast)

    def _seat_in_groups(self, plan: ParallelPlan, roles: tuple[Role, ...], within: Range, level: str) -> bool:
        """Likewise, where each tensor-parallel group lies in one domain of a level."""
        self._tp, self._tp_level = plan.tp, level
        seated = self._group(roles, self.job.gang.topology, within, "")
        self._tp, self._tp_level = 1, NODE
        if sum(seat.booking.devices.bit_count() for seat in self.seats) >= plan.tp * plan.pp:
            return seated
        self.undo()
        return False

    def _fast_level(self) -> str:
        """The outermost level whose links are faster than those around it; the node, if none above it has such."""
        topology = self.capacity.topology
        levels = (CLUSTER, *topology.cluster.levels_above)
        fast = (inner for outer, inner in pairwise(levels) if topology.link(inner).gb_s > topology.link(outer).gb_s)
        return next(fast, NODE)

    def _together(self, ask: Ask) -> int:
        """How many tasks go to a node together."""
        return self._group_size(ask) if self._tp_level == NODE else 1

    def _group_size(self, ask: Ask) -> int:
        """How many tasks a tensor-parallel group consists of, where they are kept together."""
        return self._tp // ask.gpus if ask.gpus and not self._tp % ask.gpus else 1

    def _is_as_good_as_lone(self, gang: Gang) -> bool:
        """Whether a gang is one task for which the search would begin with the best of all nodes."""
        return (
            is_single(gang)
            and gang.roles[0].replicas_min == 1
            and self.job.parallel is None
            and self._levels_for(gang.roles, gang.topology)[:1] == (NODE,)
        )

    def _seat_alone(self, role: Role) -> bool:
        seat = self.best_alone(role)
        if seat is None:
            return False
        self._book(seat.role, seat.booking)
        return True

    def best_alone(self, role: Role) -> Seat | None:
        """Where one task would go, the best node: what the search would come to, without searching or booking."""
        ask = self.fit.ask(role.task, self.job)
        for best in self.packing.ranked(self.capacity, ask.gpus, self.fit.passing(ask) & self.among):
            node = lowest(best)
            devices = self.capacity.topology.layouts[node].pick(self.capacity.free[node] & self._allowed, ask.gpus)
            return Seat(role.name, Booking(node, devices, ask.needs, None, self._holder()))
        return None

    def grow(self, role: Role, more: int, beside: Booking) -> list[Seat]:
        """Seats up to `more` members of a role in the domain that the gang requires and a booking of it lies in.

        Those of a tensor-parallel group stay together: one that is torn would slow down all other groups. GPUs of the
        same type as those of that booking come first.
        """
        topology = self.capacity.topology
        self._sharing = has_parts((role,))
        node = beside.node
        within = Range(0, len(topology.nodes))
        required = self.job.gang.topology.required
        if required in topology.domains:
            domain = topology.domains[required][topology.domain_of[required][node]]
            within = Range(domain.first, domain.last)
        elif required in topology.cluster.levels:
            within = Range(node, node + 1)
            for group in topology.layouts[node].levels.get(required, ()):
                if group & beside.devices:
                    self._allowed = group
        plan = self.job.parallel
        if plan is not None:
            fits_a_node = plan.tp <= self.capacity.gpus_max
            self._tp_level = NODE if fits_a_node else self._fast_level()
            self._tp = plan.tp if fits_a_node or self._tp_level != NODE else 1
        for one_type in self._types_to_grow_on(role, beside):
            self._keep_to(one_type)
            more -= self._replicas(role, 1, more, within, "") if more else 0
        return self.seats

    def _types_to_grow_on(self, role: Role, beside: Booking) -> tuple[tuple[int, ...], ...]:
        """The type of GPU that a gang has, then any: it runs as fast as its slowest member."""
        minds = role.task.gpus and self.fit.types_differ and self._minds_types()
        return ((self.capacity.type_of[beside.node],), ()) if minds and beside.devices else ((),)

    def undo(self) -> None:
        """Gives every booking back."""
        self._undo_to(0)

    def _undo_to(self, mark: int) -> None:
        self._step += 1
        while len(self.seats) > mark:
            self.capacity.release(self.seats.pop().booking)

    def _book(self, role: str, booking: Booking) -> None:
        self._step += 1
        self.capacity.hold(booking)
        self.seats.append(Seat(role, booking))

    def _group(self, roles: tuple[Role, ...], topology: Topology, within: Range, path: str) -> bool:
        """Seats a group of roles inside one domain, as its topology asks."""
        levels = self._levels_for(roles, topology)
        for level in levels:
            if self._seat_at(level, roles, within, path) is not None:
                return True
        if not levels or not any(role.replicas_min < role.replicas_max for role in roles):
            return False
        return self._seat_elastic(levels[-1], roles, within, path)

    def _levels_for(self, roles: tuple[Role, ...], topology: Topology) -> tuple[str, ...]:
        """Levels that are tried in turn. Tasks that share devices lie close only where that is asked for.

        One task lies as close as can be on any node: it goes to the tightest domain of those it has to lie in one of,
        so that larger ones stay whole.
        """
        levels = self.search_levels(topology)
        if not topology.preferred and topology.required in self.capacity.topology.domains and _is_one_task(roles):
            return levels[-1:]
        if (
            not self._sharing
            or not has_parts(roles)
            or (topology.preferred and sum(count for _, count in leaves(roles)) > 1)
        ):
            return levels
        return levels[-1:]

    def search_levels(self, topology: Topology) -> tuple[str, ...]:
        """Levels from the preferred one (else the node) outwards to the required one (else the whole cluster)."""
        cluster = self.capacity.topology.cluster
        outward = (*reversed(cluster.levels), CLUSTER)
        if any(level and level not in outward for level in (topology.required, topology.preferred)):
            return ()
        last = outward.index(topology.required or CLUSTER)
        first = min(outward.index(topology.preferred or NODE), last)
        return self.packing.levels(outward[first : last + 1])

    def _seat_elastic(self, level: str, roles: tuple[Role, ...], within: Range, path: str) -> bool:
        """Seats the group at the largest size that fits one domain: what fits at a size fits at any smaller one.

        A gang with a parallel plan has sizes that hold whole replicas of the model only.
        """
        mark = len(self.seats)
        sizes = whole_steps(roles, None if path else self.job.parallel)
        too_few, enough = 0, len(sizes) - 1
        if enough < 1 or self._seat_at(level, fewer(roles, sizes[enough]), within, path) is None:
            return False
        while enough - too_few > 1:
            self._undo_to(mark)
            middle = (too_few + enough) // 2
            if self._seat_at(level, fewer(roles, sizes[middle]), within, path) is not None:
                enough = middle
            else:
                too_few = middle
        self._undo_to(mark)
        return self._seat_at(level, fewer(roles, sizes[enough]), within, path) is not None

    def _seat_at(self, level: str, roles: tuple[Role, ...], within: Range, path: str) -> Range | None:
        """Seats all roles at their maximum in one domain of a level; where it did, or None."""
        for domain in self._domains(level, roles, within):
            if self._fill(roles, domain, path):
                return domain
        return None

    def _fill(self, roles: tuple[Role, ...], within: Range, path: str) -> bool:
        """Seats all roles at their maximum in a domain. A role that does not fit when seated late may when early."""
        if len(roles) == 1:
            return self._left_out(roles, within, path) is None
        by_choice = tuple(sorted(roles, key=self._choice))
        by_size = tuple(sorted(roles, key=task_size, reverse=True))
        orders = list(dict.fromkeys((by_choice, tuple(sorted(by_size, key=self._choice)), by_size)))
        for order in orders:
            left_out = self._left_out(order, within, path)
            if left_out is None:
                return True
            first = (left_out, *(role for role in order if role is not left_out))
            if first not in orders and len(orders) < ORDERS_MAX:
                orders.append(first)
        return False

    def _left_out(self, roles: tuple[Role, ...], within: Range, path: str) -> Role | None:
        """Seats roles one after the other; the first that does not fit, with none seated then."""
        mark = len(self.seats)
        for role in roles:
            if self._replicas(role, role.replicas_max, role.replicas_max, within, path) < role.replicas_max:
                self._undo_to(mark)
                return role
        return None

    def _choice(self, role: Role) -> int:
        """How many nodes a role could use: the role with the least choice chooses first."""
        return min(self.fit.ask(leaf.task, self.job).eligible.bit_count() for leaf, _ in leaves((role,)))

    def _replicas(self, role: Role, least: int, most: int, within: Range, path: str) -> int:
        """Seats `least` to `most` replicas of a role, or none; how many."""
        path = f"{path}/{role.name}" if path else role.name
        if not role.members and role.topology == ANYWHERE:
            ask = self.fit.ask(role.task, self.job)
            if self._tp_level != NODE and self._group_size(ask) > 1:
                return self._wide_groups(role, ask, path, least, most, within)
            return self._tasks(ask, path, least, most, within)
        mark = len(self.seats)
        group = role.members or (Role(role.name, task=role.task),)
        if least > TRIALS_FEW and self._counting().groups(group, role.topology.required, within) < least:
            return 0
        below = path if role.members else path.rpartition("/")[0]
        for seated in range(most):
            if not self._group(group, role.topology, within, below):
                if seated < least:
                    self._undo_to(mark)
                    return 0
                return seated
        return most

    def _wide_groups(self, role: Role, ask: Ask, path: str, least: int, most: int, within: Range) -> int:
        """Likewise, the tasks of each tensor-parallel group in one domain of its level; what is over goes anywhere."""
        mark, tp, level, size = len(self.seats), self._tp, self._tp_level, self._group_size(ask)
        group, below = (Role(role.name, size, size, role.task),), path.rpartition("/")[0]
        self._tp, self._tp_level = 1, NODE
        seated = 0
        while seated + size <= most and self._group(group, Topology(required=level), within, below):
            seated += size
        if seated < least and most - seated < size:
            seated += self._tasks(ask, path, least - seated, most - seated, within)
        self._tp, self._tp_level = tp, level
        if seated < least:
            self._undo_to(mark)
            return 0
        return seated

    def _tasks(self, ask: Ask, path: str, least: int, most: int, within: Range) -> int:
        if ask.portions:
            return self._shares(ask, path, least, most, within)
        if least > TASKS_MANY and ask.gpus and self._room_by_gpus(ask, within) < least:
            return 0
        if most > 1 and (self.job.kind is Kind.SERVICE or self.packing.one_by_one):
            return self._one_by_one(ask, path, least, most, within)
        picks = self._picks(ask, most, within)
        seated = sum(count for _, count in picks)
        if seated < least or not seated:
            return 0
        for node, count in picks:
            self._book_tasks(ask, path, node, count)
        return seated

    def _one_by_one(self, ask: Ask, path: str, least: int, most: int, within: Range) -> int:
        """Replicas of a service do not talk to each other: each takes the best node for itself."""
        mark = len(self.seats)
        together = self._together(ask)
        for seated in range(0, most, together):
            count = min(together, most - seated)
            picks = self._picks(ask, count, within)
            if not picks:
                if seated < least:
                    self._undo_to(mark)
                    return 0
                return seated
            self._book_tasks(ask, path, picks[0][0], count)
        return most

    def _shares(self, ask: Ask, path: str, least: int, most: int, within: Range) -> int:
        """Seats tasks that share devices."""
        mark = len(self.seats)
        parts = Parts(self.fit, self.packing, ask, self._passes(ask) & span(*within), self._allowed)
        parts.crowded = self.crowded
        if self.crowded:
            # Two tasks of one gang on a device would wait for one another.
            parts.taken = {(seat.booking.node, lowest(seat.booking.devices)): None for seat in self.seats}
        for seated in range(most):
            part = parts.next()
            if part is None:
                if seated < least:
                    self._undo_to(mark)
                    return 0
                return seated
            self._book(path, Booking(part.node, 1 << part.device, ask.needs, part.portion, self._holder()))
        return most

    def _picks(self, ask: Ask, most: int, within: Range) -> list[tuple[int, int]]:
        """Nodes and numbers of tasks: the emptiest nodes filled first, the rest where it fits tightest.

        So a gang lies on as few nodes as it can, and only its last node is left partly used.
        """
        picks: list[tuple[int, int]] = []
        nodes = self._passes(ask)
        together = self._together(ask)
        for node in self.packing.filling(self.capacity, ask.gpus, nodes, *within):
            fits = self._fits(ask, node)
            if together <= most and fits < most:
                fits -= fits % together
            if fits >= most:
                picks.append((self._tightest(ask, most, nodes, within, node), most))
                return picks
            if fits:
                picks.append((node, fits))
                nodes ^= self.capacity.topology.bit[node]
                most -= fits
        return picks

    def _book_tasks(self, ask: Ask, path: str, node: int, count: int) -> None:
        layout = self.capacity.topology.layouts[node]
        devices = layout.pick(self.capacity.free[node] & self._allowed, ask.gpus * count)
        for left in range(count, 0, -1):
            own = devices if left == 1 else layout.pick(devices, ask.gpus)
            devices ^= own
            self._book(path, Booking(node, own, ask.needs, None, self._holder()))

    def _holder(self) -> str:
        return f"{self.job.id}#{self.first_rank + len(self.seats)}"


def _is_one_task(roles: tuple[Role, ...]) -> bool:
    """Whether roles are a single task with GPUs: by these domains are told to be tight."""
    role = roles[0]
    return len(roles) == 1 and role.replicas_max == 1 and not role.members and role.task.gpus > 0
