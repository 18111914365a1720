"""Examples of what goes over the API, for its description. A test checks each against what it stands for."""

from __future__ import annotations

from typing import Any

from phalanx.server.api.jobfile import JOB_FILE_EXAMPLE
from phalanx.server.api.models.base import ErrorModel
from phalanx.server.api.models.jobs import JOB_EXAMPLE
from phalanx.server.api.models.studies import ANSWER, STUDY, UPLOAD
from phalanx.server.api.overview.models import EXAMPLES as OVERVIEW
from phalanx.server.api.overview.operator_models import EXAMPLES as OPERATOR

_AT_MS = 1790000000000
_SLOT = {"rank": 0, "role": "worker", "node": "n0", "devices": [0, 1, 2, 3, 4, 5, 6, 7]}
_FINDING = {
    "at_ms": _AT_MS + 60_000,
    "job": "4821",
    "attempt": 1,
    "kind": "slow",
    "task": 0,
    "node": "n0",
    "rank": 3,
    "device": 3,
    "text": "it computes 0.500 s a step, the others 0.100 s (5.0 times)",
}
_FOUND_WORDS = "rank 3 on n0, GPU 3 is slow: it computes 0.500 s a step, the others 0.100 s (5.0 times)"
_ATTEMPT = {
    "job": "4821",
    "number": 1,
    "phase": "running",
    "created_ms": _AT_MS,
    "started_ms": _AT_MS + 4_000,
    "ended_ms": None,
    "outcome": None,
    "exit_code": None,
    "reason": "",
    "nodes": ["n0"],
    "slots": [_SLOT],
    "step": None,
    "durable_step": None,
    "lost_ms": None,
    "lost_gpu_ms": None,
    "findings": [_FINDING],
}
_NODE = {
    "name": "n0",
    "health": "healthy",
    "reason": "",
    "gpus": 8,
    "gpus_used": 8,
    "gpus_out": [{"gpu": 3, "health": "suspect"}],
    "gpu_type": "H100",
    "gpu_memory_gb": 80.0,
    "cpus_milli": 96_000,
    "memory_mb": 1_048_576,
    "path": ["pod0", "rack0"],
    "labels": {},
    "spot": False,
    "jobs": ["4821"],
    "simulated": False,
}
_QUEUE = {
    "name": "research/llm",
    "waiting": 3,
    "running": 1,
    "gpus_used": 32,
    "gpus_waiting": 24,
    "quota": None,
    "quota_used": None,
    "budget_spent_gpu_ms": None,
    "virtual_cluster": {
        "cells": [{"type": "H100-NODE", "gpus": 8, "count": 4, "free": 1}],
        "gpus": 32,
        "gpus_used": 24,
        "gpus_free": 8,
        "gpus_opportunistic": 8,
    },
}
_RESERVATION = {"job": "4822", "at_ms": _AT_MS + 3_600_000, "nodes": ["n0", "n1"]}
_FUTURE = {
    "policy": "srtf",
    "jobs": 40,
    "started": 40,
    "finished": 40,
    "unfinished": 0,
    "makespan_s": 7_200.0,
    "from_ms": _AT_MS,
    "step_ms": 2_048_000,
    "gpus_held": [32, 32, 28, 12],
    "jobs_pending": [9, 4, 0, 0],
    "mean_jct_s": 1_800.0,
    "mean_wait_s": 600.0,
    "gpu_allocated": 0.93,
    "submitted": [],
}
_GRANT = {"queue": "research", "role": "member"}
_USER = {
    "name": "ada",
    "disabled": False,
    "has_password": True,
    "created_ms": _AT_MS,
    "unix_user": "ada",
    "roles": [_GRANT],
}
_TOKEN = {
    "id": "0123456789ab",
    "user": "ada",
    "name": "ci",
    "scopes": ["read", "write"],
    "created_ms": _AT_MS,
    "expires_ms": _AT_MS + 604_800_000,
    "revoked_ms": None,
    "parent": "ba9876543210",
    "session_until_ms": None,
}
_SECRET = {
    "name": "WANDB_API_KEY",
    "grants": [{"queue": "research", "user": ""}],
    "has_value": True,
    "created_ms": _AT_MS,
    "updated_ms": _AT_MS,
}
_AUDITED = {
    "number": 17,
    "at_ms": _AT_MS,
    "user": "ada",
    "token": "0123456789ab",
    "origin": "10.0.0.7",
    "verb": "cancel job",
    "target": "4821",
    "detail": "",
    "outcome": "done",
}
_PLANNED = {
    "job": "plan-1",
    "name": "llama-70b",
    "state": "starting",
    "gpus": 8,
    "nodes": ["n0"],
    "slots": [_SLOT],
    "victims": [],
    "makes_room": [],
    "lost_gpu_ms": 0,
    "deadline": None,
    "expected_start_ms": _AT_MS,
    "communication_ms": 1.7,
    "all_replicas": None,
    "why": "",
}


_FOUND = {
    "id": "4822-1-3f9c2a7b10d4e865",
    "job": "4822",
    "attempt": 1,
    "incarnation": "3f9c2a7b10d4e865",
    "queue": "research",
    "user": "ada",
    "found_ms": _AT_MS,
    "found_by": "a41b0c9d5e6f7283",
    "ran": True,
    "outcome": "stopped",
    "reason": "restored",
    "path": "/var/lib/phalanx/jobs/4822/1",
}


def _page(*items: dict[str, Any]) -> dict[str, Any]:
    return {"items": list(items), "next": None}


_SAVE = {
    "attempt": 1,
    "asked_ms": _AT_MS,
    "until_ms": _AT_MS + 300_000,
    "from_step": 1200,
    "durable_step": 1201,
}

EXAMPLES: dict[str, Any] = {
    **OVERVIEW,
    **OPERATOR,
    "AlertListModel": _page(
        {"rule": "hung", "subject": "4821", "since_ms": _AT_MS, "value": 1200.0, "action": "notify"}
    ),
    "AttemptListModel": _page(_ATTEMPT),
    "AttemptModel": _ATTEMPT,
    "AuditListModel": _page(_AUDITED),
    "BackendListModel": _page(
        {
            "name": "local",
            "summary": "Processes on this machine, with its GPUs or simulated ones.",
            "can": ["adopt", "resize", "suspend", "logs", "exec"],
            "lacks": {"containers": "none of podman, docker, apptainer is on the PATH"},
            "real_nodes": ["gpu-box"],
            "simulated": {},
        }
    ),
    "UsageListModel": _page(
        {
            "key": "ada",
            "name": "",
            "user": "",
            "queue": "",
            "jobs": 3,
            "attempts": 4,
            "gpu_ms": 28_800_000,
            "lost_gpu_ms": 600_000,
            "reported_gpu_ms": 14_400_000,
            "busy_gpu_ms": 12_960_000,
        }
    ),
    "CheckpointBody": {"within_s": 60},
    "ClusterModel": {
        "name": "prod",
        "levels": ["pod", "rack", "node"],
        "nodes": 125,
        "gpus": 1000,
        "gpus_used": 872,
        "simulated_nodes": 0,
        "gpu_types": ["H100"],
        "storage_tiers": ["nvme"],
        "policy": "priority",
        "placement": "topology",
        "term": 3,
    },
    "FoundListModel": _page(_FOUND),
    "FoundModel": _FOUND,
    "JobDetailModel": {
        **JOB_EXAMPLE,
        "spec": {"id": "4821", "name": "llama-70b"},
        "attempt": _ATTEMPT,
        "progress": {
            "at_ms": _AT_MS,
            "attempt": 1,
            "step": 1200,
            "samples_per_s": 512.0,
            "durable_step": 1000,
            "stop_cost_ms": 2000,
            "gpu_busy": 0.93,
            "memory_gb": 61.5,
            "metrics": {"loss": 2.31},
        },
        "save": _SAVE,
        "scale": None,
        "lost": "",
        "found": _FOUND_WORDS,
    },
    "JobListModel": _page(JOB_EXAMPLE),
    "TemplateListModel": {
        "items": [
            {
                "name": "fraction",
                "summary": "A small experiment on a quarter of a GPU, beside others.",
                "text": "# A small experiment on a quarter of a GPU, beside others.\nname: fraction\ngpus: 1\n",
            }
        ],
        "next": None,
    },
    "MeModel": {"user": "ada", "roles": [_GRANT], "scopes": ["read", "write"]},
    "NewTokenModel": {
        "id": "0123456789ab",
        "token": "phx_0123456789ab_…",
        "user": "ada",
        "name": "ci",
        "scopes": ["read", "write"],
        "expires_ms": _AT_MS + 604_800_000,
        "parent": "ba9876543210",
    },
    "NodeListModel": _page(_NODE),
    "NodeModel": _NODE,
    "NodeDetailModel": {**_NODE, "findings": [_FINDING]},
    "Nothing": {},
    "SaveModel": _SAVE,
    "PlanBody": {"jobs": [JOB_FILE_EXAMPLE]},
    "PlanModel": _page(_PLANNED),
    "PolicyModel": {"policy": "priority", "placement": "topology"},
    "QueueListModel": _page(_QUEUE),
    "ReservationListModel": _page(_RESERVATION),
    "RevokedModel": {"id": "0123456789ab", "revoked": 3},
    "RoleBody": {"role": "member"},
    "SecretListModel": _page(_SECRET),
    "SecretModel": _SECRET,
    "SessionModel": {
        "user": "ada",
        "role": "member",
        "roles": [_GRANT],
        "scopes": ["read", "write", "admin"],
        "csrf": "5f2c…",
        "expires_ms": _AT_MS + 7_200_000,
        "until_ms": _AT_MS + 43_200_000,
        "file": None,
    },
    "SubmittedModel": {**JOB_EXAMPLE, "members": []},
    "TokenListModel": _page(_TOKEN),
    "UntilModel": {"until_ms": _AT_MS + 60_000},
    "UserChangeBody": {"disabled": True},
    "UserListModel": _page(_USER),
    "UserModel": _USER,
    "WhatIfModel": {"base": {**_FUTURE, "policy": "fifo", "mean_wait_s": 1_400.0}, "changed": _FUTURE},
    "UploadModel": UPLOAD,
    "UploadListModel": {"items": [UPLOAD], "next": None},
    "StudyModel": STUDY,
    "StudyListModel": {"items": [STUDY], "next": None},
    "StudyAnswerModel": ANSWER,
    "WhyModel": {
        "job": "4822",
        "state": "waiting",
        "reason": "gpus",
        "why": "needs 8 GPUs on one node; the most free on one is 4",
        "sooner": "it would start now with 4 GPUs (1 of worker instead of 2)",
        "ways": ["with 4 GPUs (1 of worker instead of 2)"],
        "preempted": "",
        "lost": "",
        "found": "",
        "deadline": "",
        "next_replica": None,
        "evidence": {"free_gpus": "4 on n3"},
        "ruled_out": {"free_gpus": 125},
        "gpus_free": 4,
        "gpus_needed": 8,
        "behind": None,
        "waits_for": [],
        "not_before_ms": None,
        "fits_now": False,
        "expected_start_ms": _AT_MS + 1_800_000,
        "expected_not_before_ms": None,
        "expected_by": "usual",
        "starts_when": "",
        "no_forecast": "",
        "forecast": {
            "early_ms": _AT_MS + 1_200_000,
            "middle_ms": _AT_MS + 1_800_000,
            "late_ms": _AT_MS + 2_700_000,
            "at_ms": _AT_MS,
            "horizon_ms": 86_400_000,
            "runs": 9,
        },
        "explanation": {"job": "4822", "reason": "gpus"},
    },
}

TEXTS = {
    "application/x-ndjson": (
        '{"at_ms":1790000000000,"rank":0,"stream":"out","end":21,"text":"step 1200, loss 2.31","whole":true}\n'
    ),
    "text/event-stream": 'id: 993\nevent: JobSubmitted\ndata: {"seq": 993, "now_ms": 1790000000000, "job": "4821"}\n\n',
    "text/html": "<!doctype html>\n<title>philly on cluster</title>\n",
    "text/plain": "step 1200, loss 2.31\n",
}
"""What is sent as text looks like this."""


def with_examples(document: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document in which everything has an example."""
    schemas = document["components"]["schemas"]
    schemas.setdefault("ErrorModel", ErrorModel.model_json_schema())
    for name, example in EXAMPLES.items():
        if name in schemas:
            schemas[name].setdefault("example", example)
    for methods in document["paths"].values():
        for operation in methods.values():
            for answer in operation["responses"].values():
                _complete(answer.get("content", {}))
    return document


def _complete(contents: dict[str, Any]) -> None:
    if len(contents) > 1 and not contents.get("application/json", {"schema": True})["schema"]:
        # The framework adds JSON to whatever a route sends.
        del contents["application/json"]
    for media, described in contents.items():
        if media in TEXTS:
            described.setdefault("example", TEXTS[media])
