"""Platforms: who writes the file of each, which cloud's prices count, and what is lost in translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from phalanx.compat.platforms.shape import Shape
from phalanx.compat.platforms.write import Writer, aws_batch, databricks, kubeflow, sagemaker, skypilot, vertex


class Feature(StrEnum):
    """What a job can ask for that not every platform has."""

    GANG = "gang"
    ELASTIC = "elastic size"
    TOPOLOGY = "topology"
    MESH = "parallel plan"
    QUEUE = "queue"
    PRIORITY = "priority"
    PREEMPTION = "notice of preemption"
    DEADLINE = "deadline"
    DEPENDENCIES = "dependencies"
    ARRAY = "array"
    CHECKPOINT = "interval between checkpoints"
    RETRY = "retries"
    NODES = "labels of nodes"


ASKED: dict[Feature, Callable[[Shape], object]] = {
    Feature.GANG: lambda shape: shape.nodes > 1,
    Feature.ELASTIC: lambda shape: shape.job.gang.elastic,
    Feature.TOPOLOGY: lambda shape: shape.job.gang.topology.required or shape.job.gang.topology.preferred,
    Feature.MESH: lambda shape: shape.job.parallel,
    Feature.QUEUE: lambda shape: shape.job.queue != "default",
    Feature.PRIORITY: lambda shape: shape.job.priority,
    Feature.PREEMPTION: lambda shape: shape.job.preemptible and shape.job.checkpoint.saves,
    Feature.DEADLINE: lambda shape: shape.job.deadline_ms,
    Feature.DEPENDENCIES: lambda shape: shape.job.after,
    Feature.ARRAY: lambda shape: shape.job.array,
    Feature.CHECKPOINT: lambda shape: shape.job.checkpoint.interval_ms,
    Feature.RETRY: lambda shape: shape.job.retry_limit,
    Feature.NODES: lambda shape: shape.job.node_selector or shape.job.preferences or shape.job.tolerations,
}
"""Whether a job asks for it."""


@dataclass(frozen=True, slots=True)
class Platform:
    """One platform. `clouds` are those in the catalogue whose prices count; `keeps` is what its file can say.

    `fee` is what the platform takes on top of the machines, as a part of their price.
    """

    name: str
    write: Writer
    clouds: tuple[str, ...]
    keeps: frozenset[Feature]
    suffix: str = "json"
    fee: float = 0.0

    def lost(self, shape: Shape) -> Iterator[Feature]:
        """What the job asks for and the file cannot say."""
        return (feature for feature, asks in ASKED.items() if asks(shape) and feature not in self.keeps)


F = Feature
PLATFORMS = (
    Platform(
        "skypilot", skypilot, ("AWS", "GCP", "Azure", "Lambda", "CoreWeave"), frozenset([F.GANG, F.RETRY]), "yaml"
    ),
    Platform("sagemaker", sagemaker, ("AWS",), frozenset([F.GANG, F.RETRY]), fee=0.15),
    Platform("vertex", vertex, ("GCP",), frozenset([F.GANG])),
    Platform("databricks", databricks, ("AWS",), frozenset([F.RETRY])),
    Platform("kubeflow", kubeflow, (), frozenset([F.GANG, F.QUEUE, F.RETRY]), "yaml"),
    Platform("aws-batch", aws_batch, ("AWS",), frozenset([F.GANG, F.RETRY])),
)
"""SageMaker's fee is an assumption: about what its training instances cost above those of EC2. Databricks' own, which
is by its units, is left out.
"""
