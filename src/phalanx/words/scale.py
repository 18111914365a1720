"""How a service stands to its load, in one line."""

from __future__ import annotations

from typing import Any

from phalanx.engine.decide.scaling import STALE_MS, Standing

STANDINGS = {
    Standing.STEADY: "that is right",
    Standing.GROWS: "it grows to {wanted}",
    Standing.SHRINKS: "it shrinks to {wanted}",
    Standing.COOLS_DOWN: "it shrinks after its cool-down",
    Standing.AT_MAX: "it is at its maximum size, with more load than its target",
    Standing.UNKNOWN: "its load is not known, so its size stays",
    Standing.STALE: f"its load is older than {STALE_MS // 1000}s, so its size stays",
    Standing.NONSENSE: "its load is no number of at least 0, so its size stays",
    Standing.NOT_RUNNING: "it does not run",
}


def scale_words(scale: dict[str, Any]) -> str:
    """What the API shows of a scale: `3 of 1 to 8 replicas; requests_per_s is 35, 10 for each: it grows to 4`."""
    size = f"{scale['replicas']} of {scale['min']} to {scale['max']} replicas"
    if scale["running"] != scale["replicas"]:
        size += f", {scale['running']} running"
    load = ""
    if scale["value"] is not None:
        load = f"{scale['metric']} is {scale['value']:g}, {scale['target']:g} for each: "
    standing = STANDINGS[Standing(scale["standing"])].format(wanted=scale["wanted"])
    problem = f" ({scale['problem']})" if scale["problem"] else ""
    return f"{size}; {load}{standing}{problem}"
