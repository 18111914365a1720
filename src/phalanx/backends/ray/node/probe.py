"""Which GPUs Ray gave to the bundles of a placement group.

Only what runs in a bundle is told, so a task that ends at once looks at each.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import ray

LOOK_S = 1.0
"""How often it is looked whether the group is still there. Ray never answers a task whose group is gone."""

PROBE_S = 100.0
"""How long Ray may take for one look: seconds where it has to start a process for it on a busy node."""


class Probe:
    """Looks at one bundle after the other: each look may begin a process."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._ask = ray.remote(num_cpus=0)(_devices_here)

    async def devices(self, group: Any, asked: list[tuple[int, int]]) -> dict[int, list[int]]:
        """The GPUs of bundles of a placement group; `asked` are their numbers and how many GPUs each has."""
        async with self._one:
            return {bundle: await self._of_bundle(group, bundle, gpus) for bundle, gpus in asked}

    async def _of_bundle(self, group: Any, bundle: int, gpus: int) -> list[int]:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        await _refuse_gone(group)
        place = PlacementGroupSchedulingStrategy(group, bundle)
        asked = self._ask.options(num_gpus=gpus, scheduling_strategy=place).remote()
        answer = asyncio.wrap_future(asked.future())
        until_s = time.monotonic() + PROBE_S
        try:
            while not (await asyncio.wait({answer}, timeout=LOOK_S))[0]:
                await _refuse_gone(group)
                if time.monotonic() > until_s:
                    raise RuntimeError(f"Ray did not tell within {PROBE_S:.0f} s which GPUs it gave")
            found: list[int] = answer.result()
            return found
        finally:
            if not answer.done():
                answer.cancel()
                with suppress(Exception):
                    ray.cancel(asked)


async def _refuse_gone(group: Any) -> None:
    # Asking the head blocks.
    told = await asyncio.to_thread(ray.util.placement_group_table, group)
    if told.get("state") in (None, "REMOVED"):
        raise RuntimeError("the placement group was removed before Ray told which GPUs it gave")


def _devices_here() -> list[int]:
    return [int(each) for each in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]
