"""Signals of others that watch a node: NVIDIA's DCGM and Kubernetes' node-problem-detector, by the text in which both
offer their figures to Prometheus. Read from a file, or from the address where they are served.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from phalanx.faults.taxonomy.xid import XIDS

ANSWER_S = 10.0
BYTES_MAX = 64 << 20
HOT_C = 95


class Finding(NamedTuple):
    """What is wrong, and on which GPU; None: on the node as a whole."""

    told: str
    gpu: int | None = None


class Sample(NamedTuple):
    """One figure, with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


class UnreadableError(Exception):
    """A text that is not there, or is not of Prometheus' form."""


_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?\s*')
_ESCAPED = re.compile(r"\\(.)")


def text_at(source: str) -> str:
    """The text of a file, or what an address of http or https answers."""
    try:
        if urlsplit(source).scheme in ("http", "https"):
            with urlopen(source, timeout=ANSWER_S) as answer:
                content = answer.read(BYTES_MAX + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else getattr(error, "strerror", None) or error
        raise UnreadableError(f"{source}: {reason}") from None
    if len(content) > BYTES_MAX:
        raise UnreadableError(f"{source}: expected at most {BYTES_MAX:,} bytes")
    return str(content, errors="replace")


def samples(text: str, source: str) -> Iterator[Sample]:
    """The figures of a text."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = _SAMPLE.match(line)
        try:
            if found is None:
                raise ValueError
            labels = {name: _ESCAPED.sub(r"\1", value) for name, value in _LABEL.findall(found["labels"] or "")}
            yield Sample(found["name"], labels, float(found["value"]))
        except ValueError:
            shown = line if len(line) <= 80 else f"{line[:80]}…"
            raise UnreadableError(f"{source}:{number}: expected NAME{{LABELS}} VALUE, got {shown}") from None


def dcgm_findings(text: str, source: str) -> Iterator[Finding]:
    """What dcgm-exporter tells of GPUs that are not well. Fields that it was not asked for are not there."""
    seen = [each for each in samples(text, source) if each.name.startswith("DCGM_FI_")]
    if not seen:
        raise UnreadableError(f"{source}: expected fields of DCGM (DCGM_FI_…), found none")
    hosts = sorted({each.labels["Hostname"] for each in seen if "Hostname" in each.labels})
    if len(hosts) > 1:
        raise UnreadableError(f"{source}: expected the GPUs of one node, got those of {', '.join(hosts[:3])}")
    for each in seen:
        # What DCGM could not read it leaves blank, as NaN or as a number beyond all others.
        told = _wrong_by_dcgm(each) if math.isfinite(each.value) and each.value < 2**46 else None
        if told is not None:
            gpu = each.labels.get("gpu", "")
            yield Finding(told, int(gpu) if gpu.isdecimal() else None)


def _wrong_by_dcgm(sample: Sample) -> str | None:
    value = sample.value
    match sample.name:
        case "DCGM_FI_DEV_XID_ERRORS":
            xid = XIDS.get(int(value))
            return f"XID {xid.code}, {xid.name}" if xid is not None and xid.blames_node else None
        case "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" if value > 0:
            return f"{value:.0f} memory errors that were not corrected"
        case "DCGM_FI_DEV_ROW_REMAP_FAILURE" if value > 0:
            return "remapping of a row of memory failed"
        case "DCGM_FI_DEV_ROW_REMAP_PENDING" if value > 0:
            return "a row of memory is remapped at the next reset"
        case "DCGM_FI_DEV_GPU_TEMP" if value > HOT_C:
            return f"{value:.0f} °C"
        case _:
            return None


def node_problems(text: str, source: str) -> Iterator[Finding]:
    """What node-problem-detector says is wrong now. What only happened once, which it counts, is told by no state."""
    seen = [each for each in samples(text, source) if each.name in ("problem_gauge", "problem_counter")]
    if not seen:
        raise UnreadableError(f"{source}: expected problem_gauge of node-problem-detector, found none")
    for each in seen:
        if each.name == "problem_gauge" and each.value > 0:
            kind, reason = each.labels.get("type", ""), each.labels.get("reason", "")
            yield Finding(kind if reason in ("", kind) else f"{kind}: {reason}")
