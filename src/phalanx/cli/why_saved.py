"""Why a job of a saved state waits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from phalanx.cli.exit import Exit
from phalanx.cli.output import STATE, Column, Output, emit_one
from phalanx.cli.past_state import state_then
from phalanx.cli.saved import experience_from, state_from
from phalanx.cli.why_live import no_forecast
from phalanx.engine.state.errors import UnknownJobError
from phalanx.engine.state.state import State
from phalanx.engine.why.explain import Explanation
from phalanx.engine.why.replica_price import next_replica
from phalanx.engine.why.why import why as answer
from phalanx.errors import PhalanxError
from phalanx.words.change import offer, sooner
from phalanx.words.deadline import deadline_words
from phalanx.words.evidence import evidence
from phalanx.words.preemption import preempted_words
from phalanx.words.reason import because, because_in
from phalanx.words.replica_price import price_words
from phalanx.words.start import expected, how_late, nothing_known, starts_when

if TYPE_CHECKING:
    from phalanx.simulate.forecasts.experience import Experience
    from phalanx.simulate.forecasts.forecast import Forecast

COLUMNS = (
    Column("job"),
    STATE,
    Column("reason"),
    Column("why"),
    Column("expected_start"),
    Column("sooner"),
    Column("other_ways"),
    Column("then"),
    Column("held_by"),
    Column("next_to_end"),
    Column("free_gpus"),
    Column("virtual_cluster"),
    Column("not_healthy"),
    Column("maintenance"),
    Column("reserved_for"),
    Column("min_run"),
    Column("prefers"),
    Column("overdue"),
    Column("preempted"),
    Column("deadline"),
    Column("next_replica"),
    Column("position"),
    Column("queues"),
    Column("priority"),
    Column("not_before"),
)
CHEAP_MAX = 200
"""Jobs in line up to which a forecast is made without being asked for."""

TURNS_CHEAP, TURNS_MAX = 200, 20_000
"""How far each run of a forecast looks ahead, in decisions: without being asked, and if asked."""

GRAIN_MS = 10_000
"""For a start that is told to a person, ten seconds do not matter."""

NAMED_MAX = 20
"""Jobs of one name that an error lists."""

ALWAYS = ("job", "state", "reason", "why")
"""Lines that are printed even if there is nothing in them."""


class NoSuchJob(PhalanxError):  # noqa: N818
    """The saved state knows no such job."""

    exit_code = Exit.NOT_FOUND


def why_saved(job: str, state_path: str | None, at: str | None, ahead: bool | None, output: Output) -> None:
    """Works out why it waits, or waited then, and prints it, with a forecast where that is asked for or cheap."""
    state = state_then(state_path, at or "0s") if at is not None or state_path is None else state_from(state_path)
    job = _id_of(state, job)
    try:
        explanation = answer(state, job)
    except UnknownJobError as error:
        raise NoSuchJob(f"{state_path or 'the server'}: {error}") from error
    row = as_data(explanation) | {"why": because_in(state, explanation)}
    row["preempted"] = preempted_words(state, job)
    row["next_replica"] = price_words(next_replica(state, job))
    looks_ahead = state.in_line <= CHEAP_MAX if ahead is None else ahead
    row["starts_when"] = row["expected_start"] = starts_when(state, explanation)
    if not row["starts_when"] and looks_ahead and explanation.reason is not None and not explanation.is_hopeless:
        row |= _foreseen(state, explanation, _experience(state_path), TURNS_MAX if ahead else TURNS_CHEAP)
    if output not in ("json", "yaml"):
        row |= evidence(explanation, state.now, state.usage) | {"deadline": deadline_words(state, job)}
    emit_one(row, [column for column in COLUMNS if column.key in ALWAYS or row.get(column.key)], output)


def _experience(state_path: str | None) -> Experience:
    """How forecasts came true, where what was saved says so."""
    from phalanx.simulate.forecasts.experience import Experience

    return experience_from(state_path) if state_path is not None else Experience()


def _id_of(state: State, ref: str) -> str:
    """The id of the only job of a name; whatever else is given is taken for an id."""
    named = [] if ref in state.jobs else [name for name, each in state.jobs.items() if each.job.name == ref]
    if len(named) > 1:
        raise NoSuchJob(f"several jobs are named {ref!r}: say which of {', '.join(named[:NAMED_MAX])}")
    return named[0] if named else ref


def _foreseen(state: State, explanation: Explanation, experience: Experience, turns_max: int) -> dict[str, Any]:
    """What a forecast that is made now says of a job, corrected by how those before it came true; where none can be
    made, why: the rest is true without it.
    """
    job = explanation.job
    from phalanx.simulate.forecasts.apart import WorkFailedError
    from phalanx.simulate.forecasts.forecast import Outlook, forecast

    outlook = Outlook(grain_ms=GRAIN_MS, turns_max=turns_max, workers=os.cpu_count() or 1)
    try:
        made = experience.corrected(forecast(state, outlook), state.policy)
    except WorkFailedError as error:
        return {"forecast": None, "no_forecast": str(error), "expected_start": no_forecast(str(error))}
    told = {"forecast": _forecast_of(made, job), "expected_start": expected(made, job, state.now)}
    if job not in made.spans or not made.spans[job].open:
        return told
    if made.spans[job].is_unproven:
        return told | {"expected_start": f"{told['expected_start']}; {how_late(state.policy)}"}
    reason = nothing_known(state, explanation)
    before, unknown = expected(made, job, state.now), no_forecast(reason)
    return told | {"no_forecast": reason, "expected_start": f"{before}; then {unknown}" if before else unknown}


def _forecast_of(made: Forecast, job: str) -> dict[str, Any]:
    """What a forecast says of one job."""
    from phalanx.simulate.forecasts.forecast import Span

    span = made.spans.get(job)
    bounds = msgspec.to_builtins(span or Span(None, None, None))
    return {"at_ms": made.at_ms, "horizon_ms": made.horizon_ms, "runs": made.runs, **bounds}


def as_data(explanation: Explanation) -> dict[str, Any]:
    """The whole Explanation as plain data, with its lines of text."""
    data: dict[str, Any] = msgspec.to_builtins(explanation)
    refusal = explanation.refusal
    for change, plain in zip(explanation.changes, data["changes"], strict=True):
        plain["text"] = offer(change)
    return data | {
        "why": because(explanation),
        "sooner": sooner(explanation),
        "ruled_out": dict(refusal.ruled_out) if refusal else {},
        "gpus_free": refusal.gpus_free if refusal else None,
        "gpus_needed": refusal.gpus_needed if refusal else None,
    }
