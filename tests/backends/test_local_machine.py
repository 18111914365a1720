"""What the local backend takes this machine for: its real GPUs, none, or simulated ones that are asked for."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fake_nvml import write_nvml
from phalanx.backends.local.environment import Surroundings, environment_of
from phalanx.backends.local.host import gpus
from phalanx.backends.local.host.gpus import DriverError, find_gpus
from phalanx.backends.local.host.machine import (
    MachineError,
    cluster_for,
    device_names,
    gpus_here,
    local_cluster,
    real_nodes,
    simulated_cluster,
)
from phalanx.cluster.cluster import Cluster
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

Nvml = Callable[..., None]
LIBRARY_NOT_FOUND, NOT_LOADED, MISMATCH, LOST = 12, 9, 18, 15


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    """Has NVML tell of so many GPUs, or of an error."""

    def use(**told: int) -> None:
        monkeypatch.syspath_prepend(write_nvml(tmp_path / "nvml", **told))
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    yield use
    sys.modules.pop("pynvml", None)


def visible(cluster: Cluster, node: str, *devices: int) -> str:
    slot = Slot(0, "worker", node, devices)
    job = Job("1", Gang((Role("worker", 1, 1, Task(len(devices))),)))
    around = Surroundings(job, 1, "", 0, "", "", "", device_names=device_names(cluster), first_simulated=gpus_here())
    return environment_of(slot, Placement((slot,)), around)["CUDA_VISIBLE_DEVICES"]


def test_a_machine_without_gpus_is_one_node_with_cpus_only(nvml: Nvml) -> None:
    nvml(init_error=LIBRARY_NOT_FOUND)
    [node] = local_cluster().nodes
    assert (node.name, node.gpus) == (socket.gethostname(), 0)
    assert node.cpus_milli > 0
    assert real_nodes(local_cluster()) == (socket.gethostname(),)


def test_a_machine_with_gpus_is_one_node_that_has_them(nvml: Nvml) -> None:
    nvml(gpus=4)
    cluster = cluster_for(None, None)
    assert [(node.name, node.gpus, node.gpu_type) for node in cluster.nodes] == [(socket.gethostname(), 4, "H100")]
    assert visible(cluster, socket.gethostname(), 1, 3) == "GPU-0001,GPU-0003"


def test_nodes_and_gpus_ask_for_simulated_ones_where_there_are_no_real_ones(nvml: Nvml) -> None:
    nvml(init_error=LIBRARY_NOT_FOUND)
    cluster = cluster_for(3, 2)
    assert [(node.name, node.gpus) for node in cluster.nodes] == [("n0", 2), ("n1", 2), ("n2", 2)]
    assert real_nodes(cluster) == ()
    assert visible(cluster, "n1", 0, 1) == "0,1"


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 4), (2, None), (None, 2), (1, 8)])
def test_nodes_and_gpus_are_refused_where_there_are_real_ones(nvml: Nvml, nodes: int | None, gpus: int | None) -> None:
    nvml(gpus=4)
    with pytest.raises(MachineError, match=r"has 4 GPUs.*leave out.*--simulate"):
        cluster_for(nodes, gpus)


def test_simulated_devices_beside_real_ones_show_a_task_no_real_one(nvml: Nvml) -> None:
    nvml(gpus=4)
    cluster = simulated_cluster(2, 4)
    assert [node.name for node in cluster.nodes] == ["n0", "n1"]
    for node in ("n0", "n1"):
        assert visible(cluster, node, 0, 3) == "4,7"


def test_without_gpus_a_machine_that_has_some_is_a_node_of_cpus(nvml: Nvml) -> None:
    nvml(init_error=MISMATCH)
    [node] = cluster_for(None, 0).nodes
    assert (node.name, node.gpus) == (socket.gethostname(), 0)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"init_error": MISMATCH}, "Driver/library version mismatch"),
        ({"gpus": 2, "device_error": LOST}, "GPU is lost"),
    ],
)
@pytest.mark.parametrize("wish", [(None, None), (2, 4)])
def test_a_broken_driver_is_named_and_not_taken_for_no_driver(
    nvml: Nvml, told: dict[str, int], named: str, wish: tuple[int | None, int | None]
) -> None:
    nvml(**told)
    with pytest.raises(DriverError, match=rf"{named}.*nvidia-smi.*--gpus 0.*--simulate"):
        cluster_for(*wish)


@pytest.mark.parametrize("vendor", ["0x10de", "0x8086"])
def test_a_driver_that_is_not_loaded_is_broken_where_there_is_a_device_for_it(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    device = tmp_path / "pci" / "0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text("0x030200\n")
    monkeypatch.setattr(gpus, "PCI", tmp_path / "pci")
    nvml(init_error=NOT_LOADED)
    if vendor == "0x10de":
        with pytest.raises(DriverError, match="Driver Not Loaded"):
            find_gpus()
    else:
        assert find_gpus() == ()


def test_the_node_of_a_cluster_file_with_this_machines_name_has_its_gpus(nvml: Nvml) -> None:
    nvml(gpus=2)
    here, other = local_cluster().nodes[0], simulated_cluster(1, 2).nodes[0]
    cluster = Cluster((here, other))
    assert real_nodes(cluster) == (here.name,)
    assert visible(cluster, here.name, 0) == "GPU-0000"
    assert visible(cluster, other.name, 0) == "2"
