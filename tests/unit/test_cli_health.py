"""`phalanx health run`: what it sees of a machine, and that a check that hangs is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fake_nvml import write_nvml
from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

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
