"""The Python package over libkvtier, without an engine: what a connector does with it, step by step.

An engine is only imitated here (its requests and scheduler outputs); tests/engine/test_kvtier.py has a
real one.
"""

import ctypes
import json
import pathlib
import selectors
import subprocess
import sys
import threading
import time
import types

import pytest

from rig.router import BUILD
from rig.wait import until

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "cache" / "python"))

from kvtier import (  # noqa: E402
    adapters, ask, changes, chunks, events, fingerprint, library, lmcache, settings, tiers, weights, work, worth,
)  # fmt: skip
from kvtier.scheduler import Plan  # noqa: E402
from kvtier.worker import Worker  # noqa: E402

BLOCK = 16
LIBRARY = BUILD / "cache" / "core" / "libkvtier.so.1"


def name(number):
    return number.to_bytes(4, "big") * 8


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


def model_in(folder, content=b"w" * 5_000_000):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return folder


def identify(model, since_ns=None, digests=None, environ=None, **more):
    source = weights.Source(str(model), **more)
    since_ns = time.time_ns() if since_ns is None else since_ns
    return weights.identify([source], digests or weights.Digests(), since_ns, environ or {})


def test_the_fingerprint_changes_with_every_part(tmp_path):
    folder, seen = model_in(tmp_path), set()
    for change in (None, ("config.json", b"{ }"), ("model.safetensors", b"w" * 101), ("modeling.py", b"pass")):
        if change:
            (folder / change[0]).write_bytes(change[1])
        seen.add(fingerprint.make({"model": identify(folder).parts, "block": 16}))
    (folder / "tokenizer.json").write_text("{}")  # decides nothing
    seen.add(fingerprint.make({"model": identify(folder).parts, "block": 16}))
    seen.add(fingerprint.make({"model": identify(folder).parts, "block": 32}))
    assert len(seen) == 5 and all(len(one) == 64 for one in seen)


def test_one_changed_byte_of_the_weights_is_another_model(tmp_path):
    content = bytearray(5_000_000)
    one = identify(model_in(tmp_path, content)).parts
    content[1_234_567] = 1
    other = identify(model_in(tmp_path, content)).parts
    assert None not in (one, other) and one != other


def test_another_folder_with_the_same_content_is_the_same_model(tmp_path):
    assert identify(model_in(tmp_path / "a")).parts == identify(model_in(tmp_path / "b")).parts


def test_a_single_file_is_named_by_content(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    one = identify(path, load_format="gguf").parts
    path.write_bytes(b"two")  # new weights under the old name
    two = identify(path, load_format="gguf").parts
    assert None not in (one, two) and one != two


def hub_with(home, commit, model="org/m", ref="main"):
    folder = home / "hub" / ("models--" + model.replace("/", "--"))
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(commit)
    model_in(folder / "snapshots" / commit)
    return {"HF_HOME": str(home)}


def test_a_hub_model_is_named_by_the_commit_of_its_snapshot(tmp_path):
    old, new = "a" * 40, "b" * 40
    environ = hub_with(tmp_path, old)
    one = identify("org/m", environ=environ, config_commit=old)
    assert old in json.dumps(one.parts)
    hub_with(tmp_path, new)  # the same name has other weights from now on
    two = identify("org/m", environ=environ, config_commit=new)
    assert two.parts is not None and two.parts != one.parts
    assert identify("org/m", environ=environ, config_commit=old).why_not  # it moved while the engine started
    assert identify("org/m", environ=environ).why_not  # nothing says which commit was loaded
    assert identify("org/m", environ=environ, revision=old).parts == one.parts
    assert identify("org/m", download_dir=str(tmp_path / "hub"), revision=new).parts == two.parts


@pytest.mark.parametrize(
    "model, more, says",
    [
        ("org/none", {}, "no snapshot of org/none is in"),
        ("s3://bucket/m", {}, "its weights come from s3://bucket/m"),
        ("/tmp", {"stored_at": "s3://bucket/m"}, "its weights come from s3://bucket/m"),
        ("/tmp", {"config_path": "org/m"}, "its configuration comes from org/m"),
        ("/tmp", {"load_format": "dummy"}, "load_format dummy does not read"),
        ("/tmp", {"load_format": "tensorizer"}, "load_format tensorizer does not read"),
    ],
)
def test_weights_without_a_name_by_content(model, more, says, tmp_path):
    found = identify(model, environ={"HF_HOME": str(tmp_path)}, **more)
    assert found.parts is None and says in found.why_not


def test_files_that_changed_after_the_engine_began_to_load_them(tmp_path):
    folder, link = model_in(tmp_path / "a"), tmp_path / "link"
    began = time.time_ns()
    time.sleep(0.02)
    link.symlink_to(folder)
    assert identify(folder, began).parts is not None
    assert "changed after the engine started" in identify(link, began).why_not  # it pointed elsewhere before
    (folder / "model.safetensors").write_bytes(b"new")
    assert "model.safetensors changed after the engine started" in identify(folder, began).why_not
    assert "has no weights" in identify(tmp_path, began).why_not


def test_digests_are_made_once_for_all_processes(tmp_path, monkeypatch):
    folder = model_in(tmp_path / "m")
    read = []
    whole = weights.digest_of
    monkeypatch.setattr(weights, "digest_of", lambda path: read.append(path) or whole(path))
    monkeypatch.setattr(weights, "SETTLED_NS", 0)
    first = identify(folder, digests=weights.Digests(tmp_path / "cache")).parts
    assert len(read) == 2
    assert identify(folder, digests=weights.Digests(tmp_path / "cache")).parts == first and len(read) == 2
    (folder / "model.safetensors").write_bytes(b"v" * 5_000_000)
    assert identify(folder, digests=weights.Digests(tmp_path / "cache")).parts != first and len(read) == 3
    (tmp_path / "cache").chmod(0o777)  # others could have written to it
    identify(folder, digests=weights.Digests(tmp_path / "cache"))
    assert len(read) == 5


def test_a_file_that_changed_just_now_is_read_again(tmp_path):
    """Its times may not change with the next write."""
    digests = weights.Digests(tmp_path / "cache")
    identify(model_in(tmp_path / "m"), digests=digests)
    assert not (tmp_path / "cache" / "digests.json").exists()


def test_only_memory_is_left_open_for_weights_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    given = {"l1": {"capacity": "16MiB"}, "nvme": {"path": str(tmp_path), "capacity": "64MiB"}}
    assert settings.outlives(json.dumps(given)) and settings.outlives(json.dumps({"l2": {"url": "redis://x"}}))
    assert settings.outlives("nvme:\n  path: /x\n")
    assert not settings.outlives('{"l1": {"capacity": "16MiB"}}') and not settings.outlives("l1:\n  capacity: 1GiB")
    one = library.Cache([json.dumps(given), json.dumps(settings.MEMORY_ONLY)])
    assert one.mistakes == "" and list(tmp_path.iterdir()) == []
    one.close()


def test_ranks_with_the_same_heads_name_chunks_alike():
    ranks = lambda tp, heads, world: [fingerprint.key_rank(r, tp, heads) for r in range(world)]  # noqa: E731
    assert ranks(4, 8, 8) == list(range(8))
    assert ranks(4, 2, 8) == [0, 0, 2, 2, 4, 4, 6, 6]  # two stages of a pipeline
    assert ranks(4, 1, 4) == [0, 0, 0, 0]
    assert ranks(1, 8, 2) == [0, 1]


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
                for number, _, epoch, _, names in questions:
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


# --- the scheduler's side -------------------------------------------------------------------------


class FakeAsker:
    def __init__(self):
        self.asked, self.replies, self.number, self.epoch = [], {}, 0, 0
        self.waits = []

    def ask(self, names, tenant=ask.NO_TENANT):
        self.number += 1
        self.asked.append(names)
        self.tenant = tenant
        return self.number

    def answer(self, number, wait_s=0.0):
        self.waits.append(wait_s)
        if number not in self.replies:
            time.sleep(wait_s)
        return self.replies.get(number)

    def forget(self, number):
        self.replies.pop(number, None)

    def reset(self):
        self.epoch += 1
        self.replies.clear()


def request_of(blocks, tokens=None, **more):
    tokens = blocks * BLOCK + 1 if tokens is None else tokens
    return types.SimpleNamespace(**{
        "request_id": "r", "num_tokens": tokens, "num_prompt_tokens": tokens,
        "block_hashes": [name(n) for n in range(blocks)], "all_token_ids": list(range(tokens)), **more,
    })  # fmt: skip


def output_of(new=(), cached=(), scheduled=None, resumed=()):
    cached = list(cached)
    return types.SimpleNamespace(
        scheduled_new_reqs=[
            types.SimpleNamespace(req_id=r, block_ids=(ids,), num_computed_tokens=done)
            for r, ids, done in new
        ],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=[r for r, _, _ in cached],
            new_block_ids=[(ids,) if ids is not None else None for _, ids, _ in cached],
            num_computed_tokens=[done for _, _, done in cached],
            resumed_req_ids=set(resumed),
        ),
        num_scheduled_tokens=scheduled or {},
        scheduled_spec_decode_tokens={},
    )


@pytest.fixture
def plan():
    return Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True)


def test_a_request_waits_for_its_answer_and_then_loads(plan):
    request = request_of(10)
    assert plan.matched(request, 0) == (None, False)
    assert plan.matched(request, 0) == (None, False)
    assert plan.asker.asked == [[name(3), name(7)]]
    plan.asker.replies[1] = (2, 0)
    assert plan.matched(request, 0) == (8 * BLOCK, True)
    assert plan.matched(request, 0) == (8 * BLOCK, True)  # not scheduled yet: asked once
    assert plan.asker.number == 1
    plan.allocated(request, list(range(100, 110)), 8 * BLOCK)
    loads, stores = plan.step(output_of())
    assert stores == [] and len(loads) == 1
    assert [(c.name, c.skip, c.block_ids) for c in loads[0].chunks] == [
        (name(3), 0, [100, 101, 102, 103]), (name(7), 0, [104, 105, 106, 107])]  # fmt: skip


def test_what_the_engine_has_is_not_loaded_again(plan):
    request = request_of(8)
    plan.matched(request, 6 * BLOCK)
    assert plan.asker.asked == [[name(7)]]
    plan.asker.replies[1] = (1, 1)
    assert plan.matched(request, 6 * BLOCK) == (2 * BLOCK, True)
    plan.allocated(request, list(range(8)), 2 * BLOCK)
    loads, _ = plan.step(output_of())
    assert [(c.name, c.skip, c.block_ids) for c in loads[0].chunks] == [(name(7), 2, [6, 7])]


def test_the_last_token_is_always_computed(plan):
    request = request_of(8, tokens=8 * BLOCK)
    plan.matched(request, 0)
    plan.asker.replies[1] = (2, 0)
    assert plan.matched(request, 0) == (7 * BLOCK, True)
    plan.allocated(request, list(range(8)), 7 * BLOCK)
    loads, _ = plan.step(output_of())
    assert [c.block_ids for c in loads[0].chunks] == [[0, 1, 2, 3], [4, 5, 6]]


def test_short_prompts_and_small_gains_ask_no_tier(plan):
    assert plan.matched(request_of(3), 0) == (0, False)
    assert plan.matched(request_of(1, tokens=1), 0) == (0, False)
    plan.settings.min_retrieve_tokens = 100
    assert plan.matched(request_of(8), 4 * BLOCK) == (0, False)
    assert plan.asker.asked == []


def test_chunks_are_stored_when_they_are_complete(plan):
    request = request_of(10)
    plan.matched(request, 0)
    plan.asker.replies[1] = (1, 0)
    plan.matched(request, 0)
    plan.allocated(request, list(range(50, 54)), 4 * BLOCK)
    plan.step(output_of())
    ids = list(range(50, 60))
    _, stores = plan.step(output_of(new=[("r", ids, 4 * BLOCK)], scheduled={"r": 3 * BLOCK}))
    assert stores == []  # seven blocks of eight
    _, stores = plan.step(output_of(cached=[("r", None, 7 * BLOCK)], scheduled={"r": 3 * BLOCK}))
    assert [(s.name, s.parent, s.block_ids) for s in stores] == [(name(7), name(3), [54, 55, 56, 57])]
    assert stores[0].hashes == [name(n) for n in range(4, 8)] and stores[0].before == name(3)
    _, stores = plan.step(output_of(cached=[("r", [60], 10 * BLOCK)], scheduled={"r": 1}))
    assert stores == []
    assert plan.finished(request) is True


def test_a_request_that_is_asked_about_again_leaves_no_question_behind(plan):
    forgotten = []
    plan.asker.forget = forgotten.append
    request = request_of(12)
    plan.arrived(request)
    plan.tracks["r"].wanted, plan.tracks["r"].asked = (None, ()), []
    plan.matched(request, 0)
    assert plan.asker.number == 2 and forgotten == [1]


def test_a_step_that_fails_holds_no_blocks_and_loses_no_load(plan):
    first, request = request_of(8, request_id="first"), request_of(8)
    plan.matched(first, 0)
    plan.matched(request, 0)
    plan.asker.replies[2] = (2, 0)
    plan.matched(request, 0)
    plan.allocated(request, list(range(8)), 8 * BLOCK)
    broken = output_of(new=[("first", list(range(8)), 0)], scheduled={"first": 8 * BLOCK + 1})
    broken.scheduled_cached_reqs.req_ids = ["r"]  # the rest of its rows is missing
    with pytest.raises(ValueError):
        plan.step(broken)
    assert [load.request for load in plan.take_loads()] == ["r"]
    assert plan.finished(first) is False  # no rank heard of its stores: none will ever say that they are over


def test_the_tenant_is_in_all_that_is_asked_loaded_and_stored(plan):
    request = request_of(8, cache_salt="red")
    plan.arrived(request)
    red = library.tenant_of("red")
    assert plan.asker.tenant == red and red != ask.NO_TENANT == library.tenant_of("") == library.tenant_of(None)
    plan.asker.replies[1] = (1, 0)
    plan.matched(request, 0)
    plan.allocated(request, list(range(8)), 4 * BLOCK)
    loads, _ = plan.step(output_of())
    _, stores = plan.step(output_of(new=[("r", list(range(8)), 4 * BLOCK)], scheduled={"r": 4 * BLOCK + 1}))
    assert [one.tenant for one in loads + stores] == [red, red]
    assert work.item_of(stores[0], lambda name, tenant: tenant + bytes(16), 1000).tenant.bytes[:] == list(red)


def test_a_tenant_is_named_as_the_library_does(cache):
    for salt in ("red", "ü" * 100):
        out = library.Tenant()
        cache.lib.kvt_tenant_of(salt.encode(), len(salt.encode()), ctypes.byref(out))
        assert bytes(out.bytes) == library.tenant_of(salt)


def test_nothing_is_waited_for_while_requests_run(plan):
    plan.settings.step_wait_s = plan.wait_left_s = 0.05
    plan.step(output_of(scheduled={"running": 1}))
    assert plan.matched(request_of(8), 0) == (None, False)
    assert plan.asker.waits == [0.0]
    plan.finished(types.SimpleNamespace(request_id="running"))
    plan.matched(request_of(8), 0)
    assert plan.asker.waits[-1] > 0


def test_a_step_of_256_requests_takes_little_of_the_engine_core(plan, capsys):
    """At most 100 us, of which no other process takes a part: the least of many."""
    count, tokens, least = 256, 4 * BLOCK + 1, 1e9
    requests = [request_of(8, tokens=tokens, request_id=f"r{n}") for n in range(count)]
    for request in requests:
        store_all(plan, request, 5)
    for step in range(300):
        cached = [(r.request_id, None, tokens + step % 40) for r in requests]
        output = output_of(cached=cached, scheduled={r.request_id: 1 for r in requests})
        began = time.perf_counter_ns()
        plan.step(output)
        least = min(least, time.perf_counter_ns() - began)
    with capsys.disabled():
        print(f"\na step with {count} running requests: {least / 1000:.0f} us")
    assert least < 100_000


def test_a_failed_chunk_is_stored_when_it_was_computed(plan):
    request = request_of(8)
    plan.matched(request, 0)
    plan.asker.replies[1] = (2, 0)
    plan.matched(request, 0)
    plan.allocated(request, list(range(8)), 8 * BLOCK)
    plan.step(output_of())
    plan.failed({4, 5, 6, 7})
    _, stores = plan.step(output_of(new=[("r", list(range(8)), 4 * BLOCK)], scheduled={"r": 4 * BLOCK + 1}))
    assert [s.name for s in stores] == [name(7)]


def test_a_preempted_request_starts_again(plan):
    request = request_of(8)
    plan.matched(request, 0)
    plan.asker.replies[1] = (0, 255)
    assert plan.matched(request, 0) == (0, False)
    _, stores = plan.step(output_of(new=[("r", list(range(8)), 0)], scheduled={"r": 8 * BLOCK}))
    assert len(stores) == 2
    again = output_of(cached=[("r", list(range(20, 28)), 0)], scheduled={"r": 4 * BLOCK}, resumed=["r"])
    _, stores = plan.step(again)
    assert stores == [] and plan.tracks["r"].block_ids == list(range(20, 28))


def test_generated_tokens_are_stored_unless_switched_off(plan):
    request = request_of(8, tokens=5 * BLOCK)
    plan.matched(request, 0)
    plan.asker.replies[1] = (0, 255)
    plan.matched(request, 0)
    ids = list(range(8))
    _, stores = plan.step(output_of(new=[("r", ids, 0)], scheduled={"r": 8 * BLOCK}))
    assert len(stores) == 2
    plan.tracks["r"].stored = plan.tracks["r"].due = 0
    plan.settings.save_decode_cache = False
    _, stores = plan.step(output_of(new=[("r", ids, 0)], scheduled={"r": 8 * BLOCK}))
    assert len(stores) == 1


def test_after_a_reset_old_answers_do_not_count(plan):
    request = request_of(8)
    plan.matched(request, 0)
    plan.asker.replies[1] = (2, 0)
    plan.matched(request, 0)
    plan.reset()
    assert plan.matched(request, 0) == (None, False)
    assert plan.asker.number == 2


def test_a_load_that_was_not_planned_fails_instead_of_hanging(plan):
    request = request_of(8)
    plan.matched(request, 0)
    plan.allocated(request, list(range(8)), 8 * BLOCK)
    loads, _ = plan.step(output_of())
    assert [c.block_ids for c in loads[0].chunks] == [list(range(8))]


def store_all(plan, request, blocks):
    """What is stored of a request that is computed in one step."""
    plan.matched(request, 0)
    new = [(request.request_id, list(range(blocks)), 0)]
    return plan.step(output_of(new=new, scheduled={request.request_id: request.num_tokens}))[1]


def test_it_is_asked_when_a_request_arrives(plan):
    request = request_of(10)
    plan.arrived(request)
    assert plan.asker.asked == [[name(3), name(7)]]
    plan.asker.replies[1] = (2, 0)
    assert plan.matched(request, 0) == (8 * BLOCK, True)  # in the same step
    assert plan.asker.number == 1


def test_what_the_engine_has_is_not_asked_about():
    plan = Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True, local_blocks=lambda request: 5)
    request = request_of(12)
    plan.arrived(request)
    assert plan.asker.asked == [[name(7), name(11)]]
    plan.asker.replies[1] = (2, 0)
    assert plan.matched(request, 5 * BLOCK) == (7 * BLOCK, True)
    plan.arrived(request)
    plan.asker.replies[2] = (1, 0)
    assert plan.matched(request, 0) == (None, False)  # the engine lost them meanwhile: another question
    assert plan.asker.asked[2] == [name(3), name(7), name(11)]


def test_an_answer_covers_all_that_follows(plan):
    request = request_of(12)
    plan.arrived(request)
    plan.asker.replies[1] = (3, 0)
    assert plan.matched(request, 4 * BLOCK) == (8 * BLOCK, True)
    assert plan.asker.number == 1
    plan.allocated(request, list(range(12)), 8 * BLOCK)
    loads, _ = plan.step(output_of())
    assert [(c.name, c.block_ids) for c in loads[0].chunks] == [
        (name(7), [4, 5, 6, 7]), (name(11), [8, 9, 10, 11])]  # fmt: skip


def test_behind_a_gap_it_is_asked_again(plan):
    request = request_of(12)
    plan.arrived(request)
    plan.asker.replies[1] = (0, 255)  # the first is gone, which the engine has itself
    plan.asker.replies[2] = (2, 0)
    assert plan.matched(request, 4 * BLOCK) == (8 * BLOCK, True)
    assert plan.asker.asked == [[name(3), name(7), name(11)], [name(7), name(11)]]


def test_a_step_waits_no_longer_than_was_said(plan):
    plan.settings.step_wait_s = plan.wait_left_s = 0.05
    requests = [request_of(8, request_id=f"r{n}") for n in range(20)]
    began = time.monotonic()
    assert [plan.matched(r, 0) for r in requests] == [(None, False)] * 20
    assert time.monotonic() - began < 5
    assert sum(wait > 0 for wait in plan.asker.waits) == 1  # the first took all of it
    plan.step(output_of())
    plan.matched(requests[0], 0)
    assert plan.asker.waits[-1] == 0.05


def test_whole_blocks_of_a_tail_are_saved_if_asked_for(plan):
    assert [s.name for s in store_all(plan, request_of(6), 6)] == [name(3)]
    plan.settings.save_unfull_chunk = True
    request = request_of(6, request_id="tail")
    stores = store_all(plan, request, 6)
    assert [(s.name, s.parent, len(s.block_ids), s.tokens) for s in stores] == [
        (name(3), None, 4, 4 * BLOCK), (name(5), name(3), 2, 2 * BLOCK)]  # fmt: skip
    again = request_of(6, request_id="again")
    plan.arrived(again)
    assert plan.asker.asked[-1] == [name(3), name(5)]
    plan.asker.replies[plan.asker.number] = (2, 0)
    assert plan.matched(again, 0) == (6 * BLOCK, True)
    plan.allocated(again, list(range(10, 16)), 6 * BLOCK)
    loads, _ = plan.step(output_of())
    assert [(c.count, c.block_ids) for c in loads[0].chunks] == [(4, [10, 11, 12, 13]), (2, [14, 15])]
    new = [("again", list(range(10, 16)), 6 * BLOCK)]
    assert plan.step(output_of(new=new, scheduled={"again": 1}))[1] == []


def test_a_whole_prompt_has_no_tail(plan):
    plan.settings.save_unfull_chunk = True
    assert [s.name for s in store_all(plan, request_of(8), 8)] == [name(3), name(7)]


def test_token_ids_go_with_stores_where_they_are_known_and_not_private():
    plan = Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True, report_tokens=True)
    stores = store_all(plan, request_of(8), 8)
    assert [list(memoryview(s.token_ids).cast("I")) for s in stores] == [
        list(range(4 * BLOCK)), list(range(4 * BLOCK, 8 * BLOCK))]  # fmt: skip
    for number, private in enumerate(({"cache_salt": "x"}, {"mm_features": [1]}, {"prompt_embeds": [1.0]})):
        stores = store_all(plan, request_of(8, request_id=f"p{number}", **private), 8)
        assert len(stores) == 2 and all(s.token_ids is None for s in stores)
    quiet = Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True)
    assert all(s.token_ids is None for s in store_all(quiet, request_of(8), 8))


def adapter(folder, content, number=1, **more):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(content)
    time.sleep(0.02)  # the engine loads it later than this
    return types.SimpleNamespace(lora_name=folder.name, lora_path=str(folder), lora_int_id=number, **more)


def digested(known):
    until(known.quiet, 10, "adapters read")


def asked_for(plan, request_id, lora):
    """Names that are asked for a request with this adapter; none: it is not cached."""
    before = plan.asker.number
    plan.matched(request_of(8, request_id=request_id, lora_request=lora), 0)
    return plan.asker.asked[-1] if plan.asker.number > before else []


def test_names_differ_by_what_an_adapter_is(plan, tmp_path):
    """The engine's hash has its name and path; another adapter at the same path is another one."""
    big = bytes(1 << 20)
    lora = adapter(tmp_path / "a", big)
    plan.adapters.loaded(lora)
    digested(plan.adapters)
    stores = store_all(plan, request_of(8, request_id="r1", lora_request=lora), 8)
    assert [s.lora for s in stores] == ["a", "a"] and stores[0].hashes == [name(n) for n in range(4)]
    assert stores[1].parent == stores[0].name
    names = {s.name for s in stores}
    assert len(names) == 2 and not names & {name(3), name(7)}
    assert set(asked_for(plan, "r2", lora)) == names  # what is stored is asked for
    changed = adapter(tmp_path / "a", big[:700_000] + b"\1" * (len(big) - 700_000), number=2)
    plan.adapters.loaded(changed)
    digested(plan.adapters)
    others = asked_for(plan, "r3", changed)
    assert len(others) == 2 and not set(others) & names
    plan.matched(request_of(8, request_id="r4"), 0)
    assert plan.asker.asked[-1] == [name(3), name(7)]


def test_an_adapter_is_digested_when_it_is_loaded_not_by_requests(plan, tmp_path, monkeypatch):
    """The engine core's thread looks at no file."""
    lora, core = adapter(tmp_path / "a", b"w"), threading.get_ident()

    def looked(path):
        assert threading.get_ident() != core
        return real(path)

    real = weights.files_of
    monkeypatch.setattr(weights, "files_of", looked)
    plan.adapters.loaded(lora)
    assert asked_for(plan, "r0", lora) == [] or plan.adapters.quiet()  # not there yet: computed, nobody waits
    digested(plan.adapters)
    for number in range(20):
        assert len(asked_for(plan, f"q{number}", lora)) == 2


def test_files_that_changed_after_an_adapter_was_loaded(plan, tmp_path, monkeypatch):
    """The engine has the old ones: neither their names nor those of the new ones fit what it computes."""
    monkeypatch.setattr(adapters.Adapters, "LOOK_S", 0.02)
    lora = adapter(tmp_path / "a", b"old")
    plan.adapters.loaded(lora)
    adapter(tmp_path / "a", b"new")  # perhaps before they are read
    until(lambda: plan.adapters.quiet() and asked_for(plan, f"r{time.time()}", lora) == [], 10, "not cached")
    replaced = types.SimpleNamespace(**{**vars(lora), "load_inplace": True})
    plan.adapters.loaded(replaced)
    digested(plan.adapters)
    request = request_of(8, request_id="running", lora_request=replaced)
    plan.matched(request, 0)
    assert len(asked_for(plan, "q", replaced)) == 2
    plan.adapters.loaded(replaced)  # in place, under requests that run
    digested(plan.adapters)
    new = [("running", list(range(8)), 0)]
    assert plan.step(output_of(new=new, scheduled={"running": 8 * BLOCK}))[1] == []
    assert len(asked_for(plan, "later", replaced)) == 2
    plan.adapters.unloaded(1)
    assert plan.adapters.known == {}


def test_chunks_are_stored_once_their_adapter_has_a_name(plan, tmp_path):
    lora = adapter(tmp_path / "a", b"w")
    one = adapters.Adapter(lora.lora_path, time.time_ns())
    plan.adapters.known[plan.adapters._key(lora)] = one
    assert store_all(plan, request_of(8, lora_request=lora), 8) == []
    one.content = bytes(32)
    later = output_of(cached=[("r", None, 8 * BLOCK)], scheduled={"r": 1})
    assert len(plan.step(later)[1]) == 2


def test_an_adapter_that_cannot_be_read_shares_nothing(tmp_path):
    known = adapters.Adapters()
    for number, path in enumerate((str(tmp_path / "none"), "org/adapter")):
        lora = types.SimpleNamespace(lora_name="a", lora_path=path, lora_int_id=number)
        one = known.of(lora)
        digested(known)
        assert one.digest is None
    late = adapters.Adapters(sees_loads=False)  # it may have been loaded before it was last written
    one = late.of(adapter(tmp_path / "a", b"w"))
    digested(late)
    assert one.digest is None


class Core:
    """As vLLM's engine core."""

    def __init__(self):
        self.found, self.calls = changes.find_core(), []

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None):
        self.calls.append(method)
        if method == "broken":
            raise RuntimeError("broken")
        return [method]

    def add_lora(self, lora):
        return lora

    def remove_lora(self, lora_id):
        return lora_id

    def is_scheduler_paused(self):
        return False


def test_weights_that_are_updated_in_place_are_noticed(plan, tmp_path):
    core, changed = Core(), []
    assert core.found is core  # seen from what it calls while it is made
    changes.watch(core, lambda what: changed.append(what) or plan.reset(), plan.adapters)
    assert core.collective_rpc("check_health") == ["check_health"] and changed == []
    for method in ("update_weights", "reload_weights", "a_method_of_an_extension"):
        assert core.collective_rpc(method, None, args=(1,)) == [method]
    with pytest.raises(RuntimeError, match="broken"):  # it may have changed some
        core.collective_rpc("broken")
    core.collective_rpc(print)
    assert changed == ["update_weights", "reload_weights", "a_method_of_an_extension", "broken", "print"]
    assert plan.asker.epoch == 5
    lora = adapter(tmp_path / "a", b"w")
    assert core.add_lora(lora) is lora and len(plan.adapters.known) == 1
    assert core.remove_lora(lora.lora_int_id) == 1 and plan.adapters.known == {}


def test_a_cancelled_request_is_forgotten(plan):
    request = request_of(8)
    plan.arrived(request)
    assert plan.finished(request) is False and plan.tracks == {}
    plan.asker.replies[1] = (2, 0)
    plan.allocated(request, list(range(8)), 8 * BLOCK)  # never matched again: fails, and does not hang
    assert [c.block_ids for c in plan.step(output_of())[0][0].chunks] == [list(range(8))]
    assert plan.finished(request) is False


def test_a_request_from_before_a_reset_stores_nothing_until_it_starts_again(plan):
    request = request_of(8)
    plan.matched(request, 0)
    plan.step(output_of(new=[("r", list(range(8)), 0)], scheduled={"r": 2 * BLOCK}))
    plan.reset()
    _, stores = plan.step(output_of(cached=[("r", None, 2 * BLOCK)], scheduled={"r": 6 * BLOCK}))
    assert stores == []
    again = output_of(cached=[("r", list(range(20, 28)), 0)], scheduled={"r": 8 * BLOCK}, resumed=["r"])
    _, stores = plan.step(again)
    assert [(s.block_ids, s.epoch) for s in stores] == [([20, 21, 22, 23], 1), ([24, 25, 26, 27], 1)]


def test_steps_that_compute_prompts_say_how_fast_the_engine_is(plan):
    for scheduled, tokens, idle in (
        ({"a": 512, "b": 300}, 812, False),
        ({"a": 512, "b": 1, "c": 1}, 514, False),
        ({"a": 32, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}, 0, False),  # too many that only generate
        ({"a": 8}, 0, False),
        ({"a": 1}, 0, False),
        ({}, 0, True),
    ):
        plan.step(output_of(scheduled=scheduled))
        assert (plan.prefill_tokens, plan.idle) == (tokens, idle), scheduled


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
    worker.store([types.SimpleNamespace(request="a"), types.SimpleNamespace(request="b")])
    assert worker.finished({"a"}) == (None, None)  # there is something to compute: it does not wait
    assert worker.finished(set(), 0.002) == ({"a"}, None)
    assert worker.finished({"b"}) == (None, None)
