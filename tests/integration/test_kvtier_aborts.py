"""Requests that are stored, preempted, loaded and aborted in any order: the engine hears of one end of each, and keeps its
blocks until no rank uses them."""

import collections
import os
import random

import pytest

from rig.kvtier_vllm import LOADING, Vllm

from kvtier.work import Load, LoadChunk, Store

HISTORIES = 2000 if os.environ.get("KVW_LONG") else 60
TICKS = 250


def settled(engine):
    """Takes steps until nothing is left to do; nothing may stay."""
    for _ in range(3000):
        if not engine.requests and not engine.outputs:
            break
        engine.step()
        if not engine.requests:
            while engine.outputs:
                engine.update()
        for rank in engine.ranks:
            rank.turn()
    assert not engine.requests, "requests that never end"
    assert not any(engine.pool.users), "blocks that are never freed"
    assert not engine.plan.tracks and not any(worker.ending for worker in engine.workers)
    assert not any(engine.aggregator.counts.values())


def history(seed):
    rng = random.Random(seed)
    engine = Vllm(rng, ranks=rng.randint(1, 2), blocks=rng.randint(14, 30), late=rng.randint(0, 1))
    for _ in range(TICKS):
        free = [f"r{n}" for n in range(8) if f"r{n}" not in engine.requests]
        if free and rng.random() < 0.3:
            base, common, length = rng.randrange(3), rng.randrange(8), rng.randrange(1, 12)
            engine.add(rng.choice(free), [(base, n) if n < common else rng.randrange(3) for n in range(length)])
        if rng.random() < 0.12:
            loading = [r for r in engine.waiting if r.status == LOADING]
            some = loading if loading and rng.random() < 0.6 else list(engine.requests.values())
            engine.abort([rng.choice(some).request_id] if some else [])
        chance = rng.random()
        if chance < 0.01:
            engine.abort(list(engine.requests))
        elif chance < 0.08:
            engine.reset()
            engine.pool.lose()
        elif chance < 0.09:
            engine.plan.reset()
        elif chance < 0.11:
            for rank in engine.ranks:
                for name in rng.sample(sorted(rank.chunks), len(rank.chunks) // 4):
                    del rank.chunks[name]
        if rng.random() < 0.7:
            engine.step()
        for rank in engine.ranks:
            for _ in range(rng.choice((0, 0, 1, 2))):
                rank.turn()
    settled(engine)
    return engine.seen


def test_histories():
    seen = collections.Counter()
    for seed in range(HISTORIES):
        try:
            seen += history(seed)
        except AssertionError as error:
            raise AssertionError(f"history {seed}") from error
    print("\n  " + ", ".join(f"{what} {count}" for what, count in sorted(seen.items())))
    assert seen["aborted while loading again"] >= HISTORIES // 2 and seen["kept for stores"] > HISTORIES
    assert seen["failed loads"] > HISTORIES and seen["preempted"] > HISTORIES


def mark_fails(timing=False):
    raise RuntimeError("the device is gone")


def test_a_load_that_cannot_begin_fails():
    """The request waits for a load's end, whatever becomes of it."""
    engine = Vllm(random.Random(1), ranks=1)
    worker = engine.workers[0]
    worker.rank.paged.mark = mark_fails
    with pytest.raises(RuntimeError):
        worker.load([Load(one, [LoadChunk(bytes(32), 2, 0, [block, block + 1])]) for one, block in (("a", 1), ("b", 3))])
    assert worker.finished(set()) == (None, {"a", "b"}) and worker.take_failed() == {1, 2, 3, 4}


def test_stores_that_cannot_be_handed_over_are_over():
    engine = Vllm(random.Random(1), ranks=1)
    worker = engine.workers[0]
    worker.rank.paged.mark = mark_fails
    with pytest.raises(RuntimeError):
        worker.store([Store("a", bytes(32), None, [1], 16, ticket=7)])
    assert worker.take_copied() == [7] and worker.finished({"a"}) == ({"a"}, None)


def test_a_rank_that_cannot_drop_stores_commits_none():
    """Blocks that were taken from a request have another's bytes."""
    engine = Vllm(random.Random(1), ranks=1)
    worker, rank = engine.workers[0], engine.ranks[0]
    rank.stores = None
    with pytest.raises(TypeError):
        worker.give_up({"a"})
    assert rank.stores_nothing
