"""The map of a cluster that virtual clusters share, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from running import Server

from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")

CLUSTER = """
nodes: [{name: n, count: 3, gpus: 8, gpu_type: V100, split: {socket: 2}}]
virtual_clusters:
  research: {cells: [{level: node, count: 2}]}
  product: {cells: [{level: socket, count: 2}]}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing, with two virtual clusters."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "cluster.yaml").write_text(CLUSTER)
    server = Server(folder / "data", "--backend", "rehearsal", "--cluster", str(folder / "cluster.yaml")).start()
    yield server
    server.stop()


def test_the_map_outlines_the_cells_of_virtual_clusters(admin: Page, server: Server) -> None:
    jobs = [
        server.submit(queue="research", gpus=4, duration="1h"),
        server.submit(queue="product", gpus=4, duration="1h"),
        server.submit(queue="product", gpus=2, duration="1h", priority=-1),
    ]
    for job in jobs:
        server.wait(job["id"], "running")
    admin.open(f"{server.url}/ui/map")
    admin.see("virtual cluster", "#map-colour")
    admin.fill("Colour by", "virtual_cluster")
    for text in ("research: its cells, in use", "product: its cells, in use", "product: beyond its cells"):
        admin.see(text)
    # Four of the eight GPUs of the node that research has are free, and kept for it.
    admin.see("research: its cells, free 4")
    assert "colour=virtual_cluster" in admin.run("location.search")


NAME_UNITS, OUTLINE_UNITS = 2.4, 1.1
"""How high the font of a node's name is on the map, and how far an outline goes beyond its GPUs."""


def test_outlines_of_cells_leave_room_for_the_name_of_their_node(admin: Page, server: Server) -> None:
    admin.open(f"{server.url}/ui/map")
    above = """import("/ui/static/views/map/layout.js").then(({ layoutOf, placeOf }) => {
      const layout = layoutOf({ nodes: [{ name: "gpu-17", devices: 8, path: ["rack"] }] });
      return placeOf(layout, 0).y - layout.top[0];
    })"""
    assert admin.run(above) > NAME_UNITS + OUTLINE_UNITS


def test_where_there_are_none_the_map_offers_no_colours_of_virtual_clusters(admin: Page, server: Server) -> None:
    plain = "nodes: [{name: n, count: 3, gpus: 8, gpu_type: V100}]"
    applied = server.client.put("/cluster", content=plain, headers={"Content-Type": "application/yaml"})
    assert applied.status_code == 200, applied.text
    admin.open(f"{server.url}/ui/map")
    admin.see("idle", ".legend")
    assert len(admin.run("document.querySelector('.legend').innerText").split()) == 2 * 7, "each state, with its number"
    assert "virtual cluster" not in admin.run("document.querySelector('#map-colour').innerText")
