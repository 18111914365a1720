"""Beginnings: the action with which a job that has devices comes to run."""

from __future__ import annotations

from phalanx.engine.state.records import JobRecord
from phalanx.placement.placement import Placement
from phalanx.protocol.action import ActionId, Resume, Start


def begin(record: JobRecord, action: ActionId, placement: Placement) -> Start | Resume:
    """A start; a suspended attempt goes on instead."""
    return Start(action, placement) if record.kept is None else Resume(action, placement)
