"""Slurm's accounting, as `sacct -P` prints it: a row a job or step, fields between bars."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phalanx.document.error import brief
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.dated import since_first
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats.gpu_names import catalogue_name
from phalanx.simulate.traces.formats.states import ending_of
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import Layout, Rows, open_rows

BARS = Layout("|", quotes=False)
COLUMNS = ("JobID", "Submit", "Elapsed", "State", "AllocTRES")
"""What must be there; User, Account, Partition, NNodes and Priority are read if they are."""

NEVER_RAN = "that never ran"
SLICES = "slices of GPUs (MIG), counted as whole GPUs"
ELAPSED = "a time such as 1-02:03:04"

_ELAPSED = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:\.\d+)?")
_GPUS = re.compile(r"gres/gpu(?::(?P<type>[^=]+))?=(?P<count>\d+)")
_SLICE = re.compile(r"[_-]?\d+g\.\d+gb(?:\+me)?", re.IGNORECASE)
"""What names a slice (MIG), alone or after the GPU it is of: `1g.10gb`, `a100_3g.20gb`."""
_JOB = re.compile(r"\d+(?:[_+]\d+)*")
"""A job, a member of an array (`_n`), or a part of a heterogeneous job (`+n`). Steps have a dot and more."""
_UNSTARTED = re.compile(r"\d+_\[[\d,:%-]+\]")
"""Members of an array that were never started, all in one row: `4821_[5-9%2]`."""

DIGITS_MAX = 12
"""Of a priority or a number of nodes; what is longer is none."""


@dataclass(frozen=True, slots=True)
class Granted:
    """GPUs of a list of trackable resources."""

    gpus: int = 0
    gpu_type: str = ""


def read_sacct(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads what sacct printed. Steps (`4821.batch`, `4821.0`) are passed over."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path, BARS) as table:
        submit = table.reader("Submit", values.zoned_ms, values.MOMENT.replace(" 07", "T07"))
        elapsed = table.reader("Elapsed", elapsed_ms, ELAPSED)
        state = table.reader("State", ending_of, "a state of Slurm such as COMPLETED")
        granted = table.reader("AllocTRES", granted_of, "resources such as cpu=4,gres/gpu:a100=8")
        id_at, granted_at, jobs = table.column("JobID"), table.column("AllocTRES"), []
        for at in table.rows(intake.refuse):
            name = at[1][id_at].strip()
            if "." in name:
                continue
            try:
                unstarted = _UNSTARTED.fullmatch(name)
                if not (unstarted or _JOB.fullmatch(name)):
                    expected = f"expected an id such as 4821, 4821_7 or 4821+1, got {brief(name)}"
                    raise TraceError(path, expected, at[0], "JobID")
                ending = state(*at)
                if ending is None:
                    raise LeftOut("that had not ended")
                if unstarted:
                    raise LeftOut(NEVER_RAN)
                gpus = granted(*at)
                job = with_gpus(_job(table, at[1], name, submit(*at), elapsed(*at), gpus, ending))
                intake.name(job.id, at[0], "JobID")
                jobs.append(job)
                if _SLICE.search(at[1][granted_at]):
                    intake.remark(SLICES)
            except (TraceError, LeftOut) as reason:
                intake.refuse(reason)
    return intake.trace(since_first(jobs))


def _job(
    table: Rows, row: list[str], name: str, submit_ms: int, run_ms: int, granted: Granted, ending: Ending
) -> TraceJob:
    if not run_ms and ending is Ending.CANCELLED:
        raise LeftOut(NEVER_RAN)
    nodes = _number(table, row, "NNodes")
    return TraceJob(
        name,
        submit_ms,
        run_ms,
        granted.gpus,
        queue=_text(table, row, "Account") or _text(table, row, "Partition") or "default",
        user=_text(table, row, "User"),
        priority=min(_number(table, row, "Priority"), 1_000_000),
        gpus_per_node=granted.gpus // nodes if nodes > 1 and granted.gpus % nodes == 0 else 0,
        gpu_type=granted.gpu_type,
        ending=ending,
    )


def elapsed_ms(text: str) -> int:
    """[days-][hours:]minutes:seconds."""
    found = _ELAPSED.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    return values.milliseconds(str(((days * 24 + hours) * 60 + minutes) * 60 + seconds))


def granted_of(text: str) -> Granted:
    """The GPUs of `cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1T`: the plain count is of all, types add up to it."""
    if text and "=" not in text:
        raise ValueError(text)
    plain = 0
    typed: dict[str, int] = {}
    for found in _GPUS.finditer(text):
        if found["type"]:
            name = _SLICE.sub("", found["type"]).upper()
            typed[name] = typed.get(name, 0) + int(found["count"])
        else:
            plain = int(found["count"])
    # One type that covers all is what was asked for; several are not told apart.
    only = next(iter(typed)) if len(typed) == 1 and sum(typed.values()) >= plain else ""
    gpus = values.gpus(str(max(plain, sum(typed.values()))))
    return Granted(gpus, catalogue_name(only) if only else "")


def _text(table: Rows, row: list[str], name: str) -> str:
    return values.text(row[table.header.index(name)].strip()) if name in table.header else ""


def _number(table: Rows, row: list[str], name: str) -> int:
    text = _text(table, row, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else 0
