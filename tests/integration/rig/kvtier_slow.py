"""Ranks of the connector whose loads and stores end when a test says so. No thread, no library: blocks are their hashes."""

import collections
import threading
import types

from kvtier.groups import ENDS, WHOLE, end_keys
from kvtier.rank import COUNTERS, Rank

GARBAGE = b"garbage"


class SlowRank(Rank):
    """What the engine's thread sees of a rank; turn() is what its own would do. Blocks are their hashes."""

    def __init__(self, rng, fails, grouped=False):
        """grouped: of an engine with several groups of KV caches."""
        self.rng, self.fails = rng, fails
        self.lock = threading.Lock()
        self.reported = threading.Condition(self.lock)
        self.loads, self.loads_open, self.stores, self.stores_open = collections.deque(), 0, collections.deque(), collections.Counter()
        self.copying, self.spoiled, self.ended = None, False, False
        self.received, self.failed, self.failed_requests, self.copied = set(), set(), set(), []
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.paged_in_groups, self.paged = grouped, types.SimpleNamespace(mark=lambda timing=False: None)
        self.memory = {}  # block -> what is in it
        self.chunks = {}  # name, and which of its objects where there are several -> what is in its blocks, by group
        self.storing = self.filling = None  # a store and a load under way

    def _wake(self):
        pass

    def report_prefill(self, tokens, ns):
        pass

    def written(self):
        """Blocks that loads write, or will."""
        loads = [load for load, _ in self.loads] + ([self.filling] if self.filling else [])
        return {block for load in loads for chunk in load.chunks for ids in self.blocks(chunk) for block in ids}

    @staticmethod
    def blocks(one):
        """Of a part of a load or of a store, by group."""
        return [one.block_ids] if one.part is None else one.block_ids

    @staticmethod
    def key(one):
        return one.name if one.part in (None, WHOLE) else (one.name, ENDS)

    def has(self, names, ends=0):
        """How many of these chunks can be loaded."""
        count = next((n for n, name in enumerate(names) if name not in self.chunks), len(names))
        while ends and not all((names[n], ENDS) in self.chunks for n in end_keys(count, ends)):
            count -= 1
        return count

    def read(self):
        """Blocks that stores read, or will, and that become a chunk."""
        stores = [store for store, _ in self.stores]
        if self.storing and not self.spoiled:
            stores.append(self.storing)
        return {block for store in stores for ids in self.blocks(store) for block in ids}

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
            found = [[self.memory.get(block) for block in ids] for ids in self.blocks(store)]
            # of windows it is seen when they are loaded
            assert not store.hashes or found[0] == store.hashes, f"another's bytes are stored of {store.request}"
            self.chunks[self.key(store)] = found
        with self.lock:
            self.copying = None
            self._closed(store)

    def _load(self):
        if self.filling is None:
            self.filling, _ = self.loads.popleft()
            self.memory.update(
                (block, GARBAGE) for chunk in self.filling.chunks for ids in self.blocks(chunk) for block in ids)
            return
        load, self.filling = self.filling, None
        filled = 0
        for chunk in load.chunks:
            if self.key(chunk) not in self.chunks or self.rng.random() < self.fails:
                break
            filled += 1
            skips = [chunk.skip] if chunk.part is None else chunk.skip
            for ids, skip, held in zip(self.blocks(chunk), skips, self.chunks[self.key(chunk)], strict=True):
                self.memory.update((block, held[skip + at]) for at, block in enumerate(ids))
        self._report(load, filled)


class Asker:
    """The scheduler's side of questions. Answers what all ranks have, now or later."""

    def __init__(self, ranks, rng):
        self.ranks, self.rng, self.names, self.number, self.epoch = ranks, rng, {}, 0, 0

    def ask(self, names, tenant=bytes(16), ends=0):
        self.number += 1
        self.names[self.number] = names, ends
        return self.number

    def answer(self, number, wait_s=0.0):
        if number not in self.names:
            return 0, 255
        if self.rng.random() < 0.3:
            return None
        names, ends = self.names.pop(number)
        count = min(rank.has(names, ends) for rank in self.ranks)
        while count != (least := min(rank.has(names[:count], ends) for rank in self.ranks)):
            count = least
        return count, 0

    def forget(self, number):
        self.names.pop(number, None)

    def reset(self):
        self.epoch += 1
        self.names.clear()

    def close(self):
        pass
