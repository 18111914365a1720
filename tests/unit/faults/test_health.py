"""Nodes that fail what runs on them are found; jobs at fault themselves blame none; and never too many are held."""

from __future__ import annotations

from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.faults.generate.draw import Site, draw, lemons_of
from phalanx.faults.generate.plan import DAY_MS, plan_of
from phalanx.faults.health.blame import Blame
from phalanx.faults.health.quarantine import Change, Quarantine, Rules

NODES = [f"n{number}" for number in range(20)]
MINUTE = 60_000


class Ward:
    """A quarantine with the health of its nodes."""

    def __init__(self, **rules: float) -> None:
        self.health = dict.fromkeys(NODES, Health.HEALTHY)
        self.quarantine = Quarantine(Blame.of(NODES), Rules(first_ms=30 * MINUTE, **rules))
        self.jobs = 0

    def run(self, node: str, failed: bool, now: int = 0, job: str = "") -> list[Change]:
        """A job ends on a node, by default one that never ran before."""
        self.jobs += 1
        found = list(self.quarantine.ended(job or f"job{self.jobs}", frozenset([node]), failed, now))
        return self.take(found)

    def look(self, now: int = 0) -> list[Change]:
        return self.take(list(self.quarantine.changes(self.health, now)))

    def take(self, changes: list[Change]) -> list[Change]:
        self.health.update({each.node: each.health for each in changes})
        return changes

    def busy(self, now: int = 0) -> None:
        """Two jobs on each node, of which one in twenty fails."""
        for number, node in enumerate(NODES * 2):
            self.run(node, failed=number % 20 == 7, now=now)


def quarantined() -> Ward:
    ward = Ward()
    ward.busy()
    for _ in range(4):
        ward.run("n3", failed=True)
    assert [(each.node, each.health) for each in ward.look()] == [("n3", Health.SUSPECT)]
    return ward


def test_a_node_on_which_job_after_job_fails_is_found_and_its_reason_counts_them() -> None:
    ward = Ward()
    ward.busy()
    for _ in range(3):
        assert not ward.look()
        ward.run("n3", failed=True)
    [change] = ward.look()
    assert change.reason.startswith("quarantine: 3 of 5 jobs failed there")


def test_a_cluster_on_which_jobs_fail_everywhere_has_no_bad_node() -> None:
    ward = Ward()
    for round_ in range(10):
        for node in NODES:
            ward.run(node, failed=(round_ + len(node)) % 2 == 0)
    assert not ward.look()


def test_one_job_that_crashes_again_and_again_on_one_node_is_one_failure() -> None:
    ward = Ward()
    ward.busy()
    for _ in range(50):
        ward.run("n3", failed=True, job="crashes")
    assert not ward.look()


def test_a_job_that_fails_elsewhere_too_is_at_fault_itself() -> None:
    ward = Ward()
    ward.busy()
    for job in ("a", "b", "c", "d"):
        ward.run("n3", failed=True, job=job)
        ward.run("n4", failed=True, job=job)
    assert not ward.look()


def test_a_node_whose_jobs_prove_to_be_at_fault_is_let_out_at_once() -> None:
    ward = Ward()
    ward.busy()
    for job in ("a", "b", "c", "d"):
        ward.run("n3", failed=True, job=job)
    assert ward.look()
    for job in ("a", "b", "c", "d"):
        ward.run("n9", failed=True, job=job)
    [change] = ward.look(MINUTE)
    assert (change.node, change.health) == ("n3", Health.HEALTHY)
    assert "failed elsewhere" in change.reason


def test_gangs_that_fail_blame_the_node_that_they_have_in_common() -> None:
    ward = Ward()
    ward.busy()
    for number, other in enumerate(("n5", "n6", "n7", "n8")):
        for nodes in (frozenset(["n3", other]), frozenset(["n3", f"n{number + 10}"])):
            assert not list(ward.quarantine.ended(f"gang{number}", nodes, True, 0))
    assert [each.node for each in ward.look()] == ["n3"]


def test_a_node_comes_back_on_probation_and_a_job_that_succeeds_clears_it() -> None:
    ward = quarantined()
    assert not ward.look(29 * MINUTE)
    [out] = ward.look(30 * MINUTE)
    assert (out.node, out.health) == ("n3", Health.HEALTHY)
    ward.run("n3", failed=False, now=31 * MINUTE)
    assert not ward.look(32 * MINUTE)
    assert not ward.quarantine.sentences


def test_a_node_that_fails_on_probation_is_held_twice_as_long() -> None:
    ward = quarantined()
    ward.look(30 * MINUTE)
    [again] = ward.run("n3", failed=True, now=31 * MINUTE)
    assert (again.node, again.health) == ("n3", Health.SUSPECT)
    assert not ward.look(90 * MINUTE)
    assert ward.look(91 * MINUTE)


def test_a_flapping_node_is_held_for_a_day_at_most() -> None:
    ward, now = quarantined(), 0
    for _ in range(12):
        due_ms = ward.quarantine.next_ms()
        assert due_ms is not None
        assert due_ms - now <= 24 * 60 * MINUTE
        now = due_ms
        ward.look(now)
        ward.run("n3", failed=True, now=now)


def test_never_more_than_the_bound_are_held() -> None:
    ward = Ward(share_max=0.1, chance=1e6)
    for node in NODES:
        for _ in range(5):
            ward.run(node, failed=True)
    ward.look()
    assert list(ward.health.values()).count(Health.SUSPECT) == 2


def test_in_a_cluster_too_small_for_the_bound_none_is_held() -> None:
    quarantine = Quarantine(Blame.of(["a", "b", "c"]))
    for number in range(20):
        list(quarantine.ended(f"job{number}", frozenset(["a"]), True, 0))
    assert not list(quarantine.changes({"a": Health.HEALTHY, "b": Health.HEALTHY, "c": Health.HEALTHY}, 0))


def test_what_an_operator_says_goes_first() -> None:
    ward = quarantined()
    ward.health["n3"] = Health.HEALTHY
    assert not ward.look(MINUTE)
    assert ward.quarantine.held == 0
    ward.run("n3", failed=True, now=MINUTE)
    assert not ward.look(MINUTE), "its book begins anew"


def test_a_quarantine_of_before_a_restart_ends_too() -> None:
    ward = Ward()
    ward.health["n3"] = Health.SUSPECT
    ward.quarantine.adopt(["n3"], 0)
    assert not ward.look(29 * MINUTE)
    assert [each.health for each in ward.look(30 * MINUTE)] == [Health.HEALTHY]


def test_a_node_that_has_left_is_forgotten() -> None:
    ward = quarantined()
    ward.quarantine.blame.follow([node for node in NODES if node != "n3"], MINUTE)
    del ward.health["n3"]
    assert not ward.look(MINUTE)
    assert ward.quarantine.held == 0


def test_lemons_are_found_within_28_days() -> None:
    cluster = Cluster(tuple(Node(f"n{number:03}", (), 8) for number in range(256)))
    site, plan = Site.of(cluster), plan_of("rsc-1:scale=2,lemons=4,lemon_factor=20")
    found = right = 0
    for seed in range(100):
        quarantine, caught = Quarantine(Blame.of(site.nodes)), set()
        for each in draw(plan, site, 28 * DAY_MS, seed):
            (node,) = each.nodes
            if node not in caught:
                quarantine.blame.broke(node, each.at_ms)
                if quarantine.is_bad(node, each.at_ms):
                    caught.add(node)
        found += len(caught)
        right += len(caught & set(lemons_of(plan, site, seed)))
    assert right / 400 >= 0.8, "recall"
    assert right / found >= 0.85, "precision"
