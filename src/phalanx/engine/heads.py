"""Heads: which kind of waiting job comes next, and who would have come when in the walk so far."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from phalanx.cluster.queues import ancestors
from phalanx.engine.maxima import Maxima
from phalanx.engine.queue_keys import INNER, LEAF, Entry, QueueKeys, flat, flat_then
from phalanx.engine.queue_tree import Bring, QueueTree, Turn
from phalanx.engine.records import JobRecord
from phalanx.engine.state import OVERDUE, State
from phalanx.policy.policy import Key, no_queues

__all__ = ["Entry", "Heads", "queue_key", "whole_key"]

END = float("inf")


def queue_key(state: State, queue: str) -> Key:
    """The key of a queue, which goes before those of its jobs."""
    policy = state.policy
    if policy.level_order is no_queues:
        return policy.queue_order(queue, state.usage(queue), state)
    if not state.quotas:
        return policy.level_order(queue, state.usage(queue), state)
    key: Key = ()
    for path in ancestors(queue):
        if path:
            key = (*policy.level_order(path, state.usage(path), state), INNER if key else LEAF, *key)
    return key


def whole_key(state: State, record: JobRecord) -> Key:
    """The key of a job among all who are in line, as queues are now: who is overdue goes first whatever its queue."""
    key = state.key(record)
    return key if record.overdue or not state.policy.orders_queues else (*queue_key(state, record.job.queue), *key)


class Heads:
    """Entries, the first in the order first: who is overdue, then the others, by queue where the policy orders queues.

    Other trees may stand beside, with those who have turns only now and then; who is next of all says `Line`.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.by_queue = state.policy.orders_queues
        self.keys = QueueKeys(state)
        self._first: list[Entry] = []
        self._tree = QueueTree(self.keys, state.jobs)
        # Only where there are quotas does anybody sleep, whose turn may have come meanwhile.
        self._tells_turns = bool(state.quotas)
        self._turns: Maxima[Turn] = Maxima()
        self._moments: list[int] = []
        self._last: dict[int, tuple[int, Turn]] = {}
        self._thin_since = 0
        state.touched.clear()

    def __bool__(self) -> bool:
        return bool(self._first) or self._tree.best() is not None

    def __iter__(self) -> Iterator[Entry]:
        yield from self._first
        yield from self._tree

    @property
    def clock(self) -> int:
        """The present moment of the walk."""
        return self.keys.clock

    def add(self, entries: list[Entry]) -> None:
        """Takes in many at once."""
        if not self.by_queue:
            self._first += entries
            heapify(self._first)
            return
        for entry in entries:
            if entry[0][0] == OVERDUE:
                heappush(self._first, entry)
        self._tree.add([entry for entry in entries if entry[0][0] != OVERDUE])

    def push(self, entry: Entry) -> None:
        """Takes one in."""
        if not self.by_queue or entry[0][0] == OVERDUE:
            heappush(self._first, entry)
        else:
            self._tree.push(entry)

    def pop(self) -> Entry:
        """Gives out the first."""
        self.tick()
        return self.take()

    def tick(self) -> None:
        """The next moment of the walk has come."""
        self.keys.clock += 1
        if self.state.touched:
            self.catch_up()

    def best(self, bring: Bring) -> Turn | None:
        """The turn that is next: one without a key goes before all others."""
        return ((), "") if self._first else self._tree.best(bring)

    def take(self) -> Entry:
        """Gives out the first at the present moment."""
        if self._first:
            entry = heappop(self._first)
            if not self.by_queue:
                self.takes_turn(entry[:2])
            return entry
        best = self._tree.best()
        assert best is not None, "nobody is in line"
        self.takes_turn(best)
        return self._tree.pop()

    def drop(self, takes: Callable[[Entry], bool]) -> None:
        """Gives out the next classes of the queue that the last entry was of, too, as long as these are taken."""
        self._tree.drop(takes)

    def take_out(self, goes: Callable[[int], bool]) -> list[int]:
        """Gives out at once all classes that go, but for who is overdue."""
        return self._tree.take_out(goes)

    def thin_out(self, goes: Callable[[list[int]], list[int]]) -> list[int]:
        """Gives out at once all classes that go. Not again before as many have had their turn as were left then, so
        that nobody is looked at many times; and not where queues are in order.
        """
        if self.by_queue or self.clock < self._thin_since:
            return []
        gone = goes([i for _, _, i in self._first])
        if gone:
            going = dict.fromkeys(gone)
            self._first = [entry for entry in self._first if entry[2] not in going]
            heapify(self._first)
        self._thin_since = self.clock + len(self._first)
        return gone

    def watch(self, queue: str) -> None:
        """Keeps the keys of a queue from now on, for those of its classes that are not in line."""
        if self.by_queue:
            self.keys.place(queue)

    def ran_out(self) -> None:
        """Takes note that everybody who was in line has had its turn."""
        self.keys.clock += 1
        self.takes_turn(((END,), ""))

    def had_turn(self, entry: Entry, after: int, until: int) -> bool:
        """Whether an entry that was not in line would have been given out between two moments of the walk."""
        last = self._last_turn(after, until)
        if last is None:
            return False
        if not self.by_queue or entry[0][0] == OVERDUE:
            return entry[:2] < last
        chain = self.keys.chain(self.state.jobs[entry[1]].job.queue)
        if all(past[-1][0] <= after + 1 for past in chain):
            return (flat(chain, entry), entry[1]) < last
        begin = bisect_right(self._moments, after)
        # Between two changes of its keys only the last turn matters.
        changes = {since: None for past in chain for since, _ in past if after + 1 < since <= until}
        for since in (*sorted(changes), until + 1):
            at = bisect_right(self._moments, since - 1)
            if begin < at:
                key = flat_then(chain, entry, self._moments[begin])
                if (key, entry[1]) < self._turns.greatest(begin, at):
                    return True
                begin = at
        return False

    def _last_turn(self, after: int, until: int) -> Turn | None:
        """The last in the order of those who were given out between two moments. Many ask for the same, or go on."""
        begin, last = self._last.get(after) or (bisect_right(self._moments, after), None)
        end = bisect_right(self._moments, until)
        if begin > end:
            begin = bisect_right(self._moments, after)
            return self._turns.greatest(begin, end) if begin < end else None
        if begin < end:
            newest = self._turns.greatest(begin, end)
            last = newest if last is None else max(last, newest)
            self._last[after] = end, last
        return last

    def takes_turn(self, turn: Turn) -> None:
        """Takes note of whose turn it is at the present moment, where anybody may ask."""
        if not self._tells_turns:
            return
        self._moments.append(self.clock)
        self._turns.append(turn)

    def catch_up(self) -> None:
        """Works out the keys of queues anew that have got or lost something since."""
        self.keys.catch_up(self.state.touched)
        self.state.touched.clear()
