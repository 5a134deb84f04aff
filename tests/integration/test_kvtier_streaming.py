"""A prompt that is longer than memory: stored and loaded whole, and more than half of what others use stays in memory.

KVTIER_STREAM_SCALE=4 takes an L1 of 64 MiB and a prompt of 512 MiB in chunks of 1 MiB.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import sys
import threading
import types

import pytest

from rig.kvtier_paged import PlainCache
from rig.router import BUILD
from rig.wait import until

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "cache" / "python"))

from kvtier import library  # noqa: E402
from kvtier.rank import Rank  # noqa: E402
from kvtier.work import Load, LoadChunk, Store  # noqa: E402

SCALE = int(os.environ.get("KVTIER_STREAM_SCALE", "1"))
CHUNK = SCALE << 18
MEMORY = SCALE << 24  # 64 chunks
PROMPT = 512  # chunks
HOT, HOT_BLOCK = 64, PROMPT  # chunks, and the block that they are stored from
S = 10**9


class Paged(PlainCache):
    """One block a chunk. Copies into it wait while `go` is not set."""

    def __init__(self):
        super().__init__(ctypes.create_string_buffer(CHUNK * (PROMPT + 1)), CHUNK)
        self.go = threading.Event()
        self.go.set()

    def scatter(self, block_ids, skip, count, room, after):
        assert self.go.wait(10)
        return super().scatter(block_ids, skip, count, room, after)


def name(text):
    return hashlib.sha256(text.encode()).digest()


def content(number):
    return hashlib.sha256(str(number).encode()).digest() * (CHUNK // 32)


def rank_over(tmp_path, memory, store=True):
    os.environ["KVTIER_LIBRARY"] = str(BUILD / "cache" / "core" / "libkvtier.so.1")
    text = json.dumps({
        "fingerprint": "cd" * 32, "l1": {"capacity": memory}, "control": {"ops": 64},
        "nvme": {"path": str(tmp_path / "store") if store else "", "capacity": 4 * PROMPT * CHUNK},
    })  # fmt: skip
    parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), hash_recipe=b"sha256")
    log = types.SimpleNamespace(info=print, exception=print)
    return Rank(library.Cache([text]), Paged(), parts, str(tmp_path / "0"), 30, log)


def put(one, request, names, block_of, chained):
    for at, each in enumerate(names):
        one.store([Store(request, each, names[at - 1] if chained and at else None, [block_of(at)], 16)])
    until(lambda: one.stored({request}), 30, "all is stored")
    assert one.cache.drain(30 * S)


def in_memory(one, names):
    tiers = [one.cache.lookup([one._key(each)])[1] for each in names]
    return sum(tier == [0] for tier in tiers)


@pytest.fixture
def stored(tmp_path):
    """The names of a prompt that lies on NVMe."""
    names = [name(f"prompt {n}") for n in range(PROMPT)]
    one = rank_over(tmp_path, 2 * PROMPT * CHUNK)
    for number in range(PROMPT):
        ctypes.memmove(one.paged.at(number), content(number), CHUNK)
    put(one, "prompt", names, lambda at: at, True)
    one.close()
    return names


def test_a_prompt_longer_than_memory_is_loaded_whole_and_leaves_half_of_the_rest(tmp_path, stored):
    one = rank_over(tmp_path, MEMORY)
    hot = [name(f"hot {n}") for n in range(HOT)]
    put(one, "hot", hot, lambda at: HOT_BLOCK, False)
    before = in_memory(one, hot)
    assert before >= HOT * 3 // 4  # puts leave some room to loads
    one.cache.prefetch([one._key(each) for each in stored])  # as a lookup does
    one.load(Load("get", [LoadChunk(each, 1, 0, [n]) for n, each in enumerate(stored)]))
    until(lambda: one.loads_open == 0, 60, "the load is over")
    assert one.take_received() == ({"get"}, set())
    for number in range(PROMPT):
        assert ctypes.string_at(one.paged.at(number), CHUNK) == content(number)
    after = in_memory(one, hot)
    print(f"hot chunks in memory: {before}, after a load of {PROMPT} chunks through room for {MEMORY // CHUNK}: {after}")
    assert after >= HOT * 5 // 8 - (HOT - before)
    assert in_memory(one, stored[: PROMPT // 64]) == PROMPT // 64  # its beginning stays
    assert one.room_taken == 0
    one.close()


def test_many_long_loads_wait_for_memory_instead_of_failing(tmp_path, stored):
    """Parts of all loads together were more than memory, and what found no room failed."""
    one = rank_over(tmp_path, MEMORY)
    one.paged.go.clear()
    loads = 12
    for number in range(loads):
        blocks = range(number * 40, number * 40 + 40)
        one.load(Load(f"get{number}", [LoadChunk(stored[n], 1, 0, [n]) for n in blocks]))
    until(lambda: one.under_way, 10, "loads have begun")
    one.paged.go.set()
    until(lambda: one.loads_open == 0, 60, "all loads are over")
    assert one.take_received() == ({f"get{n}" for n in range(loads)}, set())
    assert one.room_taken == 0 and not one.waiting
    one.close()


def test_loads_that_wait_end_with_a_reset(tmp_path, stored):
    """They were asked for by names from before it, and shared tiers still have those."""
    one = rank_over(tmp_path, MEMORY)
    one.paged.go.clear()
    asked, begin = [], one.cache.get_begin
    one.cache.get_begin = lambda *arguments: asked.append(one.epoch) or begin(*arguments)
    for number in range(12):
        one.load(Load(f"get{number}", [LoadChunk(stored[n], 1, 0, [n]) for n in range(number * 40, number * 40 + 40)]))
    until(lambda: one.waiting, 10, "loads wait")
    one.load(Load("news", [LoadChunk(stored[0], 1, 0, [0])], epoch=1))
    one.paged.go.set()
    until(lambda: one.loads_open == 0, 60, "all loads are over")
    received, failed = one.take_received()
    assert len(received) == 13 and set(range(480)) <= failed
    assert asked.count(1) == 1  # that of the load after it
    assert one.room_taken == 0 and not one.waiting
    one.close()


def test_a_prompt_longer_than_memory_is_stored_whole(tmp_path):
    """Once memory was full of its beginning, all that followed was refused."""
    names = [name(f"long {n}") for n in range(PROMPT)]
    one = rank_over(tmp_path, MEMORY)
    for number in range(PROMPT):
        ctypes.memmove(one.paged.at(number), content(number), CHUNK)
    put(one, "long", names, lambda at: at, True)
    counts = one.take_counters()
    assert counts.get("stored_chunks") == PROMPT and "refused_chunks" not in counts, counts
    assert one.cache.lookup([one._key(each) for each in names])[0] == PROMPT
    one.load(Load("get", [LoadChunk(each, 1, 0, [n]) for n, each in enumerate(names)]))
    until(lambda: one.loads_open == 0, 60, "the load is over")
    assert one.take_received() == ({"get"}, set())
    one.close()


def test_without_a_tier_the_beginning_of_a_long_prompt_stays(tmp_path):
    """One chunk found no room, and those after it, which no lookup reached, took that of the beginning."""
    names = [name(f"long {n}") for n in range(PROMPT)]
    one = rank_over(tmp_path, MEMORY, store=False)
    put(one, "long", names, lambda at: 0, True)
    counts = one.take_counters()
    there = one.cache.lookup([one._key(each) for each in names])[0]
    print(f"{there} of {PROMPT} chunks are there, {counts}")
    assert there >= MEMORY // CHUNK * 3 // 4 and counts["refused_chunks"] == PROMPT - there
    one.close()


def test_a_store_that_waits_for_room_holds_nothing_up(tmp_path):
    """Its request is preempted, the cache is reset, the engine ends: its blocks are free each time."""
    one = rank_over(tmp_path, MEMORY)
    one.ROOM_S, reserve = 3600, one.cache.reserve
    one.cache.reserve = lambda items: (library.FULL, None, None)

    def waits(number, epoch):
        one.store([Store(f"r{number}", name(f"full {number}"), None, [0], 16, ticket=number, epoch=epoch)])
        until(lambda: one.pausing, 10, "it waits for room")
        assert one.stored({f"r{number}"}) == set()

    waits(1, 0)
    one.give_up({"r1"})
    until(lambda: one.stored({"r1"}), 10, "its blocks are free")
    waits(2, 0)
    one.store([Store("news", name("news"), None, [0], 16, ticket=3, epoch=1)])
    one.load(Load("get", [LoadChunk(name("news"), 1, 0, [0])], epoch=1))  # is news of the reset at once
    until(lambda: one.stored({"r2"}), 10, "a store from before the reset is over")
    assert one.stored({"news"}) == set()
    one.cache.reserve = reserve
    until(lambda: one.stored({"news"}), 10, "there is room again")
    until(lambda: one.loads_open == 0, 10, "the load is over")
    one.cache.reserve = lambda items: (library.FULL, None, None)
    waits(4, 1)
    assert one.take_counters()["stored_chunks"] == 1
    one.close()
    assert one.stored({"r4"}) == {"r4"} and sorted(one.take_copied()) == [1, 2, 3, 4]


def test_a_refused_store_does_not_take_the_wait_from_all_later_ones(tmp_path):
    """Memory that is full again an hour later was not waited for, unless a store had found room in between."""
    one = rank_over(tmp_path, MEMORY)
    one.ROOM_S, one.FULL_S, reserve = 0.02, 3600, one.cache.reserve
    one.cache.reserve = lambda items: (library.FULL, None, None)

    def refused(number):
        one.store([Store(f"r{number}", name(f"full {number}"), None, [0], 16)])
        until(lambda: one.stored({f"r{number}"}), 10, "it is refused")
        return one.take_counters()["refused_chunks"] == 1

    assert refused(1)
    assert refused(2)  # at once: stores that come in a row do not wait one after the other
    one.FULL_S, one.ROOM_S = 0, 3600
    one.full_since -= 2 * 3600  # as if that was two hours ago
    one.store([Store("late", name("late"), None, [0], 16)])
    until(lambda: one.pausing, 10, "it waits for room")
    one.cache.reserve = reserve
    until(lambda: one.stored({"late"}), 10, "there is room")
    assert one.take_counters()["stored_chunks"] == 1
    one.close()
