"""Fragments in the connector, without an engine: which requests ask for them, what is taken and stored, and a rank that does it."""

import array
import contextlib
import ctypes
import hashlib
import json
import logging
import math
import time
import types

import pytest

from rig.kvtier_plan import BLOCK, FakeAsker, output_of
from rig.router import BUILD
from rig.wait import until
from test_kvtier import kvtier

from kvtier import blending, copier, fragments, library, settings  # noqa: E402
from kvtier.rank import Rank  # noqa: E402
from kvtier.scheduler import Plan  # noqa: E402

CONFIG = '{"model_type": "llama", "head_dim": 32, "rope_theta": 10000.0}'
CHUNK = 64


@pytest.fixture(autouse=True)
def the_library(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))


class Asker(FakeAsker):
    def ask(self, names, tenant=bytes(16), ends=0):
        self.ends = ends
        return super().ask(names, tenant)


class Request:
    """As vLLM's: hashes in a chain that begins with the salt."""

    def __init__(self, tokens, asks=None, bounds=None, salt=None, request_id="r"):
        self.prompt_token_ids = self.all_token_ids = list(tokens)
        self.num_tokens = self.num_prompt_tokens = len(self.prompt_token_ids)
        self.request_id, self.cache_salt, self.block_hashes = request_id, salt, []
        self.kv_transfer_params = None if asks is None else {blending.ASKS: asks}
        if bounds is not None:
            self.kv_transfer_params[blending.BOUNDS] = bounds
        self.update_block_hashes()

    def update_block_hashes(self):
        last = (self.cache_salt or "").encode()
        for at in range(len(self.block_hashes) * BLOCK, len(self.prompt_token_ids) - BLOCK + 1, BLOCK):
            last = hashlib.sha256(last + bytes(str(self.prompt_token_ids[at : at + BLOCK]), "ascii")).digest()
            self.block_hashes.append(last)


@pytest.fixture
def plan():
    blender = blending.Blender(blending.How(True, least=32), [3, 3], CHUNK, BLOCK, logging.getLogger("test"))
    return Plan(Asker(), settings.Settings(chunk_tokens=CHUNK), BLOCK, True, blender=blender)


A, B = list(range(100, 197)) + [3, 3], list(range(1000, 1100)) + [3, 3]


def test_only_a_request_that_asks_leaves_the_exact_domain(plan):
    exact = Request(A + B).block_hashes
    for asks in (None, False, "store", "yes", 1, {}):
        request = Request(A + B, asks)
        plan.arrived(request)
        assert request.block_hashes == exact and request.cache_salt is None, asks
    request = Request(A + B, True, salt="me")
    plan.arrived(request)
    assert not set(request.block_hashes) & set(exact) and len(request.block_hashes) == len(exact)
    assert not set(request.block_hashes) & set(Request(A + B, salt="me").block_hashes)
    assert plan.asker.tenant == library.tenant_of("me") and plan.asker.ends == blending.ASK_FRAGMENTS
    # a client that names the domain is not let into it
    sly = Request(A + B, salt=request.cache_salt)
    plan.arrived(sly)
    assert not set(sly.block_hashes) & set(request.block_hashes)


def test_an_engine_that_keeps_no_requests_apart_blends_none(plan):
    request = Request(A + B, True)
    request.update_block_hashes = lambda: request.block_hashes.extend(Request(A + B).block_hashes)  # knows no salt
    plan.arrived(request)
    assert plan.tracks["r"].asking is None and plan.usable
    other = Request(A + B, True, request_id="other")
    before = list(other.block_hashes)
    plan.arrived(other)
    assert other.block_hashes == before and plan.tracks["other"].asking is None


def test_a_request_that_fails_half_way_is_as_it_was(plan):
    """Exact, it must not find what others blended: not by a few of its blocks either."""
    blended = Request(A + B, True, salt="me", request_id="blended")
    plan.arrived(blended)
    request = Request(A + B, True, salt="me")
    before, update = list(request.block_hashes), request.update_block_hashes

    def fail():
        update()
        del request.block_hashes[5:]
        raise RuntimeError("no memory")

    request.update_block_hashes = fail
    plan.arrived(request)
    assert plan.tracks["blended"].asking.blended and plan.tracks["r"].asking is None
    assert not set(request.block_hashes) & set(blended.block_hashes)
    assert request.block_hashes == before and request.cache_salt == "me"
    assert plan.tracks["r"].tenant == library.tenant_of("me")


def test_a_request_with_more_than_tokens_is_exact(plan):
    image = types.SimpleNamespace(identifier="x.by-content", mm_position=types.SimpleNamespace(offset=3))
    adapter = types.SimpleNamespace(lora_name="x", lora_path="/nonexistent")  # has no name by content
    for more in ({"mm_features": [image]}, {"lora_request": adapter}):
        request = Request(A + B, True)
        request.__dict__.update(more)
        before = list(request.block_hashes)
        plan.arrived(request)
        assert request.block_hashes == before
    for bounds in ([0], [50, 40], [10**9], ["x"], 5, [-1]):
        request = Request(A + B, True, bounds)
        before = list(request.block_hashes)
        plan.arrived(request)
        assert request.block_hashes == before, bounds


def test_an_adapters_fragments_are_its_own(plan):
    """They are found by requests with an adapter of the same content alone, and not once it was replaced."""
    known = types.SimpleNamespace(digest=b"a" * 32, place=("folder", b"print"))
    plan.adapters = types.SimpleNamespace(of=lambda lora: known, ended=lambda request_id: None)

    def arrived(asks, request_id):
        request = Request(A + B + [9] * 20, asks, request_id=request_id)
        request.lora_request = types.SimpleNamespace(lora_name="x")
        plan.arrived(request)
        return request, plan.tracks[request_id].asking

    plain = Request(A + B + [9] * 20, True, request_id="plain")
    plan.arrived(plain)
    theirs = {piece.name for piece in plan.tracks["plain"].asking.pieces}
    request, asking = arrived(True, "one")
    names = {piece.name for piece in asking.pieces}
    assert asking.blended and not names & theirs
    plan.asker.replies[plan.asker.number] = (4, 0)
    tokens, _ = plan.matched(request, 0)
    assert tokens == 192
    known.digest = b"b" * 32  # another content
    _, other = arrived(True, "two")
    assert not {piece.name for piece in other.pieces} & (names | theirs)
    assert plan.matched(request, 0) == (0, False)
    plan.allocated(request, list(range(20)), tokens)  # it was matched before
    ((load,), _) = plan.step(output_of())
    assert not any(chunk.part == blending.FRAGMENT for chunk in load.chunks)
    for name, digest in (("three", b"c" * 32), ("four", None), ("five", b"d" * 32)):
        known.digest = b"c" * 32
        store, _ = arrived("store", name)
        plan.matched(store, 0)
        known.digest = digest
        stores = plan.step(output_of(new=[(name, list(range(14)), 0)], scheduled={name: store.num_tokens}))[1]
        assert any(one.part == blending.FRAGMENT for one in stores) == (digest == b"c" * 32), name


def test_a_run_of_fragments_is_loaded_and_nothing_is_stored(plan):
    request = Request(A + B + [9] * 20, True)
    plan.arrived(request)
    assert plan.matched(request, 0) == (None, False)
    names = plan.asker.asked[-1]
    assert len(names) == 2 + 2 + 1  # 99 and 102 tokens in chunks of 64, and what follows
    plan.asker.replies[plan.asker.number] = (3, 0)
    assert plan.matched(request, 0) == ((99 + 64) // BLOCK * BLOCK, True)  # A and the beginning of B
    ids = list(range(50, 64))
    plan.allocated(request, ids, 160)
    (load,), _ = plan.step(output_of())
    assert [(c.piece.at, c.skip, c.end, c.slot) for c in load.chunks] == [(0, 0, 64, 0), (64, 0, 35, 0), (99, 0, 61, 3)]
    assert load.chunks[2].blocks == load.chunks[2].block_ids == [56, 57, 58, 59]
    new = [("r", ids, 160)]
    assert plan.step(output_of(new=new, scheduled={"r": len(A + B) + 20 - 160}))[1] == []  # it is not exact


def test_a_cold_prompt_and_one_that_says_store_are_stored(plan):
    for number, asks in enumerate((True, "store")):
        request = Request(A + B + [9], asks, request_id=str(number))
        plan.arrived(request)
        plan.asker.replies[plan.asker.number] = (0, 255)
        plan.matched(request, 0)
        new = [(str(number), list(range(14)), 0)]
        assert [s for s in plan.step(output_of(new=new, scheduled={str(number): 100}))[1] if s.part] == []
        done = output_of(cached=[(str(number), None, 100)], scheduled={str(number): request.num_tokens - 100})
        stores = plan.step(done)[1]
        fragment = [s for s in stores if s.part == blending.FRAGMENT]
        assert [(s.piece.at, s.tokens, s.slot, s.hashes) for s in fragment] == [
            (0, 64, 0, []), (64, 35, 0, []), (99, 64, 3, []), (163, 38, 3, []), (201, 1, 9, [])]  # fmt: skip
        assert [s.parent for s in fragment] == [None, fragment[0].name, None, fragment[2].name, None]
        assert (asks == "store") == any(s.part is None for s in stores)  # a blended request stores nothing exact


# --- a rank -----------------------------------------------------------------------------------------


class Paged:
    """Two layers of one head in memory of this process; keys are all of one number, values another."""

    BLOCKS = 32

    def __init__(self):
        self.memory = [(ctypes.c_float * (self.BLOCKS * BLOCK * 32))() for _ in range(4)]
        self.device = types.SimpleNamespace(type="cpu")

    def place(self):
        def plane(layers):
            pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(m) for m in layers))
            return fragments.Plane(pointers, BLOCK * 128, 128, 128, 4)

        return fragments.Place(plane(self.memory[:2]), plane(self.memory[2:]), BLOCK, self.BLOCKS)

    def new_stream(self):
        return None

    def on_stream(self, stream):
        return contextlib.nullcontext()

    def close(self):
        pass

    def fill(self):
        self.memory[2][:] = array.array("f", [float(i // 32) for i in range(len(self.memory[2]))])

    def values(self, slot, block_ids):
        """Of the first layer's token in this slot."""
        at = (block_ids[slot // BLOCK] * BLOCK + slot % BLOCK) * 32
        return self.memory[2][at]


class Tensor:
    """As much of torch's as the connector asks for, over memory of this process."""

    dtype = "torch.float32"

    def __init__(self, memory, shape, order):
        """order: of the axes in memory, the outermost first."""
        self.memory, self.shape, self.strides, size = memory, shape, {}, 1
        for axis in reversed(order):
            self.strides[axis], size = size, size * shape[axis]

    def stride(self):
        return tuple(self.strides[axis] for axis in range(len(self.shape)))

    def element_size(self):
        return 4

    def data_ptr(self):
        return ctypes.addressof(self.memory)


class OnDevice(Paged):
    """The same as vLLM's attention on GPUs keeps it, two heads of 32 values, through the GPU interface: over its backend for
    this machine's memory."""

    SHAPE = (Paged.BLOCKS, 2, BLOCK, 64)

    def __init__(self, order):
        self.memory = [(ctypes.c_float * (self.BLOCKS * 2 * BLOCK * 64))() for _ in range(2)]
        self.tensors = [Tensor(memory, self.SHAPE, order) for memory in self.memory]
        self.device, self.block_count = types.SimpleNamespace(type="cuda"), self.BLOCKS
        strides = self.tensors[0].stride()
        self.copier = copier.make([t.data_ptr() for t in self.tensors], self.SHAPE, strides, 4, -1)
        self.found = blending.DevicePlace(self, 32, {"FLASH_ATTN"})
        assert self.found.heads == 2

    def place(self):
        return self.found.place

    def close(self):
        self.copier.close()

    def at(self, slot, block_ids, head, value):
        strides = self.tensors[0].stride()
        where = (block_ids[slot // BLOCK], head, slot % BLOCK, value)
        return sum(stride * index for stride, index in zip(strides, where, strict=True))

    def fill(self):
        for memory in self.memory:
            memory[:] = array.array("f", [float(i * 7919 % 1000 - 500) for i in range(len(memory))])

    def values(self, slot, block_ids):
        return [self.memory[0][self.at(slot, block_ids, head, 32 + i)] for head in range(2) for i in (0, 31)]

    def keys(self, slot, block_ids):
        return [self.memory[1][self.at(slot, block_ids, head, i)] for head in range(2) for i in range(32)]


LATENT, ROTARY = 512, 64
LATENT_CONFIG = json.dumps({
    "model_type": "deepseek_v3", "kv_lora_rank": LATENT, "q_lora_rank": 1536, "qk_rope_head_dim": ROTARY, "rope_theta": 10000,
    "rope_parameters": {  # as vLLM leaves it in the model's configuration
        "rope_type": "deepseek_yarn", "rope_theta": 10000, "factor": 40, "original_max_position_embeddings": 4096,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
})  # fmt: skip


class Latent(Paged):
    """Latent keys of two layers as vLLM's attention over them keeps them: [block, token, value], or a head more."""

    HEAD = LATENT + ROTARY

    def __init__(self, axes, device):
        self.memory = [(ctypes.c_float * (self.BLOCKS * BLOCK * self.HEAD))() for _ in range(2)]
        shape = (self.BLOCKS, BLOCK, self.HEAD) if axes == 3 else (self.BLOCKS, 1, BLOCK, self.HEAD)
        self.tensors = [Tensor(memory, shape, range(axes)) for memory in self.memory]
        self.device, self.block_count = types.SimpleNamespace(type=device), self.BLOCKS
        strides, addresses = self.tensors[0].stride(), [t.data_ptr() for t in self.tensors]
        self.copier = copier.make(addresses, shape, strides, 4, -1) if device != "cpu" else None

    def close(self):
        if self.copier is not None:
            self.copier.close()

    def fill(self):
        for memory in self.memory:
            memory[:] = array.array("f", [float(i * 7919 % 1000 - 500) / 500 for i in range(len(memory))])

    def vector(self, layer, slot, block_ids):
        at = (block_ids[slot // BLOCK] * BLOCK + slot % BLOCK) * self.HEAD
        return self.memory[layer][at : at + self.HEAD]


def yarn(pair):
    """Frequency of a pair of LATENT_CONFIG's rotary keys (arXiv 2309.00071)."""
    low, high = (ROTARY * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(10000)) for turns in (32, 1))
    low, high, plain = max(math.floor(low), 0), min(math.ceil(high), ROTARY - 1), 10000 ** (-2 * pair / ROTARY)
    ramp = min(max((pair - low) / (high - low), 0), 1)
    return plain / 40 * ramp + plain * (1 - ramp)


@pytest.mark.parametrize("axes", [3, 4])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_latent_keys_turn_at_their_end(axes, device):
    paged, there = (Latent(axes, device) for _ in "ab")
    paged.fill()
    cache = library.Cache(['{"l1": {"capacity": "16MiB"}}'], "test")
    made = []

    def copies(of):
        found = blending.place_of(of, Latent.HEAD, {"CPU_MLA" if device == "cpu" else "FLASHMLA"}, latent=True)
        assert (found.heads, found.block_tokens) == (1, BLOCK)
        made.append(blending.Copies(
            cache, found.place, found.heads, 2, LATENT_CONFIG, "float32", Latent.HEAD, CHUNK, bytes(32), 0, of.copier,
            found.value_head))  # fmt: skip
        return made[-1]

    def one(at, blocks):
        piece = blending.Piece(bytes(32), None, at, 0, 50)
        return blending.FragmentLoad(bytes(32), 0, 3, [], blending.FRAGMENT, piece, blocks, at % BLOCK, 41)

    try:
        source, target, begin, end = [4, 9, 1, 30], [8, 3, 11, 7], 5, 1234
        store, load = copies(paged), copies(there)
        size = store.fragments.chunk_bytes(50)
        assert size == 128 + 2 * 50 * Latent.HEAD * 4
        chunk = ctypes.create_string_buffer(size + 64)
        room = [(ctypes.addressof(chunk), 1000), (ctypes.addressof(chunk) + 1064, size - 1000)]
        assert store.of(one(begin, source)).gather(source, room, None)
        assert load.of(one(end, target)).scatter([], 3, 0, room, None)()
        for layer in range(2):
            for token in range(50):
                old = paged.vector(layer, begin + token, source)
                new = there.vector(layer, end % BLOCK + token, target)
                if not 3 <= token < 41:  # not asked for
                    assert not any(new)
                    continue
                assert new[:LATENT] == old[:LATENT]
                for pair in range(ROTARY // 2):
                    turn = (end - begin) * yarn(pair)
                    a, b = old[LATENT + 2 * pair : LATENT + 2 * pair + 2]
                    want = a * math.cos(turn) - b * math.sin(turn), b * math.cos(turn) + a * math.sin(turn)
                    assert new[LATENT + 2 * pair : LATENT + 2 * pair + 2] == pytest.approx(want, abs=1e-3)
    finally:
        for found in made:
            found.close()
        cache.close()
        paged.close()
        there.close()


def test_latent_keys_that_lie_elsewhere_are_refused():
    paged = Latent(3, "cpu")
    known = {"TRITON_MLA"}
    for attention, named in (({"FLASHMLA_SPARSE"}, "FLASHMLA_SPARSE"), ({"AMX_MLA", *known}, "AMX_MLA"), (set(), "no name")):
        with pytest.raises(ValueError, match=f"where attention by {named} keeps keys is not known"):
            blending.place_of(paged, Latent.HEAD, attention, latent=True)
    with pytest.raises(ValueError, match="unknown shape"):
        blending.place_of(paged, Latent.HEAD + 8, known, latent=True)
    paged.tensors[0].dtype = "torch.uint8"
    with pytest.raises(ValueError, match="type uint8 .*fp8_ds_mla"):
        blending.place_of(paged, Latent.HEAD, known, latent=True)
    paged.device.type = "cuda"
    paged.tensors[0].dtype = "torch.float32"
    with pytest.raises(ValueError, match="does not copy blocks"):
        blending.place_of(paged, Latent.HEAD, known, latent=True)


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


ORDERS = {"heads outside": (0, 1, 2, 3), "tokens outside": (0, 2, 1, 3)}


@pytest.mark.parametrize("order", [None, *ORDERS.values()], ids=["host", *ORDERS])
def test_a_rank_stores_and_loads_fragments_and_forgets_them(plan, tmp_path, order):
    paged = Paged() if order is None else OnDevice(order)
    cache = library.Cache(['{"l1": {"capacity": "16MiB"}}'], "test")
    parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), hash_recipe=b"sha256")
    copies = blending.Copies(
        cache, paged.place(), 1 if order is None else 2, 2, CONFIG, "float32", 32, CHUNK, bytes(32), 0,
        None if order is None else paged.copier)  # fmt: skip
    rank = Rank(cache, paged, parts, str(tmp_path / "rank.sock"), 5.0, logging.getLogger("test"), True, copies)
    try:
        paged.fill()
        request = Request(B + [9], "store")
        plan.arrived(request)
        plan.matched(request, 0)
        ids = [3, 1, 4, 2, 5, 9, 6]
        stores = plan.step(output_of(new=[("r", ids, 0)], scheduled={"r": request.num_tokens}))[1]
        rank.store([s for s in stores if s.part == blending.FRAGMENT])
        wait_for(lambda: not rank.stores_open)
        want = [paged.values(slot, ids) for slot in range(len(B))]
        # behind nothing and at other places
        other = Request(B + [7] * 30, True, request_id="other")
        plan.arrived(other)
        plan.asker.replies[plan.asker.number] = (2, 0)
        tokens, _ = plan.matched(other, 0)
        assert tokens == 96
        there = [20, 11, 12, 23, 14, 15, 16, 17]
        plan.allocated(other, there, tokens)
        (load,), _ = plan.step(output_of())
        rank.load(load)
        wait_for(lambda: rank.loads_open == 0)
        assert rank.take_received() == ({"other"}, set())
        assert [paged.values(slot, there) for slot in range(96)] == want[:96]
        assert paged.values(96, there) != want[96]  # not asked for
        counts = rank.take_counters()
        assert counts["blended_requests"] == 1 and counts["loaded_fragment_chunks"] == 2
        assert counts["stored_fragment_chunks"] == 3 and "stored_chunks" not in counts
        # other weights
        load.epoch = 1
        rank.load(load)
        wait_for(lambda: rank.loads_open == 0)
        assert rank.take_received() == ({"other"}, set(there[:6]))
    finally:
        rank.close()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_device_turns_keys_as_the_host_does(order):
    cache, paged, there, host = library.Cache(['{"l1": {"capacity": "16MiB"}}'], "test"), *(OnDevice(order) for _ in "abc")
    paged.fill()

    def copies(of, device):
        return blending.Copies(
            cache, of.place(), 2, 2, CONFIG, "float32", 32, CHUNK, bytes(32), 0, of.copier if device else None)  # fmt: skip

    def one(at, blocks):
        piece = blending.Piece(bytes(32), None, at, 0, 50)
        return blending.FragmentLoad(bytes(32), 0, 3, [], blending.FRAGMENT, piece, blocks, at % BLOCK, 41)

    made = [copies(paged, True), copies(there, True), copies(host, False)]
    size = made[0].fragments.chunk_bytes(50)
    chunk = ctypes.create_string_buffer(size + 64)
    room = [(ctypes.addressof(chunk), 1000), (ctypes.addressof(chunk) + 1064, size - 1000)]
    try:
        source, target = [4, 9, 1, 30], [8, 3, 11, 7]
        assert made[0].of(one(5, source)).gather(source, room, None)
        assert made[1].of(one(1234, target)).scatter([], 3, 0, room, None)()
        assert made[2].of(one(1234, target)).scatter([], 3, 0, room, None)()
        for mine, theirs in zip(there.memory, host.memory, strict=True):
            assert [pytest.approx(x, abs=1e-3) for x in mine] == list(theirs)
        slot = 1234 % BLOCK
        assert there.keys(slot + 3, target) != paged.keys(5 + 3, source) and any(there.keys(slot + 3, target))
        assert there.values(slot + 3, target) == paged.values(5 + 3, source)
        # one that is not what it has to be is a miss, and nothing of it is put anywhere
        before = bytes(there.memory[0])
        chunk.raw = bytes([chunk.raw[0] ^ 1]) + chunk.raw[1:]
        assert not made[1].of(one(900, target)).scatter([], 3, 0, room, None)()
        assert bytes(there.memory[0]) == before and made[1].fragments.stats()["refused"]["header"] == 1
    finally:
        for found in made:
            found.close()
        cache.close()
        for one_paged in (paged, there, host):
            one_paged.close()


def test_a_device_whose_keys_lie_elsewhere_is_refused():
    paged = OnDevice((0, 1, 2, 3))
    with pytest.raises(ValueError, match="where attention by OTHER keeps keys is not known"):
        blending.DevicePlace(paged, 32, {"FLASH_ATTN", "OTHER"})
    with pytest.raises(ValueError, match="no name"):
        blending.DevicePlace(paged, 32, set())
    with pytest.raises(ValueError, match="unknown shape"):
        blending.DevicePlace(paged, 64, {"FLASH_ATTN"})
    paged.close()
    paged.copier = None
    with pytest.raises(ValueError, match="does not copy blocks"):
        blending.DevicePlace(paged, 32, {"FLASHINFER"})


def test_stat_counts_fragments(tmp_path):
    paged, store = Paged(), tmp_path / "store"
    config = f'{{"l1": {{"capacity": "16MiB"}}, "nvme": {{"path": "{store}", "capacity": "32MiB"}}}}'
    cache = library.Cache([config], "test")
    found = fragments.Fragments(cache, CONFIG, "float32", 2, 1, 32, chunk_tokens=CHUNK)
    place = paged.place().at(range(Paged.BLOCKS), 0)
    assert [found.store(fragments.Text(text, 0), place) for text in (A, B)] == [len(A), len(B)]
    assert cache.drain(20 * 10**9)
    assert found.load(fragments.Text(A, 500), place) == len(A)
    with pytest.raises(ValueError, match="is blended"):
        found.store(fragments.Text(A, 0, blended=True), place)
    told = kvtier("stat", store).stdout  # its owner runs
    assert "reuse    of fragments, since its owner began: 99 tokens put into prompts, 0 missed" in told, told
    assert "24.8 KiB of keys moved, refused blended: 1" in told, told
    (one,) = json.loads(kvtier("stat", "--json", store).stdout)
    assert one["fragments"]["reuse"] == {
        "loads": 1, "hit_tokens": 99, "missed_tokens": 0, "loaded_bytes": found.stats()["loaded_bytes"],
        "moved_bytes": 99 * 2 * 128, "refused": {"blended": 1, "header": 0, "model": 0, "tokens": 0, "full": 0},
    }  # fmt: skip
    found.close()
    cache.close()
    told = kvtier("stat", store).stdout
    assert "reuse" not in told
    assert "4 of them are of 2 fragments: 201 tokens" in told
    (one,) = json.loads(kvtier("stat", "--json", store).stdout)
    assert one["fragments"] == {"count": 2, "chunks": 4, "tokens": 201, "disk_bytes": one["disk_bytes"]}
    assert kvtier("verify", store).returncode == 0


def test_another_machine_has_them_from_redis_or_misses(redis):
    """Whole values under another's name, and flipped bits, are misses."""
    paged, there = Paged(), Paged()
    paged.memory[2][:] = array.array("f", [float(i // 32) for i in range(len(paged.memory[2]))])
    made = []

    def one():
        told = {"l1": {"capacity": "16MiB"}, "l2": {"url": redis.url, "deadline": "20s", "seen_time": "1ms"}}
        cache = library.Cache([json.dumps({**told, "control": {"breaker_failures": 1000}})], "test")
        made.append((cache, fragments.Fragments(cache, CONFIG, "float32", 2, 1, 32, chunk_tokens=CHUNK)))
        return made[-1]

    def loaded(text, found):
        return found.load(fragments.Text(text, 500), there.place().at(range(Paged.BLOCKS), 3))

    try:
        cache, found = one()
        for text in (A, B):
            assert found.store(fragments.Text(text, 0), paged.place().at(range(Paged.BLOCKS), 0)) == len(text)
        assert cache.drain(20 * 10**9)
        cache, found = one()  # misses until it has read the server's table of generations
        until(lambda: loaded(A, found) == len(A), what="another machine's fragments")
        ids = list(range(Paged.BLOCKS))
        assert [there.values(3 + i, ids) for i in range(len(A))] == [paged.values(i, ids) for i in range(len(A))]
        with redis.connect() as connection:
            values = {key: connection.cmd("GET", key) for key in connection.keys() if b"{" in key}
            long = [key for key, value in values.items() if value is not None and len(value) > 16384]
            assert len(long) >= 2
            connection.cmd("SET", long[0], values[long[1]])
            flipped = bytearray(values[long[1]])
            flipped[len(flipped) // 2] ^= 4
            connection.cmd("SET", long[1], bytes(flipped))
        assert sum(loaded(text, one()[1]) for text in (A, B)) < len(A) + len(B)
    finally:
        for cache, found in made:
            found.close()
            cache.close()
