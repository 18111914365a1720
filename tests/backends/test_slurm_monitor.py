"""What is told of Slurm's nodes: their health, and what others hold of them, also while jobs of ours start and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.slurm.attempt import SlurmAttempt
from phalanx.backends.slurm.held import Held, Holding, read_holding
from phalanx.backends.slurm.monitor import Monitor
from phalanx.backends.slurm.nodes import SlurmNode
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.placement.placement import Slot
from phalanx.protocol.action import ActionId
from phalanx.protocol.event import ForeignUse, NodeHealthChanged

JOB = (
    "JobId=7 JobName=a JobState={state} Reason=None NodeList=n1 NumNodes=1 NumCPUs=2 JOB_GRES=gpu:h100:2  "
    "  Nodes=n1 CPU_IDs=0-1 Mem=1000 GRES=gpu:h100:2(IDX:1-2) MinCPUsNode=1"
)


def node(name: str, *used: int) -> SlurmNode:
    return SlurmNode(name, name, 4, "h100", 64, 64_000, ("IDLE",), "", (), (), used, len(used), len(used), 0)


@pytest.fixture
def monitor(tmp_path: Path) -> Monitor:
    return Monitor(lambda: Cluster((Node("n1", gpus=4),)), tmp_path)


@pytest.fixture
def starting(tmp_path: Path) -> SlurmAttempt:
    """An attempt that Slurm has as job 7 and of whose tasks nothing is known; GPUs 0 and 1 are planned for it."""
    slots = (Slot(0, "worker", "n1", (0, 1)),)
    booked = {"n1": 1000}
    return SlurmAttempt("a", 1, AttemptFolder(str(tmp_path)), slots, [], ActionId(1, "a", 1, 0), booked, slurm_id="7")


@pytest.mark.parametrize(
    ("holding", "foreign"),
    [
        ({"n1": Held((1, 2), 2000, 1000)}, ForeignUse("n1", (0, 3), 0, 3000)),
        ({}, ForeignUse("n1", (0, 1, 2, 3), 0, 4000)),
    ],
)
def test_what_others_hold_is_told_while_a_job_of_ours_starts(
    monitor: Monitor, starting: SlurmAttempt, holding: Holding, foreign: ForeignUse
) -> None:
    assert monitor.look([node("n1", 0, 1, 2, 3)], [starting], {"7": holding}) == [foreign]


def test_nothing_is_told_of_a_node_where_it_is_not_known_what_ours_holds(
    monitor: Monitor, starting: SlurmAttempt
) -> None:
    assert monitor.look([node("n1", 0, 1, 2, 3)], [starting], {}) == []


def test_a_node_that_the_cluster_gets_is_watched(tmp_path: Path) -> None:
    clusters = [Cluster((Node("n1"), Node("n2"))), Cluster((Node("n1"),))]
    monitor = Monitor(lambda: clusters[-1], tmp_path)
    monitor.look([node("n1")], [], {})
    clusters.pop()
    (told,) = (event for event in monitor.look([node("n1")], [], {}) if isinstance(event, NodeHealthChanged))
    assert (told.node, told.health) == ("n2", Health.FAILED)


def test_what_a_running_job_holds_is_read_and_of_one_that_completes_nothing_is_certain() -> None:
    assert read_holding(JOB.format(state="RUNNING")) == {"n1": Held((1, 2), 2000, 1000)}
    assert read_holding(JOB.format(state="COMPLETING")) is None
    assert read_holding("JobId=7 JobName=a JobState=PENDING NodeList= NumNodes=1") == {}
