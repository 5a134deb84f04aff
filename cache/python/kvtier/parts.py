"""Copies a chunk's bytes from and into several groups of an engine's KV caches (groups.py).

A chunk is two objects, each with the bytes of some groups, one group after the other; a group's bytes are as in
layout.py. This module does not use torch: a group's PagedCache copies its blocks.
"""


class Part:
    """The bytes of several groups of KV caches in one of a chunk's objects: the blocks of one group after the
    other's."""

    def __init__(self, caches, keeps):
        """keeps: for each group, number of a chunk's last blocks; None: all."""
        self.caches, self.keeps = caches, keeps

    def _counts(self, count):
        return [count if keep is None else min(keep, count) for keep in self.keeps]

    def chunk_bytes(self, count):
        """Bytes of this object of a chunk of that many blocks."""
        return sum(c.chunk_bytes(n) for c, n in zip(self.caches, self._counts(count), strict=True))

    def _rooms(self, counts, room):
        """`room` divided into that of each group."""
        pieces = iter(room)
        address = left = 0
        for cache, count in zip(self.caches, counts, strict=True):
            want, own = cache.chunk_bytes(count), []
            while want > 0:
                if left == 0:
                    address, left = next(pieces)
                take = min(want, left)
                own.append((address, take))
                address, left, want = address + take, left - take, want - take
            yield own

    def gather(self, block_ids, room, after):
        """Like PagedCache.gather; block_ids: a list for each group of this object."""
        counts = [len(ids) for ids in block_ids]
        done = True
        for cache, ids, own in zip(self.caches, block_ids, self._rooms(counts, room), strict=True):
            done = cache.gather(ids, own, after) and done
        return done

    def scatter(self, block_ids, skip, count, room, after):
        """Like PagedCache.scatter; block_ids and skip: one for each group."""
        counts, waits = self._counts(count), []

        def wait():
            return all([one() for one in waits])

        try:
            rooms = self._rooms(counts, room)
            for cache, ids, first, own, n in zip(self.caches, block_ids, skip, rooms, counts, strict=True):
                if ids:
                    waits.append(cache.scatter(ids, first, n, own, after))
        except BaseException:
            wait()
            raise
        return wait


class GroupedCache:
    """The tensors of several groups of KV caches (groups.Groups), with the functions of a PagedCache that rank.py
    needs."""

    def __init__(self, make, tensors, names, groups):
        """make: PagedCache. names: for each group the names of its layers among `tensors`."""
        if sorted(name for group in names for name in group) != sorted(tensors):
            raise ValueError("the engine registered other layers than those of its groups of KV caches")
        self.groups = groups
        self.all = [make({name: tensors[name] for name in group}) for group in names]
        first = self.all[0]
        self.device, self.block_count, self.caches = first.device, first.block_count, len(self.all)
        if any((c.device, c.block_count) != (first.device, first.block_count) for c in self.all):
            raise ValueError("groups of KV caches on different devices, or with different numbers of blocks")
        self.parts = (
            Part([self.all[g] for g in groups.whole], [None] * len(groups.whole)),
            Part([self.all[g] for g, _ in groups.windows], [need for _, need in groups.windows]),
        )
        self.new_stream, self.on_stream, self.mark = first.new_stream, first.on_stream, first.mark

    def pin(self, cache):
        """Pins the memory once, for all groups."""
        self.all[self.groups.lead].pin(cache)

    def close(self):
        for cache in self.all:
            cache.close()

    def describe(self):
        return {**self.groups.describe(), "groups": [cache.describe() for cache in self.all]}
