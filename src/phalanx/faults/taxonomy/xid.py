"""XID codes: what the NVIDIA driver writes to the kernel log when a GPU goes wrong, and what causes it.

From NVIDIA's “XID Errors” (GPU Deployment and Management Documentation, r570, 2025). The codes that a user's program
can cause by itself are no reason to take a node out of service.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from phalanx.errors import PhalanxError
from phalanx.faults.taxonomy.cause import Domain, Recovery, Severity


class UnknownXidError(PhalanxError):
    """A code that the table does not have."""


class Xid(NamedTuple):
    """One code. `blames_node` says whether it counts against the health of the GPU's node."""

    code: int
    name: str
    domain: Domain
    recovery: Recovery
    severity: Severity
    blames_node: bool


H, S, U = Domain.HARDWARE, Domain.SYSTEM, Domain.USER
NODE, PROCESS = Recovery.NODE, Recovery.PROCESS
NOW, LATER = Severity.HIGH, Severity.LOW

_ROWS = (
    Xid(13, "graphics engine exception", U, PROCESS, LATER, False),
    Xid(31, "GPU memory page fault", U, PROCESS, LATER, False),
    Xid(32, "invalid or corrupted push buffer stream", S, PROCESS, LATER, False),
    Xid(38, "driver firmware error", S, PROCESS, LATER, False),
    Xid(43, "GPU stopped processing", U, PROCESS, LATER, False),
    Xid(45, "preemptive cleanup after an earlier error", U, PROCESS, LATER, False),
    Xid(48, "double bit ECC error", H, NODE, NOW, True),
    Xid(61, "internal micro-controller breakpoint", H, NODE, NOW, True),
    Xid(62, "internal micro-controller halt", H, NODE, NOW, True),
    Xid(63, "ECC page retirement or row remapping recorded", H, PROCESS, LATER, True),
    Xid(64, "ECC page retirement or row remapping failed", H, NODE, NOW, True),
    Xid(68, "NVDEC exception", S, PROCESS, LATER, False),
    Xid(69, "graphics engine class error", U, PROCESS, LATER, False),
    Xid(74, "NVLink error", H, NODE, NOW, True),
    Xid(79, "GPU has fallen off the bus", H, NODE, NOW, True),
    Xid(92, "high rate of single bit ECC errors", H, NODE, LATER, True),
    Xid(94, "contained uncorrectable ECC error", H, PROCESS, LATER, True),
    Xid(95, "uncontained uncorrectable ECC error", H, NODE, NOW, True),
    Xid(109, "context switch timeout", S, PROCESS, LATER, False),
    Xid(110, "security fault", H, NODE, NOW, True),
    Xid(119, "GSP remote call timeout", S, NODE, NOW, True),
    Xid(120, "GSP error", S, NODE, NOW, True),
    Xid(121, "C2C link corrected error", H, PROCESS, LATER, True),
    Xid(140, "unrecovered ECC error", H, NODE, NOW, True),
    Xid(143, "GPU initialization failure", H, NODE, NOW, True),
)

XIDS = {each.code: each for each in _ROWS}

_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]+)\)?[^:]*: (?P<code>[0-9]{1,4})\b")


def xid(code: int) -> Xid:
    """The row of a code."""
    found = XIDS.get(code)
    if found is None:
        known = ", ".join(map(str, sorted(XIDS)))
        raise UnknownXidError(f"XID {code} is not in the table: it blames no node; see NVIDIA's list (known: {known})")
    return found


def xid_of_line(line: str) -> tuple[str, int] | None:
    """The PCI address and code of a line of the kernel log; None if it tells of none."""
    match = _LINE.search(line)
    return (match["device"], int(match["code"])) if match else None
