"""Reservations, why, plans and what-if, as the API answers with them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from phalanx.server.api.models.base import Answered
from phalanx.server.api.models.jobs import JobStateName, SlotModel


class ReservationModel(Answered):
    """Devices a job will have from a moment on."""

    job: str
    at_ms: int | None = Field(description="Null where it waits for jobs that do not say when they end.")
    nodes: list[str]


class ReservationListModel(Answered):
    """All reservations."""

    items: list[ReservationModel]
    next: str | None = None


class ReplicaPriceModel(Answered):
    """What replicas of a service that follows its load would cost other jobs now."""

    replicas: int
    had: Literal["free", "preemption", "max", "quota", "no_room"] = Field(
        description="How they would be had, or why not."
    )
    gives_way: list[dict[str, Any]] = Field(
        description="Jobs that would be stopped, each with its queue, gpus and lost_gpu_ms, or shrunk by so many GPUs; "
        "job is empty for others' jobs."
    )
    lost_gpu_ms: int = Field(description="GPU time that all of them would lose.")
    says: str


class WhyModel(Answered):
    """Why a job is where it is: one dominant reason and the counts behind it."""

    job: str
    state: JobStateName
    reason: str | None
    why: str
    sooner: str = Field(description="The change that asks least and would start it now, each really tried; or empty.")
    ways: list[str] = Field(description="All changes that would, in words, in the order of `explanation.changes`.")
    evidence: dict[str, str] = Field(description="What stands behind the reason, a line each; only what there is.")
    preempted: str = Field(description="How often it was preempted, and for which job last; or empty.")
    lost: str = Field(description="How much work was lost by that, as far as it is known; or empty.")
    found: str = Field(description="What the launcher of its newest attempt found about its tasks; or empty.")
    deadline: str = Field(
        description="Whether it can meet its deadline, by when its shape is free and the GPU time there is; else empty."
    )
    next_replica: ReplicaPriceModel | None = Field(
        description="Of a running service that follows its load: what one more replica would cost other jobs."
    )
    ruled_out: dict[str, int]
    gpus_free: int | None
    gpus_needed: int | None
    behind: dict[str, Any] | None = Field(description="The job before it that may not be passed.")
    waits_for: list[dict[str, Any]] = Field(description="Jobs that must leave or end first.")
    not_before_ms: int | None
    fits_now: bool
    expected_start_ms: int | None = Field(
        description="If all take as long as they say, or as is usual; null if unknown. Where there is a "
        "forecast, believe that: it knows how far what jobs say is off."
    )
    expected_not_before_ms: int | None = Field(
        description="Where it is not known when it will start, since too many jobs start before it: not before this."
    )
    forecast: dict[str, int | None] | None = Field(
        description="In eight of ten cases it starts between early_ms and late_ms (null: beyond the horizon, or there "
        "is no bound), in half before middle_ms, by so many runs of the state ahead, made at at_ms; null if none has "
        "been made since the job was submitted, or late_ms has passed, or middle_ms where there is no bound."
    )
    expected_by: Literal["said", "usual"] | None = Field(
        description="Whether all take as long as they say then, or as long as is usual for such jobs."
    )
    starts_when: str = Field(description="What its start depends on, where that says more than a moment; or empty.")
    no_forecast: str = Field(
        description="Why its start is unknown: it waits for jobs of whose lengths nothing is known, or "
        "looking ahead failed; or empty. What `forecast` tells besides is only before which moment it does not start."
    )
    explanation: dict[str, Any] = Field(
        description="All there is: the jobs that hold what it needs, quotas, and what would let it start."
    )


class PlannedDeadlineModel(Answered):
    """Whether a job that is planned can meet its deadline."""

    deadline_ms: int
    can_be_met: bool | None = Field(description="Null if the job does not say how long it takes.")
    expected_end_ms: int | None = Field(description="If it starts as planned and takes as long as it says.")
    says: str


class PlannedModel(Answered):
    """What would become of a job that was submitted now."""

    job: str
    name: str
    state: str
    gpus: int
    nodes: list[str]
    slots: list[SlotModel]
    victims: list[str] = Field(description="The attempts that are stopped for it, as far as the caller may know them.")
    makes_room: list[dict[str, Any]] = Field(
        description="All of these, each with its queue, gpus, expected_end_ms and lost_gpu_ms; job is empty for "
        "others' jobs."
    )
    lost_gpu_ms: int = Field(description="GPU time of work that all of these would lose.")
    deadline: PlannedDeadlineModel | None = Field(description="Null for a job without one.")
    expected_start_ms: int | None
    communication_ms: float | None
    all_replicas: ReplicaPriceModel | None = Field(
        description="Of a service that follows its load: what all replicas that it may have would cost other jobs."
    )
    why: str


class PlanModel(Answered):
    """The real decision on the live state, with nothing changed."""

    items: list[PlannedModel]
    next: str | None = None


class FateModel(Answered):
    """What becomes of a job that is submitted now."""

    job: str
    name: str
    start_ms: int | None
    end_ms: int | None
    why: str = Field(description="Why it does not start, if it does not.")


class FutureModel(Answered):
    """One future of the live state, in virtual time, until all that waits and runs now is over."""

    policy: str
    jobs: int
    started: int = Field(description="Those that run now or start by then.")
    finished: int
    unfinished: int
    makespan_s: float | None
    mean_jct_s: float | None
    mean_wait_s: float | None
    gpu_allocated: float | None
    from_ms: int = Field(description="When it begins.")
    step_ms: int = Field(description="How long a step of the series below is.")
    gpus_held: list[int]
    jobs_pending: list[int]
    submitted: list[FateModel]


class WhatIfModel(Answered):
    """Two futures: as it is, and what if."""

    base: FutureModel
    changed: FutureModel
