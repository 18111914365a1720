"""Dependencies as options say them: `--after`, `--after-any` and the like, or as Slurm's `sbatch` has them."""

from __future__ import annotations

from typing import Any

import click

OPTIONS = {"after": "success", "after_any": "end", "after_failure": "failure", "after_start": "start"}
"""Options of `submit`, and the outcome of the other job that each waits for."""

SLURM = {"afterok": "success", "afterany": "end", "afternotok": "failure", "after": "start"}
"""Kinds of `sbatch --dependency`, and the same of a job file."""


def dependencies(given: dict[str, Any]) -> list[str | dict[str, str]]:
    """What a job waits for, as the `after` of a job file."""
    found = [(job, on) for option, on in OPTIONS.items() for job in given[option]]
    found += [each for text in given["dependency"] for each in slurm_dependencies(text)]
    if given["keep_unmet"] and not found:
        raise click.UsageError("--keep-unmet is about dependencies: add --after ID, say")
    if given["keep_unmet"]:
        return [{"job": job, "on": on, "otherwise": "keep"} for job, on in found]
    return [job if on == "success" else {"job": job, "on": on} for job, on in found]


def slurm_dependencies(text: str) -> list[tuple[str, str]]:
    """`afterok:12:13,afterany:14` as jobs and outcomes."""
    found = []
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        if kind not in SLURM or not jobs or not all(jobs):
            kinds = ", ".join(f"{each}:ID" for each in SLURM)
            raise click.UsageError(f"--dependency {text}: expected some of {kinds}, with commas between, got '{part}'")
        found += [(job, SLURM[kind]) for job in jobs]
    return found


def replicas(text: str) -> int | dict[str, int]:
    """`4`, or `2:8` for an elastic job of two to eight tasks."""
    least, colon, most = text.partition(":")
    numbers = [int(each) for each in (least, most if colon else least) if each.isdecimal() and len(each) < 10]
    if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1]:
        raise click.UsageError(
            f"--tasks {text}: expected a number of at least 1, or MIN:MAX for an elastic job, as in 2:8"
        )
    return {"min": numbers[0], "max": numbers[1]} if colon else numbers[0]
