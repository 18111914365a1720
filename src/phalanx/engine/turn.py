"""A turn: events in, one decision out, both journaled. The server, the simulator and the tests all take turns."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold.apply import apply
from phalanx.engine.state.journal import Journal, encode
from phalanx.engine.state.settled import stale
from phalanx.engine.state.state import State
from phalanx.policy.policy import Targets
from phalanx.protocol.event import Event, TimerDue
from phalanx.protocol.plan import Plan


def turn(state: State, journal: Journal, events: Iterable[Event], now: int) -> Plan:
    """Applies events, decides, and applies the decision. A refused event raises ValueError and leaves no record."""
    for event in events:
        record(state, journal, event, now)
    plan = propose(state, journal, now)
    adopt(state, journal, plan, now)
    return plan


def propose(state: State, journal: Journal, now: int) -> Plan:
    """The decision that is due, not yet folded in: events that come before it is adopted make it void."""
    due = state.next_wakeup()
    if (due is not None and due <= now) or (now > state.now and state.policy.targets is not Targets.KEEP):
        # Keys of running jobs depend on the time, which is known by the last record.
        record(state, journal, TimerDue(), now)
    return decide(state, max(now, state.now))


def adopt(state: State, journal: Journal, plan: Plan, now: int) -> None:
    """Applies a decision that was proposed last, if it changes anything."""
    if plan.news(state.head) or stale(state):
        record(state, journal, plan, now)


def record(state: State, journal: Journal, body: Event | Plan, now: int) -> None:
    """Journals a body and folds it in; what cannot be folded in is not journaled."""
    entry = journal.next(now if now > state.now else state.now, body)
    line = encode(entry)
    apply(state, entry, line)
    journal.append(entry, line)


def replay(journal: Journal) -> State:
    """The State that a journal tells of."""
    state = State()
    for entry, line in zip(journal.records, journal.lines(), strict=True):
        apply(state, entry, line)
    return state


def verify(journal: Journal) -> State:
    """Replays a journal and decides again at every Decision; a different plan raises ValueError naming the record."""
    state = State()
    for entry, line in zip(journal.records, journal.lines(), strict=True):
        if isinstance(entry.body, Plan):
            plan = decide(state, entry.now)
            if plan != entry.body:
                raise ValueError(f"record {entry.seq}: decided again, the plan differs")
        apply(state, entry, line)
    return state
