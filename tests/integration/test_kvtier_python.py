"""The Python package over libkvtier, without an engine: what a connector does with it, step by step.

An engine is only imitated here (its requests and scheduler outputs); tests/engine/test_kvtier.py has a
real one.
"""

import contextlib
import ctypes
import os
import pathlib
import selectors
import subprocess
import sys
import threading
import time
import types

import pytest

from rig.kvtier_plan import BLOCK, name
from rig.kvtier_start import engine_of  # noqa: F401
from rig.router import BUILD
from rig.wait import until

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "cache" / "python"))

from kvtier import adapters, ask, chunks, events, fingerprint, library, lmcache, settings, tiers, worth  # noqa: E402
from kvtier.rank import Rank  # noqa: E402
from kvtier.work import Load, LoadChunk, Store  # noqa: E402
from kvtier.worker import Worker  # noqa: E402

LIBRARY = BUILD / "cache" / "core" / "libkvtier.so.1"


@pytest.fixture
def cache(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    one = library.Cache(['{"l1": {"capacity": "16MiB"}}'])
    yield one
    one.close()


def key_of(cache, number):
    text = library.c_char_p(name(number))
    parts = library.KeyParts(
        size=ctypes.sizeof(library.KeyParts),
        chain_id=ctypes.cast(text, library.c_void_p),
        chain_id_bytes=32,
        hash_recipe=b"sha256",
    )
    return cache.make_key(parts)


def put(cache, key, data):
    item = library.Item(size=ctypes.sizeof(library.Item), tokens=256, bytes=len(data))
    item.key.bytes[:] = key
    status, reservation, rooms = cache.reserve([item])
    if reservation is None:
        return status
    at = 0
    for address, size in rooms[0]:
        ctypes.memmove(address, data[at : at + size], size)
        at += size
    assert at == len(data)
    assert cache.commit(reservation, 1)
    return library.OK


def get(cache, keys):
    """Bytes of the chunks that are there."""
    op = cache.get_begin(keys, 10**9, 7)
    for _ in range(1000):
        done = cache.poll()
        if done:
            break
        time.sleep(0.001)
    assert done[0][:3] == (op, 7, library.OP_GET)
    lease = cache.take(op)
    if lease is None:
        return []
    found = []
    for i in range(lease.contents.count):
        view = lease.contents.views[i]
        pieces = lease.contents.segments[view.first_segment : view.first_segment + view.segment_count]
        found.append(b"".join(ctypes.string_at(s.base, s.bytes) for s in pieces))
    cache.release(lease)
    return found


# --- library --------------------------------------------------------------------------------------


def test_what_is_put_is_got(cache):
    keys = [key_of(cache, number) for number in range(3)]
    data = [bytes([number]) * (100_000 + number) for number in range(3)]
    for key, one in zip(keys, data, strict=True):
        assert put(cache, key, one) == library.OK
    assert put(cache, keys[0], data[0]) == library.EXISTS
    assert cache.lookup(keys + [bytes(32)]) == (3, [0, 0, 0])
    assert get(cache, keys) == data
    assert get(cache, [bytes(32)]) == []
    assert "kvtier_put_bytes_total 300003" in cache.metrics()


def test_a_find_completes(cache):
    key = key_of(cache, 1)
    put(cache, key, b"x" * 1000)
    assert cache.find_begin([key, bytes(32)], 10**9, 9) is not None
    op, user, kind, status, count = cache.poll()[0]
    assert (user, kind, status, count) == (9, library.OP_FIND, library.OK, 1)


def test_a_reset_forgets(cache):
    key = key_of(cache, 1)
    put(cache, key, b"x" * 1000)
    assert cache.reset()
    assert cache.lookup([key]) == (0, [])


def test_counts_of_tiers_are_reported_once(cache):
    counts, key = tiers.TierCounts(), key_of(cache, 1)
    assert counts.changes(cache.metrics()) == {}
    put(cache, key, b"x" * 1000)
    get(cache, [key])
    assert counts.changes(cache.metrics()) == {"stores:l1": 1, "store_bytes:l1": 1000, "hits:l1": 1}
    assert counts.changes(cache.metrics()) == {}
    get(cache, [key])
    get(cache, [bytes(32)])
    assert counts.changes(cache.metrics()) == {"hits:l1": 1, "misses:l1": 1}


def test_mistakes_are_reported_and_the_rest_applies(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    cache = library.Cache(['{"l1": {"capacity": "16MiB", "policy": "lur"}}', '{"rank": 3}'], "mine")
    assert "mine:1:" in cache.mistakes and "did you mean `lru`?" in cache.mistakes
    assert put(cache, key_of(cache, 1), b"x" * 1000) == library.OK
    cache.close()


def test_a_library_that_is_not_there(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", "/none/libkvtier.so")
    with pytest.raises(library.KvtierError, match="set KVTIER_LIBRARY"):
        library.Cache(["{}"])


STRUCTS = {
    "kvt_key_parts": library.KeyParts, "kvt_lookup": library.Lookup, "kvt_segment": library.Segment,
    "kvt_view": library.View, "kvt_lease": library.Lease, "kvt_blocks": library.Blocks, "kvt_item": library.Item,
    "kvt_completion": library.Completion, "kvt_event": library.Event,
    "kvt_lmcache_source": lmcache.Source, "kvt_lmcache": lmcache.Translation,
}  # fmt: skip


def test_structs_lie_as_the_header_says(tmp_path):
    """A compiler says where each member is; the header may have more at a struct's end."""
    members = [(name, field) for name, struct in STRUCTS.items() for field, *_ in struct._fields_]
    asked = "".join(f'printf("%zu\\n", offsetof(struct {name}, {field}));' for name, field in members)
    code = tmp_path / "asked.c"
    code.write_text(
        f'#include <stdio.h>\n#include "kvtier/kvtier.h"\nint main(void) {{ {asked} return 0; }}\n'
    )  # fmt: skip
    include = pathlib.Path(__file__).parents[2] / "include"
    subprocess.run(["cc", f"-I{include}", code, "-o", tmp_path / "asked"], check=True)
    told = subprocess.run([tmp_path / "asked"], capture_output=True, text=True, check=True).stdout.split()
    ours = [getattr(STRUCTS[name], field).offset for name, field in members]
    assert [int(offset) for offset in told] == ours


# --- chunks, fingerprint, settings ----------------------------------------------------------------


def test_chunks_are_whole_and_named_by_their_last_block():
    hashes = [name(number) for number in range(10)]
    found = chunks.chunks_of(hashes, BLOCK, 4, 10)
    assert [(c.first, c.count, c.tokens) for c in found] == [(0, 4, 64), (4, 4, 64)]
    assert [c.name for c in found] == [name(3), name(7)]
    assert [c.parent for c in found] == [None, name(3)]
    assert chunks.chunks_of(hashes, BLOCK, 4, 7) == found[:1]
    assert chunks.blocks_per_chunk(32, 256) == 8 and chunks.blocks_per_chunk(512, 256) == 1


def test_ranks_with_the_same_heads_name_chunks_alike():
    ranks = lambda tp, heads, world: [fingerprint.key_rank(r, tp, heads) for r in range(world)]  # noqa: E731
    assert ranks(4, 8, 8) == list(range(8))
    assert ranks(4, 2, 8) == [0, 0, 2, 2, 4, 4, 6, 6]  # two stages of a pipeline
    assert ranks(4, 1, 4) == [0, 0, 0, 0]
    assert ranks(1, 8, 2) == [0, 1]


def test_layers_with_more_heads_than_the_model_has_keep_ranks_apart():
    """Of windows, say: ranks that hold the same heads in full attention hold different ones there."""
    most = fingerprint.most_heads
    assert most(4, types.SimpleNamespace(num_key_value_heads=4, swa_num_key_value_heads=8, num_attention_heads=64)) == 8
    assert most(4, types.SimpleNamespace(num_key_value_heads=[2, 4, 16])) == 16
    assert most(4, types.SimpleNamespace(other={"num_attention_groups": 8}, layers=[{"num_kv_heads": 6}])) == 8
    assert most(4, types.SimpleNamespace(num_key_value_heads=None)) == 4 and most(4, None) == 4


def test_a_longest_context_by_which_a_model_computes_otherwise_is_of_the_fingerprint():
    """Engines of one model in one store whose --max-model-len differs."""
    told = fingerprint.by_length
    factors = {"rope_type": "longrope", "long_factor": [1.5, 2.0], "original_max_position_embeddings": 4096}
    phi = types.SimpleNamespace(rope_parameters=factors, original_max_position_embeddings=4096)
    assert told(4096, phi) == told(2048, phi) != told(4097, phi) == told(131072, phi)
    yarn = types.SimpleNamespace(rope_parameters={"rope_type": "yarn", "original_max_position_embeddings": 4096})
    assert told(2048, yarn) == told(131072, yarn) == told(2048, None) == {}
    tuned, untuned = (types.SimpleNamespace(attn_temperature_tuning=how) for how in (True, False))
    assert told(4096, tuned) != told(4096, untuned)


@pytest.mark.parametrize(
    "extra, says",
    [
        ({"chunk_sise": 1}, "chunk_sise: unknown, expected one of"),
        ({"chunk_size": 0}, "chunk_size: found 0, expected a whole number from 1 on"),
        ({"min_retrieve_tokens": "8"}, "min_retrieve_tokens: found '8'"),
        ({"save_decode_cache": "yes"}, "save_decode_cache: found 'yes', expected true or false"),
        ({"cache": 5}, "cache: expected a mapping or the path"),
        ({"cache": "/none.yaml"}, "/none.yaml: No such file"),
    ],
)
def test_a_wrong_setting_is_reported_and_the_rest_applies(extra, says):
    read = settings.read({"load_timeout_ms": 70, **extra}, {})
    assert says in read.mistakes[0]
    assert read.load_timeout_s == 0.07 and read.chunk_tokens == 256


# --- questions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["a link", "a file", "open to others", "another's"])
def test_a_foreign_folder_is_named_and_stops_no_engine(what, engine_of, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(ask.tempfile, "gettempdir", lambda: str(tmp_path))
    own = pathlib.Path(ask.own_folder())
    assert own.parent == tmp_path and own.stat().st_mode & 0o777 == 0o700 and str(own) == ask.own_folder()
    own.rmdir()
    if what == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(tmp_path / "elsewhere")
    elif what == "a file":
        own.touch()
    else:
        own.mkdir(mode=0o700)
        if what == "open to others":
            own.chmod(0o755)
        elif os.geteuid() == 0:
            os.chown(own, 4242, 4242)
        else:
            pytest.skip("only root can give a folder away")
    with pytest.raises(ask.Foreign, match=str(own)):
        ask.socket_path("engine", 0)
    engine = engine_of({})
    for role in ("scheduler", "worker"):
        one = engine.module.KVTierConnector(engine.config, role, None)
        assert one.why_not.startswith(f"its ranks cannot be asked: {own} is ")
        one.register_kv_caches({})
    assert one.worker.rank is None


class Answering:
    """A rank's side that answers by a function of the names, in a thread."""

    def __init__(self, path, answer):
        self.selector = selectors.DefaultSelector()
        self.listener = ask.Listener(str(path), self.selector)
        self.answer, self.epochs, self.stop = answer, [], False
        self.thread = threading.Thread(target=self.main)
        self.thread.start()

    def main(self):
        while not self.stop:
            for key, _ in self.selector.select(0.02):
                if key.data is self.listener:
                    self.listener.accept()
                    continue
                questions = key.data.questions()
                if questions is None:
                    self.listener.drop(key.data)
                    continue
                for number, _, epoch, _, names, _ in questions:
                    self.epochs.append(epoch)
                    count = self.answer(names)
                    if count is not None:
                        key.data.answer(number, count, 0)

    def close(self):
        self.stop = True
        self.thread.join()
        self.listener.close()


def wait_answer(asker, number):
    for _ in range(500):
        found = asker.answer(number)
        if found is not None:
            return found
        time.sleep(0.005)
    raise AssertionError("no answer")


def test_the_least_of_all_ranks_counts(tmp_path):
    ranks = [Answering(tmp_path / str(n), lambda names, n=n: max(0, len(names) - n)) for n in range(3)]
    asker = ask.Asker([str(tmp_path / str(n)) for n in range(3)], 5)
    assert wait_answer(asker, asker.ask([name(1)] * 9)) == (7, 0)
    asker.reset()
    assert wait_answer(asker, asker.ask([name(1)] * 3)) == (1, 0)
    assert all(rank.epochs[-1] == 1 for rank in ranks)
    for rank in ranks:
        rank.close()
    asker.close()


def test_a_rank_that_does_not_answer_is_not_waited_for(tmp_path):
    rank = Answering(tmp_path / "0", lambda names: None)
    asker = ask.Asker([str(tmp_path / "0")], 0.1)
    number = asker.ask([name(1)])
    assert asker.answer(number) is None
    assert wait_answer(asker, number) == (0, 255)
    rank.close()
    asker.close()


def test_a_rank_that_is_gone_has_nothing(tmp_path):
    asker = ask.Asker([str(tmp_path / "none")], 5)
    assert asker.ask([name(1)]) is None
    rank = Answering(tmp_path / "0", lambda names: None)
    asker = ask.Asker([str(tmp_path / "0")], 60)
    number = asker.ask([name(1)])
    rank.close()
    assert wait_answer(asker, number) == (0, 255)


def test_questions_without_an_answer_do_not_pile_up(tmp_path, monkeypatch):
    rank = Answering(tmp_path / "0", lambda names: None)
    asker = ask.Asker([str(tmp_path / "0")], 0.05)
    for _ in range(20):
        asker.ask([name(1)])
    assert len(asker.open) == 20
    time.sleep(0.06)
    asker.ask([name(1)])
    assert len(asker.open) == 1  # the others' time is over
    monkeypatch.setattr(ask, "MOST_OPEN", 8)
    numbers = [asker.ask([name(1)]) for _ in range(30)]
    assert len(asker.open) <= 8
    assert asker.answer(numbers[0]) == (0, 255)
    rank.close()
    asker.close()


# --- speeds, events, a worker ------------------------------------------------------------------------


def test_a_tenant_is_named_as_the_library_does(cache):
    for salt in ("red", "ü" * 100):
        out = library.Tenant()
        cache.lib.kvt_tenant_of(salt.encode(), len(salt.encode()), ctypes.byref(out))
        assert bytes(out.bytes) == library.tenant_of(salt)


def test_a_load_that_would_take_longer_than_computing_is_not_worth_it():
    one = worth.Worth(False)
    assert one.is_faster(1 << 20, 10**9, 0)  # the engine's speed is not known
    assert one.is_faster(1 << 20, 10**6, 10**8)
    assert not one.is_faster(1 << 20, 2 * 10**8, 10**8)
    one.copied(1 << 20, 2 * 10**8)  # copies turn out to be slow
    assert not one.is_faster(1 << 20, 10**6, 10**8)
    assert worth.Worth(True).is_faster(1 << 20, 10**10, 1)


def test_the_engines_speed_reaches_the_library(cache):
    keys = [key_of(cache, number) for number in range(2)]
    for key in keys:
        put(cache, key, b"x" * 1000)
    assert cache.estimate(keys)[3] == 0
    cache.report_prefill(512, 10**9)
    assert 0.9e9 < cache.estimate(keys)[3] < 1.1e9  # two chunks of 256 tokens


def test_events_come_with_what_a_put_said(cache):
    hashes, ids = [name(1), name(2)], (ctypes.c_uint32 * 32)(*range(32))
    item = library.Item(size=ctypes.sizeof(library.Item), tokens=32, bytes=1000)
    item.key.bytes[:] = key_of(cache, 1)
    blocks = library.Blocks(
        hashes=b"".join(hashes), hash_bytes=32, count=2, parent=name(0), tokens=ids, block_size=16, lora_name=b"l"
    )  # fmt: skip
    item.blocks = ctypes.pointer(blocks)
    assert cache.commit(cache.reserve([item])[1], 1)
    stored = events.Event(events.STORED, 0, tuple(hashes), name(0), bytes(ids), 16, "l")
    assert cache.events() == ([stored], 0)
    assert cache.events() == ([], 0)
    cache.reset()
    assert cache.events() == ([events.Event(events.REMOVED, 0, tuple(hashes))], 0)


class SlowRank:
    """A rank that copies as long as no caller waits for it."""

    def __init__(self):
        self.copying, self.paged = set(), types.SimpleNamespace(mark=lambda: None)

    def store(self, stores, after):
        self.copying |= {store.request for store in stores}

    def wait_quiet(self, requests, limit_s):
        assert limit_s == 0.002
        self.copying -= requests

    def stored(self, requests):
        return requests - self.copying

    def take_received(self):
        return set(), set()


def test_an_empty_step_waits_for_stores_that_hold_up_blocks():
    """The engine takes such steps one after another until it hears that the blocks are free."""
    worker = Worker()
    worker.rank = SlowRank()
    worker.store([types.SimpleNamespace(request="a", ticket=0), types.SimpleNamespace(request="b", ticket=0)])
    assert worker.finished({"a"}) == (None, None)  # there is something to compute: it does not wait
    assert worker.finished(set(), 0.002) == ({"a"}, None)
    assert worker.finished({"b"}) == (None, None)


class LatePaged:
    """A paged cache whose copies end when a test says so."""

    device = types.SimpleNamespace(type="cpu")

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def chunk_bytes(self, blocks):
        return 1000 * blocks

    def new_stream(self):
        return None

    def on_stream(self, stream):
        return contextlib.nullcontext()

    def gather(self, block_ids, room, after):
        self.begun.set()
        return self.go.wait(10)

    def close(self):
        pass


def test_blocks_that_are_taken_away_while_they_are_copied_hold_nothing_up(tmp_path, monkeypatch):
    """What was copied of them is thrown away."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    paged, log = LatePaged(), types.SimpleNamespace(info=print, exception=print)
    parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), hash_recipe=b"sha256")
    one = Rank(library.Cache(['{"l1": {"capacity": "16MiB"}}']), paged, parts, str(tmp_path / "0"), 5, log)
    one.store([Store("taken", name(1), None, [1], 16), Store("taken", name(2), None, [2], 16)])
    assert paged.begun.wait(10)
    began = time.monotonic()
    one.give_up({"taken"})
    assert time.monotonic() - began < 1
    assert one.stored({"taken"}) == set()  # it is still read
    paged.go.set()
    until(lambda: one.stored({"taken"}), 10, "the copy ended")
    counts = one.take_counters()
    assert (counts["refused_chunks"], counts.get("stored_chunks", 0)) == (2, 0)
    one.close()


def test_what_an_adapter_computed_is_dropped_if_its_files_changed_before_it_was_copied(tmp_path, monkeypatch):
    """The engine may have read them again at any time before."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    paged, folder = LatePaged(), tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"old")
    files = str(folder), adapters.print_of(folder)
    one = rank_over(paged, tmp_path)
    one.store([Store("a", name(1), None, [1], 16, files=files)])
    assert paged.begun.wait(10)
    (folder / "adapter_model.safetensors").write_bytes(b"new")
    paged.go.set()
    until(lambda: one.stored({"a"}), 10, "the copy ended")
    counts = one.take_counters()
    assert (counts["refused_chunks"], counts.get("stored_chunks", 0)) == (1, 0)
    one.store([Store("a", name(1), None, [1], 16, files=(str(folder), adapters.print_of(folder)))])
    until(lambda: one.stored({"a"}), 10, "the copy ended")
    assert one.take_counters()["stored_chunks"] == 1
    one.close()


def test_an_engine_that_goes_to_sleep_waits_for_what_is_copied(tmp_path, monkeypatch):
    """What waits is not stored, what is being copied is thrown away; a copy that does not end keeps it awake."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(Worker, "LEAVE_S", 0.05)
    paged, log = LatePaged(), types.SimpleNamespace(info=print, exception=print)
    parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), hash_recipe=b"sha256")
    worker = Worker()
    worker.leave_memory()  # there is no cache
    worker.rank = one = Rank(library.Cache(['{"l1": {"capacity": "16MiB"}}']), paged, parts, str(tmp_path / "0"), 5, log)
    one.store([Store("a", name(1), None, [1], 16), Store("b", name(2), None, [2], 16)])
    assert paged.begun.wait(10)
    with pytest.raises(TimeoutError):
        worker.leave_memory()
    paged.go.set()
    worker.LEAVE_S = 10
    worker.leave_memory()
    assert one.stored({"a", "b"}) == {"a", "b"}
    counts = one.take_counters()
    assert (counts["refused_chunks"], counts.get("stored_chunks", 0)) == (2, 0)
    one.close()


class PlainPaged(LatePaged):
    """Blocks of plain memory; counts what was copied into them."""

    SIZE = 65536

    def __init__(self):
        super().__init__()
        self.memory = ctypes.create_string_buffer(self.SIZE * 16)
        self.copied = []

    def at(self, block):
        return ctypes.addressof(self.memory) + block * self.SIZE

    def chunk_bytes(self, blocks):
        return blocks * self.SIZE

    def gather(self, block_ids, room, after):
        for address, size in room:
            ctypes.memmove(address, self.at(block_ids[0]), size)
        return True

    def scatter(self, block_ids, skip, count, room, after):
        self.copied.append(block_ids[0])
        for address, size in room:
            ctypes.memmove(self.at(block_ids[0]), address, size)
        return lambda: True


def rank_over(paged, tmp_path, text='{"l1": {"capacity": "16MiB"}}'):
    log = types.SimpleNamespace(info=print, exception=print)
    parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), hash_recipe=b"sha256")
    return Rank(library.Cache([text]), paged, parts, str(tmp_path / "0"), 5, log)


@pytest.mark.parametrize("lost", [None, 0, 5, 11])
def test_a_load_comes_in_parts_up_to_the_first_chunk_that_is_lost(tmp_path, monkeypatch, lost):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(Rank, "PART_BYTES", 2 * PlainPaged.SIZE)
    monkeypatch.setattr(Rank, "PARTS_BYTES", 4 * PlainPaged.SIZE)
    paged = PlainPaged()
    one = rank_over(paged, tmp_path)
    for number in range(12):
        ctypes.memset(paged.at(number), number + 1, paged.SIZE)
    one.store([Store("put", name(n), None, [n], 16) for n in range(12) if n != lost])
    until(lambda: one.stored({"put"}), 10, "all is stored")
    ctypes.memset(paged.memory, 0, paged.SIZE * 16)
    one.load(Load("get", [LoadChunk(name(n), 1, 0, [n]) for n in range(12)]))
    until(lambda: one.loads_open == 0, 10, "the load is over")
    there = 12 if lost is None else lost
    assert one.take_received() == ({"get"}, set(range(there, 12)))
    assert paged.copied == list(range(there))
    for number in range(12):
        expected = bytes([number + 1 if number < there else 0]) * paged.SIZE
        assert ctypes.string_at(paged.at(number), paged.SIZE) == expected
    assert one.take_counters()["loads"] == 1
    assert not one.under_way
    one.close()


def test_a_load_from_before_a_reset_fails_with_what_was_copied_already(tmp_path, monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(Rank, "PART_BYTES", 2 * PlainPaged.SIZE)
    monkeypatch.setattr(Rank, "PARTS_BYTES", 4 * PlainPaged.SIZE)
    paged = PlainPaged()
    one, scatter = rank_over(paged, tmp_path), paged.scatter

    def scatter_and_reset(block_ids, *rest):
        if block_ids[0] == 1:  # the end of the first part
            one._reset(1)
        return scatter(block_ids, *rest)

    paged.scatter = scatter_and_reset
    one.store([Store("put", name(n), None, [n], 16) for n in range(12)])
    until(lambda: one.stored({"put"}), 10, "all is stored")
    one.load(Load("get", [LoadChunk(name(n), 1, 0, [n]) for n in range(12)]))
    until(lambda: one.loads_open == 0, 10, "the load is over")
    assert one.take_received() == ({"get"}, set(range(12)))
    assert paged.copied == [0, 1]
    one.close()


class BusyPaged(PlainPaged):
    """Copies nothing out of blocks before a test says so: until then loads wait."""

    def __init__(self):
        super().__init__()
        self.go.set()

    def gather(self, block_ids, room, after):
        self.begun.set()
        assert self.go.wait(10)
        return super().gather(block_ids, room, after)


def load_at_once(one, count, chunks_of_each):
    """As many loads, all of which wait before the rank's thread looks at the first."""
    one.paged.begun.clear()
    one.paged.go.clear()
    one.store([Store("busy", name(99), None, [15], 16)])
    assert one.paged.begun.wait(10)
    for number in range(count):
        one.load(Load(f"get{number}", [LoadChunk(name(n), 1, 0, [n]) for n in range(chunks_of_each)]))
    one.paged.go.set()
    until(lambda: one.loads_open == 0, 15, "all loads are over")


@pytest.mark.parametrize("what", ["scatter", "_key", "close"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_one_load_leaves_none_without_an_end(tmp_path, monkeypatch, what):
    """A request waits for its load for ever, if nothing is heard of it."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    paged = BusyPaged()
    one = rank_over(paged, tmp_path)
    one.store([Store("put", name(n), None, [n], 16) for n in range(2)])
    until(lambda: one.stored({"put"}), 10, "all is stored")
    key = one._key

    def broken(first, *rest):
        if what == "_key" and first == name(99):
            return key(first, *rest)
        raise RuntimeError("broken")

    if what == "close":  # and one more while the thread ends
        monkeypatch.setattr(one.listener, "close", broken)
    monkeypatch.setattr(one if what == "_key" else paged, "scatter" if what == "close" else what, broken)
    load_at_once(one, 5, 2)
    assert one.take_received() == ({f"get{n}" for n in range(5)}, {0, 1})
    one.close()


def test_many_loads_at_once_leave_each_other_room(tmp_path, monkeypatch):
    """The first ones' parts took all operations, and those that followed failed whole."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(Rank, "PART_BYTES", PlainPaged.SIZE)
    monkeypatch.setattr(Rank, "PARTS_BYTES", 4 * PlainPaged.SIZE)
    monkeypatch.setattr(Rank, "MANY_OPS", 16)
    one = rank_over(BusyPaged(), tmp_path, '{"l1": {"capacity": "16MiB"}, "control": {"ops": 32}}')
    one.store([Store("put", name(n), None, [n], 16) for n in range(8)])
    until(lambda: one.stored({"put"}), 10, "all is stored")
    load_at_once(one, 20, 8)
    assert one.take_received() == ({f"get{n}" for n in range(20)}, set())
    one.close()
