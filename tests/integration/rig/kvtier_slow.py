"""Ranks of the connector whose loads and stores end when a test says so. No thread, no library: blocks are their hashes."""

import collections
import threading
import types

from kvtier.rank import COUNTERS, Rank

GARBAGE = b"garbage"


class SlowRank(Rank):
    """What the engine's thread sees of a rank; turn() is what its own would do. Blocks are their hashes."""

    def __init__(self, rng, fails):
        self.rng, self.fails = rng, fails
        self.lock = threading.Lock()
        self.reported = threading.Condition(self.lock)
        self.loads, self.loads_open, self.stores, self.stores_open = collections.deque(), 0, collections.deque(), collections.Counter()
        self.copying, self.spoiled, self.ended = None, False, False
        self.received, self.failed, self.failed_requests, self.copied = set(), set(), set(), []
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.paged_in_groups, self.paged = False, types.SimpleNamespace(mark=lambda timing=False: None)
        self.memory = {}  # block -> what is in it
        self.chunks = {}  # name -> hashes of its blocks
        self.storing = self.filling = None  # a store and a load under way

    def _wake(self):
        pass

    def report_prefill(self, tokens, ns):
        pass

    def written(self):
        """Blocks that loads write, or will."""
        loads = [load for load, _ in self.loads] + ([self.filling] if self.filling else [])
        return {block for load in loads for chunk in load.chunks for block in chunk.block_ids}

    def read(self):
        """Blocks that stores read, or will, and that become a chunk."""
        stores = [store for store, _ in self.stores]
        if self.storing and not self.spoiled:
            stores.append(self.storing)
        return {block for store in stores for block in store.block_ids}

    def turn(self):
        work = [self._store] if self.stores or self.storing else []
        if self.loads or self.filling:
            work.append(self._load)
        if work:
            self.rng.choice(work)()

    def _store(self):
        if self.storing is None:
            self.storing, _ = self.stores.popleft()
            self.copying, self.spoiled = self.storing.request, False
            return
        store, self.storing = self.storing, None
        if not self.spoiled:
            found = [self.memory.get(block) for block in store.block_ids]
            assert found == store.hashes, f"another's bytes are stored of {store.request}"
            self.chunks[store.name] = store.hashes
        with self.lock:
            self.copying = None
            self._closed(store)

    def _load(self):
        if self.filling is None:
            self.filling, _ = self.loads.popleft()
            self.memory.update((block, GARBAGE) for chunk in self.filling.chunks for block in chunk.block_ids)
            return
        load, self.filling = self.filling, None
        filled = 0
        for chunk in load.chunks:
            if chunk.name not in self.chunks or self.rng.random() < self.fails:
                break
            filled += 1
            for at, block in enumerate(chunk.block_ids):
                self.memory[block] = self.chunks[chunk.name][chunk.skip + at]
        self._report(load, filled)


class Asker:
    """The scheduler's side of questions. Answers what all ranks have, now or later."""

    def __init__(self, ranks, rng):
        self.ranks, self.rng, self.names, self.number, self.epoch = ranks, rng, {}, 0, 0

    def ask(self, names, tenant=bytes(16)):
        self.number += 1
        self.names[self.number] = names
        return self.number

    def answer(self, number, wait_s=0.0):
        if number not in self.names:
            return 0, 255
        if self.rng.random() < 0.3:
            return None
        names = self.names.pop(number)
        counts = [next((n for n, name in enumerate(names) if name not in rank.chunks), len(names)) for rank in self.ranks]
        return min(counts), 0

    def forget(self, number):
        self.names.pop(number, None)

    def reset(self):
        self.epoch += 1
        self.names.clear()

    def close(self):
        pass
