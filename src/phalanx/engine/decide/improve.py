"""Running jobs go where the policy wants them, and get the shares that it wants them to have."""

from __future__ import annotations

from phalanx.engine.fold.adjust import step_towards
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.relocate import guaranteed, landing
from phalanx.engine.state.records import Phase


def relocate(builder: PlanBuilder) -> None:
    """Has running jobs go to the nodes that the policy wants them on, as far as they land there at once."""
    state = builder.state
    if "resize" in state.lacks or any(attempt.phase is Phase.RESIZING for attempt in state.attempts_present()):
        return
    for job, node in state.policy.relocates(state):
        attempt = state.jobs[job].attempt
        move = None
        if attempt is not None and attempt.key not in builder.untouchable:
            move = landing(builder.transaction, attempt, state.topology.number[node])
        if move is not None:
            builder.gather(move)


def promote_revocable(builder: PlanBuilder) -> None:
    """Gives an attempt on a revocable share a guaranteed one, if the policy says by now that it is to have one."""
    state = builder.state
    for attempt in state.revocable.values():
        if attempt.phase is Phase.RUNNING and attempt.key not in builder.untouchable and "resize" not in state.lacks:
            gang = state.policy.shape(state.jobs[attempt.job.id], state)
            move = guaranteed(builder.transaction, attempt, gang)
            if move is not None:
                builder.gather(move)


def adjust_shares(builder: PlanBuilder) -> None:
    """Changes shares as the policy wants them, of attempts that run and are not touched by this plan."""
    state, untouchable = builder.state, builder.untouchable
    for job, wanted in state.adjustments.items():
        attempt = state.jobs[job].attempt
        if attempt is not None and attempt.key not in untouchable and attempt.grow_after_ms <= builder.now:
            action = step_towards(state, attempt, wanted)
            if action is not None:
                builder.touched[attempt.key] = None
                builder.actions.append(action)
