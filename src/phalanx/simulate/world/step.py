"""Steps: how long one training step of a job with a parallel plan takes, computing and communicating."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import NODE
from phalanx.placement.cost import step_cost
from phalanx.placement.fabric import Fabric, Path
from phalanx.placement.mesh import lay_out
from phalanx.workload.parallel import ParallelPlan, Traffic

FLOPS_PER_WEIGHT_AND_TOKEN = 6
"""Two for the forward pass and four for the backward pass: Kaplan et al., "Scaling Laws for Neural Language Models"."""

UTILISATION = 0.4
"""The part of a GPU's peak rate that large models reach between two communications: an assumption of ours."""

PEAK_OF_UNKNOWN = "A100"


def compute_ms(plan: ParallelPlan, traffic: Traffic, gpu_type: str) -> float:
    """What a step computes on each GPU, and the bubbles of the pipeline: (micro-batches + pp - 1) / micro-batches."""
    tokens = traffic.micro_batch_size * traffic.seq_len * traffic.micro_batches
    flops = FLOPS_PER_WEIGHT_AND_TOKEN * traffic.num_params_billions * 1e9 * tokens / (plan.tp * plan.pp)
    bubbles = (traffic.micro_batches + plan.pp - 1) / traffic.micro_batches
    return flops * bubbles / (_peak_tflops(gpu_type) * 1e12 * UTILISATION) * 1e3


def communication_ms(plan: ParallelPlan, traffic: Traffic, devices: Sequence[Path], fabric: Fabric) -> float:
    """What a step sends, by the alpha-beta model, with devices in rank order."""
    return step_cost(plan, traffic, devices, fabric).total_ms


def best_communication_ms(plan: ParallelPlan, traffic: Traffic, devices: Sequence[Path], fabric: Fabric) -> float:
    """The same with the devices in the best order that is found."""
    node = fabric.levels.index(NODE) + 1
    layouts = (lay_out(devices, plan, traffic, fabric, within) for within in range(node, -1, -1))
    order = next(layout for layout in layouts if layout is not None)
    return communication_ms(plan, traffic, [devices[i] for i in order], fabric)


def _peak_tflops(gpu_type: str) -> float:
    try:
        return accelerator(gpu_type).peak_bf16_tflops.value
    except UnknownAccelerator:
        return accelerator(PEAK_OF_UNKNOWN).peak_bf16_tflops.value
