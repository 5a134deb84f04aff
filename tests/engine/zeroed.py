"""The connector with a fault: every chunk that it loads is all zeros. The control of test_kvtier.py."""

import kvtier.layout
from kvtier.vllm import KVTierConnector as Honest


class ZeroedCache(kvtier.layout.PagedCache):
    def scatter(self, block_ids, skip, count, room, after):
        for tensor in self.tensors:
            tensor[block_ids] = 0
        return lambda: True


class KVTierConnector(Honest):
    paged_cache = ZeroedCache
