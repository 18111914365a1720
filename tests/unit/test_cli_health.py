"""`phalanx health run`: what it sees of a machine, and that a check that hangs is told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fake_nvml import write_nvml
from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.faults.health import checks, devices

XID_79 = "[5.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
XID_31 = "[5.2] NVRM: Xid (PCI:0000:5e:00): 31, pid=411, MMU Fault\n"
XID_NEW = "[5.3] NVRM: Xid (PCI:0000:5e:00): 999, something new\n"


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = run(cli, ["health", "run", *arguments, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_machine_that_is_well_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = checked(capsys, "--disk", str(tmp_path), "--only", "disk", "--only", "clock")
    assert code == Exit.OK
    assert [each["state"] for each in found] == ["ok", "ok"]
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_a_disk_that_cannot_be_written_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, [found] = checked(capsys, "--only", "disk", "--disk", str(tmp_path / "gone"))
    assert (code, found["state"]) == (Exit.ERROR, "failed")
    assert "No such file or directory" in found["told"]


@pytest.mark.parametrize(
    ("lines", "state", "told"),
    [
        (XID_31 + XID_79, "failed", "0000:3b:00: XID 79, GPU has fallen off the bus"),
        (XID_31, "ok", "1 XIDs that blame no node"),
        (XID_NEW, "ok", "not in the table: 999"),
        ("all is well\n", "ok", "no XID"),
    ],
)
def test_the_kernel_log_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, lines: str, state: str, told: str
) -> None:
    log = tmp_path / "kern.log"
    log.write_text(lines)
    _, [found] = checked(capsys, "--only", "kernel-log", "--kernel-log", str(log))
    assert found["state"] == state
    assert told in found["told"]


def test_a_check_that_hangs_is_told_and_not_waited_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, found = checked(
        capsys, "--only", "kernel-log", "--only", "clock", "--kernel-log", str(pipe), "--timeout", "3s"
    )
    assert code == Exit.ERROR
    assert {each["check"]: each["state"] for each in found} == {"kernel-log": "hung", "clock": "ok"}


@pytest.mark.parametrize(
    ("nvml", "state"),
    [({"init_error": 12}, "skipped"), ({"init_error": 18}, "failed"), ({"gpus": 2, "device_error": 15}, "failed")],
)
def test_gpus_are_asked_by_nvml(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nvml: dict[str, int],
    state: str,
) -> None:
    monkeypatch.setenv("PYTHONPATH", write_nvml(tmp_path / "nvml", **nvml))
    _, [found] = checked(capsys, "--only", "gpus")
    assert found["state"] == state


def test_a_gpu_with_errors_in_its_memory_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(write_nvml(tmp_path / "nvml", gpus=2))
    more = """
def nvmlDeviceGetTotalEccErrors(handle, kind, counter):
    assert (kind, counter) == (1, 0)
    return 3 * handle


def nvmlDeviceGetRemappedRows(handle):
    return (0, 0, 0, handle)


def nvmlDeviceGetTemperature(handle, sensor):
    return 50
"""
    (folder / "pynvml.py").write_text((folder / "pynvml.py").read_text() + more)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    code, [found] = checked(capsys, "--only", "gpus")
    assert (code, found["state"]) == (Exit.ERROR, "failed")
    assert found["told"] == "GPU 1: 3 memory errors that were not corrected; GPU 1: remapping of a row of memory failed"


@pytest.mark.needs("torch")
def test_processes_sum_up_numbers_where_there_are_no_two_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    code, [found] = checked(capsys, "--only", "links", "--timeout", "120s")
    assert (code, found["state"]) == (Exit.OK, "ok"), found["told"]
    assert "all-reduce of 16 MiB at" in found["told"]


@pytest.mark.needs("torch")
def test_memory_that_does_not_keep_what_is_written_is_told_with_its_place() -> None:
    torch = devices.torch_or_missing()
    assert devices.fill(torch, "cpu", 1) == devices.CHUNK_BYTES

    class Stuck:
        """Memory of which one bit is 1 for ever."""

        def __init__(self, *_: object, **__: object) -> None:
            self.held = torch.zeros(64, dtype=torch.uint8)

        def fill_(self, pattern: int) -> None:
            self.held.fill_(pattern)
            self.held[7] |= 4

        def __ne__(self, pattern: object) -> Any:
            return self.held != pattern

    broken = SimpleNamespace(empty=Stuck, uint8=torch.uint8)
    with pytest.raises(devices.WrongError, match="cuda:3: 1 bytes of chunk 0 are not the 0x00 written there"):
        devices.fill(broken, "cuda:3", 1)


def test_without_torch_the_deep_checks_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for check in (checks.gpu_memory, checks.links):
        found = check("")
        assert (found.state, found.told) == (checks.SKIPPED, "torch is not installed")
