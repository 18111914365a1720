"""The batch of a job file: what a resize makes of it."""

from __future__ import annotations

from phalanx.document import Field, Fields
from phalanx.workload.batch import BatchRule, LearningRate, OnResize, listed, replicas_of_model
from phalanx.workload.formats.limits import SIZE_MAX
from phalanx.workload.gang import Gang
from phalanx.workload.job import Kind
from phalanx.workload.parallel import ParallelPlan

BATCH_KEYS = ("global", "on_resize", "lr")


def read_batch(fields: Fields, kind: Kind, gang: Gang, plan: ParallelPlan | None) -> BatchRule | None:
    """The rule for the batch; None where the job file has none, and the program sees to it."""
    if "batch" not in fields:
        return None
    place = fields["batch"]
    if kind is not Kind.TRAINING:
        raise place.error(f"only a training has batches, and this is a {kind} job")
    if len(gang.roles) != 1 or gang.roles[0].members:
        raise place.error("expected a gang of one role of single tasks beside 'batch', whose ranks share it")
    ranks_each = plan.tp * plan.pp if plan is not None else 1
    return _read(place, replicas_of_model(gang.roles[0], ranks_each), ranks_each)


def _read(place: Field, allowed: list[int], ranks_each: int) -> BatchRule:
    fields = place.mapping(BATCH_KEYS)
    size = fields.need("global", lambda size: size.integer(1, SIZE_MAX))
    on_resize = OnResize(fields.get("on_resize", lambda word: word.choice(tuple(OnResize)), OnResize.CONSTANT))
    if on_resize is OnResize.CONSTANT:
        fields.refuse(("lr",), "a batch that stays the same needs no other learning rate, leave it out")
        rule = BatchRule(size, allowed[-1], on_resize, ranks_each=ranks_each)
        if size < allowed[-1]:
            raise fields["global"].error(
                f"a batch of {size} has no sample for some of {allowed[-1]} {_ranks(ranks_each)}: give at least "
                f"{allowed[-1]}, or a smaller gang"
            )
        if not any(map(rule.fits, allowed)):
            raise fields["global"].error(
                f"a batch of {size} is divided by none of the sizes that the gang may have, {listed(allowed)} "
                f"{_ranks(ranks_each)}: give a multiple of one of them"
            )
        return rule
    if size % allowed[-1]:
        raise fields["global"].error(
            f"a batch of {size} at the full size is not divided by its {allowed[-1]} {_ranks(ranks_each)}: "
            f"give a multiple of {allowed[-1]}"
        )
    lr = fields.need("lr", lambda word: word.choice(tuple(LearningRate)))
    return BatchRule(size, allowed[-1], on_resize, LearningRate(lr), ranks_each)


def _ranks(ranks_each: int) -> str:
    return "ranks" if ranks_each == 1 else f"replicas of {ranks_each} ranks"
