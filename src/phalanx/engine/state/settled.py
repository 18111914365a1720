"""Whether there is anything to decide, and how much."""

from __future__ import annotations

from phalanx.engine.state.state import State
from phalanx.policy.policy import Targets


def stale(state: State) -> bool:
    """Whether something has grown or appeared since all equivalence classes were last looked at."""
    return bool(state.classes) and (bool(state.capacity.grown) or state.newest_class > state.clean_seq)


def unsettled(state: State) -> bool:
    """Whether a decision could change anything: not where all was looked at and nothing has grown since."""
    return bool(
        stale(state)
        or state.to_stop
        or state.waiting_claims
        or state.preparing
        or state.replacing
        or state.defragmented_ms == state.now
        or state.elastic
        or state.revocable
        or state.adjustments
        or (state.reservations and (state.reservations_stale or _is_reserved_time(state)))
        or state.policy.targets is Targets.DRIFT
        or state.policy.has_relocations
        or state.policy.victims_vary
    )


def is_plain(state: State) -> bool:
    """Whether a decision is about pending jobs, and nothing else.

    There are no quotas, cells or reservations. No attempt is to be stopped, waits for its devices, or could be
    resized or moved. No device was ever shared or repartitioned.
    """
    return not (
        state.capacity.loads
        or state.to_stop
        or state.waiting_claims
        or state.preparing
        or state.replacing
        or state.elastic
        or state.revocable
        or state.adjustments
        or state.reservations
        or state.quotas.accounts
        or state.cells is not None
        or state.cluster.maintenance
        or state.defragmented_ms == state.now
        or state.policy.has_relocations
    )


def _is_reserved_time(state: State) -> bool:
    return any(reservation.at_ms <= state.now for reservation in state.reservations)
