"""What the local backend says that it can do is tried on this machine, by programs that tests put on the PATH."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phalanx.backends.capability import Capability
from phalanx.backends.local import container
from phalanx.backends.local.host import mps
from phalanx.backends.local.host.offer import local_offer
from phalanx.backends.local.orders import Yard

CONTROL = """#!/bin/sh
[ "$1" = -d ] && { : > $CUDA_MPS_PIPE_DIRECTORY/control; exit 0; }
read command rest
case $command in
start_server) %s ;;
get_server_list) cat $CUDA_MPS_PIPE_DIRECTORY/servers 2>/dev/null ;;
quit) echo quit >> %s ;;
esac
exit 0
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the PATH, but for a shell and cat."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        folder.joinpath(name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(folder: Path, name: str, text: str) -> None:
    folder.joinpath(name).write_text(text)
    folder.joinpath(name).chmod(0o755)


def test_a_machine_with_no_container_engine_says_which_it_looked_for(programs: Path) -> None:
    assert container.why_not() == "none of podman, docker, apptainer is on the PATH"


def test_docker_without_its_service_has_no_containers(programs: Path) -> None:
    put(programs, "docker", "#!/bin/sh\necho hint >&2\necho 'Cannot connect to the Docker daemon.' >&2\nexit 1\n")
    assert container.why_not() == "docker does not work: Cannot connect to the Docker daemon."
    put(programs, "docker", "#!/bin/sh\nexit 7\n")
    assert container.why_not() == "docker does not work: exit code 7"
    put(programs, "docker", "#!/bin/sh\necho 27.1\n")
    assert container.why_not() == ""


def test_mps_is_there_where_a_server_starts_and_the_trial_leaves_none_behind(programs: Path, tmp_path: Path) -> None:
    assert mps.why_not() == f"there is no {mps.CONTROL}"
    quits = tmp_path / "quits"
    put(programs, mps.CONTROL, CONTROL % ("echo 489 > $CUDA_MPS_PIPE_DIRECTORY/servers", quits))
    assert mps.why_not() == ""
    assert quits.read_text() == "quit\n"


def test_a_control_program_whose_server_does_not_start_is_no_mps(programs: Path, tmp_path: Path) -> None:
    put(programs, mps.CONTROL, CONTROL % ("echo 'no capable GPU'", tmp_path / "quits"))
    assert mps.why_not() == "no MPS server starts: no capable GPU"
    put(programs, mps.CONTROL, "#!/bin/sh\necho 'cannot bind' >&2\nexit 1\n")
    assert mps.why_not() == f"share by mps: {mps.CONTROL} -d: cannot bind"


def test_on_simulated_gpus_mps_and_mig_can_be_asked_for_and_are_told_as_simulated(tmp_path: Path) -> None:
    offer = local_offer(Yard(tmp_path))
    assert offer.can(Capability.MPS)
    assert offer.can(Capability.MIG)
    assert list(offer.simulated) == [Capability.MPS, Capability.MIG]
    real = local_offer(Yard(tmp_path, device_names={"n0": ("GPU-1",)}))
    assert (real.simulated, real.can(Capability.MIG)) == ({}, False)
