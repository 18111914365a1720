"""The scale of a service as the API shows it: what was asked for, and how it stands to its load."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection

from phalanx.engine.decide.scaling import Standing
from phalanx.server.scaling.scaler import Followed, followed_in
from phalanx.words.scale import scale_words


def scale_of(connection: Connection, job: str, spec: dict[str, Any]) -> dict[str, Any] | None:
    """That of a job with this spec; None if it follows no load."""
    asked = spec.get("scale")
    if asked is None:
        return None
    unknown = Followed(asked.get("replicas") or 0, 0, Standing.NOT_RUNNING)
    followed = msgspec.to_builtins(followed_in(connection).get(job, unknown))
    shown = {
        "metric": asked["metric"],
        "target": asked["target"],
        "min": asked["least"],
        "max": asked["most"],
        "cool_down_ms": asked["cool_down_ms"],
        "since_ms": asked["since_ms"] or None,
        **followed,
    }
    return {**shown, "says": scale_words(shown)}
