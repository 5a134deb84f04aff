"""The connector with copies into the paged cache that take long, as of a device that is busy: a twentieth of a second each."""

import time

import kvtier.layout
from kvtier.vllm import KVTierConnector as Honest


class SlowCache(kvtier.layout.PagedCache):
    def scatter(self, block_ids, skip, count, room, after):
        time.sleep(0.05)
        return super().scatter(block_ids, skip, count, room, after)


class KVTierConnector(Honest):
    paged_cache = SlowCache
