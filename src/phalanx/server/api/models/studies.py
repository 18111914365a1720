"""Studies and uploads, as the API answers with them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from phalanx.server.api.models.base import Answered

_AT_MS = 1790000000000
UPLOAD = {"id": "5f0c2a9be4d17a30", "name": "philly.csv", "user": "ada", "bytes": 812_331, "lines": 11_020}
UPLOAD |= {"created_ms": _AT_MS}
STUDY = {
    "id": "9be4d17a305f0c2a",
    "kind": "compare",
    "user": "ada",
    "created_ms": _AT_MS,
    "state": "running",
    "began_ms": _AT_MS + 400,
    "ended_ms": None,
    "error": "",
    "done": 6_120,
    "total": 22_038,
    "text": "fifo: 12d 4h of virtual time",
    "trace": "philly.csv",
    "source": "upload",
    "own_cluster": True,
    "policies": ["fifo", "fair"],
    "targets": [],
    "load": "",
    "faults": "",
    "seeds": 1,
    "has_report": False,
}
_CLUSTER = {"name": "cluster", "nodes": 4, "gpus": 32}
ANSWER = {
    "kind": "compare",
    "trace": "philly.csv",
    "cluster": _CLUSTER,
    "jobs": 11_019,
    "seeds": 1,
    "columns": [{"key": "mean_jct", "title": "mean JCT"}],
    "rows": [{"policy": "fifo", "cells": {"mean_jct": {"text": "3h 12m", "best": False}}}],
    "over_time": {
        "step_s": 3600.0,
        "series": [{"policy": "fifo", "allocated": [0.7], "waiting_jobs": [3.0], "waiting_gpus": [9.0]}],
    },
    "notes": ["jobs without GPUs, left out: 12"],
    "errors": [],
}


class UploadModel(Answered):
    """A trace that was uploaded. It is kept for a day."""

    id: str
    name: str
    user: str
    bytes: int
    lines: int
    created_ms: int


class UploadListModel(Answered):
    """Uploads, the newest first."""

    items: list[UploadModel]
    next: str | None = None


class StudyModel(Answered):
    """A study, and how far it is."""

    id: str
    kind: Literal["compare", "capacity"]
    user: str
    created_ms: int
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    began_ms: int | None
    ended_ms: int | None
    error: str = Field(description="What it failed of.")
    done: int = Field(description="Of `compare` jobs that have ended in all runs, of `capacity` runs.")
    total: int = Field(description="Of how many; 0 where that is not known.")
    text: str = Field(description="What it is at.")
    trace: str = Field(description="What the jobs are called.")
    source: str
    own_cluster: bool = Field(description="Whether it runs on the cluster of the server.")
    policies: list[str]
    targets: list[str]
    load: str
    faults: str = Field(description="The profile of failures; empty where there are none.")
    seeds: int
    has_report: bool


class StudyListModel(Answered):
    """Studies, the newest first."""

    items: list[StudyModel]
    next: str | None = None


class StudyAnswerModel(Answered):
    """What a study came to."""

    kind: Literal["compare", "capacity"]
    trace: str
    cluster: dict[str, Any] = Field(description="Its `name`, `nodes` and `gpus`.")
    seeds: int
    notes: list[str]
    jobs: int | None = Field(None, description="Of `compare`: how many were submitted.")
    columns: list[dict[str, str]] = Field([], description="Of `compare`: the figures, as `key` and `title`.")
    rows: list[dict[str, Any]] = Field(
        [],
        description="Of `compare`: for each policy its `cells`, each with `text` and `best`, by column.",
    )
    over_time: dict[str, Any] | None = Field(
        None,
        description="Of `compare`: `series` of each policy: the mean of each `step_s` seconds, null after its end.",
    )
    errors: list[str] = Field([], description="Of `compare`: what runs of policies that have no row failed of.")
    plans: list[dict[str, Any]] = Field(
        [], description="Of `capacity`: what `phalanx capacity -o json` prints, with `sentences`."
    )
