"""Every sample of an epoch is committed once, in one order, whatever ranks come, leave and die."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.data import Lanes, Ledger, LedgerSampler, Member, Shuffled
from phalanx.train.data.order import Order

BATCH = 12
WORLDS = (1, 2, 3, 4, 5, 6, 7, 12)


@st.composite
def orders(draw: st.DrawFn) -> Order:
    seed = draw(st.integers(0, 2**32))
    if draw(st.booleans()):
        return Shuffled(draw(st.integers(1, 200)), seed)
    counts = draw(st.lists(st.integers(1, 30), min_size=1, max_size=8))
    return Lanes(counts, draw(st.integers(1, sum(counts))), seed)


@given(orders(), st.integers(0, 5))
def test_an_order_has_every_sample_once(order: Order, epoch: int) -> None:
    assert sorted(order.sample(epoch, each) for each in range(order.length)) == list(range(order.length))


class Run:
    """Ranks that train, one attempt after another; what the model has seen goes back with a checkpoint."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.seen: list[tuple[int, int]] = []
        self.saved: tuple[dict[str, Any], int] | None = None

    def attempt(self, world: int, steps: int, save_every: int, micro_batch: int) -> None:
        ledgers = [Ledger(self.order, BATCH) for _ in range(world)]
        if self.saved is not None:
            state, length = self.saved
            for ledger in ledgers:
                ledger.load_state_dict(state)
            del self.seen[length:]
        else:
            self.seen.clear()
        done = 0
        while done < steps:
            samplers = [
                LedgerSampler(each, micro_batch=micro_batch, member=Member(rank, world))
                for rank, each in enumerate(ledgers)
            ]
            epoch = ledgers[0].epoch
            loaders = [iter(sampler) for sampler in samplers]
            while done < steps and ledgers[0].epoch == epoch:
                self._step(epoch, ledgers, samplers, loaders)
                done += 1
                if done % save_every == 0:
                    self.saved = (ledgers[0].state_dict(), len(self.seen))

    def _step(self, epoch: int, ledgers: list[Ledger], samplers: list[LedgerSampler], loaders: list[Any]) -> None:
        by_rank: list[list[int]] = []
        for sampler, loader in zip(samplers, loaders, strict=True):
            own: list[int] = []
            is_last = False
            while not is_last:
                samples, counts = next(loader), sampler.scale > 0
                own += samples if counts else []
                is_last = sampler.done()
            by_rank.append(own)
        # Rank by rank in turn is the order of positions.
        for place in range(max(map(len, by_rank))):
            self.seen += [(epoch, own[place]) for own in by_rank if place < len(own)]
        for ledger in ledgers:
            ledger.commit()


attempts = st.lists(
    st.tuples(st.sampled_from(WORLDS), st.integers(1, 12), st.integers(1, 6), st.integers(1, 13)),
    min_size=1,
    max_size=8,
)


@given(orders(), attempts)
def test_each_sample_is_committed_once_in_an_order_that_no_failure_changes(
    order: Order, attempts: list[tuple[int, int, int, int]]
) -> None:
    """An attempt is a world size, the steps until it is killed, how often it saves, and its micro-batch."""
    run, undisturbed = Run(order), Run(order)
    for attempt in attempts:
        run.attempt(*attempt)
    steps = -(-order.length // BATCH)
    # Enough to finish whatever epoch it is in.
    run.attempt(1, 2 * steps, 1000, BATCH)
    epochs = run.seen[-1][0]
    undisturbed.attempt(1, (epochs + 1) * steps, 1000, BATCH)
    assert run.seen == undisturbed.seen[: len(run.seen)]
    counts = Counter(run.seen)
    assert set(counts.values()) == {1}
    for epoch in range(epochs):
        assert sum(counts[epoch, sample] for sample in range(order.length)) == order.length


@given(orders(), st.integers(1, 30), st.integers(1, 13), st.sampled_from(WORLDS))
def test_scales_make_the_mean_over_ranks_the_mean_over_samples(
    order: Order, steps: int, micro_batch: int, world: int
) -> None:
    ledger = Ledger(order, BATCH)
    for _ in range(steps):
        ledger.commit()
    total, counts = 0.0, set()
    for rank in range(world):
        sampler = LedgerSampler(ledger, micro_batch=micro_batch, member=Member(rank, world))
        parts = sampler._parts(ledger.batch)
        counts.add(len(parts))
        total += sum(part.scale for part in parts) / world
    assert len(counts) == 1
    assert abs(total - 1) < 1e-9
