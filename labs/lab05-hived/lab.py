"""Lab 5: the five experiments, run in virtual time, and the table of the lab report.

python lab.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from virtual_time import Lab

CAROL, DAN = "hostname-carol", "hostname-dan"


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    experiment: str
    observed: tuple[str, ...]
    files: tuple[str, ...]


def listed(minutes: list[int]) -> str:
    return ", ".join(map(str, minutes))


def vc_safety() -> Row:
    """Four jobs at once for vc1, while `default` is idle."""
    lab = Lab("config-two-vcs.yaml")
    for who in ("alice", "bob", "carol", "dan"):
        lab.submit(0, "job-config-0.yaml", f"safety-{who}")
    lab.run()
    pods = [f"safety-{who}-train-0" for who in ("alice", "bob", "carol", "dan")]
    nodes = {node for pod in pods for node in lab.nodes(pod)}
    starts = [lab.at(pod, "starts")[0] for pod in pods]
    return Row(
        "VC safety",
        (
            f"all run on {', '.join(sorted(nodes))}, the machine of vc1",
            f"one after another, at minutes {listed(starts)}: the others wait although {CAROL} of `default` is idle",
        ),
        ("config-two-vcs.yaml", "job-config-0.yaml"),
    )


def priority_and_preemption() -> Row:
    """A test job runs, and a prod job comes to the same virtual cluster."""
    lab = Lab("config-two-vcs.yaml")
    lab.submit(0, "job-config-1.yaml")
    lab.submit(5, "job-config-2.yaml")
    lab.run()
    test, prod = "first-test-train-0", "then-prod-train-0"
    return Row(
        "Priority and preemption",
        (
            f"the later prod job starts at minute {lab.at(prod, 'starts')[0]}, at once, and not after the test job",
            f"the test job is preempted at minute {lab.at(test, 'preempted')[0]}",
            f"it starts anew at minute {lab.at(test, 'starts')[1]}",
            f"prod ends at minute {lab.at(prod, 'ends')[0]}, test at minute {lab.at(test, 'ends')[0]}",
        ),
        ("config-two-vcs.yaml", "job-config-1.yaml", "job-config-2.yaml"),
    )


def opportunistic() -> Row:
    """A prod job holds the machine of vc1; an oppo job comes to vc1, and then a test job to `default`."""
    lab = Lab("config-two-vcs.yaml")
    lab.submit(0, "job-config-3.yaml")
    lab.submit(5, "job-config-4.yaml")
    lab.submit(10, "job-config-4b.yaml")
    lab.run()
    oppo, follow_up = "then-oppo-train-0", "follow-up-train-0"
    starts = lab.at(oppo, "starts")
    return Row(
        "Opportunistic job",
        (
            f"the oppo job starts at minute {starts[0]} on {lab.nodes(oppo)[0]}, which is idle: it waits for nobody",
            f"the test job of `default` preempts it at minute {lab.at(oppo, 'preempted')[0]}",
            f"it runs on {lab.nodes(follow_up)[0]} from minute {lab.at(follow_up, 'starts')[0]}",
            f"the oppo job starts anew at minute {starts[1]} on {lab.nodes(oppo)[1]}",
        ),
        ("config-two-vcs.yaml", "job-config-3.yaml", "job-config-4.yaml", "job-config-4b.yaml"),
    )


def gang() -> Row:
    """One machine of two is taken, and a job of two tasks comes that start together."""
    lab = Lab("config-one-vc.yaml")
    lab.submit(0, "job-config-5.yaml")
    lab.submit(5, "job-config-6.yaml")
    lab.run()
    starts = [lab.at(f"gang-of-two-train-{i}", "starts")[0] for i in (0, 1)]
    ended = lab.at("occupier-train-0", "ends")[0]
    together = "both at once" if starts[0] == starts[1] else "one after the other"
    return Row(
        "Gang scheduling",
        (
            f"the job starts at minute {starts[0]}, when the first ends (minute {ended})",
            f"its two tasks start {together}; until then one machine stays idle",
        ),
        ("config-one-vc.yaml", "job-config-5.yaml", "job-config-6.yaml"),
    )


def incremental() -> Row:
    """The same, with tasks that start one by one; and jobs of four tasks, more than the cluster owns."""
    lab = Lab("config-one-vc.yaml")
    lab.submit(0, "job-config-5.yaml")
    lab.submit(5, "job-config-7.yaml")
    lab.submit(100, "job-config-8.yaml")
    lab.submit(100, "job-config-9.yaml")
    lab.run()
    starts = [lab.at(f"two-by-two-train-{i}", "starts")[0] for i in (0, 1)]
    four = [lab.at(f"four-one-by-one-train-{i}", "starts")[0] for i in range(4)]
    refusal = next(event for event in lab.events if event.what == "refused")
    return Row(
        "Incremental scheduling",
        (
            f"the tasks start one by one, at minutes {listed(starts)}: the first does not wait for the second",
            f"a job of four GPUs can be submitted: its tasks start at minutes {listed(four)}, two at a time",
            f"as a gang it is refused: {refusal.why}",
        ),
        ("config-one-vc.yaml", "job-config-5.yaml", "job-config-7.yaml", "job-config-8.yaml", "job-config-9.yaml"),
    )


EXPERIMENTS: tuple[Callable[[], Row], ...] = (vc_safety, priority_and_preemption, opportunistic, gang, incremental)


def report() -> str:
    """The table of the lab report, as Markdown."""
    lines = ["| experiment | observed | files |", "| --- | --- | --- |"]
    for run in EXPERIMENTS:
        row = run()
        lines.append(
            f"| {row.experiment} | {'; '.join(row.observed)} | {', '.join(f'`{file}`' for file in row.files)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
