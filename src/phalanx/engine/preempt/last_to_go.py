"""The last to go: the last attempt in the running order that a plan may still preempt."""

from __future__ import annotations

from collections.abc import Container

from phalanx.engine.preempt.stops import may_stop
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.transaction.undo_log import Step
from phalanx.policy.policy import Key


class LastToGo:
    """That of a decision, looked for anew once the plan has changed: jobs behind which there is none displace none.

    Where hundreds of attempts are terminating they are the last in the order, and each job would go through them.
    """

    def __init__(self, transaction: Transaction, untouchable: Container[str]) -> None:
        self._transaction = transaction
        self._untouchable = untouchable
        self._is_known = False
        self._step: Step | None = None
        self._key: Key | None = None

    def is_behind(self, key: Key) -> bool:
        """Whether any attempt behind a key might be preempted."""
        step = self._transaction.last_step
        if not self._is_known or step is not self._step:
            self._is_known, self._step, self._key = True, step, self._find()
        return self._key is not None and self._key > key

    def _find(self) -> Key | None:
        for attempt in self._transaction.state.behind(()):
            if attempt.key not in self._untouchable and may_stop(attempt):
                return attempt.standing
        return None
