"""An engine with several groups of KV caches, imitated: a pool of blocks that all groups share, block tables in which
what left a window is the null block, and a plan and a rank of the connector over it."""

import collections
import ctypes
import hashlib
import logging
import types

from rig.kvtier_paged import PlainCache
from rig.kvtier_plan import BLOCK, output_of
from rig.wait import until

from kvtier import ask, groups, library, settings, work
from kvtier.parts import GroupedCache
from kvtier.rank import Rank
from kvtier.scheduler import Plan

BLOCK_BYTES = 512
FINGERPRINT = "cd" * 32


class Block:
    def __init__(self, number):
        self.block_id, self.ref_cnt, self.is_null = number, 0, number == 0


class Pool:
    """As vLLM's: block 0 is the null block; the block that was freed last is given away first."""

    def __init__(self, count):
        self.blocks = [Block(n) for n in range(count)]
        self.cached = set()  # (hash, group)
        self.null_block = self.blocks[0]
        self.free = self.blocks[:0:-1]

    def touch(self, blocks):
        for block in blocks:
            assert block.ref_cnt > 0 and not block.is_null
            block.ref_cnt += 1

    def get_cached_block(self, digest, groups):
        return [True] if all((digest, group) in self.cached for group in groups) else None

    def new(self):
        block = self.free.pop()
        assert block.ref_cnt == 0
        block.ref_cnt = 1
        return block.block_id

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0
            if block.ref_cnt == 0:
                self.free.append(block)


class Manager:
    def __init__(self, count=64, group_count=2):
        self.block_pool, self.tables, self.group_count = Pool(count), collections.defaultdict(self._table), group_count

    def _table(self):
        return [[] for _ in range(self.group_count)]

    def get_blocks(self, request_id):
        pool = self.block_pool.blocks
        return types.SimpleNamespace(blocks=tuple([pool[i] for i in ids] for ids in self.tables[request_id]))

    def get_block_ids(self, request_id):
        return tuple(list(ids) for ids in self.tables[request_id])

    def drop(self, request_id, group, first, end):
        """Positions [first, end) of a group are not needed any more."""
        table = self.tables[request_id][group]
        for at in range(first, min(end, len(table))):
            if table[at] != 0:
                self.block_pool.free_blocks([self.block_pool.blocks[table[at]]])
                table[at] = 0

    def grow(self, request_id, group, count, nulls=0):
        table = self.tables[request_id][group]
        table += [0] * (nulls - len(table))
        while len(table) < count:
            table.append(self.block_pool.new())

    def end(self, request_id):
        for group, table in enumerate(self.tables[request_id]):
            self.drop(request_id, group, 0, len(table))
        del self.tables[request_id]


class Memory(PlainCache):
    """One group's tensor. All groups have the same memory, as in vLLM: a block is one group's at a time."""

    def __init__(self, memory, count, before_gather=lambda: True):
        super().__init__(memory, BLOCK_BYTES)
        self.block_count, self.before_gather = count, before_gather

    def gather(self, block_ids, room, after):
        return self.before_gather() and super().gather(block_ids, room, after)


def content(group, digest):
    """Bytes of a block of a group: of its tokens and all before them."""
    return hashlib.sha256(bytes([group]) + digest).digest() * (BLOCK_BYTES // 32)


def hashes_of(tokens):
    found, last = [], b""
    for token in tokens:
        last = hashlib.sha256(last + str(token).encode()).digest()
        found.append(last)
    return found


class Engine:
    """One rank's. windows: blocks that each window group needs. before_gather(): before a window's blocks are copied
    out; False: the copy fails."""

    def __init__(self, directory, windows, per_chunk, blocks=64, before_gather=lambda: True, tails=False):
        self.groups = groups.Groups((0,), tuple((n + 1, need) for n, need in enumerate(windows)))
        self.manager = Manager(blocks, 1 + len(windows))
        memory = ctypes.create_string_buffer(BLOCK_BYTES * blocks)
        made = iter([Memory(memory, blocks)] + [Memory(memory, blocks, before_gather) for _ in windows])
        names = [[str(n)] for n in range(1 + len(windows))]
        self.paged = GroupedCache(lambda _: next(made), {str(n): None for n in range(len(names))}, names, self.groups)
        own = f'{{"fingerprint": "{FINGERPRINT}", "l1": {{"capacity": "16MiB"}}}}'
        self.cache = library.Cache([own])
        path = str(directory / "rank.sock")
        self.rank = Rank(self.cache, self.paged, self.parts(), path, 5, logging.getLogger("rank"), True)
        self.asker = ask.Asker([path], 5.0)
        asked = settings.Settings(chunk_tokens=per_chunk * BLOCK, save_unfull_chunk=tails)
        self.tables = groups.Tables(self.groups, per_chunk, tails, lambda: self.manager, 1)
        self.plan = Plan(self.asker, asked, BLOCK, True, groups=self.tables)
        self.requests = 0

    @staticmethod
    def parts():
        made = library.KeyParts(size=ctypes.sizeof(library.KeyParts), rank=0, hash_recipe=b"sha256")
        made.fingerprint[:] = bytes.fromhex(FINGERPRINT)
        return made

    def key(self, name, part=groups.WHOLE):
        """Storage key of an object of the chunk of this name."""
        made, text = self.parts(), library.c_char_p(name)
        made.chain_id, made.chain_id_bytes = library.ctypes.cast(text, library.c_void_p), len(name)
        key = self.cache.make_key(made)
        return self.cache.ends_key(key) if part == groups.ENDS else key

    def has(self, name, part=groups.WHOLE):
        return self.cache.estimate([self.key(name, part)])[0] == 1

    def close(self):
        self.asker.close()
        self.rank.close()

    def begin(self, tokens, extra=1):
        """A request of one made-up token a block, and `extra` tokens behind them."""
        self.requests += 1
        count = len(tokens) * BLOCK + extra
        return types.SimpleNamespace(
            request_id=f"r{self.requests}", num_tokens=count, num_prompt_tokens=count, block_hashes=hashes_of(tokens),
            all_token_ids=[0] * count,
        )  # fmt: skip

    def lookup(self, request):
        self.plan.arrived(request)
        found = []

        def answered():
            found[:] = self.plan.matched(request, 0)
            self.plan.step(output_of())
            return found[0] is not None

        until(answered, 10, "an answer")
        return found[0] // BLOCK

    def load(self, request, blocks):
        """Blocks that are in place then: `blocks` or, where the load failed, none."""
        for group, need in ((0, blocks), *self.groups.windows):
            self.manager.grow(request.request_id, group, blocks, max(0, blocks - need))
        self.plan.allocated(request, self.manager.get_block_ids(request.request_id), blocks * BLOCK)
        for load in self.plan.step(output_of())[0]:
            self.rank.load(load)
        seen = set()
        until(lambda: seen.update(self.rank.take_received()[0]) or request.request_id in seen, 10, "a load")
        failed = self.rank.take_failed_requests()
        if request.request_id not in failed:
            return blocks
        self.plan.failed_requests(failed)
        self.manager.end(request.request_id)
        return 0

    def check(self, request, done):
        """All that the next token sees is right."""
        tables = self.manager.tables[request.request_id]
        for group, need in ((0, done), *self.groups.windows):
            for at in range(max(0, done - need), done):
                right = content(group, request.block_hashes[at])
                assert self.paged.all[group].read(tables[group][at]) == right, (request.request_id, group, at, done)

    def compute(self, request, done, steps):
        """Computes the blocks behind `done`, so many in each step; tickets come late."""
        name, first = request.request_id, True
        for count in steps:
            end = min(done + count, len(request.block_hashes))
            for group, need in self.groups.windows:
                self.manager.drop(name, group, 0, done - need)
            self.check(request, done)
            for group in range(self.manager.group_count):
                self.manager.grow(name, group, end)
            tables = self.manager.get_block_ids(name)
            out = output_of(
                new=[(name, None, done * BLOCK)] if first else [],
                cached=[] if first else [(name, None, done * BLOCK)], scheduled={name: (end - done) * BLOCK},
            )  # fmt: skip
            if first:
                out.scheduled_new_reqs[0].block_ids = tables
            else:
                out.scheduled_cached_reqs.new_block_ids = [tuple(ids[done:end] for ids in tables)]
            loads, stores = self.plan.step(out)
            assert not loads
            for group in range(self.manager.group_count):
                for at in range(done, end):
                    data = content(group, request.block_hashes[at])
                    ctypes.memmove(self.paged.all[group].at(tables[group][at]), data, BLOCK_BYTES)
            self.rank.store(stores)
            self.tables.copied(self.rank.take_copied())
            done, first = end, False

    def finish(self, request):
        if self.plan.finished(request):
            until(lambda: self.rank.stored({request.request_id}), 10, "its stores")
        self.tables.copied(self.rank.take_copied())
        self.manager.end(request.request_id)

    def run(self, tokens, steps, extra=1):
        """Blocks that were loaded of a request for these."""
        request = self.begin(tokens, extra)
        found = self.lookup(request)
        done = self.load(request, found) if found else 0
        self.check(request, done)
        self.compute(request, done, steps)
        self.finish(request)
        return done


__all__ = ["BLOCK", "BLOCK_BYTES", "Engine", "Manager", "Memory", "content", "hashes_of", "work"]
