"""Why: the whole answer to why a job is pending, and what would let it start."""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.state.state import State
from phalanx.engine.why.counterfactual import after_the_cause, changes
from phalanx.engine.why.explain import Explanation, explain


def why(state: State, job: str) -> Explanation:
    """Why a job is pending, what would let it start now, and what it would wait for next. The State is left as it was.

    An unknown id raises ValueError.
    """
    explanation = explain(state, job)
    if explanation.reason is None:
        return explanation
    return replace(explanation, changes=changes(state, job), next=after_the_cause(state, job, explanation.reason))
