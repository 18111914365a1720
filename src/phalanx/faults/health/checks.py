"""Checks of this machine before a job starts or between jobs: its disk, clock, kernel log and GPUs, and what others
that watch it say.

Each runs in a process of its own, so that one that hangs, as a broken GPU or disk makes it, is told and not waited for.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from phalanx.faults.health import devices, nvrx
from phalanx.faults.health.signals import HOT_C, Finding, UnreadableError, dcgm_findings, node_problems, text_at
from phalanx.faults.taxonomy.xid import XIDS, xid_of_line

OK, FAILED, SKIPPED, HUNG, UNANSWERED = "ok", "failed", "skipped", "hung", "unanswered"
DISK_MB = 64
CLOCK_S = 0.2
CLOCK_OFF_S = 0.05
YEAR_2024_S = 1_704_067_200
KILL_S = 5.0
NVRX_S = 600.0
"""Longer than any of these services takes: how long all checks may take is said to `run_checks`."""

LEAST_S = 1.0
"""One that has answered already is heard also when another has used up all the time."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a check came to, and what it saw."""

    check: str
    state: str
    told: str
    gpus: tuple[int, ...] = ()
    """The GPUs that are to blame; none: the machine as a whole."""


def disk(folder: str) -> Result:
    """Writes, flushes and reads back some megabytes."""
    content = os.urandom(1 << 20)
    began_s = time.perf_counter()
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".phalanx-health-") as file:
            for _ in range(DISK_MB):
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
            took_s = time.perf_counter() - began_s
            file.seek(0)
            expected = hashlib.sha256(content * DISK_MB).digest()
            if hashlib.sha256(file.read()).digest() != expected:
                return Result("disk", FAILED, f"{folder}: what was read back is not what was written")
    except OSError as error:
        return Result("disk", FAILED, f"{folder}: {error.strerror}")
    return Result("disk", OK, f"{folder}: {DISK_MB / took_s:.0f} MB/s written")


def clock(_: str) -> Result:
    """Whether the time of day runs, and about as fast as the machine's own clock."""
    day_s, own_s = time.time(), time.monotonic()
    time.sleep(CLOCK_S)
    off_s = (time.time() - day_s) - (time.monotonic() - own_s)
    if day_s < YEAR_2024_S:
        return Result("clock", FAILED, f"the time of day is {time.ctime(day_s)}")
    if abs(off_s) > CLOCK_OFF_S:
        return Result("clock", FAILED, f"the time of day jumped by {off_s:.3f} s")
    return Result("clock", OK, "runs steadily; whether it is right is not known")


def kernel_log(path: str) -> Result:
    """XID codes in the kernel log, or in a file of one: those that blame the node."""
    try:
        text = Path(path).read_text(errors="replace") if path else _dmesg()
    except OSError as error:
        return Result("kernel-log", FAILED if path else SKIPPED, f"{path or 'dmesg'}: {error.strerror}")
    found = [each for line in text.splitlines() if (each := xid_of_line(line)) is not None]
    bad = [(device, XIDS[code]) for device, code in found if code in XIDS and XIDS[code].blames_node]
    if bad:
        told = ", ".join(dict.fromkeys(f"{device}: XID {row.code}, {row.name}" for device, row in bad))
        return Result("kernel-log", FAILED, told)
    unknown = sorted({code for _, code in found if code not in XIDS})
    told = f"{len(found)} XIDs that blame no node" if found else "no XID"
    return Result("kernel-log", OK, told + (f"; not in the table: {', '.join(map(str, unknown))}" if unknown else ""))


def _dmesg() -> str:
    done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise PermissionError(done.returncode, "may not be read by this user")
    return done.stdout


def gpus(_: str) -> Result:
    """What NVIDIA's driver says of each GPU: errors of its memory that were not corrected, rows, temperature."""
    try:
        pynvml = import_module("pynvml")
        pynvml.nvmlInit()
    except ImportError:
        return Result("gpus", SKIPPED, "nvidia-ml-py is not installed")
    except Exception as error:  # Each version of the library has classes of its own.
        if "Not Found" in str(error) or "Not Loaded" in str(error):
            return Result("gpus", SKIPPED, "this machine has no driver of NVIDIA's")
        return Result("gpus", FAILED, str(error))
    try:
        count = pynvml.nvmlDeviceGetCount()
        bad = [Finding(told, number) for number in range(count) for told in _wrong_with(pynvml, number)]
    except pynvml.NVMLError as error:
        return Result("gpus", FAILED, str(error))
    finally:
        pynvml.nvmlShutdown()
    return _of_findings("gpus", bad, f"{count} GPUs")


def _wrong_with(pynvml: Any, number: int) -> Iterator[str]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    uncorrected, volatile, core = 1, 0, 0
    errors = _asked(pynvml, lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile))
    rows = _asked(pynvml, lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    heat_c = _asked(pynvml, lambda: pynvml.nvmlDeviceGetTemperature(handle, core))
    if errors:
        yield f"{errors} memory errors that were not corrected"
    if rows and rows[3]:
        yield "remapping of a row of memory failed"
    elif rows and rows[2]:
        yield "a row of memory is remapped at the next reset"
    if heat_c is not None and heat_c > HOT_C:
        yield f"{heat_c} °C"


def _asked(pynvml: Any, question: Callable[[], Any]) -> Any:
    """An answer; None where the GPU has nothing of the kind."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if "Not Supported" in str(error):
            return None
        raise


def dcgm(source: str) -> Result:
    """What dcgm-exporter tells of the GPUs."""
    return _of_signals("dcgm", source, dcgm_findings)


def node_problem(source: str) -> Result:
    """What node-problem-detector tells of the node."""
    return _of_signals("node-problems", source, node_problems)


def _of_signals(name: str, source: str, read: Callable[[str, str], Iterator[Finding]]) -> Result:
    try:
        return _of_findings(name, list(read(text_at(source), source)), "nothing wrong")
    except UnreadableError as error:
        return Result(name, UNANSWERED, str(error))


def _of_findings(name: str, bad: Sequence[Finding], well: str) -> Result:
    if not bad:
        return Result(name, OK, well)
    told = "; ".join(each.told if each.gpu is None else f"GPU {each.gpu}: {each.told}" for each in bad)
    gpus = sorted({each.gpu for each in bad if each.gpu is not None})
    return Result(name, FAILED, told, tuple(gpus) if all(each.gpu is not None for each in bad) else ())


def nvrx_service(socket: str) -> Result:
    """What the node check of NVRx comes to."""
    try:
        answer = nvrx.ask(socket, NVRX_S)
    except ImportError:
        return Result("nvrx", SKIPPED, "grpcio is not installed")
    except nvrx.NoAnswerError as error:
        return Result("nvrx", UNANSWERED, str(error))
    if answer.is_well:
        return Result("nvrx", OK, "nothing wrong")
    counted = f"{answer.failures} checks failed" if answer.failures else f"its checks ended with {answer.exit_code}"
    return Result("nvrx", FAILED, f"{counted}{f': {answer.error}' if answer.error else ''}")


def gpu_memory(_: str) -> Result:
    """Whether memory of the GPUs keeps what is written to it."""
    return _deep("gpu-memory", devices.check_memory)


def links(_: str) -> Result:
    """Whether the GPUs come to the right sums over their links."""
    return _deep("links", devices.check_links)


def _deep(name: str, check: Callable[[], str]) -> Result:
    try:
        return Result(name, OK, check())
    except devices.MissingError as missing:
        return Result(name, SKIPPED, str(missing))
    except devices.WrongError as wrong:
        return Result(name, FAILED, str(wrong))
    except RuntimeError as error:
        # What CUDA says of a broken GPU comes as one.
        return Result(name, FAILED, str(error).splitlines()[0] if str(error) else type(error).__name__)


CHECKS: dict[str, Callable[[str], Result]] = {
    "disk": disk,
    "clock": clock,
    "kernel-log": kernel_log,
    "gpus": gpus,
    "dcgm": dcgm,
    "node-problems": node_problem,
    "nvrx": nvrx_service,
    "gpu-memory": gpu_memory,
    "links": links,
}


def run_checks(asked: Sequence[tuple[str, str]], timeout_s: float) -> Iterator[Result]:
    """Runs checks by name, each with what it needs to know, all at the same time."""
    begun = [(name, _begin(name, argument)) for name, argument in asked]
    until_s = time.monotonic() + timeout_s
    for name, process in begun:
        try:
            printed, _ = process.communicate(timeout=max(until_s - time.monotonic(), LEAST_S))
        except subprocess.TimeoutExpired:
            yield _hung(name, process, timeout_s)
            continue
        try:
            yield msgspec.json.decode(printed, type=Result)
        except msgspec.MsgspecError:
            yield Result(name, FAILED, f"the check itself ended with {process.returncode}")


def _begin(name: str, argument: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "phalanx.faults.health.checks", name, argument]
    # A group of its own: what it starts itself is ended with it.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def _hung(name: str, process: subprocess.Popen[str], timeout_s: float) -> Result:
    """A process that waits for broken hardware may not even be killed: it is left behind then."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    told = f"no answer within {timeout_s:g} s"
    try:
        process.communicate(timeout=KILL_S)
    except subprocess.TimeoutExpired:
        told += ", and it cannot be killed"
    return Result(name, HUNG, told)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(CHECKS[sys.argv[1]](sys.argv[2])))
