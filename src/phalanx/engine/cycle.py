"""The cycle: `decide` turns a State into a Plan. What should be, what is, the difference, and why.

Each step is a function of its own; a decision runs on a trial that is undone, so the State is as it was.
"""

from __future__ import annotations

from phalanx.engine.draft import Draft
from phalanx.engine.line import Line
from phalanx.engine.plan import Plan
from phalanx.engine.quotas import Shortfall
from phalanx.engine.records import JobRecord
from phalanx.engine.room import make_room
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.engine.victims import Context
from phalanx.placement.place import lack
from phalanx.placement.placement import Lack


def decide(state: State, now: int) -> Plan:
    """What to start and stop at `now`, and why the rest waits."""
    if not state.unsettled:
        return Plan(head=state.head)
    with Trial(state) as trial:
        draft = Draft(trial, now)
        # 1. Who must leave, whatever else happens.
        draft.stop_who_must_leave()
        # 2. Who should run: the admitted, in the order of the policy. What runs is kept. Who would have more than the
        #    quota of his queue is passed over.
        line = Line(state, draft)
        if draft.reservations.vacant:
            line.readmit()
        # 3. Each is placed as a whole gang, or room is made for it, or it is told what it lacks; where the policy
        #    reserves devices and a time for who waits, nobody is placed who would delay that.
        _walk(line, draft)
        # 4. Who was promised devices before, and has them now: their victims have left, or their devices are cut.
        draft.start_who_was_promised()
        draft.start_who_is_prepared()
        if line.reconsider():
            _walk(line, draft)
        # 5. What nobody waits for goes to those who could use more.
        if state.elastic and line.nobody_waits:
            draft.grow_who_could_use_more()
        # 6. The difference between what is and what should be, and why the rest waits.
        return draft.plan(line.verdicts, line.head, line.exhaustive)


def _walk(line: Line, draft: Draft) -> None:
    reservations = draft.reservations
    for record in line:
        short = draft.state.shortfall(record)
        fits = short is None and line.may_fit and _place(draft, record)
        if fits or _make_room(draft, record, line.fresh()):
            line.placed()
            if reservations.started(record, draft.newest_bookings, draft.newest_release):
                line.readmit()
        elif short is not None and not _is_full(draft, record, short):
            line.over_quota(short)
        elif reservations.hold_back(record):
            line.held_back(reservations.spare_ms)
            if reservations.refused(record):
                line.next_of_class()
        else:
            missing = lack(draft.state.fit, record.asked)
            line.refused(missing)
            if missing is not Lack.NEVER and reservations.refused(record):
                line.next_of_class()


def _is_full(draft: Draft, record: JobRecord, short: Shortfall) -> bool:
    """Whether nobody could lend what is short, because there are not so many GPUs left at all."""
    by_pool = not short.by_limit and not short.by_budget
    return by_pool and draft.state.capacity.free_total < record.gpus_min


def _place(draft: Draft, record: JobRecord) -> bool:
    seated = draft.reservations.seat(record)
    if seated is None:
        return False
    draft.start(record, seated)
    return True


def _make_room(draft: Draft, record: JobRecord, fresh: int | None) -> bool:
    if not draft.could_make_room(record):
        return False
    room = make_room(draft.trial, record, Context(draft.leaving, draft.untouchable, fresh, draft.now))
    if room is None:
        draft.reclaims_left -= bool(draft.state.quotas)
        return False
    draft.promise(record, room)
    return True
