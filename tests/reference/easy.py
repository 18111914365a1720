"""What the product is compared with: EASY backfilling (Mu'alem and Feitelson, IEEE TPDS 2001), written plainly.

One integer of free GPUs and true durations. The head of the line is promised the moment at which enough will be free,
the shadow time, and what is left over then, the extra GPUs. Whoever ends before that moment, or needs no more than the
extra ones, may pass it. It shares no code with the product.
"""

from __future__ import annotations

from reference.tiresias import RefJob


def easy(jobs: list[RefJob], gpus: int) -> dict[str, int]:
    """When each job starts. Jobs come in the order of their submission, none larger than there are GPUs."""
    starts: dict[str, int] = {}
    coming, waiting, running = list(jobs), list[RefJob](), list[tuple[int, RefJob]]()
    while coming or waiting:
        now = min([end for end, _ in running] + [job.submit for job in coming[:1]])
        running = [(end, job) for end, job in running if end > now]
        while coming and coming[0].submit <= now:
            waiting.append(coming.pop(0))
        for job in _chosen(waiting, running, gpus, now):
            starts[job.id] = now
            waiting.remove(job)
            running.append((now + job.duration, job))
    return starts


def _chosen(waiting: list[RefJob], running: list[tuple[int, RefJob]], gpus: int, now: int) -> list[RefJob]:
    free = gpus - sum(job.gpus for _, job in running)
    chosen: list[RefJob] = []
    while len(chosen) < len(waiting) and waiting[len(chosen)].gpus <= free:
        chosen.append(waiting[len(chosen)])
        free -= chosen[-1].gpus
    if len(chosen) == len(waiting):
        return chosen
    head, *others = waiting[len(chosen) :]
    ends = sorted([*running, *((now + job.duration, job) for job in chosen)], key=lambda each: each[0])
    shadow = next(end for end, _ in ends if _free_at(end, ends, free) >= head.gpus)
    extra = _free_at(shadow, ends, free) - head.gpus
    for job in others:
        ends_before = now + job.duration <= shadow
        if job.gpus <= free and (ends_before or job.gpus <= extra):
            chosen.append(job)
            free -= job.gpus
            extra -= 0 if ends_before else job.gpus
    return chosen


def _free_at(moment: int, ends: list[tuple[int, RefJob]], free: int) -> int:
    return free + sum(job.gpus for end, job in ends if end <= moment)
