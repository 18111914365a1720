"""Predicates: what is wrong with the nodes that they rule out."""

from __future__ import annotations

from phalanx.placement.placement import Refusal
from phalanx.words.phrases import counted

PREDICATE_WORDS = {
    "gpu_type": "of another GPU type",
    "gpu_memory": "with too little GPU memory",
    "node_gpus": "with too few GPUs",
    "share": "whose GPUs cannot be shared so",
    "node_cpus": "with too few CPUs",
    "node_memory": "with too little memory",
    "node_nics": "with too few NICs",
    "node_cpus_limit": "that allow too few CPUs",
    "node_memory_limit": "that allow too little memory",
    "outside": "outside of where it may go",
    "failed": "failed",
    "draining": "draining",
    "suspect": "suspect",
    "spare": "kept as spares",
    "free_gpus": "without enough free GPUs",
    "cpus": "without enough free CPUs",
    "memory": "without enough free memory",
    "nics": "without enough free NICs",
    "cpus_limit": "at their CPU limit",
    "memory_limit": "at their memory limit",
}

NAMING_WORDS = {
    "node_storage.": "with too little {} storage",
    "storage.": "without enough free {} storage",
    "selector ": "without the label {}",
    "excluded ": "that it excludes by {}",
    "taint ": "with the taint {}, which it does not tolerate",
}
"""Words for predicates that end in a name, by how they begin."""


def predicate_words(name: str) -> str:
    """What is wrong with the nodes that a predicate rules out; some predicates name a storage tier, label or taint."""
    known = PREDICATE_WORDS.get(name)
    if known is not None:
        return known
    for beginning, words in NAMING_WORDS.items():
        if name.startswith(beginning):
            return words.format(name.removeprefix(beginning))
    return f"ruled out by {name}"


def ruled_out(refusal: Refusal | None) -> str:
    """How many nodes are ruled out by what, in brackets at the end of a line."""
    if refusal is None or not refusal.ruled_out:
        return ""
    parts = ", ".join(f"{count} {predicate_words(name)}" for name, count in refusal.ruled_out)
    return f" (of {counted(refusal.nodes, 'node')}: {parts})"
