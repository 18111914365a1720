"""A real server's gang loses several nodes at once: the rest keeps its ranks and nodes, and spares fill the gaps."""

from __future__ import annotations

from pathlib import Path

from running import Server, eventually


def health(server: Server) -> dict[str, str]:
    items = server.client.get("/nodes").raise_for_status().json()["items"]
    return {each["name"]: each["health"] for each in items}


def by_rank(server: Server, job: str, tasks: int) -> list[str]:
    """The node of each task of the newest attempt, by rank, as the tasks say; fewer if some are silent."""
    told = (server.client.get(f"/jobs/{job}/logs", params={"rank": rank}) for rank in range(tasks))
    found = [line.split() for each in told for line in each.text.splitlines() if line.startswith("at ")]
    assert [int(rank) for _, rank, _ in found] == sorted(int(rank) for _, rank, _ in found)
    return [node for _, _, node in found]


def with_spares(server: Server, count: int) -> list[str]:
    text = f"recovery: {{spares: {count}}}"
    server.client.put("/cluster", content=text, headers={"Content-Type": "application/yaml"}).raise_for_status()
    return [name for name, is_ in health(server).items() if is_ == "spare"]


def test_nodes_that_are_emptied_at_once_are_replaced_by_spares_in_their_ranks(folder: Path) -> None:
    server = Server(folder, "--simulate", "--nodes", "6", "--gpus", "2").start()
    spares = with_spares(server, 2)
    assert len(spares) == 2
    command = ["sh", "-c", 'echo "at $PHALANX_RANK $PHALANX_NODE"; exec sleep 600']
    job = str(server.submit(command=command, gang=[{"role": "worker", "replicas": 4, "gpus": 2}])["id"])
    server.wait(job, "running")
    was = eventually(lambda: found if len(found := by_rank(server, job, 4)) == 4 else None)
    assert not set(was) & set(spares)
    lost = (was[0], was[2])
    for node in lost:
        server.client.post(f"/nodes/{node}:drain", json={"reason": "smoke"}).raise_for_status()
    server.client.post(f"/jobs/{job}:requeue").raise_for_status()
    now = eventually(lambda: found if len(found := by_rank(server, job, 4)) == 4 and found != was else None)
    assert [old == new for old, new in zip(was, now, strict=True)] == [False, True, False, True]
    assert {now[0], now[2]} == set(spares)
    assert "spare" not in health(server).values()
    for node in lost:
        server.client.post(f"/nodes/{node}:undrain").raise_for_status()
    eventually(lambda: [health(server)[node] for node in lost] == ["spare", "spare"] or None)
    server.stop()


def test_a_gang_on_a_node_that_fails_jobs_goes_on_with_its_ranks_once_that_is_in_quarantine(
    tmp_path: Path, folder: Path
) -> None:
    options = ("--simulate", "--nodes", "6", "--gpus", "2", "--quarantine", "0.2", "--quarantine-time", "600s")
    server = Server(folder, *options).start()
    sick, bad = server.client.get("/nodes").json()["items"][0]["name"], tmp_path / "bad"
    fails = f'test "$PHALANX_NODE" = {sick} && test -e {bad} && exit 1'
    gang = f'echo "at $PHALANX_RANK $PHALANX_NODE"; while true; do {fails}; sleep 0.1; done'
    roles = [{"role": "worker", "replicas": 3, "gpus": 2}]
    job = str(server.submit(name="gang", command=["sh", "-c", gang], gang=roles, retry={"limit": 99})["id"])
    server.wait(job, "running")
    was = eventually(lambda: found if len(found := by_rank(server, job, 3)) == 3 else None)
    assert sick in was
    bad.touch()
    server.wait(job, "waiting")
    server.client.post(f"/jobs/{job}:hold").raise_for_status()
    short = f"{fails}; true"
    others = [server.submit(gpus=2, command=["sh", "-c", short], retry={"limit": 8}) for _ in range(18)]
    eventually(lambda: health(server)[sick] == "suspect" or None)
    for other in others:
        assert server.wait(str(other["id"]), "succeeded", "failed")["state"] == "succeeded"
    server.client.post(f"/jobs/{job}:release").raise_for_status()
    server.wait(job, "running")
    now = eventually(lambda: found if len(found := by_rank(server, job, 3)) == 3 else None)
    assert [old == new for old, new in zip(was, now, strict=True)] == [node != sick for node in was]
    server.stop()
