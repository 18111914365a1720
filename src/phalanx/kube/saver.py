"""The saver: asks pods to save their work, all at once, and waits for their answers within their times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.saving import Saving, saving_of

CONNECTIONS_MAX = 256
"""Pods of one gang that are asked at the same time: a process has only so many connections."""

NO_ADDRESS = "it could not be asked to save its work: it has no address yet"


def saves(pods: Iterable[Pod]) -> bool:
    """Whether some pods say how they save their work."""
    return any(_saving(pod) is not None for pod in pods)


def save_all(pods: Iterable[Pod]) -> tuple[tuple[Pod, str], ...]:
    """Asks each pod that says how; gives back those that did not save, with why."""
    asked = [(pod, saving) for pod in pods if (saving := _saving(pod)) is not None]
    return asyncio.run(_ask_all(asked)) if asked else ()


async def _ask_all(asked: list[tuple[Pod, Saving]]) -> tuple[tuple[Pod, str], ...]:
    turns = asyncio.Semaphore(CONNECTIONS_MAX)
    answers = await asyncio.gather(*(_ask(pod, saving, turns) for pod, saving in asked))
    return tuple((pod, why) for (pod, _), why in zip(asked, answers, strict=True) if why)


def _saving(pod: Pod) -> Saving | None:
    try:
        return saving_of(pod)
    except ValueError:
        # It was changed since the pod was bound.
        return None


async def _ask(pod: Pod, saving: Saving, turns: asyncio.Semaphore) -> str:
    """Asks one pod; says why it did not save, if it did not. One that answers bit by bit has no more time for it."""
    if not pod.status.pod_ip:
        # No address means this machine.
        return NO_ADDRESS
    try:
        status = await asyncio.wait_for(_post(pod.status.pod_ip, saving, turns), saving.within_s)
    except TimeoutError:
        return f"it did not save its work within {saving.within_s} s"
    except (OSError, ValueError) as error:
        return f"it could not be asked to save its work: {error}"
    return "" if 200 <= status < 300 else f"it did not save its work: it answered with {status}"


async def _post(host: str, saving: Saving, turns: asyncio.Semaphore) -> int:
    """The status of the answer to a request."""
    name = f"[{host}]" if ":" in host else host
    head = (
        f"POST {saving.path} HTTP/1.1\r\nHost: {name}:{saving.port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    async with turns:
        reader, writer = await asyncio.open_connection(host, saving.port)
        try:
            writer.write(head.encode())
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ValueError(f"expected an answer in HTTP, got {line[:60]!r}")
    return int(words[1])
