"""Symptoms, in which domains the cause of each may lie, and what to do with a node that shows it.

After Kokolis et al., HPCA 2025: a symptom does not name its cause, and only some of them are a reason to drain at once.
A check counts as the cause of a failure if it fired at most 10 minutes before the job ended or 5 minutes after.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.faults.taxonomy.cause import Domain, Severity

BEFORE_MS, AFTER_MS = 600_000, 300_000
"""How long before and after the end of a job a check may fire and still count as what ended it."""

USER, SYSTEM, HARDWARE, NETWORK = Domain.USER, Domain.SYSTEM, Domain.HARDWARE, Domain.NETWORK


class Symptom(NamedTuple):
    """What is seen, and in which domains its cause may lie."""

    name: str
    domains: tuple[Domain, ...]
    severity: Severity


SYMPTOMS = (
    Symptom("out of memory", (USER, SYSTEM), Severity.LOW),
    Symptom("GPU unavailable", (HARDWARE, SYSTEM), Severity.HIGH),
    Symptom("GPU memory error, uncorrectable", (HARDWARE,), Severity.HIGH),
    Symptom("GPU row remapping failed", (HARDWARE,), Severity.HIGH),
    Symptom("GPU driver or firmware error", (USER, SYSTEM, HARDWARE), Severity.LOW),
    Symptom("NVLink error", (HARDWARE,), Severity.HIGH),
    Symptom("InfiniBand link error", (NETWORK, HARDWARE), Severity.HIGH),
    Symptom("Ethernet link error", (NETWORK, HARDWARE), Severity.LOW),
    Symptom("PCIe error", (HARDWARE,), Severity.HIGH),
    Symptom("main memory error", (HARDWARE,), Severity.LOW),
    Symptom("block device error", (HARDWARE,), Severity.HIGH),
    Symptom("mount missing", (SYSTEM, NETWORK), Severity.HIGH),
    Symptom("NCCL timeout", (USER, SYSTEM, HARDWARE, NETWORK), Severity.LOW),
    Symptom("system service failed", (SYSTEM,), Severity.LOW),
)
