"""What pods wait for, as it is written to a real API server."""

from __future__ import annotations

import pytest

from kube_cluster import create, wait_for
from kube_objects import pod
from kube_site import events, pods, reason
from phalanx.kube.api.client import Client
from phalanx.kube.reporter import Reporter

pytestmark = pytest.mark.needs("kubernetes")


def test_of_lines_that_change_faster_than_they_are_written_the_last_one_stays(api: Client) -> None:
    """With every pod of a gang that comes, all those before it wait for something else."""
    create(api, pod("a"))
    a = pods(api)["a"]
    reporter = Reporter(api)
    for count in range(200):
        reporter.pending(a, f"200 pods start together, and {count} are there")
    wait_for("the last is there", lambda: reason(api, "a") == "200 pods start together, and 199 are there")
    wait_for("its event, too", lambda: "200 pods start together, and 199 are there" in events(api, "a"))
    reporter.close()
    assert len(events(api, "a")) < 100
