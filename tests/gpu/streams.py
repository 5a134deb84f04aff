"""What the connector's loads and stores owe to the stream that the engine computes on.

An engine computes on a stream of its own, which the default stream does not wait for. It hands blocks to a load
while kernels that it began before still read and write what they held, and to a store before the kernels that
compute them have run. Each function here makes that stream late and then says what has to be true.

What it runs on is given: a device by torch (test_streams.py), or a model of one (rig/stream_model.py in
tests/integration). It has
	tensors             {layer: tensor}, BLOCKS blocks of [head, token, keys and then values]
	engine()            within, the current stream is the engine's
	delay()             what the current stream gets from here on comes late
	put(blocks, n)      the current stream fills these blocks with a number, in all layers
	look(blocks)        the current stream reads them; returns a function: the numbers that it found
"""

import ctypes
import hashlib
import json
import logging
import time

from kvtier import blending, library, work
from kvtier.layout import PagedCache
from kvtier.rank import Rank
from kvtier.worker import Worker

BLOCKS, TOKENS = 64, 16
SOURCE, TARGET = [3, 1], [20, 9]
MANY = [[4 + i, 63 - i] for i in range(20)]  # blocks of more chunks than a rank copies at once
PATIENCE_S = 20


def hash_of(name):
    return hashlib.sha256(name.encode()).digest()


class Engine:
    """A worker of an engine, as far as the connector knows one."""

    def __init__(self, device, path, by_torch=False):
        self.device = device
        self.paged = PagedCache(device.tensors)
        if by_torch and self.paged.copier is not None:
            self.paged.copier.close()
            self.paged.copier = None
        assert by_torch or self.paged.copier is not None, "libkvtier does not copy here"
        own = {"fingerprint": "ab" * 32, "rank": 0, "l1": {"capacity": "64MiB"}}
        cache = library.Cache([json.dumps(own)])
        self.paged.pin(cache)
        if self.paged.copier is not None:
            self.paged.copier.pinning.join()
        parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), rank=0, hash_recipe=b"sha256")
        self.worker = Worker()
        self.worker.rank = Rank(
            cache, self.paged, parts, path, PATIENCE_S, logging.getLogger("rank"),
            fragments=self._fragments(cache) if not by_torch else None)  # fmt: skip

    def _fragments(self, cache):
        head = self.paged.shape[2] // 2
        found = blending.DevicePlace(self.paged, head, {"FLASH_ATTN"})
        model = json.dumps({"model_type": "llama", "head_dim": head, "rope_theta": 10000.0})
        kind = str(self.paged.dtype).removeprefix("torch.")
        return blending.Copies(
            cache, found.place, found.heads, len(self.paged.tensors), model, kind, head, 256, bytes(32), 0,
            self.paged.copier)  # fmt: skip

    def _piece(self, name, blocks):
        return blending.Piece(hash_of(name), None, 0, 0, len(blocks) * TOKENS)

    def store_fragment(self, name, blocks):
        piece = self._piece(name, blocks)
        self.worker.store([blending.FragmentStore(
            name, piece.name, None, blocks, piece.tokens, part=work.FRAGMENT, piece=piece)])  # fmt: skip

    def load_fragment(self, name, blocks):
        piece = self._piece(name, blocks)
        one = blending.FragmentLoad(
            piece.name, 0, 0, blocks, work.FRAGMENT, piece, blocks, 0, piece.tokens)  # fmt: skip
        self.worker.load([work.Load(f"load {name}", [one])])

    def store(self, name, blocks):
        """Called where the engine has begun to compute these blocks."""
        self.worker.store([work.Store(name, hash_of(name), None, blocks, len(blocks) * TOKENS)])

    def load(self, name, blocks):
        self.load_chunks(name, [(name, blocks)])

    def load_chunks(self, request, chunks):
        pieces = [work.LoadChunk(hash_of(name), len(blocks), 0, blocks) for name, blocks in chunks]
        self.worker.load([work.Load(f"load {request}", pieces)])

    def wait_stored(self, name, counter="stored_chunks"):
        deadline = time.monotonic() + PATIENCE_S
        stored, _ = self.worker.finished({name})
        while not stored:
            assert time.monotonic() < deadline, f"{name} is not stored"
            time.sleep(0.001)
            stored, _ = self.worker.finished(set())
        assert self.worker.take_counts().get(counter) == 1

    def wait_loaded(self, name):
        deadline = time.monotonic() + PATIENCE_S
        loaded = None
        while not loaded:
            assert time.monotonic() < deadline, f"{name} is not loaded"
            _, loaded = self.worker.finished(set())
            time.sleep(0.001)
        assert loaded == {f"load {name}"}
        assert not self.worker.take_failed()

    def compute(self, blocks, number):
        with self.device.engine():
            self.device.put(blocks, number)

    def numbers(self, blocks):
        with self.device.engine():
            return self.device.look(blocks)()

    def keep(self, name, number):
        """A chunk of this number is stored."""
        with self.device.engine():
            self.device.put(SOURCE, number)
            self.store(name, SOURCE)
        self.wait_stored(name)

    def close(self):
        self.worker.close()


def load_behind_reads(engine):
    """Kernels that were begun before still read the blocks that a load is given."""
    engine.keep("a", 2)
    engine.compute(TARGET, 1)
    with engine.device.engine():
        engine.device.delay()
        seen = engine.device.look(TARGET)
        engine.load("a", TARGET)
    engine.wait_loaded("a")
    assert seen() == {1}, "blocks were overwritten while the engine read them"
    assert engine.numbers(TARGET) == {2}


def many_chunks_behind_reads(engine):
    """The same for a load whose chunks are copied several at once."""
    for number in range(len(MANY)):
        engine.keep(f"c{number}", 2 + number)
    for blocks in MANY:
        engine.compute(blocks, 1)
    with engine.device.engine():
        engine.device.delay()
        seen = engine.device.look([block for blocks in MANY for block in blocks])
        engine.load_chunks("c", [(f"c{number}", blocks) for number, blocks in enumerate(MANY)])
    engine.wait_loaded("c")
    assert seen() == {1}, "blocks were overwritten while the engine read them"
    assert [engine.numbers(blocks) for blocks in MANY] == [{2 + number} for number in range(len(MANY))]


def load_behind_writes(engine):
    """Kernels that were begun before still write the blocks that a load is given."""
    engine.keep("a", 2)
    with engine.device.engine():
        engine.device.delay()
        engine.device.put(TARGET, 1)
        engine.load("a", TARGET)
    engine.wait_loaded("a")
    assert engine.numbers(TARGET) == {2}, "what was loaded was overwritten"


def store_behind_computing(engine):
    """A store is begun before the kernels that compute its blocks have run."""
    engine.compute(SOURCE, 1)
    with engine.device.engine():
        engine.device.delay()
        engine.device.put(SOURCE, 3)
        engine.store("b", SOURCE)
    engine.wait_stored("b")
    with engine.device.engine():
        engine.load("b", TARGET)
    engine.wait_loaded("b")
    assert engine.numbers(TARGET) == {3}, "blocks were stored before they were computed"


def fragment_behind_reads(engine):
    """A fragment is loaded into blocks that kernels, begun before, still read."""
    with engine.device.engine():
        engine.device.put(SOURCE, 2)
        engine.store_fragment("f", SOURCE)
    engine.wait_stored("f", "stored_fragment_chunks")
    engine.compute(TARGET, 1)
    with engine.device.engine():
        engine.device.delay()
        seen = engine.device.look(TARGET)
        engine.load_fragment("f", TARGET)
    engine.wait_loaded("f")
    assert seen() == {1}, "blocks were overwritten while the engine read them"
    assert engine.numbers(TARGET) == {2}


def fragment_behind_computing(engine):
    """A fragment is stored before the kernels that compute it have run."""
    engine.compute(SOURCE, 1)
    with engine.device.engine():
        engine.device.delay()
        engine.device.put(SOURCE, 3)
        engine.store_fragment("g", SOURCE)
    engine.wait_stored("g", "stored_fragment_chunks")
    with engine.device.engine():
        engine.load_fragment("g", TARGET)
    engine.wait_loaded("g")
    assert engine.numbers(TARGET) == {3}, "blocks were stored before they were computed"


FRAGMENTS = [fragment_behind_reads, fragment_behind_computing]  # libkvtier alone copies them
SCENARIOS = [load_behind_reads, many_chunks_behind_reads, load_behind_writes, store_behind_computing]
