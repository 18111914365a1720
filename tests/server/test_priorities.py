"""How high a priority each role may give: by the queue, named in what is refused, and the same for a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from running import Server

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import PriorityCaps, Queue, priority_caps
from phalanx.server.accounts.roles import ALL_SCOPES, Account, Grant, Role, Scope
from phalanx.server.cluster.priorities import need_priorities
from phalanx.server.planner.answers import answer
from phalanx.server.planner.questions import PlanJobs
from phalanx.server.refusal import Refusal

QUEUES = (
    Queue("plain"),
    Queue("red", normal_priority=5, operator_priority_max=50),
    Queue("red/llm"),
    Queue("red/urgent", member_priority_max=20),
)


def a_world(*queues: Queue) -> World:
    return World(replace(flat(1, 8), queues=queues), "priority")


def is_taken(queue: str, priority: int, role: Role) -> bool:
    job = a_job("j", 1, queue=queue, priority=priority)
    try:
        need_priorities(a_world(*QUEUES).state, [job], [role.value])
    except Refusal:
        return False
    return True


@pytest.mark.parametrize(
    ("queue", "role", "highest"),
    [
        ("plain", Role.MEMBER, 0),
        ("plain", Role.OPERATOR, 1_000_000),
        ("red/llm", Role.MEMBER, 5),
        ("red/llm", Role.OPERATOR, 50),
        ("red/llm", Role.ADMIN, 1_000_000),
        ("red/urgent", Role.MEMBER, 20),
        ("red/urgent", Role.OPERATOR, 50),
    ],
)
def test_each_role_may_give_priorities_up_to_its_cap(queue: str, role: Role, highest: int) -> None:
    assert is_taken(queue, highest, role)
    assert is_taken(queue, -10, role)
    assert highest == 1_000_000 or not is_taken(queue, highest + 1, role)


def test_a_queue_that_says_nothing_has_what_the_nearest_around_it_says() -> None:
    by_path = {queue.path: queue for queue in QUEUES}
    assert priority_caps("red/llm", by_path.get) == PriorityCaps(5, 50)
    assert priority_caps("red/urgent", by_path.get) == PriorityCaps(20, 50)
    assert priority_caps("plain", by_path.get) == PriorityCaps(0, None)


def test_without_queues_everybody_may_give_any_priority() -> None:
    need_priorities(a_world().state, [a_job("j", 1, priority=1000)], [Role.MEMBER.value])


def test_a_refusal_names_the_cap_the_role_the_queue_and_what_to_do() -> None:
    jobs = [a_job("fine", 1, queue="plain"), a_job("high", 1, queue="red/llm", priority=1000)]
    with pytest.raises(Refusal) as refused:
        need_priorities(a_world(*QUEUES).state, jobs, [Role.MEMBER.value] * 2)
    assert refused.value.message == (
        "priority 1000 is above 5, the highest that the role member may give in the queue 'red/llm': "
        "take 5 or less, have an operator or admin of the queue submit the job, "
        "or have an admin raise job_priority.members of the queue in the cluster file"
    )
    detail = {"index": 1, "priority": 1000, "cap": 5, "role": "member", "queue": "red/llm"}
    assert (refused.value.status, refused.value.detail) == (403, detail)


def test_a_plan_of_what_would_be_refused_is_refused_too() -> None:
    job = a_job("j", 1, queue="plain", priority=1)
    assert answer(PlanJobs([job], [""], ["member"]), a_world(*QUEUES).state).status == 403
    assert answer(PlanJobs([job], [""], ["operator"]), a_world(*QUEUES).state).status == 200


def test_a_role_counts_as_far_as_the_token_lets_it() -> None:
    grants = (Grant("red", Role.OPERATOR), Grant("red/llm", Role.ADMIN))
    assert Account("ada", grants, ALL_SCOPES).role_in("red/llm") is Role.ADMIN
    assert Account("ada", grants, (Scope.READ, Scope.WRITE)).role_in("red/llm") is Role.OPERATOR
    assert Account("ada", grants, ALL_SCOPES).role_in("red") is Role.OPERATOR
    assert Account("ada", grants, ALL_SCOPES).role_in("blue") is None


def test_a_server_takes_of_a_member_what_its_queue_lets_members_give(folder: Path) -> None:
    cluster = folder.parent / "cluster.yaml"
    cluster.write_text("nodes: [{count: 1, gpus: 8}]\nqueues: [{name: red, job_priority: {members: 10}}]\n")
    server = Server(folder, "--backend", "rehearsal", "--cluster", str(cluster)).start()
    server.client.post("/users", json={"name": "ada"}).raise_for_status()
    server.client.put("/users/ada/roles/red", json={"role": "member"}).raise_for_status()
    hers = server.as_user(server.client.post("/tokens", json={"name": "t", "user": "ada"}).json()["token"])
    job = {"gpus": 1, "command": "true", "queue": "red", "begin": "+1h"}
    assert hers.post("/jobs", json={**job, "priority": 10}).status_code == 201
    refused = hers.post("/jobs", json={**job, "priority": 11})
    assert (refused.status_code, refused.json()["detail"]["cap"]) == (403, 10)
    batch = hers.post("/jobs:batch", json={"jobs": [job, job, {**job, "priority": 1000}]})
    assert (batch.status_code, batch.json()["detail"]["index"]) == (403, 2)
    assert hers.post("/plan", json={"jobs": [{**job, "priority": 11}]}).status_code == 403
    assert server.client.post("/jobs", json={**job, "priority": 1000}).status_code == 201
    server.stop()
