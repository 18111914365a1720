"""Ray's own autoscaler, with the commands of a site: real programs and the real base class of Ray."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("ray")

NODES = [
    {"id": "head", "type": "head", "ip": "10.0.0.1", "kind": "head"},
    {"id": "w0", "type": "gpu", "ip": "10.0.0.2"},
    {"id": "w1", "type": "gpu", "ip": "10.0.0.3"},
]


class Commands:
    """A site whose commands are files: what they print, and a log of what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.nodes, self.busy = folder / "nodes.json", folder / "busy.json"
        self.nodes.write_text(json.dumps(NODES))
        self.use("w0")

    def use(self, *names: str) -> None:
        told = [{"name": f"w{i}", "gpus_used": 0, "jobs": ["1"] if f"w{i}" in names else []} for i in range(2)]
        self.busy.write_text(json.dumps(told))

    def provider(self) -> Any:
        from phalanx.backends.ray.scaling.provider import PhalanxNodeProvider

        note = [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + '\\n')"]
        config = {
            "list": ["cat", str(self.nodes)],
            "busy": ["cat", str(self.busy)],
            "start": [*note, str(self.log), "start"],
            "stop": [*note, str(self.log), "stop"],
            **dict.fromkeys(("disable_node_updaters", "disable_launch_config_check", "foreground_node_launch"), True),
        }
        return PhalanxNodeProvider(config, "site")

    def called(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_missing_nodes_are_started(commands: Commands) -> None:
    provider = commands.provider()
    assert sorted(provider.non_terminated_nodes({})) == ["head", "w0", "w1"]
    assert provider.safe_to_scale()
    provider.create_node({}, {"ray-user-node-type": "gpu"}, 3)
    provider.post_process()
    assert commands.called() == ["start gpu 3"]


def test_a_node_that_phalanx_uses_is_not_stopped_and_an_idle_one_is(commands: Commands) -> None:
    provider = commands.provider()
    provider.non_terminated_nodes({})
    assert provider.safe_to_scale()
    for node in ("w0", "w1"):
        provider.terminate_node(node)
    provider.post_process()
    assert commands.called() == ["stop w1"]


def test_a_node_that_was_told_to_stop_is_not_counted_while_it_goes(commands: Commands) -> None:
    provider = commands.provider()
    provider.non_terminated_nodes({})
    commands.use()
    assert provider.safe_to_scale()
    provider.terminate_node("w1")
    provider.post_process()
    assert sorted(provider.non_terminated_nodes({})) == ["head", "w0"]


def test_nothing_is_scaled_while_phalanx_does_not_answer(commands: Commands) -> None:
    commands.busy.unlink()
    assert not commands.provider().safe_to_scale()
