"""The simulator in the page: a trace is chosen, policies are compared, and the answer is read in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe import violations
from running import Server, eventually

from phalanx.bench.page.tab import Page

pytestmark = pytest.mark.needs("chromium")

PHILLY = Path(__file__).parents[1] / "data" / "traces" / "philly_log.json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing: 4 nodes of 8 GPUs."""
    folder = tmp_path_factory.mktemp("studies")
    server = Server(folder / "data", "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    yield server
    server.stop()


def choose_file(page: Page, path: Path) -> None:
    page.see("At most 256 MiB")
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    field = page.call("DOM.querySelector", nodeId=root, selector="#study-file")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])


def is_open_to_all(page: Page) -> dict[str, list[str]]:
    """What keeps users out, in either theme, and what a phone would have to scroll sideways for."""
    found: dict[str, list[str]] = {}
    for theme in ("light", "dark"):
        page.run(f"document.documentElement.dataset.theme = '{theme}'")
        if wrong := violations(page):
            found[theme] = wrong
    page.size(390, 844)
    if (width := page.run("document.documentElement.scrollWidth")) > 390:
        found["phone"] = [f"{width} wide"]
    page.size(1200, 900)
    return found


def await_end(server: Server) -> None:
    """Until no study is under way: how long that takes is up to the machine."""
    eventually(lambda: all(each["ended_ms"] for each in server.client.get("/studies").json()["items"]))


def test_a_log_of_philly_is_uploaded_run_under_two_policies_and_read_in_place(admin: Page, server: Server) -> None:
    admin.size(1200, 900)
    admin.open(f"{server.url}/ui/studies")
    admin.click("A trace")
    admin.see("Choose a trace first.")
    choose_file(admin, PHILLY)
    admin.see("philly_log.json", ".uploads")
    assert is_open_to_all(admin) == {}
    admin.fill("Policies, one a line", "fifo\nsrtf")
    admin.click("More")
    admin.click("Leave out bad rows")
    admin.fill("Failures", "rsc-1:scale=5")
    assert is_open_to_all(admin) == {}
    admin.click("Begin")
    admin.see("All studies")
    await_end(server)
    admin.see("srtf", "table")
    admin.see("failures, drawn for each run: rsc-1:scale=5, Meta's RSC-1", ".note")
    admin.see("mean JCT", "table")
    admin.see("Pending jobs")
    admin.see("Download the report")
    assert is_open_to_all(admin) == {}
    admin.click("All studies")
    admin.see("philly_log.json", "[aria-label=Studies]")
    admin.see("done", "[aria-label=Studies]")


def test_a_study_shows_how_far_it_is_until_it_is_cancelled_and_removed(admin: Page, server: Server) -> None:
    admin.size(1200, 900)
    admin.open(f"{server.url}/ui/studies")
    admin.click("Made-up jobs")
    admin.fill("How many jobs", "50000")
    admin.click("Begin")
    admin.see("All studies")
    eventually(lambda: server.client.get("/studies").json()["items"][0]["total"] > 0)
    admin.see("of 100,000 jobs; ", ".study-progress")
    assert is_open_to_all(admin) == {}
    admin.click("Cancel")
    admin.see("It was cancelled, and came to nothing.")
    admin.click("Remove…")
    admin.click("Remove")
    admin.see("The study is removed.")


def test_what_cannot_be_run_is_told_where_it_was_asked(admin: Page, server: Server, tmp_path: Path) -> None:
    packed, table = tmp_path / "trace.csv", tmp_path / "table.csv"
    packed.write_bytes(b"\x1f\x8b" + bytes(3 << 20))
    table.write_text("name,age\nada,36\n")
    admin.open(f"{server.url}/ui/studies")
    admin.fill("Policies, one a line", "/tmp/mine.py:policy")
    admin.click("Begin")
    admin.see("a server knows policies by their names")
    admin.forgive("422")
    admin.click("A trace")
    choose_file(admin, packed)
    admin.see("the file is packed (gzip): unpack it first, and send it as text")
    admin.forgive("415")
    choose_file(admin, table)
    admin.see("table.csv", ".uploads")
    admin.fill("Policies, one a line", "fifo")
    admin.click("Begin")
    admin.see("All studies")
    await_end(server)
    admin.see("The study failed.")
    admin.see("not a trace known here: it begins name,age")


def test_how_many_nodes_hold_a_target_is_asked_by_fields_and_answered_with_a_curve(admin: Page, server: Server) -> None:
    admin.size(1200, 900)
    admin.open(f"{server.url}/ui/studies?tab=capacity")
    admin.click("Made-up jobs")
    admin.fill("How many jobs", "40")
    admin.fill("Jobs with", ">=")
    admin.fill("GPUs", "2")
    admin.fill("Of these", "mean")
    admin.fill("Less than", "2h")
    admin.see("--target 'mean queued(gpus>=2) < 2h' --load +30%")
    assert is_open_to_all(admin) == {}
    admin.click("More")
    admin.fill("Draws of the arrivals", "2")
    admin.click("Begin")
    admin.see("All studies")
    await_end(server)
    admin.see("hold mean queued(gpus>=2) < 2h")
    admin.see("the answer", "[aria-label='Points of the curve']")
    assert "less than 2 h. " in admin.run("document.querySelector('.curve svg').getAttribute('aria-label')")
    assert is_open_to_all(admin) == {}


def test_of_a_target_that_nothing_reaches_the_best_is_told(admin: Page, server: Server) -> None:
    body = {"kind": "capacity", "source": "synthetic:jobs=20,load=0.9", "targets": ["mean jct < 1s"]}
    study = server.client.post("/studies", json=body).raise_for_status().json()["id"]
    await_end(server)
    admin.open(f"{server.url}/ui/studies/{study}")
    admin.see("No number of nodes is enough")
    admin.see("no number of nodes reaches mean jct < 1s")
    admin.see("as good as any", "[aria-label='Points of the curve']")


def test_a_name_of_a_file_is_text_and_no_path_whatever_it_says(admin: Page, server: Server) -> None:
    for name in ("../../phalanx.db", "<img src=x onerror=alert(1)>.csv", "‮vsc.exe"):
        server.client.post("/uploads", params={"name": name}, content=b"job_id\n")
    admin.open(f"{server.url}/ui/studies")
    admin.click("A trace")
    admin.see("phalanx.db", ".uploads")
    admin.see("_img src=x onerror=alert(1)_.csv", ".uploads")
    assert not admin.run("document.querySelector('.uploads img')")
    assert "‮" not in admin.text()
