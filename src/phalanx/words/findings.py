"""What launchers have found out about their tasks, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KINDS = {
    "slow": "is slow",
    "recovered": "is as fast as the others again",
    "hang": "hangs",
    "lost": "was lost",
    "failed": "failed first",
    "failing": "fails again and again",
}
TOLD_MAX = 3


def finding_words(finding: Mapping[str, Any]) -> str:
    """One finding, as the server lists it."""
    who = f"task {finding['task']}" if finding["rank"] is None else f"rank {finding['rank']}"
    device = "" if finding["device"] is None else f", GPU {finding['device']}"
    return f"{who} on {finding['node']}{device} {KINDS.get(finding['kind'], finding['kind'])}: {finding['text']}"


def found_words(tries: Sequence[Mapping[str, Any]]) -> str:
    """What was found last at the attempts at a job, as the server lists them; empty if nothing was."""
    newest: Sequence[Mapping[str, Any]] = next((each["findings"] for each in reversed(tries) if each["findings"]), ())
    before = len(newest) - TOLD_MAX
    earlier = [f"{before} before that"] if before > 0 else []
    return "; ".join([*map(finding_words, reversed(newest[-TOLD_MAX:])), *earlier])
