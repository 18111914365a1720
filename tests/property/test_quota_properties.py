"""Quotas against Kueue's rule worked out from scratch, and what they promise whatever happened before."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.pending.headroom import Headroom
from phalanx.engine.quota.account import EVERY, QueueAccount
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.state.requests import Request, Requests
from phalanx.engine.state.state import State
from phalanx.placement.fit import Fit
from phalanx.policy.view import Usage
from reference.kueue import RefQueue, allows, below, uses

RESOURCE_COUNT = len(EVERY)
AMOUNTS = st.integers(0, 6)


@dataclass
class Tree:
    """One tree of queues as phalanx has it, and once for each resource as the rule has it."""

    quotas: Quotas
    wholes: list[RefQueue]
    leaves: list[str]


@st.composite
def queue(draw: st.DrawFn, deep: int) -> list[RefQueue]:
    """One queue, for every resource, with what may lie inside."""
    names = [f"q{i}" for i in range(draw(st.integers(0, 3 if deep else 0)))]
    children = {name: draw(queue(deep - 1)) for name in names}
    made = []
    for resource in range(RESOURCE_COUNT):
        inside = {name: child[resource] for name, child in children.items()}
        guaranteed = sum(each.guaranteed for each in inside.values()) + draw(AMOUNTS)
        deserved = max(guaranteed, sum(each.deserved for each in inside.values())) + draw(AMOUNTS)
        limit = draw(st.none() | AMOUNTS.map(lambda more, deserved=deserved: deserved + more))
        made.append(RefQueue(guaranteed, deserved, limit, inside))
    return made


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tops = {f"t{i}": draw(queue(2)) for i in range(draw(st.integers(1, 3)))}
    wholes = []
    for resource in range(RESOURCE_COUNT):
        inside = {name: each[resource] for name, each in tops.items()}
        total = sum(each.deserved for each in inside.values()) + draw(AMOUNTS)
        total = -(-total // 1000) * 1000 if resource == 0 else total
        wholes.append(RefQueue(sum(each.guaranteed for each in inside.values()), total, total, inside))
    gpus_permille, cpus_milli, memory_mb = (whole.deserved for whole in wholes)
    node = Node("n0", (), gpus_permille // 1000, cpus_milli=cpus_milli, memory_mb=memory_mb)
    queues = tuple(flattened(wholes, ""))
    inner = {each.parent for each in queues}
    return Tree(
        Quotas(Cluster((node,), queues=queues)), wholes, [each.path for each in queues if each.path not in inner]
    )


def flattened(level: list[RefQueue], path: str) -> list[Queue]:
    found = []
    for name in level[0].inside:
        each = [resource.inside[name] for resource in level]
        inner = below(path, name)
        found.append(
            Queue(
                inner,
                Quota(*(resource.guaranteed for resource in each)),
                Quota(*(resource.deserved for resource in each)),
                Quota(*(resource.limit for resource in each)),
            )
        )
        found += flattened(each, inner)
    return found


USES = st.lists(st.tuples(st.integers(0, 99), AMOUNTS, AMOUNTS, AMOUNTS), max_size=12)
"""Who asks for how much of each resource."""


def fill(tree: Tree, wanted: list[tuple[int, int, int, int]]) -> list[dict[str, int]]:
    """Gives what is allowed; what every leaf has then, of each resource."""
    used: list[dict[str, int]] = [{} for _ in EVERY]
    for number, *amounts in wanted:
        path, need = tree.leaves[number % len(tree.leaves)], Usage(*amounts)
        if tree.quotas.shortfall(path, need) is None:
            tree.quotas.use(path, need, 1)
            for resource in EVERY:
                used[resource][path] = used[resource].get(path, 0) + need[resource]
    return used


def alone(resource: int, amount: int) -> Usage:
    return Usage(*(amount if other == resource else 0 for other in EVERY))


@given(trees(), USES)
def test_a_queue_may_have_what_kueues_rule_lets_it_have(tree: Tree, wanted: list[tuple[int, int, int, int]]) -> None:
    used = fill(tree, wanted)
    for path in tree.leaves:
        for resource in EVERY:
            for more in range(1, 12):
                refused = tree.quotas.shortfall(path, alone(resource, more)) is not None
                assert refused is not allows(tree.wholes[resource], path, used[resource], more)


def most_now(tree: Tree, path: str, resource: int) -> int:
    """The most a queue may have more, found by asking for what the last refusal said is left."""
    asked = 10_000
    while asked > 0 and (short := tree.quotas.shortfall(path, alone(resource, asked))) is not None:
        assert (short.queue, short.resource, short.asked) == (path, resource, asked)
        assert short.left < asked
        asked = short.left
    return asked


@given(trees(), USES)
def test_what_a_refusal_says_is_left_can_be_had_to_the_last(
    tree: Tree, wanted: list[tuple[int, int, int, int]]
) -> None:
    fill(tree, wanted)
    for path in tree.leaves:
        for resource in EVERY:
            most = most_now(tree, path, resource)
            assert most >= 0
            assert tree.quotas.shortfall(path, alone(resource, most + 1)) is not None


@given(trees(), USES, st.integers(0, 99))
def test_nobodys_guaranteed_share_is_refused_for_what_others_have(
    tree: Tree, wanted: list[tuple[int, int, int, int]], number: int
) -> None:
    path = tree.leaves[number % len(tree.leaves)]
    others = [each for each in wanted if tree.leaves[each[0] % len(tree.leaves)] != path]
    fill(tree, others)
    guaranteed = tree.quotas.accounts[path].queue.guaranteed
    assert tree.quotas.shortfall(path, Usage(*(amount or 0 for amount in guaranteed))) is None


@given(trees(), USES)
def test_nobody_has_more_than_his_limit_and_all_not_more_than_there_is(
    tree: Tree, wanted: list[tuple[int, int, int, int]]
) -> None:
    fill(tree, wanted)
    for account in tree.quotas.accounts.values():
        for resource in EVERY:
            limit = account.queue.limit[resource]
            assert limit is None or account.used[resource] <= limit


@given(trees(), USES)
def test_inner_queues_have_what_those_inside_have(tree: Tree, wanted: list[tuple[int, int, int, int]]) -> None:
    used = fill(tree, wanted)
    for path, account in tree.quotas.accounts.items():
        for resource in EVERY:
            whole = tree.wholes[resource]
            for name in filter(None, path.split("/")):
                whole = whole.inside[name]
            assert account.used[resource] == uses(whole, path, used[resource])
        assert sorted(account.borrowing) == sorted(each.path for each in account.inside if each.borrows)


@given(trees(), USES, USES)
def test_what_was_used_and_given_back_leaves_no_trace(
    tree: Tree, before: list[tuple[int, int, int, int]], between: list[tuple[int, int, int, int]]
) -> None:
    fill(tree, before)
    then = tree.quotas.fingerprint()
    uses_ = [(tree.leaves[number % len(tree.leaves)], Usage(*amounts)) for number, *amounts in between]
    for path, need in uses_:
        tree.quotas.use(path, need, 1)
    for path, need in reversed(uses_):
        tree.quotas.use(path, need, -1)
    assert tree.quotas.fingerprint() == then


@given(trees(), USES)
def test_in_which_order_things_were_used_does_not_matter(tree: Tree, wanted: list[tuple[int, int, int, int]]) -> None:
    used = fill(tree, wanted)
    then = tree.quotas.fingerprint()
    for path in tree.leaves:
        tree.quotas.use(path, Usage(*(used[resource].get(path, 0) for resource in EVERY)), -1)
    for path in reversed(tree.leaves):
        tree.quotas.use(path, Usage(*(used[resource].get(path, 0) for resource in EVERY)), 1)
    assert tree.quotas.fingerprint() == then


@given(trees(), st.integers(0, 99))
def test_the_most_a_queue_could_ever_have_is_what_it_may_have_while_nobody_has_anything(
    tree: Tree, number: int
) -> None:
    path = tree.leaves[number % len(tree.leaves)]
    for resource in EVERY:
        most = tree.quotas.upper_bound(path, resource)
        assert tree.quotas.shortfall(path, alone(resource, most)) is None or not most
        shown = tree.quotas.upper_bounds(path, resource)[0]
        assert most == shown.most == shown.whole - sum(amount for _, amount in shown.guaranteed)
        assert tree.quotas.shortfall(path, alone(resource, most + 1)) is not None


def side_by_side(tree: Tree, path: str, other: str) -> tuple[QueueAccount, QueueAccount]:
    """The two queues, or those they lie in, under the nearest that holds both."""
    trails = tree.quotas.accounts[path].trail, tree.quotas.accounts[other].trail
    return next((mine, theirs) for mine, theirs in zip(*trails, strict=False) if mine is not theirs)


@given(trees(), USES, st.integers(0, 99), st.integers(0, 99), AMOUNTS)
def test_nothing_is_reclaimed_of_who_has_no_more_than_he_deserves(
    tree: Tree, wanted: list[tuple[int, int, int, int]], mine: int, theirs: int, amount: int
) -> None:
    fill(tree, wanted)
    path, other = tree.leaves[mine % len(tree.leaves)], tree.leaves[theirs % len(tree.leaves)]
    need = Usage(*[amount] * RESOURCE_COUNT)
    if path == other or not tree.quotas.reclaims(path, need, other):
        return
    mine, theirs = side_by_side(tree, path, other)
    assert theirs.borrows
    assert mine.has_room(need)
    assert tree.quotas.could_reclaim(path, need, other)
    assert tree.quotas.may_reclaim(path, need)
    # Not in turn: who gets something back does not borrow where the two meet, so nobody there reclaims of him.
    tree.quotas.use(path, need, 1)
    assert not tree.quotas.reclaims(other, need, path)


NEEDS = st.builds(Usage, AMOUNTS, AMOUNTS, AMOUNTS)


@given(trees(), USES, NEEDS)
def test_what_is_worked_out_once_for_a_queue_is_what_each_need_is_told(
    tree: Tree, wanted: list[tuple[int, int, int, int]], need: Usage
) -> None:
    fill(tree, wanted)
    for path in tree.leaves:
        assert covers(tree.quotas.allowed(path), need) is (tree.quotas.shortfall(path, need) is None)
        reclaims = any(covers(most, need) for most in tree.quotas.reclaimable(path))
        assert reclaims is tree.quotas.may_reclaim(path, need)


@given(trees(), USES, st.lists(NEEDS, min_size=1, max_size=6))
def test_the_requests_for_which_a_queue_may_reclaim_are_those_that_its_quotas_say(
    tree: Tree, wanted: list[tuple[int, int, int, int]], needs: list[Usage]
) -> None:
    requests = Requests(cast(Fit, None))
    requests.every += [Request(i, 1 << i, 0, need, (), 0, 0, 0) for i, need in enumerate(needs)]
    policy = SimpleNamespace(bounds_jobs=False)
    headroom = Headroom(cast(State, SimpleNamespace(quotas=tree.quotas, policy=policy)), requests)
    for amounts in wanted:
        fill(tree, [amounts])
        for path in tree.leaves:
            said = [i for i, need in enumerate(needs) if tree.quotas.may_reclaim(path, need)]
            assert [i for i in range(len(needs)) if headroom.reclaimable(path) >> i & 1] == said


def covers(most: list[int], need: Usage) -> bool:
    return all(not amount or amount <= most[resource] for resource, amount in enumerate(need))


@given(trees(), USES, NEEDS)
def test_something_is_had_back_from_those_in_queues_that_borrow_and_from_nobody_else(
    tree: Tree, wanted: list[tuple[int, int, int, int]], need: Usage
) -> None:
    fill(tree, wanted)
    for path in tree.leaves:
        borrowers = tree.quotas.borrowers_for(path, need)
        found = sorted({each.path for account in borrowers for each in account.within if not each.inside})
        assert found == sorted(other for other in tree.leaves if tree.quotas.could_reclaim(path, need, other))
        assert not found or tree.quotas.may_reclaim(path, need)


@given(trees(), USES, st.integers(0, 99), AMOUNTS)
def test_who_may_reclaim_has_room_all_the_way_up_once_all_beside_have_given_back_what_they_borrow(
    tree: Tree, wanted: list[tuple[int, int, int, int]], number: int, amount: int
) -> None:
    """So a queue gets what it deserves, also if one around it has more than it deserves by what others there borrow."""
    fill(tree, wanted)
    path, need = tree.leaves[number % len(tree.leaves)], alone(0, amount)
    if not tree.quotas.accounts[path].has_room(need):
        return
    for account in tree.quotas.accounts[path].trail[1:]:
        given_back = sum(
            max(other.used[0] - other.deserved[0], 0)
            for each in account.within
            for other in each.inside
            if each in tree.quotas.accounts[path].trail and other not in tree.quotas.accounts[path].trail
        )
        assert account.used[0] - given_back + amount <= account.deserved[0]
