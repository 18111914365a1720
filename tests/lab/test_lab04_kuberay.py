"""Lab 4: a training on a real Ray grows and shrinks while its loss goes on; its files say what they should."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kube_cluster import definitions
from phalanx.backends.ray.scaling.groups import read_groups
from phalanx.backends.ray.scaling.kuberay import patch_of
from phalanx.backends.ray.scaling.sizes import Size
from ray_cluster import shared_site

LAB = Path(__file__).parents[2] / "labs" / "lab04-kuberay"


@pytest.fixture
def on_ray(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server on Ray; what verbs need to find it."""
    environment = {**os.environ, "RAY_ADDRESS": shared_site().address, "PHALANX_CONFIG": str(tmp_path / "config")}
    data = tmp_path / "data"
    command = [sys.executable, "-m", "phalanx", "up", "--backend", "ray", "--data", str(data), "--policy", "priority"]
    server = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "-o", "json"], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert server.stdout is not None
    told = json.loads(server.stdout.readline())
    yield {**environment, "PHALANX_ADDR": told["url"], "PHALANX_TOKEN_FILE": told["token_file"]}
    server.terminate()
    server.wait(60)
    server.stdout.close()


@pytest.mark.needs("ray")
@pytest.mark.needs("torch")
@pytest.mark.needs("soak")
def test_a_training_shrinks_for_another_job_and_grows_again_while_its_loss_goes_on(on_ray: dict[str, str]) -> None:
    program = [sys.executable, str(LAB / "elastic_training.py"), "--steps", "90"]
    done = subprocess.run(program, env=on_ray, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[3] for row in rows] == ["3", "2", "3"]
    losses = [float(row[4]) for row in rows]
    # Where it has come to its end already it stays there.
    assert losses[0] > losses[1] >= losses[2]
    assert rows[-1][2] == "90"
    shown = subprocess.run(
        [sys.executable, str(LAB / "monitoring_dashboard.py"), "--once"],
        env=on_ray,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert [line.split()[:2] for line in shown.splitlines()[1:3]] == [["n0", "healthy"], ["n1", "healthy"]]


def test_stretches_are_steps_in_a_row_on_one_number_of_ranks() -> None:
    lab: dict[str, Any] = runpy.run_path(str(LAB / "elastic_training.py"), run_name="lab")
    log = "step 1 loss 2.0 ranks 3\nrank 0 says something\nstep 2 loss 1.5 ranks 3\nstep 3 loss 1.25 ranks 2\n"
    assert [(each.ranks, each.first, each.last, each.loss) for each in lab["stretches"](log)] == [
        (3, 1, 2, 1.5),
        (2, 3, 3, 1.25),
    ]


def test_the_groups_of_the_lab_are_those_of_its_cluster() -> None:
    cluster = yaml.safe_load((LAB / "ray_cluster_setup.yaml").read_text())
    groups = read_groups((LAB / "autoscaling_config.yaml").read_text(), "autoscaling_config.yaml").groups
    workers = cluster["spec"]["workerGroupSpecs"]
    assert [(each["groupName"], each["minReplicas"], each["maxReplicas"]) for each in workers] == [
        (each.name, each.least, each.most) for each in groups
    ]
    sizes = [Size(each.name, each.most) for each in groups]
    assert {change["path"].rpartition("/")[2] for change in patch_of(cluster, sizes)} == {"groupName", "replicas"}


def test_the_dashboard_shows_which_gpus_are_taken_and_how_far_a_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(LAB))
    dashboard: dict[str, Any] = runpy.run_path(str(LAB / "monitoring_dashboard.py"), run_name="dashboard")
    steps = {"1": dashboard["stretches"]("step 7 loss 0.5 ranks 3\n")}
    nodes = [{"name": "n0", "health": "healthy", "gpus": 4, "gpus_used": 3}]
    shown = dashboard["lines"](nodes, [{"id": "1", "name": "a", "state": "running"}], steps)
    assert shown[1].split() == ["n0", "healthy", "###."]
    assert shown[4].split() == ["1", "a", "running", "3", "7", "0.50000"]
    sys.modules.pop("elastic_training", None)


@pytest.mark.needs("kubernetes")
def test_the_cluster_of_the_lab_is_valid_by_kuberays_own_definition() -> None:
    (path,) = [each for each in definitions() if "kuberay" in str(each)]
    told = yaml.safe_load((path / "ray.io_rayclusters.yaml").read_text())
    (version,) = [each for each in told["spec"]["versions"] if each["name"] == "v1"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    cluster = yaml.safe_load((LAB / "ray_cluster_setup.yaml").read_text())
    jsonschema.validate(cluster, schema)
    cluster["spec"]["workerGroupSpecs"][0]["repliacs"] = 3
    with pytest.raises(jsonschema.ValidationError, match="repliacs"):
        jsonschema.validate(cluster, schema)


def strict(schema: Any) -> Any:
    """A schema that refuses what it does not name, as `kubectl apply` does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", bool(schema["properties"].keys() <= {"metadata"}))
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    return made
