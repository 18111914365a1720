"""How tasks ended, and why some did not begin, in the words that every backend uses."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from phalanx.backends.kubernetes.pod import TaskPod, Terminated, is_unstarted, moment_ms
from phalanx.backends.local.attempt_files import Ending
from phalanx.placement.placement import Slot

UNKNOWN_ENDS = ("ContainerStatusUnknown", "Unknown")
"""What a kubelet says of a container whose end it has not seen."""

IMAGE_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
LASTING = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
LASTING_WORDS = ("not found", "manifest unknown", "no such file", "executable file", "denied", "unauthorized")
TEXT_MAX = 600


class NotBegun(Exception):  # noqa: N818
    """Why a task does not begin. `retryable` if it may at another time or place; `at_once` if waiting is in vain."""

    def __init__(self, reason: str, node: str, retryable: bool, at_once: bool) -> None:
        super().__init__(reason[:TEXT_MAX])
        self.reason, self.node, self.retryable, self.at_once = reason[:TEXT_MAX], node, retryable, at_once


def end_of(pod: TaskPod, slot: Slot, memory_mb: int, was_asked: bool) -> Ending:
    """How a task ended, of which the pod is over."""
    where = f"task {slot.rank} ({slot.role}) on {slot.node}"
    ended = pod.state.terminated
    if pod.disruption:
        return _lost(f"lost: {where}: {pod.disruption}", ended)
    if pod.metadata.deletion_timestamp is not None and not was_asked:
        return _lost(f"lost: the pod of {where} was deleted, not by phalanx", ended)
    if ended is None:
        why = f"{pod.status.reason}: {pod.status.message}".strip(": ") or "it says no reason"
        return _lost(f"lost: the pod of {where} ended without its task: {why}", ended)
    if ended.reason in UNKNOWN_ENDS:
        return _lost(f"lost: what looked after {where} is gone ({ended.reason})", ended)
    if ended.exit_code == 0:
        return _at("succeeded", 0, f"exit 0: {where}", ended)
    if ended.reason == "OOMKilled":
        reason = f"oom: {where} ran out of its {memory_mb} MB of memory"
        return _at("failed", ended.exit_code, reason if memory_mb else f"oom: {where} ran out of memory", ended)
    return _at("failed", ended.exit_code, f"{_how(ended.exit_code)}: {where}", ended)


def gone_end(slot: Slot) -> Ending:
    """The end of a task of which even the pod is no more."""
    return _lost(f"lost: the pod of task {slot.rank} ({slot.role}) on {slot.node} was deleted, not by phalanx", None)


def verdict_of(ends: Mapping[int, Ending], tasks: int) -> Ending | None:
    """How the gang has ended; None while it goes on. The first failure counts, and a loss before any failure."""
    bad = [end for end in ends.values() if end["outcome"] != "succeeded"]
    if bad:
        lost = [end for end in bad if end["outcome"] == "lost"]
        return lost[0] if lost else min(bad, key=lambda end: end.get("ended_ms", 0))
    if len(ends) < tasks:
        return None
    latest = max(end.get("ended_ms", 0) for end in ends.values())
    found = Ending(outcome="succeeded", exit_code=0, reason=ends[min(ends)]["reason"])
    return Ending(**found, ended_ms=latest) if latest else found


def mind_beginning(pod: TaskPod, slot: Slot, image: str, program: str) -> None:
    """Raises NotBegun where the task of a pod does not begin, or not yet."""
    where, node = f"task {slot.rank} on {slot.node}", slot.node
    if pod.refusal:
        raise NotBegun(f"{where}: the kubelet refused the pod: {pod.refusal}", node, True, True)
    if pod.disruption:
        raise NotBegun(f"{where}: {pod.disruption}", node, True, True)
    ended, waiting = pod.state.terminated, pod.state.waiting
    if ended is not None and is_unstarted(ended):
        raise _no_program(f"{where}: {program}", ended.message, node)
    if pod.is_over and not pod.has_run:
        raise NotBegun(f"{where}: {pod.status.reason} {pod.status.message}".strip(), node, True, True)
    if waiting is None or pod.has_run:
        return
    if waiting.reason in IMAGE_TROUBLE:
        lasting = waiting.reason in LASTING or _lasts(waiting.message)
        said = f"image '{image}': {waiting.reason}: {waiting.message}".rstrip(": ")
        raise NotBegun(f"{where}: {said}", node, not lasting, lasting)
    if waiting.reason in LASTING:
        raise NotBegun(f"{where}: {waiting.reason}: {waiting.message}", node, False, True)
    if waiting.reason in ("RunContainerError", "CreateContainerError") and _lasts(waiting.message):
        raise _no_program(f"{where}: {program}", waiting.message, node)
    raise NotBegun(f"{where}: {waiting.reason}: {waiting.message}".rstrip(": "), node, True, False)


def _no_program(what: str, message: str, node: str) -> NotBegun:
    if "no such file" in message or "executable file not found" in message:
        return NotBegun(f"{what}: no such program in the image ({message})", node, False, True)
    return NotBegun(f"{what}: {message}", node, "permission denied" not in message, True)


def _lasts(message: str) -> bool:
    return any(word in message.lower() for word in LASTING_WORDS)


def _how(code: int) -> str:
    """A container's exit code does not tell a signal from the code that shells give for it."""
    try:
        return f"signal {signal.Signals(code - 128).name}"
    except ValueError:
        return f"exit {code}"


def _lost(reason: str, ended: Terminated | None) -> Ending:
    return _at("lost", 0, reason, ended)


def _at(outcome: str, code: int, reason: str, ended: Terminated | None) -> Ending:
    found = Ending(outcome=outcome, exit_code=code, reason=reason[:TEXT_MAX])
    moment = moment_ms(ended.finished_at) if ended is not None else 0
    return Ending(**found, ended_ms=moment) if moment else found
