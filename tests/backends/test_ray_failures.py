"""What breaks around a gang on Ray: the process that talks to it, a node, the head. Nothing is lost, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_job
from phalanx.backends.live import Adopted
from phalanx.backends.local.host.processes import Process, processes, variable
from phalanx.backends.ray.backend import RayBackend
from phalanx.backends.ray.yard import RayYard
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Action, ActionId, Start, Stop
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    DevicesAssigned,
    Done,
    Event,
    Failed,
    ForeignUse,
    NodeHealthChanged,
    Outcome,
)
from phalanx.workload.job import Execution, Job
from ray_cluster import STORE_BYTES, RaySite, shared_driver, shared_site

pytestmark = pytest.mark.needs("ray")

PATIENCE_S = 240.0
FIRST = ActionId(1, "a", 1, 0)


class Site:
    """A backend on a Ray, asked without an engine."""

    def __init__(self, ray: RaySite, data: Path, *nodes: str, driver: Path | None = None) -> None:
        self.data = data
        self.jobs: dict[str, Job] = {}
        self.seen: list[Event] = []
        (data / "backend").mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(tuple(Node(name, gpus=4) for name in nodes), name="fixed")
        where, site = driver or data / "driver", f"{data.parent.name}-{data.name}"
        self._yard = RayYard(data, address=ray.address, driver=where, site=site, cluster=lambda: self.cluster)
        self._woken = threading.Event()
        self.driver = where
        self.open()

    def open(self) -> None:
        self.backend = RayBackend(self._yard, self.jobs.__getitem__)
        self.backend.wake = self._woken.set

    def start(self, *places: tuple[str, int], command: tuple[str, ...] = ("sleep", "3600")) -> None:
        """Starts job `a` with a task at each place."""
        self.jobs["a"] = replace(a_job("a", 1, len(places), grace_ms=2_000), execution=Execution(command))
        slots = tuple(Slot(rank, "worker", node, (device,)) for rank, (node, device) in enumerate(places))
        assert self.ask(Start(FIRST, Placement(slots))) == Done(FIRST)

    def ask(self, action: Action) -> Event:
        self.backend.carry_out(action, 0)
        return self.until(lambda event: isinstance(event, Done | Failed) and event.action == action.id)

    def until(self, is_it: Callable[[Event], bool]) -> Event:
        """Waits until something has been told."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            self.seen += self.backend.events(0)
            for event in self.seen:
                if is_it(event):
                    return event
            self._woken.wait(0.05)
            self._woken.clear()
        raise AssertionError(f"it was never told; what was: {self.seen}")

    def ending(self) -> AttemptEnded:
        event = self.until(lambda event: isinstance(event, AttemptEnded))
        assert isinstance(event, AttemptEnded)
        return event

    def health(self, node: str, health: Health) -> NodeHealthChanged:
        event = self.until(
            lambda event: isinstance(event, NodeHealthChanged) and (event.node, event.health) == (node, health)
        )
        assert isinstance(event, NodeHealthChanged)
        return event

    def processes(self) -> list[Process]:
        part = f"/{self._yard.site}/a/"
        return [
            each
            for each in processes()
            if each.state != "Z" and part in (variable(each.pid, "PHALANX_NOTICE_FILE") or "")
        ]

    def await_processes(self, count: int) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while len(self.processes()) != count:
            assert time.monotonic() < until_s, self.processes()
            time.sleep(0.05)

    def drivers(self) -> list[int]:
        """The processes that talk to Ray for this folder."""
        found = []
        for each in processes():
            try:
                words = Path(f"/proc/{each.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "phalanx.backends.ray.driver" in words and str(self.driver) in words and each.state != "Z":
                found.append(each.pid)
        return found

    def close(self) -> None:
        if "a" in self.jobs:
            self.backend.carry_out(Stop(ActionId(9, "a", 1, 1 << 20), 0, "cancelled"), 0)
            self.until(lambda event: isinstance(event, Done | Failed) and event.action.term == 9)
        self.backend.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Site]:
    """A backend with a driver of its own, which may be killed, on the Ray that tests share."""
    made = Site(shared_site(), tmp_path / "data", "n0", "n1")
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A backend on the Ray that tests share. Its driver is shared as well: each takes seconds to come up."""
    made = Site(shared_site(), tmp_path / "data", "n0", "n1", driver=shared_driver())
    yield made
    made.close()


def test_a_gang_goes_on_when_the_process_that_talks_to_ray_is_killed(alone: Site) -> None:
    alone.start(("n0", 0), ("n1", 0))
    before = sorted(each.pid for each in alone.processes())
    (driver,) = alone.drivers()
    os.kill(driver, signal.SIGKILL)
    stop = ActionId(1, "a", 1, 1)
    until_s = time.monotonic() + PATIENCE_S
    while alone.drivers() in ([], [driver]):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert sorted(each.pid for each in alone.processes()) == before
    assert alone.ask(Stop(stop, 2_000, "cancelled")) == Done(stop)
    assert alone.processes() == []
    assert not any(isinstance(event, AttemptEnded) for event in alone.seen)


def test_what_a_task_prints_while_nothing_talks_to_ray_is_neither_lost_nor_doubled(alone: Site) -> None:
    alone.start(("n0", 0), command=("sh", "-c", "for i in $(seq 400); do echo $i; sleep 0.01; done"))
    os.kill(alone.drivers()[0], signal.SIGKILL)
    assert alone.ending().outcome is Outcome.SUCCEEDED
    printed = (alone.data / "jobs" / "a" / "1" / "0.out").read_text()
    assert printed.split() == [str(number) for number in range(1, 401)]


def test_a_server_that_comes_back_finds_what_ended_meanwhile(site: Site) -> None:
    site.start(("n0", 0), command=("sh", "-c", "sleep 1; exit 3"))
    site.backend.close()
    site.await_processes(0)
    site.open()
    site.backend.adopt([Adopted("a", 1)], 0)
    assert (site.ending().outcome, site.ending().exit_code) == (Outcome.FAILED, 3)


def test_devices_that_other_work_of_ray_holds_are_not_given_twice(site: Site) -> None:
    """Ray gives what is free: the gang is told of as having that."""
    site.start(("n0", 3), ("n0", 2))
    assigned = site.until(lambda event: isinstance(event, DevicesAssigned))
    assert isinstance(assigned, DevicesAssigned)
    given = [device for slot in assigned.slots for device in slot.devices]
    assert len(set(given)) == 2
    for rank, device in enumerate(given):
        (task,) = [each for each in site.processes() if variable(each.pid, "PHALANX_RANK") == str(rank)]
        assert variable(task.pid, "CUDA_VISIBLE_DEVICES") == str(device)


def test_a_look_for_devices_whose_reservation_was_given_back_ends() -> None:
    """Ray never answers a task whose placement group is gone; the next look would wait for it."""
    program = """if True:
        import asyncio, ray, sys
        from phalanx.backends.ray.node.probe import Probe

        ray.init(sys.argv[1], log_to_driver=False)
        probe, gone = Probe(), ray.util.placement_group([{"GPU": 1.0}], strategy="PACK")
        assert gone.wait(60)
        ray.util.remove_placement_group(gone)
        for _ in range(2):
            try:
                asyncio.run(probe.devices(gone, [(0, 1)]))
            except RuntimeError as error:
                print(error)
        """
    command = [sys.executable, "-c", program, shared_site().address]
    looked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.splitlines() == ["the placement group was removed before Ray told which GPUs it gave"] * 2


@pytest.mark.needs("ray_head")
def test_a_job_prefers_the_node_that_holds_an_object_of_ray() -> None:
    program = """if True:
        import json, ray, sys
        from phalanx.backends.ray.objects import near
        ray.init(sys.argv[1], log_to_driver=False)
        block = ray.remote(num_cpus=0)(lambda: b"0" * 1_000_000)
        there = block.options(label_selector={"phalanx.dev/node": "n1"}).remote()
        small = ray.put("small")
        ray.wait([there], fetch_local=False)
        print(json.dumps(near([there, small])))
    """
    command = [sys.executable, "-c", program, shared_site().address]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {"phalanx/node=n1": 100}


@pytest.mark.needs("ray_head")
def test_what_other_work_of_ray_holds_is_told_of_as_used_until_it_ends(site: Site) -> None:
    program = """if True:
        import ray, sys, time
        ray.init(sys.argv[1])
        sleep = ray.remote(num_gpus=2, num_cpus=1)(lambda: time.sleep(240))
        ray.get(sleep.options(label_selector={"phalanx.dev/node": "n1"}).remote())
    """
    site.start(("n1", 0))
    other = subprocess.Popen([sys.executable, "-c", program, shared_site().address], stderr=subprocess.DEVNULL)
    try:
        site.until(lambda event: event == ForeignUse("n1", gpus=2, cpus_milli=1000))
    finally:
        other.kill()
        other.wait()
    site.until(lambda event: event == ForeignUse("n1"))


@pytest.mark.needs("ray_head")
def test_while_an_object_store_is_full_a_gang_goes_on_and_another_starts_where_one_has_started(
    site: Site, tmp_path: Path
) -> None:
    """What is mapped can be moved out to no disk: Ray has no room for another object."""
    program = """if True:
        import sys, time
        import numpy, ray
        from ray.exceptions import ObjectStoreFullError, OutOfDiskError

        @ray.remote(num_cpus=0, label_selector={"phalanx.dev/node": "n0"})
        class Holder:
            def fill(self):
                size, self.held = 30_000_000, []
                while size > 100_000:
                    try:
                        self.held.append(ray.get(ray.put(numpy.zeros(size, numpy.uint8))))
                    except (ObjectStoreFullError, OutOfDiskError):
                        size //= 4
                return sum(map(len, self.held))

        ray.init(sys.argv[1], log_to_driver=False)
        holder = Holder.remote()
        print(ray.get(holder.fill.remote()), flush=True)
        time.sleep(240)
    """
    is_full = tmp_path / "full"
    site.start(("n0", 0), command=("sh", "-c", f"until [ -e {is_full} ]; do sleep 0.1; done; seq 100000"))
    command = [sys.executable, "-c", program, shared_site().address]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert int(holder.stdout.readline()) > 0.9 * STORE_BYTES
        is_full.touch()
        assert site.ending().outcome is Outcome.SUCCEEDED
        again = ActionId(1, "a", 2, 0)
        answer = site.ask(Start(again, Placement((Slot(0, "worker", "n0", (0,)),))))
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    printed = (site.data / "jobs" / "a" / "1" / "0.out").read_text()
    assert printed.split() == [str(number) for number in range(1, 100_001)]
    assert answer == Done(again)


def test_a_start_on_a_node_that_ray_does_not_have_says_so_and_can_be_tried_again(site: Site) -> None:
    site.jobs["a"] = replace(a_job("a", 1), execution=Execution(("true",)))
    answer = site.ask(Start(FIRST, Placement((Slot(0, "worker", "n9", (0,)),))))
    assert answer == Failed(FIRST, "node n9 is not in the Ray cluster, or is dead there", True, "n9")


@pytest.mark.needs("ray_head")
def test_a_node_that_joins_is_taken_in_and_when_it_is_killed_its_gang_is_lost_as_a_whole(tmp_path: Path) -> None:
    ray = shared_site()
    site = Site(ray, tmp_path / "data", "n0", "n1", driver=shared_driver())
    site.cluster = replace(site.cluster, name="ray")
    node = ray.start_node("n2", 2)
    ray.await_ready()
    joined = site.until(lambda event: isinstance(event, ClusterChanged))
    assert isinstance(joined, ClusterChanged)
    assert [(each.name, each.gpus) for each in joined.cluster.nodes] == [("n0", 4), ("n1", 4), ("n2", 2)]
    site.cluster = joined.cluster
    site.start(("n0", 0), ("n2", 0))
    os.kill(node.raylet(), signal.SIGKILL)
    ending = site.ending()
    assert (ending.outcome, ending.cause) == (Outcome.LOST, "lost")
    assert "node n2" in ending.reason
    assert "Ray has no such node" in site.health("n2", Health.FAILED).reason
    site.await_processes(0)
    site.close()
    node.end()
    del ray.nodes["n2"]


def test_a_node_that_came_back_while_no_server_was_there_is_told_of_as_healthy(tmp_path: Path) -> None:
    ray, data = shared_site(), tmp_path / "data"
    before = Site(ray, data, "n1", "n9", driver=shared_driver())
    before.health("n9", Health.FAILED)
    before.backend.close()
    told = data / "backend" / "ray-nodes.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "n1": {"health": "failed"}}))
    after = Site(ray, data, "n1", "n9", driver=shared_driver())
    after.health("n1", Health.HEALTHY)
    assert not any(isinstance(event, NodeHealthChanged) and event.node == "n9" for event in after.seen)
    after.backend.close()


@pytest.mark.needs("ray_head")
def test_a_head_that_comes_back_and_has_kept_nothing_loses_the_gangs_and_takes_new_ones(tmp_path: Path) -> None:
    ray = RaySite(RAY_gcs_rpc_server_reconnect_timeout_s="5")
    try:
        head = ray.start_head("head", 0, 1)
        ray.await_ready()
        ray.start_node("n1", 2)
        ray.await_ready()
        site = Site(ray, tmp_path / "data", "n1")
        site.start(("n1", 0))
        head.end()
        assert "does not answer" in site.health("n1", Health.SUSPECT).reason
        ray.nodes.pop("n1").end()
        site.await_processes(0)
        ray.start_head("head", 0, 1)
        ray.await_ready()
        ray.start_node("n1", 2)
        ray.await_ready()
        assert site.ending().outcome is Outcome.LOST
        site.health("n1", Health.HEALTHY)
        again = ActionId(1, "a", 2, 0)
        slots = (Slot(0, "worker", "n1", (0,)),)
        assert site.ask(Start(again, Placement(slots))) == Done(again)
        assert len(site.processes()) == 1
        stop = ActionId(1, "a", 2, 1)
        assert site.ask(Stop(stop, 0, "cancelled")) == Done(stop)
        site.backend.close()
    finally:
        ray.close()


@pytest.mark.needs("ray_head")
def test_a_head_that_comes_back_and_has_kept_what_it_knew_finds_the_gangs_as_they_were(tmp_path: Path) -> None:
    ray = RaySite().keep()
    try:
        head = ray.start_head("head", 0, 1)
        ray.await_ready()
        ray.start_node("n1", 2)
        ray.await_ready()
        site = Site(ray, tmp_path / "data", "n1")
        site.start(("n1", 0))
        before = [each.pid for each in site.processes()]
        head.end()
        assert "does not answer" in site.health("n1", Health.SUSPECT).reason
        ray.start_head("head", 0, 1)
        site.health("n1", Health.HEALTHY)
        assert [each.pid for each in site.processes()] == before
        assert not any(isinstance(event, AttemptEnded) for event in site.seen)
        stop = ActionId(1, "a", 1, 1)
        assert site.ask(Stop(stop, 2_000, "cancelled")) == Done(stop)
        assert site.processes() == []
        site.backend.close()
    finally:
        ray.close()
