"""Tiers: what a job's owner was promised of the GPU time it asks for."""

from __future__ import annotations

from enum import StrEnum

from phalanx.workload.job import Job

TIER_LABEL = "tier"
"""The label of a job that names its tier."""

PREMIUM_PRIORITY, STANDARD_PRIORITY = 200, 100
"""The least priorities that make a job without the label premium or standard."""


class Tier(StrEnum):
    """What is promised: nearly all of the GPU time, most of it, or what is left."""

    PREMIUM = "premium"
    STANDARD = "standard"
    BASIC = "basic"


PROMISED = {Tier.PREMIUM: 0.95, Tier.STANDARD: 0.70, Tier.BASIC: 0.0}
"""The fraction of GPU time that each promises (Shukla et al., 2022)."""

NAMES = tuple(tier.value for tier in Tier)


def named_tier(job: Job) -> Tier | None:
    """The tier that a job's label names; None if it names none, or one that there is not."""
    label = next((value for key, value in job.labels if key == TIER_LABEL), "")
    return Tier(label) if label in NAMES else None


def tier_of(job: Job) -> Tier:
    """By its label, else by its priority."""
    named = named_tier(job)
    if named is not None:
        return named
    if job.priority >= PREMIUM_PRIORITY:
        return Tier.PREMIUM
    return Tier.STANDARD if job.priority >= STANDARD_PRIORITY else Tier.BASIC
