"""Unknown attempts: attempts whose folders are here and that a restored store does not know, or knows otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from phalanx.backends.live import Adopted, FoundAttempt
from phalanx.backends.local.folder import AttemptFolder, read_paper, write_durably
from phalanx.backends.local.orders import Yard

FOLDER = "backend/found"
UNNAMED = "unnamed"
"""Stands in names for the incarnation of attempts that an older release started."""


@dataclass(frozen=True, slots=True)
class UnknownAttempt:
    """An attempt that the store does not know. It is `in_the_way` of one of the same number that may come."""

    job: str
    attempt: int
    in_the_way: bool


def strays_of(yard: Yard, present: Mapping[tuple[str, int], Adopted]) -> Iterator[UnknownAttempt]:
    """All strays below a data folder. `present` are the attempts that the State believes to hold devices."""
    jobs = yard.data / "jobs"
    for job in sorted(os.listdir(jobs)) if jobs.is_dir() else ():
        known = yard.history.attempts(job)
        for attempt in _attempts_in(jobs / job):
            if known is None:
                yield UnknownAttempt(job, attempt, in_the_way=False)
            elif attempt > known or _is_another(yard, job, attempt, present.get((job, attempt))):
                yield UnknownAttempt(job, attempt, in_the_way=True)


def put_away(yard: Yard, stray: UnknownAttempt, ran: bool, now: int) -> FoundAttempt:
    """Puts down what was found, with its logs, and clears the way. Done twice it is done once."""
    folder = yard.folder(stray.job, stray.attempt)
    found = _found(yard, stray, folder, ran, now)
    records = yard.data / FOLDER
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = str(records / f"{found.id}.json")
    kept = read_paper(record)
    if kept is not None:
        found = replace(found, **{key: kept[key] for key in ("found_ms", "found_by", "ran", "path")})
    # The record first: a server that is killed in between finds the folder again, and where it belongs.
    write_durably(record, asdict(found))
    if found.path != folder.path:
        os.rename(folder.path, found.path)
    return found


def list_found(data: Path) -> list[FoundAttempt]:
    """All that was ever found, the newest first."""
    papers = [read_paper(str(path)) for path in (data / FOLDER).glob("*.json")]
    found = [FoundAttempt(**paper) for paper in papers if paper is not None]
    return sorted(found, key=lambda each: (each.found_ms, each.id), reverse=True)


def _found(yard: Yard, stray: UnknownAttempt, folder: AttemptFolder, ran: bool, now: int) -> FoundAttempt:
    order, state = folder.order(), folder.state()
    ending = state["ending"] if state is not None else None
    incarnation = order.get("incarnation", "") if order is not None else ""
    name = incarnation or UNNAMED
    return FoundAttempt(
        id=f"{stray.job}-{stray.attempt}-{name}",
        job=stray.job,
        attempt=stray.attempt,
        incarnation=incarnation,
        queue=order.get("queue", "") if order is not None else "",
        user=order.get("owner", "") if order is not None else "",
        found_ms=now,
        found_by=yard.history.present,
        ran=ran,
        outcome=ending["outcome"] if ending is not None else "unknown",
        reason=ending["reason"] if ending is not None else "",
        path=f"{folder.path}.{name}" if stray.in_the_way else folder.path,
    )


def _attempts_in(folder: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except NotADirectoryError:
        return []


def _is_another(yard: Yard, job: str, attempt: int, adopted: Adopted | None) -> bool:
    """Whether a folder is of another attempt of the same number, which another incarnation of the store started."""
    order = yard.folder(job, attempt).order()
    if order is None:
        return False
    incarnation = order.get("incarnation", "")
    return incarnation != adopted.incarnation if adopted is not None else incarnation not in yard.history.incarnations
