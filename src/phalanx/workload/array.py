"""Arrays: one submission, many members."""  # noqa: A005

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from phalanx.errors import PhalanxError
from phalanx.workload.job import Array, Job

MEMBERS_MAX = 10_000
INDEX_MAX = 999_999_999
TEXT_MAX = 65_536
VARIABLE_PREFIX = "PHALANX_SWEEP_"

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_PLACEHOLDER = re.compile(r"\{(\{)?([a-z_][a-z0-9_]*)\}(?(1)\})")
_THROTTLE = re.compile(r"[0-9]{1,9}")


class ArrayError(PhalanxError):
    """Text that does not name the members of an array."""


def parse_indices(text: str) -> Array:
    """Reads `0-31`, `1,3,5-9` or `0-100:10` (every tenth); `%4` at the end lets four run at a time."""
    if len(text) > TEXT_MAX:
        raise ArrayError(f"expected at most {TEXT_MAX} characters, got {len(text)}")
    listed, percent, throttle = text.strip().partition("%")
    if percent and not (_THROTTLE.fullmatch(throttle) and int(throttle)):
        raise ArrayError(f"expected a whole number from 1 to {INDEX_MAX} after '%', got '{throttle}'")
    indices: dict[int, None] = {}
    for part in listed.split(","):
        members = _members_of(part.strip())
        if len(indices) + len(members) > MEMBERS_MAX:
            raise ArrayError(f"expected at most {MEMBERS_MAX} members, got more in '{part}'")
        for index in members:
            if index in indices:
                raise ArrayError(f"the index {index} is given twice")
            indices[index] = None
    return Array(tuple(sorted(indices)), int(throttle) if percent else 0)


def _members_of(part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise ArrayError(f"expected indices such as 0-31, 1,3,5-9 or 0-100:10, got '{part}'")
    first, last = int(match[1]), int(match[2] or match[1])
    step = int(match[3] or 1)
    if last < first or step < 1:
        raise ArrayError(f"expected a range that goes up in steps of at least 1, got '{part}'")
    return range(first, last + 1, step)


def members(job: Job) -> tuple[Job, ...]:
    """The members of an array job, `4821.0`, `4821.1`, …; any other job is its own only member.

    A member's own array holds its one index, and how many of its siblings may run beside it.
    """
    if job.array is None or job.array_of:
        return (job,)
    return tuple(
        _at_point(
            replace(job, id=f"{job.id}.{index}", array_of=job.id, array=replace(job.array, indices=(index,))), index
        )
        for index in job.array.indices
    )


def placeholders(argument: str) -> Iterator[str]:
    """The names in braces in an argument of a sweep's command, but for variables of a shell: `${name}`."""
    for match in _PLACEHOLDER.finditer(argument):
        if not match[1] and not argument[: match.start()].endswith("$"):
            yield match[2]


def _at_point(member: Job, index: int) -> Job:
    """A member of a sweep with the values of its point: for `{name}` in its command, and in variables of their own.

    `{{name}}` stands for itself, with one pair of braces.
    """
    if member.sweep is None:
        return member
    point = member.sweep.points[index]
    values = dict(point)

    def value(match: re.Match[str]) -> str:
        return f"{{{match[2]}}}" if match[1] else values.get(match[2], match[0])

    command = tuple(_PLACEHOLDER.sub(value, argument) for argument in member.execution.command)
    variables = tuple((VARIABLE_PREFIX + name.upper(), value) for name, value in point)
    execution = replace(member.execution, command=command, env=(*member.execution.env, *variables))
    return replace(member, execution=execution, sweep=replace(member.sweep, points=(point,)))
