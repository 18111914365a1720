"""What a recording of a Kubernetes cluster comes to: waits on either side, idle GPUs, and a State."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_objects import group, node, pod
from phalanx.engine.turn import replay
from phalanx.kube.gangs.groups import PLUGINS
from phalanx.kube.mirror import NODES, PODS
from phalanx.kube.objects.ended import SeenPod
from phalanx.kube.shadow.history import History, history_of
from phalanx.kube.shadow.idle import Why
from phalanx.kube.shadow.recording import FILE, Entry, RecordingError, entries_in, mend, write
from phalanx.kube.shadow.report import Report, report_of
from phalanx.kube.shadow.state import taken_of
from phalanx.kube.shadow.trimmed import essence, trimmed

KINDS = {"Node": NODES, "Pod": PODS, "PodGroup": PLUGINS}


class Tape:
    """Writes a recording by hand, in seconds since it begins."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def begin(self, at_s: float, *objects: dict[str, Any], ahead_s: int = 0) -> None:
        self.entries.append(Entry(_ms(at_s), "begin", ahead_ms=1000 * ahead_s))
        self.there(at_s, *objects)
        self.entries.append(Entry(_ms(at_s), "ready", kinds=tuple(KINDS.values())))

    def there(self, at_s: float, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.entries.append(Entry(_ms(at_s), "there", KINDS[each["kind"]], msgspec.Raw(msgspec.json.encode(each))))

    def gone(self, at_s: float, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.entries.append(Entry(_ms(at_s), "gone", KINDS[each["kind"]], msgspec.Raw(msgspec.json.encode(each))))

    def alive(self, at_s: float) -> None:
        self.entries.append(Entry(_ms(at_s), "alive"))

    def history(self) -> History:
        return history_of(self.entries)

    def report(self, policy: str = "fifo") -> Report:
        return report_of(self.history(), policy)


def _ms(at_s: float) -> int:
    return 1_800_000_000_000 + round(1000 * at_s)


def seen(written: dict[str, Any], on: str = "", phase: str = "Pending") -> dict[str, Any]:
    """A pod as it is told of."""
    metadata = {
        **written["metadata"],
        "uid": f"uid-{written['metadata']['name']}",
        "creationTimestamp": "2027-01-15T08:00:00Z",
    }
    spec = {**written["spec"], "schedulerName": "default-scheduler", **({"nodeName": on} if on else {})}
    return {**written, "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def waits(report: Report) -> dict[str, tuple[float | None, float | None]]:
    """What each gang waited, there and under phalanx, by the names of their pods."""
    return {gang.job.partition("@")[0]: (_s(gang.theirs_ms), _s(gang.ours_ms)) for gang in report.gangs}


def _s(length_ms: int | None) -> float | None:
    return length_ms / 1000 if length_ms is not None else None


def test_a_pod_that_starts_earlier_makes_room_earlier_for_the_next() -> None:
    tape = Tape()
    tape.begin(0, node("n0"))
    tape.there(10, seen(pod("a", 8)))
    tape.there(40, seen(pod("a", 8), "n0", "Running"))
    tape.there(50, seen(pod("b", 8)))
    tape.there(100, seen(pod("a", 8), "n0", "Succeeded"))
    tape.there(100, seen(pod("b", 8), "n0", "Running"))
    tape.alive(130)
    report = tape.report()
    assert waits(report) == {"default/a": (30, 0), "default/b": (50, 20)}
    assert (report.waits.earlier, report.waits.later, report.recorded_ms) == (2, 0, 130_000)
    seconds = {why: round(length_ms / 1000) for why, length_ms in report.idle_ms.items()}
    assert seconds == {Why.PARTIAL: 0, Why.NODE: 0, Why.SCATTERED: 0, Why.LEFT: 8 * 30, Why.NO_WORK: 8 * 10}
    assert report.busy_ms / 1000 == 8 * 90


@pytest.mark.parametrize("ahead_s", [-3600, 0, 3600])
def test_what_was_there_at_the_start_came_when_it_did_whatever_the_clock_of_the_server_says(ahead_s: int) -> None:
    waiting = seen(pod("a", 8))
    created = datetime.fromtimestamp(_ms(ahead_s) / 1000, UTC)
    waiting["metadata"]["creationTimestamp"] = created.isoformat()
    tape = Tape()
    tape.begin(30, node("n0"), waiting, ahead_s=ahead_s)
    (found,) = tape.history().watched.values()
    assert found.arrived_ms == _ms(0)


def test_gangs_that_hold_each_other_up_hold_gpus_for_nothing() -> None:
    tape = Tape()
    tape.begin(0, node("n0"), node("n1"), group("g", 2), group("h", 2))
    pods = [pod(f"{name}-{i}", 8, name) for name in ("g", "h") for i in range(2)]
    tape.there(10, *map(seen, pods))
    tape.there(10, seen(pods[0], "n0", "Running"), seen(pods[2], "n1", "Running"))
    tape.alive(100)
    report = tape.report()
    assert waits(report) == {"default/g": (None, 0), "default/h": (None, None)}
    assert (report.ours_only, report.neither) == (1, 1)
    assert report.idle_ms[Why.PARTIAL] / 1000 == 16 * 90
    assert {gang.held_ms for gang in report.gangs} == {8 * 90_000}


def test_what_runs_when_the_recording_begins_is_not_judged_and_holds_what_it_has() -> None:
    tape = Tape()
    tape.begin(0, node("n0"), seen(pod("old", 8), "n0", "Running"))
    tape.there(10, seen(pod("new", 8)))
    tape.there(60, seen(pod("old", 8), "n0", "Succeeded"))
    tape.there(65, seen(pod("new", 8), "n0", "Running"))
    tape.alive(90)
    report = tape.report()
    assert waits(report) == {"default/new": (55, 50)}
    assert report.not_counted == 1


def test_a_gap_is_told_and_what_started_in_it_is_not_counted() -> None:
    tape = Tape()
    pending = [seen(pod("a", 4)), seen(pod("b", 8))]
    tape.begin(0, node("n0"), *pending)
    tape.alive(20)
    tape.begin(500, node("n0"), seen(pod("a", 4), "n0", "Running"), seen(pod("b", 8)))
    tape.there(520, seen(pod("a", 4), "n0", "Succeeded"))
    tape.there(530, seen(pod("b", 8), "n0", "Running"))
    tape.alive(540)
    history = tape.history()
    report = report_of(history, "fifo")
    assert [end - begin for begin, end in report.gaps] == [480_000]
    assert report.recorded_ms == 60_000
    assert waits(report) == {"default/b": (30, 20)}, "a started in the gap, and b is counted from its end"
    # A pod whose end the gap has swallowed is in no trace.
    tape.begin(900, node("n0"))
    assert all(not line.isspace() for line in taken_of(tape.history(), "fifo").lines().splitlines())
    assert tape.history().watched[report.gangs[0].job].is_lost


def test_a_namespace_that_is_deleted_ends_what_runs_in_it_and_what_waits() -> None:
    tape = Tape()
    tape.begin(0, node("n0"))
    running, waiting = pod("a", 8, namespace="team"), pod("b", 8, namespace="team")
    tape.there(5, seen(running, "n0", "Running"), seen(waiting))
    tape.gone(50, seen(running, "n0", "Running"), seen(waiting))
    tape.there(60, seen(pod("c", 8), "n0", "Running"))
    tape.alive(70)
    history = tape.history()
    assert waits(report_of(history, "fifo")) == {"team/a": (0, 0), "team/b": (None, None), "default/c": (0, 0)}
    taken = taken_of(history, "fifo")
    assert not taken.left_out
    finals = {job: record.final for job, record in taken.state.jobs.items()}
    assert sorted(str(final) for final in finals.values()) == ["None", "cancelled", "failed"]


def test_pods_of_the_system_use_what_they_use_on_either_side() -> None:
    tape = Tape()
    system = seen(pod("exporter", 4), "n0", "Running")
    system["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "exporter", "controller": True}]
    tape.begin(0, node("n0"), system)
    tape.there(10, seen(pod("a", 8)))
    tape.gone(40, system)
    tape.there(45, seen(pod("a", 8), "n0", "Running"))
    assert waits(tape.report()) == {"default/a": (35, 30)}


def test_a_gated_pod_arrives_when_its_gate_is_taken_off() -> None:
    tape = Tape()
    tape.begin(0, node("n0"))
    gated = seen(pod("a", 8, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
    tape.there(10, gated)
    tape.there(70, seen(pod("a", 8)))
    tape.there(75, seen(pod("a", 8), "n0", "Running"))
    assert waits(tape.report()) == {"default/a": (5, 0)}


def test_the_state_has_what_ran_where_it_ran_and_what_waits() -> None:
    tape = Tape()
    tape.begin(0, node("n0"), node("n1"), group("g", 2))
    tape.there(1, *(seen(pod(f"g-{i}", 4, "g")) for i in range(2)), seen(pod("big", 8)))
    tape.there(2, *(seen(pod(f"g-{i}", 4, "g"), f"n{i}", "Running") for i in range(2)))
    tape.alive(9)
    taken = taken_of(tape.history(), "fifo")
    assert not taken.left_out
    jobs = {record.job.name: record for record in taken.state.jobs.values()}
    placed = taken.state.attempt(jobs["default/g"].job.id, 1)
    assert placed is not None
    assert [(slot.node, slot.devices) for slot in placed.placement.slots] == [
        ("n0", (0, 1, 2, 3)),
        ("n1", (0, 1, 2, 3)),
    ]
    assert list(taken.reasons) == [jobs["default/big"].job.id]
    assert replay(taken.journal).head == taken.state.head


def test_a_line_that_was_not_written_whole_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / FILE
    file = io.BytesIO()
    write(file, Entry(1, "begin"))
    path.write_bytes(file.getvalue() + b'{"at_ms":2,"wh')
    assert [entry.what for entry in entries_in(tmp_path)] == ["begin"]
    mend(path)
    assert path.read_bytes() == file.getvalue()
    path.write_bytes(b"nothing\n" + file.getvalue())
    with pytest.raises(RecordingError, match=f"{FILE}:1: no line of a recording"):
        list(entries_in(tmp_path))


def test_what_users_write_for_others_is_not_recorded() -> None:
    written = seen(pod("a", 1))
    written["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "env: TOKEN=secret",
        "scheduling.k8s.io/group-name": "g",
        "phalanx.dev/gang": "x" * 5000,
    }
    written["metadata"]["labels"] = {f"label-{i}": "x" for i in range(5000)}
    written["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes " * 1000}
    ]
    kept = trimmed(msgspec.convert(written, SeenPod))
    assert kept.metadata.annotations == {"scheduling.k8s.io/group-name": "g"}
    assert len(msgspec.json.encode(kept)) < 5000
    other = msgspec.convert(
        {
            **written,
            "status": {
                **written["status"],
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/8 nodes"}
                ],
            },
        },
        SeenPod,
    )
    assert essence(kept) == essence(trimmed(other)), "its scheduler says something else every second"
