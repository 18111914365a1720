"""Our own trace files: a row a job, in CSV or Parquet, with columns in any order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from phalanx.document.error import brief
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import ROWS_MAX, open_rows, too_many
from phalanx.workload.job import PRIORITY_MAX, PRIORITY_MIN


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in the file, the field of a TraceJob it fills, and how to go from one to the other."""

    name: str
    field: str
    expected: str
    read: Callable[[str], object]
    write: Callable[[Any], str] = str
    is_required: bool = False


def seconds_of(time_ms: int | None) -> str:
    """Milliseconds as seconds, exactly."""
    if time_ms is None:
        return ""
    whole, rest = divmod(time_ms, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def quoted(text: str) -> str:
    """Text as a field of CSV, in quotes where it must be."""
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


_SPECIAL = re.compile(r'[,"\r\n]')
_PRIORITY = values.span(PRIORITY_MIN, PRIORITY_MAX)
_ENDINGS = f"one of {', '.join(values.ENDINGS)}"
_TIERS = f"one of {', '.join(values.TIERS)}"
_KINDS = f"one of {', '.join(values.KINDS)}"

COLUMNS = (
    Column("job_id", "id", "an id", values.identity, quoted, is_required=True),
    Column("submit_s", "submit_ms", values.SECONDS, values.milliseconds, seconds_of, is_required=True),
    Column("duration_s", "duration_ms", values.SECONDS, values.milliseconds, seconds_of, is_required=True),
    Column("gpus", "gpus", values.GPUS, values.gpus, is_required=True),
    Column("queue", "queue", "text", values.text, quoted),
    Column("user", "user", "text", values.text, quoted),
    Column("priority", "priority", _PRIORITY, values.priority),
    Column("gpus_per_node", "gpus_per_node", values.GPUS, values.gpus),
    Column("gpu_type", "gpu_type", "text", values.text, quoted),
    Column("model", "model", "text", values.text, quoted),
    Column("state", "ending", _ENDINGS, values.ending),
    Column("min_gpus", "min_gpus", values.GPUS, values.gpus),
    Column("max_gpus", "max_gpus", values.GPUS, values.gpus),
    Column("deadline_s", "deadline_ms", values.SECONDS, values.milliseconds, seconds_of),
    Column("checkpoint_cost_s", "checkpoint_cost_ms", values.SECONDS, values.milliseconds, seconds_of),
    Column("cancel_s", "cancel_ms", values.SECONDS, values.milliseconds, seconds_of),
    Column("kind", "kind", _KINDS, values.kind),
    Column("gpu_milli", "gpu_milli", values.MILLI, values.milli),
    Column("cpus_milli", "cpus_milli", values.GPUS.replace("GPUs", "thousandths of a CPU"), values.gpus),
    Column("memory_mb", "memory_mb", values.MEMORY_MB, values.memory_mb),
    Column("tier", "tier", _TIERS, values.tier),
    Column("batch", "batch", "fixed or adaptive", values.batch),
    Column("gpu_memory_mb", "gpu_memory_mb", values.MEMORY_MB, values.memory_mb),
    Column("gpu_memory_low_mb", "gpu_memory_low_mb", values.MEMORY_MB, values.memory_mb),
    Column("step_s", "step_ms", values.SECONDS, values.milliseconds, seconds_of),
    Column("estimate_s", "estimate_ms", values.SECONDS, values.milliseconds, seconds_of),
)
UNEVEN = "jobs whose gpus_per_node does not divide their gpus, with a last task of the rest"
REQUIRED = tuple(column for column in COLUMNS if column.is_required)
NAMES = tuple(column.name for column in COLUMNS)
DEFAULTS = {each.name: each.default for each in fields(TraceJob)}


def read_csv(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a CSV file of our columns."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path) as table:
        return _read(table.header, table.rows(intake.refuse), intake)


def read_parquet(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a Parquet file of our columns."""
    frame = _frame(path)
    rows = ((f"row {number}", list(map(_text, row))) for number, row in enumerate(frame.iter_rows(), start=1))
    return _read(tuple(frame.columns), rows, Intake(path, skip_bad_rows))


def _polars(path: str, doing: str) -> Any:
    try:
        return import_module("polars")
    except ImportError:
        raise TraceError(path, f"{doing} Parquet needs polars: pip install polars") from None


def _frame(path: str) -> Any:
    polars = _polars(path, "reading")
    try:
        if polars.scan_parquet(path).select(polars.len()).collect().item() > ROWS_MAX:
            raise too_many(path, "rows")
        return polars.read_parquet(path)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise TraceError(path, f"expected a whole Parquet file: {brief(str(error))}") from None


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _read(header: tuple[str, ...], rows: Iterable[tuple[int | str, list[str]]], intake: Intake) -> Trace:
    columns = _columns_of(header, intake.source)
    reads = [(column.field, _reader(column), column.is_required) for column in columns]
    jobs = []
    for place, row in rows:
        try:
            job = _job_of(row, reads)
            _check(job, intake.source, place)
            intake.name(job.id, place, "job_id")
            if job.gpus_per_node and job.gpus % job.gpus_per_node:
                intake.remark(UNEVEN)
            jobs.append(with_gpus(job))
        except ValueError:
            intake.refuse(_unfit(row, columns, intake.source, place))
        except (TraceError, LeftOut) as reason:
            intake.refuse(reason)
    return intake.trace(jobs)


def _reader(column: Column) -> Callable[[str], object]:
    """Times and ids are new in every row; what other columns hold comes again and again, and is read once."""
    return column.read if column.read in (values.identity, values.milliseconds) else cache(column.read)


def _columns_of(header: tuple[str, ...], source: str) -> list[Column]:
    """The column behind each field of a row."""
    for name in header:
        if name not in NAMES:
            raise TraceError(source, f"unknown column {brief(name)!r}; known are {', '.join(NAMES)}")
    for column in REQUIRED:
        if column.name not in header:
            needed = ", ".join(each.name for each in REQUIRED)
            raise TraceError(source, f"column {column.name!r} is missing; expected {needed}, and any other column")
    return [COLUMNS[NAMES.index(name)] for name in header]


def _job_of(row: list[str], reads: list[tuple[str, Callable[[str], object], bool]]) -> TraceJob:
    found: dict[str, Any] = {}
    for (field, read, is_required), text in zip(reads, row, strict=True):
        if text or is_required:
            found[field] = read(text)
    return TraceJob(**found)


def _unfit(row: list[str], columns: list[Column], source: str, place: int | str) -> TraceError:
    """The error of a row in which some value is not what its column expects."""
    for column, text in zip(columns, row, strict=True):
        try:
            if text or column.is_required:
                column.read(text)
        except ValueError:
            got = brief(text) or "nothing"
            return TraceError(source, f"expected {column.expected}, got {got}", place, column.name)
    raise AssertionError("every value fits its column")


def _check(job: TraceJob, source: str, place: int | str) -> None:
    """Fields of one job that contradict one another."""
    if job.gpus_per_node > job.gpus:
        column, expected = "gpus_per_node", f"at most its {job.gpus} gpus, got {job.gpus_per_node}"
    elif job.min_gpus > job.gpus:
        column, expected = "min_gpus", f"at most its {job.gpus} gpus, got {job.min_gpus}"
    elif 0 < job.max_gpus < job.gpus:
        column, expected = "max_gpus", f"at least its {job.gpus} gpus, got {job.max_gpus}"
    elif job.gpu_milli and (job.min_gpus or job.max_gpus):
        column, expected = "gpu_milli", "none for a job that is elastic: its members have whole GPUs"
    elif job.gpu_memory_low_mb > job.gpu_memory_mb:
        column, expected = (
            "gpu_memory_low_mb",
            f"at most its {job.gpu_memory_mb} gpu_memory_mb, got {job.gpu_memory_low_mb}",
        )
    elif job.deadline_ms is not None and job.deadline_ms < job.submit_ms:
        column, expected = "deadline_s", f"a time after its submit_s, got {seconds_of(job.deadline_ms)}"
    elif job.cancel_ms is not None and job.cancel_ms < job.submit_ms:
        column, expected = "cancel_s", f"a time after its submit_s, got {seconds_of(job.cancel_ms)}"
    else:
        return
    raise TraceError(source, f"expected {expected}", place, column)


def write_trace(trace: Trace, path: str) -> None:
    """Writes a trace in our columns: as Parquet where the name ends in .parquet, else as CSV."""
    write = write_parquet if path.endswith(".parquet") else write_csv
    write(trace, path)


def write_parquet(trace: Trace, path: str) -> None:
    """Writes a Parquet file of our columns: seconds and counts as numbers, what has no value as null."""
    polars = _polars(path, "writing")
    types = {"number": polars.Float64, "count": polars.Int64, "text": polars.String}
    cells = {column.name: _cells(column, trace) for column in _used(trace)}
    frame = polars.DataFrame(
        {name: values for name, (_, values) in cells.items()},
        schema={name: types[kind] for name, (kind, _) in cells.items()},
    )
    try:
        frame.write_parquet(path)
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error


def _cells(column: Column, trace: Trace) -> tuple[str, list[Any]]:
    """What a column holds (number, count or text), and its values."""
    values = [getattr(job, column.field) for job in trace.jobs]
    if column.write is seconds_of:
        return "number", [None if value is None else value / 1000 for value in values]
    if isinstance(DEFAULTS[column.field], int) or column.field == "gpus":
        return "count", values
    return "text", list(map(str, values))


def write_csv(trace: Trace, path: str) -> None:
    """Writes a trace in our columns: the required ones, and of the rest those that say something."""
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            file.writelines(_lines(trace))
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error


def _lines(trace: Trace) -> Iterator[str]:
    used = _used(trace)
    yield ",".join(column.name for column in used) + "\n"
    cells = [(column.field, column.write) for column in used]
    for job in trace.jobs:
        yield ",".join([write(getattr(job, field)) for field, write in cells]) + "\n"


def _used(trace: Trace) -> list[Column]:
    return [column for column in COLUMNS if column.is_required or _says_something(column, trace)]


def _says_something(column: Column, trace: Trace) -> bool:
    default = DEFAULTS[column.field]
    return any(getattr(job, column.field) != default for job in trace.jobs)
