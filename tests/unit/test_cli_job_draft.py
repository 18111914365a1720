"""Job files that options change: what is changed, what stays as it is written, and what is refused."""

from __future__ import annotations

import click
import pytest

from phalanx.cli.job_draft import JobDraft
from phalanx.workload.formats.native import read_job

FILE = """
name: 1.10
command: [python, train.py]
after: [{job: 7, on: success}]
gang:
  - &one {role: worker, replicas: 4, gpus: 8, cpus: 10}
labels: {team: yes}
"""


def test_a_draft_that_nothing_changes_is_the_text_itself() -> None:
    assert JobDraft(FILE, "job.yaml").text == FILE


def test_what_is_not_changed_stays_as_it_is_written() -> None:
    draft = JobDraft(FILE, "job.yaml")
    draft.put(["priority"], 5)
    before, after = read_job(FILE, "job.yaml"), read_job(draft.text, "job.yaml")
    assert after.priority == 5
    assert (after.name, after.labels, after.after, after.gang) == (
        before.name,
        before.labels,
        before.after,
        before.gang,
    )


def test_a_key_deep_in_a_file_is_set_and_the_change_is_told() -> None:
    draft = JobDraft(FILE, "job.yaml")
    draft.put_text("gang.0.replicas", "{min: 2, max: 8}")
    draft.put_text("queue", "research")
    assert draft.changes == ["gang.0.replicas: 4 becomes {min: 2, max: 8}", "queue: research"]
    assert read_job(draft.text, "job.yaml").gang.roles[0].replicas_min == 2


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("gangs.0.replicas", "--set gangs.0.replicas: job.yaml has no 'gangs'"),
        ("gang.1.replicas", "--set gang.1.replicas: job.yaml has no '1' in gang, which has 1 item"),
        ("gang.first.replicas", "--set gang.first.replicas: job.yaml has no 'first' in gang, which has 1 item"),
        ("name.first", "--set name.first: 'name' of job.yaml has no keys"),
    ],
)
def test_a_key_that_is_not_there_is_refused(key: str, told: str) -> None:
    with pytest.raises(click.UsageError, match=told):
        JobDraft(FILE, "job.yaml").put_text(key, "1")


def test_a_value_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(click.UsageError, match=r"--set env=\{A: expected a value as a job file has it"):
        JobDraft(FILE, "job.yaml").put_text("env", "{A")


def test_what_a_task_asks_for_goes_to_the_only_role() -> None:
    draft = JobDraft(FILE, "job.yaml")
    draft.put_task({"gpus": 2, "replicas": 3})
    role = read_job(draft.text, "job.yaml").gang.roles[0]
    assert (role.task.gpus, role.replicas_max, role.task.cpus_milli) == (2, 3, 10_000)


def test_a_job_of_one_task_becomes_a_gang_of_such_tasks() -> None:
    draft = JobDraft("gpus: 2\ncpus: 4\ncommand: 'true'\n", "job.yaml")
    draft.put_task({"replicas": 3, "cpus": 8})
    [role] = read_job(draft.text, "job.yaml").gang.roles
    assert (role.replicas_min, role.task.gpus, role.task.cpus_milli) == (3, 2, 8_000)


def test_which_of_several_roles_is_meant_must_be_said() -> None:
    draft = JobDraft("gang: [{role: a, gpus: 1}, {role: b, gpus: 1}]\n", "job.yaml")
    with pytest.raises(
        click.UsageError, match=r"job.yaml has 2 roles: say which with --set, as in --set gang.0.gpus=2"
    ):
        draft.put_task({"gpus": 2})


def test_pairs_are_added_and_those_of_the_file_stay() -> None:
    draft = JobDraft("command: 'true'\nenv: {A: '1', B: '2'}\n", "job.yaml")
    draft.put_pairs("env", {"B": "3", "C": "4"})
    assert dict(read_job(draft.text, "job.yaml").execution.env) == {"A": "1", "B": "3", "C": "4"}
    draft.add_pairs("env", {"A": "9", "D": "5"})
    assert dict(read_job(draft.text, "job.yaml").execution.env) == {"A": "1", "B": "3", "C": "4", "D": "5"}
