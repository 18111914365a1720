"""Templates, what a search finds, and alerts, as the API answers with them."""

from __future__ import annotations

from typing import Literal

from phalanx.server.api.models.base import Answered


class TemplateModel(Answered):
    """A job file that works as it is, and a line that says what it is for."""

    name: str
    summary: str
    text: str


class TemplateListModel(Answered):
    """All templates, by name."""

    items: list[TemplateModel]
    next: str | None = None


class FoundModel(Answered):
    """An attempt that the store, restored from a backup, does not know. `ran` says whether it had to be ended."""

    id: str
    job: str
    attempt: int
    incarnation: str
    queue: str
    user: str
    found_ms: int
    found_by: str
    ran: bool
    outcome: str
    reason: str
    path: str


class FoundListModel(Answered):
    """Attempts that were found after a restore, the newest first."""

    items: list[FoundModel]
    next: str | None = None


class AlertModel(Answered):
    """A rule that is true of a job or a node, since when, and the figure behind it."""

    rule: str
    subject: str
    since_ms: int
    value: float
    action: Literal["notify", "stop", "drain"]


class AlertListModel(Answered):
    """The alerts that fire now."""

    items: list[AlertModel]
    next: str | None = None
