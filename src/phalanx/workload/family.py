"""Families of models: what kind of work a job does, and how its speed changes from one GPU type to another."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from math import sqrt

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator


class Family(StrEnum):
    """Models that behave alike. `dense` has most of its weights in a few dense layers, as VGG and AlexNet."""

    CONVOLUTION = "convolution"
    DENSE = "dense"
    TRANSFORMER = "transformer"
    RECURRENT = "recurrent"
    RECOMMENDATION = "recommendation"
    REINFORCEMENT = "reinforcement"
    OTHER = "other"


BEGINNINGS: tuple[tuple[Family, tuple[str, ...]], ...] = (
    (
        Family.CONVOLUTION,
        ("resnet", "resnext", "inception", "googlenet", "densenet", "mobilenet", "efficientnet", "yolo", "cyclegan"),
    ),
    (Family.DENSE, ("vgg", "alexnet", "overfeat")),
    (
        Family.TRANSFORMER,
        ("transformer", "bert", "roberta", "distilbert", "gpt", "t5", "vit", "llama", "mistral", "mixtral", "qwen"),
    ),
    (Family.RECURRENT, ("lm", "lstm", "rnn", "gru", "gnmt", "seq2seq", "deepspeech")),
    (Family.RECOMMENDATION, ("recommendation", "recoder", "dlrm", "ncf", "neumf")),
    (Family.REINFORCEMENT, ("a3c", "ppo", "dqn")),
)
"""How a word of a model's name begins if the model is of that family."""


@lru_cache(maxsize=4096)
def family_of(model: str) -> Family:
    """The family of a model by its name: `ResNet-50 (batch size 64)` is a convolution, an unknown one `other`."""
    words = re.findall(r"[a-z0-9]+", model.casefold())
    for family, beginnings in BEGINNINGS:
        if any(word.startswith(beginnings) for word in words):
            return family
    return Family.OTHER


BASE = "V100"

OLD_PACES: dict[Family, dict[str, float]] = {
    Family.CONVOLUTION: {"K80": 0.14, "P100": 0.69},
    Family.TRANSFORMER: {"K80": 0.28, "P100": 0.74},
    Family.RECURRENT: {"K80": 0.25, "P100": 0.84},
    Family.REINFORCEMENT: {"K80": 0.48, "P100": 0.79},
    Family.RECOMMENDATION: {"K80": 1.0, "P100": 1.0},
    Family.DENSE: {"K80": 0.14, "P100": 0.69},
    Family.OTHER: {"K80": 0.21, "P100": 0.74},
}
"""Pace of GPUs without tensor cores, where a V100 is 1.

Derived from the throughputs that were measured for Gavel (Narayanan et al., OSDI 2020; simulation_throughputs.json, MIT
licence): steps a second on one GPU over those on a V100, the geometric mean over the batch sizes and models of the
family (ResNet-18, ResNet-50 and CycleGAN; Transformer; LM; A3C), and over all of these for `other`. Recommendation
gained nothing from faster GPUs there (1.3 and 2.2: its hosts set the pace), which is 1 here. `dense` was not measured
and is taken to be as a convolution.
"""


def relative_speed(gpu_type: str, reference: str, model: str = "") -> float:
    """How fast one GPU of a type is where one of the reference type is 1, for a job of this model.

    The pace of a type is the geometric mean of its peak rate (bf16, or the next best the catalogue has) and of its
    memory bandwidth, since training is bound by either in turn: a rule of ours. Types without tensor cores have
    measured paces. A type that the catalogue does not know, and no type at all, is as fast as any.
    """
    if gpu_type == reference:
        return 1.0
    family = family_of(model)
    pace, base = _pace(gpu_type, family), _pace(reference, family)
    return pace / base if pace and base else 1.0


@lru_cache(maxsize=4096)
def _pace(gpu_type: str, family: Family) -> float | None:
    """Of a V100; None if nothing is known of the type."""
    if not gpu_type:
        return None
    try:
        device = accelerator(gpu_type)
    except UnknownAccelerator:
        return None
    measured = OLD_PACES[family].get(device.name)
    if measured is not None:
        return measured
    base = accelerator(BASE)
    peak = device.peak_bf16_tflops.value / base.peak_bf16_tflops.value
    return sqrt(peak * device.hbm_gb_s.value / base.hbm_gb_s.value)
