"""Models whose layers see different numbers of tokens back: several groups of KV caches, each with blocks of its own.

A group of full attention needs all blocks of a prefix. A group of a sliding window needs only the blocks within the
window before the prefix's end: vLLM gives the others away while the request runs (their place in the block table
becomes the null block), and allocates only these blocks for a prefix that is loaded.

So a chunk is two objects. The first has the blocks of all groups of full attention; its name is the chunk's. The
second, its ends, has the last blocks of the chunk for each window group, as many as the window needs, under a storage
key that the library makes from the chunk's, so that an erase of the chunk finds both. A prefix may be loaded up to the
end of a chunk (a boundary) where the first objects of all chunks and the ends of the last few are there; if some of
these are missing that boundary is a miss, and an earlier one may be a hit. Only boundaries count, so that no window
begins before the ends' blocks.

The engine may give a window's block to another request in the step after the one that filled it. While ranks copy the
block the scheduler holds it: one more reference in vLLM's own pool, released when all ranks have reported the end of
their copies. The scheduler reads blocks to store from the engine's block table in the step itself, so that it sees
which blocks were given away.
"""

import time
from dataclasses import dataclass

from .work import LoadChunk

WHOLE, ENDS = 0, 1  # the objects of a chunk
COPY_S = 10.0  # the engine waits this long for ranks to report the end of copies; copies take no longer

WHOLE_SPECS = ("FullAttentionSpec",)  # classes of vLLM, without those derived from them, which manage blocks otherwise
WINDOW_SPECS = ("SlidingWindowSpec",)


def end_keys(count, ends):
    """Those of the chunks 0 to count - 1 whose ends a boundary after the last chunk needs, the last one first."""
    return range(count - 1, max(0, count - ends) - 1, -1)


@dataclass(frozen=True)
class Groups:
    """Groups by their number in the engine's list."""

    whole: tuple  # of full attention
    windows: tuple  # (group, blocks that its window needs before a boundary)

    @property
    def lead(self):
        return self.whole[0]

    def ends(self, per_chunk, tails):
        """Most chunks whose ends a boundary needs. tails: the last chunk may have fewer blocks than others."""
        need = max(blocks for _, blocks in self.windows)
        return 1 + -(-(need - 1) // per_chunk) if tails else max(1, -(-need // per_chunk))

    def describe(self):
        """Everything that decides the meaning of a chunk's objects, for the fingerprint."""
        return {"whole": list(self.whole), "windows": [list(one) for one in self.windows], "ends": "by key"}


def find(config, kinds, block_size):
    """(Groups, None) of an engine's KVCacheConfig with several groups, or (None, the reason why it is not served).
    kinds: vLLM's name of each group's attention."""
    whole, windows = [], []
    for number, (group, kind) in enumerate(zip(config.kv_cache_groups, kinds, strict=True)):
        spec, made = group.kv_cache_spec, type(group.kv_cache_spec).__name__
        if made not in WHOLE_SPECS + WINDOW_SPECS:
            return None, (
                f"the model has several groups of KV caches, one of kind {kind} ({made}); supported in such models are "
                "full_attention and sliding_window"
            )
        if getattr(group, "is_eagle_group", False):
            return None, "a draft model's layers are among several groups of KV caches, which is not supported"
        if not getattr(group, "enable_kv_transfer", True) or getattr(group, "host_resident", False):
            return None, f"group {number} of KV caches is not the engine's own to load"
        if spec.block_size != block_size:
            return None, (
                f"group {number} of KV caches has blocks of {spec.block_size} tokens; supported are those of "
                f"{block_size} in all groups"
            )
        if made in WHOLE_SPECS:
            whole.append(number)
        else:
            kept = spec.sliding_window - 1 + getattr(spec, "extra_retained_tokens", 0)
            windows.append((number, max(1, -(-kept // block_size))))
    if not whole or not windows:
        return None, (
            f"the model has {len(kinds)} groups of KV caches of kind {', '.join(sorted(set(kinds)))}; supported are "
            "at least one group of full_attention and at least one of sliding_window"
        )
    return Groups(tuple(whole), tuple(windows)), None


class Tables:
    """The scheduler's side: block tables of the engine, and held blocks. One thread, the engine core's."""

    def __init__(self, groups, per_chunk, tails, manager, ranks):
        """manager(): vLLM's KVCacheManager. ranks: number of ranks that report the end of copies."""
        self.groups, self.per_chunk, self.manager, self.ranks = groups, per_chunk, manager, ranks
        self.ends = groups.ends(per_chunk, tails)
        self.tickets = 0
        self.held = {}  # ticket -> [ranks that copy, blocks, begin], ordered by time

    def of(self, request_id):
        """The engine's blocks of a request, by group and position; its own lists, not to be kept."""
        return self.manager().get_blocks(request_id).blocks

    def _real(self, ids, count):
        """Returns whether this is the expected number of blocks, none of them the null block."""
        return len(ids) == count and self.manager().block_pool.null_block.block_id not in ids

    def local_blocks(self, request):
        """Blocks from the first on that the engine has itself, chunk by chunk; a guess, since the check of a window
        covers only its last block."""
        pool, hashes, count = self.manager().block_pool, request.block_hashes, 0
        for end in range(self.per_chunk, len(hashes) + 1, self.per_chunk):
            if pool.get_cached_block(hashes[end - 1], [self.groups.lead]) is None:
                break
            count = end
        windows = [group for group, _ in self.groups.windows]
        while count > 0 and pool.get_cached_block(hashes[count - 1], windows) is None:
            count -= self.per_chunk
        return count

    def pieces(self, found, begin, end, tables):
        """What to load of chunks `found` into blocks [begin, end) of a request with these tables; None: impossible,
        since these chunks do not have the blocks to be filled."""
        null = self.manager().block_pool.null_block.block_id
        if not found or found[-1].first + found[-1].count != end or begin >= end:
            return None
        if not all(self._real(tables[g][begin:end], end - begin) for g in self.groups.whole):
            return None
        for group, need in self.groups.windows:
            first = max(end - need, begin)
            given = tables[group][begin:first]
            if not self._real(tables[group][first:end], end - first) or any(block != null for block in given):
                return None
        whole, ends, at = [], [], begin
        for chunk in found:
            low, high = max(chunk.first, begin), chunk.first + chunk.count
            if low != at:
                return None
            at = high
            ids = [tables[g][low:high] for g in self.groups.whole]
            whole.append(LoadChunk(chunk.name, chunk.count, [low - chunk.first] * len(ids), ids, WHOLE))
            ids, skip = [], []
            for group, need in self.groups.windows:
                kept = high - min(need, chunk.count)  # the first block in the chunk's ends
                wanted = min(max(end - need, low), high)  # never before it, since `end` is not before `high`
                ids.append(tables[group][wanted:high])
                skip.append(wanted - kept)
            if any(ids):
                ends.append(LoadChunk(chunk.name, chunk.count, skip, ids, ENDS))
        return whole + ends

    def blocks_of(self, chunk, tables):
        """(block ids by group of full attention, by group of window) of a complete chunk, to be stored; None for blocks
        that the engine does not have any more. tables: of()."""
        end = chunk.first + chunk.count

        def ids(wanted):
            """Block ids. wanted: (group, blocks before the chunk's end) each."""
            found = [tables[group][end - count : end] for group, count in wanted]
            for (_, count), blocks in zip(wanted, found, strict=True):
                if len(blocks) != count or any(block.is_null for block in blocks):
                    return None
            return [[block.block_id for block in blocks] for blocks in found]

        whole = ids([(group, chunk.count) for group in self.groups.whole])
        return whole, ids([(group, min(need, chunk.count)) for group, need in self.groups.windows])

    def hold(self, block_ids):
        """Holds these blocks, by group, until all ranks have copied the store with the returned number."""
        pool = self.manager().block_pool
        blocks = [pool.blocks[block] for ids in block_ids for block in ids]
        pool.touch(blocks)
        self.tickets += 1
        self.held[self.tickets] = [self.ranks, blocks, time.monotonic()]
        return self.tickets

    def hold_all(self, stores):
        """Holds the blocks of these stores; if that fails for one, of none: no rank gets any of the stores."""
        done = []
        try:
            for store in stores:
                store.ticket = self.hold(store.block_ids)
                done.append(store.ticket)
        except BaseException:
            for ticket in done:
                self._let_go(ticket)
            raise

    def wait(self):
        """Returns whether ranks are about to report the end of copies. They report only in steps, even if no request is
        left. Blocks held for longer are not waited for, in any case: the engine would otherwise preempt no request any
        more."""
        if not self.held:
            return False
        latest = self.held[next(reversed(self.held))]
        return time.monotonic() - latest[2] < COPY_S

    def copied(self, tickets):
        """Takes a number, once from each rank that has finished with it."""
        for ticket in tickets:
            entry = self.held.get(ticket)
            if entry is None:
                continue
            entry[0] -= 1
            if entry[0] <= 0:
                self._let_go(ticket)

    def _let_go(self, ticket):
        self.manager().block_pool.free_blocks(reversed(self.held.pop(ticket)[1]))
