"""How questions are answered. Each answer may use its State up: it has a copy of its own."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import msgspec

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.settings import read_settings
from phalanx.cluster.place import UnknownPlace, nodes_at
from phalanx.document import DocumentError
from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold.snapshot import dump_hidden, load
from phalanx.engine.state.errors import UnknownJobError
from phalanx.engine.state.state import State
from phalanx.engine.why.evidence import other
from phalanx.engine.why.explain import explain, redacted
from phalanx.engine.why.present import present_reason
from phalanx.engine.why.replica_price import ReplicaPrice, all_replicas, next_replica
from phalanx.engine.why.why import why
from phalanx.placement.ranks import communication
from phalanx.planning import device_count
from phalanx.protocol.action import Stop
from phalanx.protocol.event import ClusterChanged, PolicyChanged
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.server.cluster.difference import difference, need_known, present_cluster
from phalanx.server.cluster.priorities import need_priorities
from phalanx.server.loop.wire import json_of
from phalanx.server.planner.consequences import deadline_told, leaving_told, with_expected_end
from phalanx.server.planner.forecaster import OUTLOOK
from phalanx.server.planner.future import Future
from phalanx.server.planner.questions import (
    Differ,
    DifferSettings,
    ExpectStart,
    Foresee,
    HideValues,
    ListReservations,
    ListUse,
    PlanJobs,
    Question,
    Reply,
    TakeSnapshot,
    Why,
)
from phalanx.server.refusal import Refusal
from phalanx.server.view.lists import reservations_in, spent_in, used_in
from phalanx.simulate.forecasts.apart import WorkFailedError
from phalanx.simulate.forecasts.forecast import Forecast, point_forecast
from phalanx.words.change import offer, sooner
from phalanx.words.deadline import deadline_words
from phalanx.words.evidence import evidence
from phalanx.words.preemption import preempted_words
from phalanx.words.reason import because_in
from phalanx.words.replica_price import price_words
from phalanx.words.start import nothing_known, starts_when
from phalanx.workload.after import bound, by_dependency
from phalanx.workload.array import members
from phalanx.workload.job import Job

LONG_LINE = 1_000
"""Pending jobs up to which it is looked ahead by what jobs say for every question; past it the forecast will do."""


def answer(question: Question, state: State, forecast: Forecast | None = None) -> Reply:
    """Answers a question, with what was last forecast."""
    try:
        done = _answer_with(question, state, forecast)
    except Refusal as refusal:
        return Reply(refusal.status, json_of(refusal.body))
    except DocumentError as error:
        detail = {"line": error.line, "key": error.key}
        return Reply(422, json_of(Refusal("invalid", str(error), detail).body))
    except UnknownJobError as error:
        return Reply(404, json_of(Refusal("not_found", str(error)).body))
    except ValueError as error:
        return Reply(422, json_of(Refusal("invalid", str(error)).body))
    return Reply(200, done if isinstance(done, bytes) else json_of(done))


def _answer_with(question: Question, state: State, forecast: Forecast | None) -> Any:
    match question:
        case Why():
            return _why(question, state, forecast)
        case ExpectStart(job=job):
            return {"expected_start_ms": _expected_start_ms(state, job, forecast)}
        case _:
            return _answer(question, state)


def _expected_start_ms(state: State, job: str, forecast: Forecast | None) -> int | None:
    """When a pending job will start, as `why` would say; None if it is not pending, or that is not known."""
    if state.record(job).attempt is not None:
        return None
    explanation = explain(state, job)
    if explanation.reason in (None, Reason.HELD) or explanation.is_hopeless:
        return None
    expected: int | None = _looked_ahead(state, job, forecast).get("expected_start_ms")
    return expected


@singledispatch
def _answer(question: object, state: State) -> Any:
    raise TypeError(f"there is no answer to a {type(question).__name__}")


def _why(question: Why, state: State, forecast: Forecast | None) -> dict[str, Any]:
    seen = Seen(question.queues)
    explanation = redacted(why(state, question.job), seen)
    refusal = explanation.refusal
    whole = msgspec.to_builtins(explanation)
    told = {
        "job": question.job,
        "state": explanation.state.value,
        "reason": explanation.reason.value if explanation.reason else None,
        "why": because_in(state, explanation),
        "sooner": sooner(explanation),
        "ways": [offer(change) for change in explanation.changes],
        "evidence": evidence(explanation, state.now, state.usage),
        "preempted": preempted_words(state, question.job, seen),
        "deadline": deadline_words(state, question.job, seen),
        "next_replica": _priced(next_replica(state, question.job), seen),
        "ruled_out": dict(refusal.ruled_out) if refusal else {},
        "gpus_free": refusal.gpus_free if refusal else None,
        "gpus_needed": refusal.gpus_needed if refusal else None,
        "behind": whole["behind"],
        "waits_for": whole["waits_for"],
        "not_before_ms": explanation.not_before_ms,
        "fits_now": explanation.fits_now,
        "expected_start_ms": None,
        "expected_not_before_ms": None,
        "expected_by": None,
        "starts_when": starts_when(state, explanation),
        "no_forecast": "",
        "forecast": None,
        "explanation": whole,
    }
    # Of a job that is not pending, or waits for what cannot come, it is not told when it will start.
    if explanation.reason is not None and not explanation.is_hopeless:
        told["forecast"] = _expected(forecast, question.job, state.now)
        # Where half of the runs tell a start it is only not known how late it may be.
        is_open = told["forecast"] is not None and told["forecast"].pop("open") and not told["forecast"]["middle_ms"]
        if explanation.reason is not Reason.HELD:
            # Before looking ahead, which uses the State up.
            unknown = nothing_known(state, explain(state, question.job), seen)
            told |= _looked_ahead(state, question.job, forecast)
            is_told = any(told[key] is not None for key in ("forecast", "expected_start_ms", "expected_not_before_ms"))
            if not told["no_forecast"] and (is_open or not is_told):
                told["no_forecast"] = unknown
    return told


def _priced(price: ReplicaPrice | None, seen: Seen) -> dict[str, Any] | None:
    """What replicas would cost, for a user that may look at some queues."""
    if price is None:
        return None
    shown = price.seen_from(seen)
    return {
        "replicas": shown.replicas,
        "had": shown.had.value,
        "gives_way": [
            msgspec.to_builtins(each.other) | {"lost_gpu_ms": each.lost_gpu_ms, "shrinks_by": each.gpus}
            for each in shown.gives_way
        ],
        "lost_gpu_ms": shown.lost_gpu_ms,
        "says": price_words(shown),
    }


def _looked_ahead(state: State, job: str, forecast: Forecast | None) -> dict[str, Any]:
    """When a job will start, and by what: in a long line by the newest forecast that can still be, else by what jobs
    say, or as is usual.
    """
    span = forecast.spans.get(job) if forecast is not None else None
    is_long = state.in_line > LONG_LINE
    if is_long and span is not None and not span.is_over(state.now):
        return {"expected_start_ms": span.middle_ms, "expected_by": "usual" if span.middle_ms is not None else None}
    try:
        point = point_forecast(state, job, OUTLOOK)
    except WorkFailedError as error:
        # The rest of the answer is true without it.
        logging.getLogger(__name__).exception("no forecast")
        return {"no_forecast": str(error)}
    said_ms = Future(state).start_of(job) if not is_long and not _is_any_late(state) else None
    if said_ms is not None:
        return {"expected_start_ms": said_ms, "expected_by": "said"}
    by = "usual" if point.start_ms is not None else None
    return {"expected_start_ms": point.start_ms, "expected_by": by, "expected_not_before_ms": point.not_before_ms}


def _is_any_late(state: State) -> bool:
    """Whether a job runs longer than was said: by what jobs say it would end at once, which is unknown."""
    running = (state.jobs[attempt.job.id] for attempt in state.attempts())
    return any(each.job.duration_ms and each.executed_ms(state.now) >= each.job.duration_ms for each in running)


def _expected(forecast: Forecast | None, job: str, now_ms: int) -> dict[str, Any] | None:
    """What was last forecast of a job, and when; None where that can no longer be."""
    span = forecast.spans.get(job) if forecast is not None else None
    if forecast is None or span is None or span.is_over(now_ms):
        return None
    expected: dict[str, Any] = msgspec.to_builtins(span)
    return expected | {"at_ms": forecast.at_ms, "horizon_ms": forecast.horizon_ms, "runs": forecast.runs}


class Seen:
    """The queues that a user may look at: some, with all below them. The empty path is above all."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def __contains__(self, queue: object) -> bool:
        return any(not path or queue == path or str(queue).startswith(f"{path}/") for path in self._queues)


@_answer.register
def _plan(question: PlanJobs, state: State) -> dict[str, Any]:
    """The real decision on the live State. What follows from it is foreseen afterwards, on the same copy."""
    if question.roles:
        need_priorities(state, question.jobs, question.roles)
    future, seen = Future(state), Seen(question.queues)
    jobs = _numbered(question.jobs, "plan")
    for job in by_dependency(jobs):
        _submit(future, job, "plan")
    now = state.now
    plan = decide(state, now)
    items = [_planned(state, plan, job) for job in jobs]
    for item, job in zip(items, jobs, strict=True):
        item["all_replicas"] = _priced(all_replicas(state, job.id), seen)
        item["makes_room"] = leaving_told(state, item["leaving"], seen)
        item["lost_gpu_ms"] = sum(each["lost_gpu_ms"] for each in item["makes_room"])
        item["deadline"] = deadline_told(state, job, seen)
    for item, job in zip(items, jobs, strict=True):
        starts_now = item["nodes"] and not item["leaving"]
        item["expected_start_ms"] = now if starts_now else future.start_of(item["job"])
        if item["expected_start_ms"] is None:
            item["why"] = because_in(state, redacted(explain(state, item["job"]), seen))
        item["deadline"] = with_expected_end(item["deadline"], job, item["expected_start_ms"])
        item["victims"] = [f"{each.job}/{each.attempt}" for each in item.pop("leaving") if each.queue in seen]
    return {"items": items, "next": None}


def _planned(state: State, plan: Plan, job: Job) -> dict[str, Any]:
    claim = next((claim for claim in plan.claims if claim.job == job.id), None)
    placement = claim.placement if claim is not None else None
    cost = communication(state.topology, job, placement) if placement is not None else None
    stopped = {action.id.job: None for action in plan.actions if isinstance(action, Stop)}
    victims = [key.rpartition("/")[0] for key in (claim.victims if claim is not None else ())]
    return {
        "job": job.id,
        "name": job.name,
        "state": "waiting" if claim is None or claim.waits else "starting",
        "gpus": device_count(placement) if placement is not None else job.gang.gpus_max,
        "nodes": list(placement.nodes) if placement is not None else [],
        "slots": [
            {"rank": slot.rank, "role": slot.role, "node": slot.node, "devices": list(slot.devices)}
            for slot in (placement.slots if placement is not None else ())
        ],
        "leaving": [other(state, victim) for victim in victims if victim in stopped],
        "expected_start_ms": None,
        "communication_ms": cost.total_ms if cost is not None else None,
        "why": "" if claim is not None and not claim.waits else _verdict(state, plan, job).value.replace("_", " "),
    }


def _verdict(state: State, plan: Plan, job: Job) -> Reason:
    """Why a job is pending. One of which a plan says nothing is ineligible, or behind others of its class."""
    if any(claim.job == job.id for claim in plan.claims):
        return Reason.MAKING_ROOM
    told = next((verdict.reason for verdict in plan.verdicts if verdict.job == job.id), None)
    if told is not None:
        return told
    known = state.reason(job.id)
    return Reason.BEHIND if known is None or known is Reason.UNDECIDED else present_reason(state, job.id) or known


@_answer.register
def _foresee(question: Foresee, state: State) -> dict[str, Any]:
    future = Future(state)
    if question.add_nodes:
        future.change(ClusterChanged(with_more_nodes(state.cluster, question.add_nodes, question.like)))
    if question.policy:
        need_known(question.policy)
        future.change(PolicyChanged(question.policy))
    for node in _failing(question, state):
        future.fail(node)
    jobs = _numbered(question.jobs, "what-if")
    for job in by_dependency(jobs):
        _submit(future, job, "what-if")
    return future.outcome() | {"submitted": [_fate(state, job.id) for job in jobs]}


def _failing(question: Foresee, state: State) -> tuple[str, ...]:
    try:
        return nodes_at(state.cluster, question.fail)
    except UnknownPlace as unknown:
        raise Refusal("not_found", f"nothing can fail there: {unknown}") from None


def _numbered(jobs: Sequence[Job], kind: str) -> list[Job]:
    """Jobs, and the members of arrays, under ids that no job has; those of them that they wait for by these, too."""
    return bound(
        member for number, job in enumerate(jobs, start=1) for member in members(replace(job, id=f"{kind}-{number}"))
    )


def _submit(future: Future, job: Job, kind: str) -> None:
    """Has a job be submitted; of one that is refused it is told which of those that were asked about it is."""
    try:
        future.submit(job)
    except ValueError as error:
        number = int(job.id.removeprefix(f"{kind}-").partition(".")[0])
        reason = str(error).replace(f"job {job.id}", "the job", 1)
        raise Refusal("invalid", reason, {"index": number - 1}) from None


def _fate(state: State, job: str) -> dict[str, Any]:
    """What became of a job in a future that has been."""
    record = state.record(job)
    started = record.first_start_ms is not None
    return {
        "job": job,
        "name": record.job.name,
        "start_ms": record.first_start_ms,
        "end_ms": record.ended_ms,
        "why": "" if started else because_in(state, explain(state, job)),
    }


def with_more_nodes(cluster: Cluster, count: int, like: str = "") -> Cluster:
    """A cluster with more nodes like one of it, or like its last, beside it."""
    nodes = {node.name: node for node in cluster.nodes}
    if like and like not in nodes:
        raise Refusal("not_found", f"there is no node {like!r} that others could be like")
    model = nodes[like] if like else cluster.nodes[-1]
    free = (name for number in itertools.count(1) if (name := f"more-{number}") not in nodes)
    more = tuple(replace(model, name=next(free)) for _ in range(count))
    return replace(cluster, nodes=(*cluster.nodes, *more))


@_answer.register
def _differ(question: Differ, state: State) -> dict[str, Any]:
    return difference(state, question.cluster)


@_answer.register
def _differ_settings(question: DifferSettings, state: State) -> dict[str, Any]:
    present = present_cluster(state)
    settings = read_settings(question.text, question.source, present, state.now)
    return difference(state, settings.on(present)) | {"settings": settings}


@_answer.register
def _reservations(question: ListReservations, state: State) -> dict[str, Any]:
    return {"items": reservations_in(state), "next": None}


@_answer.register
def _use(question: ListUse, state: State) -> dict[str, Any]:
    return {"spent": spent_in(state), "used": used_in(state)}


@_answer.register
def _snapshot(question: TakeSnapshot, state: State) -> bytes:
    return dump_hidden(state)


@_answer.register
def _hide(question: HideValues, state: State) -> bytes:
    return dump_hidden(load(question.snapshot), question.link)
