"""What DCGM, node-problem-detector and NVRx say of a node: texts in their form, and a service that speaks gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.faults.health.nvrx import ARGUMENTS, METHOD, answer_of, request_of
from phalanx.faults.health.signals import Finding, UnreadableError, dcgm_findings, node_problems

DATA = Path(__file__).parent.parent / "data" / "signals"
DCGM, PROBLEMS = DATA / "dcgm.prom", DATA / "node-problems.prom"

WELL = b'\x08\x01\x1a\x11{"fail_count": 0}'
ILL = b'\x10\x02\x1a\x11{"fail_count": 3}"\x0cgpu 1 absent'
MINUS_ONE = b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(cli, ["health", "run", *arguments, "-o", "json"])
    [found] = json.loads(capsys.readouterr().out)
    return code, found


def test_dcgm_names_each_gpu_that_is_not_well() -> None:
    assert list(dcgm_findings(DCGM.read_text(), "dcgm")) == [
        Finding("97 °C", 2),
        Finding("XID 79, GPU has fallen off the bus", 3),
        Finding("2 memory errors that were not corrected", 5),
        Finding("a row of memory is remapped at the next reset", 5),
    ]


def test_an_xid_of_a_users_program_and_fields_that_dcgm_left_blank_blame_no_gpu() -> None:
    lines = [
        'DCGM_FI_DEV_XID_ERRORS{gpu="0"} 31',
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 9223372036854775794',
        'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0"} NaN',
    ]
    assert not list(dcgm_findings("\n".join(lines), "dcgm"))


def test_figures_of_several_nodes_are_refused() -> None:
    lines = [f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",Hostname="n{number}"}} 40' for number in range(2)]
    with pytest.raises(UnreadableError, match="expected the GPUs of one node, got those of n0, n1"):
        list(dcgm_findings("\n".join(lines), "dcgm"))


def test_problems_that_last_are_told_and_those_that_only_happened_are_not() -> None:
    assert list(node_problems(PROBLEMS.read_text(), "npd")) == [
        Finding("ReadonlyFilesystem: FilesystemIsReadOnly"),
        Finding("XfsShutdown"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected fields of DCGM (DCGM_FI_…), found none"),
        ("<html>\n", "dcgm:1: expected NAME{LABELS} VALUE, got <html>"),
        ("# HELP\nDCGM_FI_DEV_GPU_TEMP warm\n", "dcgm:2: expected NAME{LABELS} VALUE"),
    ],
)
def test_what_is_no_text_of_dcgm_is_told(text: str, told: str) -> None:
    with pytest.raises(UnreadableError) as error:
        list(dcgm_findings(text, "dcgm"))
    assert told in str(error.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for read in (dcgm_findings, node_problems):
        complaint = ""
        try:
            list(read(text, "text"))
        except UnreadableError as error:
            complaint = str(error)
        assert len(complaint.splitlines()) <= 1


def test_a_check_by_dcgm_fails_with_the_gpus_to_blame(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = checked(capsys, "--only", "dcgm", "--dcgm", str(DCGM))
    assert (code, found["state"]) == (Exit.ERROR, "failed")
    assert found["told"].startswith("GPU 2: 97 °C; GPU 3: XID 79, GPU has fallen off the bus; GPU 5: ")


def test_a_source_that_is_not_there_fails_the_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = checked(capsys, "--only", "node-problems", "--node-problems", str(tmp_path / "gone"))
    assert (code, found["told"]) == (Exit.ERROR, f"{tmp_path}/gone: No such file or directory")
    code, found = checked(capsys, "--only", "dcgm", "--dcgm", "http://127.0.0.1:1/metrics")
    assert (code, found["told"]) == (Exit.ERROR, "http://127.0.0.1:1/metrics: [Errno 111] Connection refused")


def test_a_check_without_its_source_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["health", "run", "--only", "nvrx"]) == Exit.USAGE
    assert "--only nvrx: say where with --nvrx" in capsys.readouterr().err


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """A service on a socket: what it was asked, and what it is to answer."""
    asked: list[bytes] = []
    answers: list[bytes] = []

    def answer(request: bytes, _: grpc.ServicerContext) -> bytes:
        asked.append(request)
        return answers.pop()

    _, name, method = METHOD.split("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    server.add_insecure_port(f"unix:{tmp_path}/check.sock")
    server.start()
    yield f"{tmp_path}/check.sock", asked, answers
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("answer", "state", "told"),
    [
        (WELL, "ok", "nothing wrong"),
        (ILL, "failed", "3 checks failed: gpu 1 absent"),
        (MINUS_ONE, "failed", "its checks ended with -1"),
    ],
)
def test_the_service_of_nvrx_is_asked_on_its_socket(
    capsys: pytest.CaptureFixture[str],
    service: tuple[str, list[bytes], list[bytes]],
    answer: bytes,
    state: str,
    told: str,
) -> None:
    socket, asked, answers = service
    answers.append(answer)
    code, found = checked(capsys, "--only", "nvrx", "--nvrx", socket)
    assert (found["state"], found["told"]) == (state, told)
    assert code == (Exit.OK if state == "ok" else Exit.ERROR)
    assert asked == [request_of(ARGUMENTS)]


def test_a_service_that_is_not_there_fails_the_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = checked(capsys, "--only", "nvrx", "--nvrx", str(tmp_path / "gone.sock"))
    assert (code, found["state"]) == (Exit.ERROR, "unanswered")
    assert found["told"].startswith(f"{tmp_path}/gone.sock: ")


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_of_nvrx_or_none(message: bytes) -> None:
    complaint = "NVRx's answer"
    try:
        answer_of(message)
    except ValueError as error:
        complaint = str(error)
    assert "NVRx's answer" in complaint
