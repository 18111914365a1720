"""The start of a job: when it is expected, or what it depends on."""

from __future__ import annotations

from collections.abc import Container

from phalanx.engine.fold.attempts import left_by_ms
from phalanx.engine.state.state import State
from phalanx.engine.why.evidence import other
from phalanx.engine.why.explain import Explanation
from phalanx.policy.policy import Policy
from phalanx.protocol.reason import Reason
from phalanx.simulate.forecasts.experience import ENOUGH
from phalanx.simulate.forecasts.forecast import Forecast, unsaid_jobs
from phalanx.simulate.studies.table import duration_text
from phalanx.words.others import with_size
from phalanx.words.phrases import how_long, moment, queue_words

SAYS_NOTHING = "which does not say how long it takes, and too few like it"


def expected(forecast: Forecast, job: str, now_ms: int) -> str:
    """When a job is expected to start, as an interval from now on, with the age of what is known."""
    span = forecast.spans.get(job)
    if span is None:
        return ""
    age_ms = now_ms - forecast.at_ms
    age = f", told {duration_text(age_ms / 1000)} ago" if age_ms > 0 else ""
    if span.is_unproven:
        middle = moment(span.middle_ms, now_ms).removeprefix("in ")
        return f"{_since(span.early_ms, now_ms)}, in half of {forecast.runs} runs by {middle}{age}"
    if span.open:
        return f"{_since(span.early_ms, now_ms)}{age}" if span.early_ms is not None else ""
    if span.early_ms is None:
        return f"not within {duration_text((forecast.at_ms + forecast.horizon_ms - now_ms) / 1000)}{age}"
    if span.late_ms is None:
        horizon = duration_text(forecast.horizon_ms / 1000)
        return f"{_since(span.early_ms, now_ms)}; how late is beyond the {horizon} looked ahead{age}"
    early, late = (moment(each_ms, now_ms) for each_ms in (span.early_ms, span.late_ms))
    if early == late:
        return f"{early}{age}"
    return f"{early} to {late.removeprefix('in ')} in 8 of 10 cases{age} ({forecast.runs} runs)"


def _since(early_ms: int | None, now_ms: int) -> str:
    """From when on a job may start."""
    return "any moment" if early_ms is None or early_ms <= now_ms else f"not before {moment(early_ms, now_ms)}"


def starts_when(state: State, explanation: Explanation) -> str:
    """What the start of a job depends on, where that says more than a moment would; else empty."""
    match explanation.reason:
        case Reason.BUDGET if explanation.budgets:
            # What has been used up is never given back.
            return f"not before the budget of {queue_words(explanation.budgets[0].queue)} is raised"
        case Reason.MAKING_ROOM:
            by_ms = left_by_ms(state, explanation.job)
            within = "" if by_ms is None or by_ms <= state.now else f": within {how_long(by_ms, state.now)}"
            return f"as soon as the jobs have ended that are stopped for it{within}"
        case _:
            return ""


def how_late(policy: Policy) -> str:
    """Instead of the end of an interval that no forecasts before it bear out."""
    return (
        f"how late is unknown (under {policy.spec} jobs that come later may delay it, and fewer than {ENOUGH} "
        "jobs have started here of which an interval was told)"
    )


def nothing_known(state: State, explanation: Explanation, visible_queues: Container[str] | None = None) -> str:
    """Why the start of a job is unknown: it waits for jobs of whose lengths nothing is known. Else empty.

    Those are named that are in its way, as far as the user that asks may know them.
    """
    unsaid = [name for name in unsaid_jobs(state) if name != explanation.job]
    if not unsaid:
        return ""
    near = (*explanation.waits_for, *explanation.holders, *(explanation.quota.holders if explanation.quota else ()))
    names = dict.fromkeys(each.job for each in (*near, *([explanation.behind] if explanation.behind else [])))
    others = [other(state, name) for name in ([name for name in unsaid if name in names] or unsaid)]
    if visible_queues is not None:
        others = [each.seen_from(visible_queues) for each in others]
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    which = "which do not say how long they take, and too few like them" if more else SAYS_NOTHING
    return f"it waits for {with_size(others[0])}{more}, {which} have run as long and ended here"
