"""The connector with a fault: every third copy into the paged cache fails, after it wrote zeros."""

import itertools

import kvtier.layout
from kvtier.vllm import KVTierConnector as Honest


class FailingCache(kvtier.layout.PagedCache):
    turns = itertools.count()

    def scatter(self, block_ids, skip, count, room, after):
        if next(self.turns) % 3:
            return super().scatter(block_ids, skip, count, room, after)
        for tensor in self.tensors:
            tensor[block_ids] = 0
        return lambda: False


class KVTierConnector(Honest):
    paged_cache = FailingCache
