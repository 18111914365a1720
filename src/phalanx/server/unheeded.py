"""Options of `up` that count at the first start only: what they say otherwise later is told, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.recovery import Recovery
from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.server.options import Options

FILE = "unheeded"
"""Where the loop leaves it for `up`, in the folder of what runs."""


def unheeded(state: State, options: Options, described: Callable[[Options], Cluster]) -> list[str]:
    """A line for each option that says otherwise than the State has. `described` gives the cluster of the options."""
    lines = []
    if options.policy and options.policy != state.policy.spec:
        lines.append(
            f"--policy {options.policy} is not heeded: this folder has a server with policy {state.policy.spec}; "
            f"`phalanx apply --policy {options.policy}` changes it"
        )
    asked = _asked(options)
    if asked and _differs(state, options, described):
        change = (
            f"`phalanx apply {options.cluster}` changes it" if options.cluster else "`phalanx apply FILE` changes it"
        )
        nodes, gpus = len(state.cluster.nodes), state.cluster.gpus
        lines.append(
            f"{asked} is not heeded: this folder has a server with another cluster ({nodes} nodes, {gpus} GPUs); "
            f"{change}, another --data starts anew"
        )
    return lines


def _asked(options: Options) -> str:
    """What the options say of the cluster, as it was typed."""
    words = [
        *([f"--cluster {options.cluster}"] if options.cluster else []),
        *(["--simulate"] if options.simulate else []),
        *([f"--nodes {options.nodes}"] if options.nodes is not None else []),
        *([f"--gpus {options.gpus}"] if options.gpus is not None else []),
    ]
    return " ".join(words)


def _differs(state: State, options: Options, described: Callable[[Options], Cluster]) -> bool:
    """Whether the cluster of the options is another. What cannot be read now was not heeded either."""
    present = state.cluster_to_be or state.cluster
    try:
        cluster = described(options)
    except PhalanxError:
        return True
    if options.cluster:
        # A folder of an earlier release has nothing of recovery, which its file does not ask for either.
        is_earlier = present.recovery is None and cluster.recovery == Recovery()
        recovery = None if is_earlier else cluster.recovery
        return replace(cluster, policy=present.policy, recovery=recovery) != present
    return cluster.nodes != present.nodes


def write_unheeded(folder: Path, lines: list[str]) -> None:
    """Leaves the lines for `up`."""
    with suppress(OSError):
        (folder / FILE).write_text("\n".join(lines))
