"""Several ranks of the connector in processes of their own, without an engine: what they agree on."""

import dataclasses
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import time
import types

import pytest

from rig.router import BUILD
from rig.wait import until

PACKAGE = pathlib.Path(__file__).parents[2] / "cache" / "python"
sys.path.insert(0, str(PACKAGE))

from kvtier import ask, events, settings  # noqa: E402
from kvtier.scheduler import Plan  # noqa: E402

BLOCK, PER_CHUNK = 16, 4
HERE = pathlib.Path(__file__).parent


class Rank:
    """A rank's process."""

    def __init__(self, directory, number, capacity="16MiB", late_s=0.0, l2="", tenant="0"):
        self.path = str(directory / f"{number}.sock")
        self.process = subprocess.Popen(
            [sys.executable, HERE / "rig" / "kvtier_rank.py", PACKAGE, self.path, str(number), capacity, str(late_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"KVTIER_LIBRARY": str(BUILD / "cache" / "core" / "libkvtier.so.1"), "PATH": "/usr/bin", "L2": l2,
                 "TENANT": tenant},
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def do(self, name, *arguments):
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def plain(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def prompt_of(number, blocks, shared=0):
    """Token of each block; the first `shared` are those of prompt 0."""
    return [index if index < shared else 1000 * number + index for index in range(blocks)]


def request_of(name, tokens, salt=None):
    """A request of one made-up token a block, hashed in a chain."""
    hashes, last = [], (salt or "").encode()
    for token in tokens:
        last = hashlib.sha256(last + str(token).encode()).digest()
        hashes.append(last)
    count = len(tokens) * BLOCK + 1
    return types.SimpleNamespace(
        request_id=name, num_tokens=count, num_prompt_tokens=count, block_hashes=hashes, cache_salt=salt,
        all_token_ids=[t for token in tokens for t in [token] * BLOCK] + [0],
    )  # fmt: skip


def output_of(new=(), scheduled=None):
    return types.SimpleNamespace(
        scheduled_new_reqs=[
            types.SimpleNamespace(req_id=r, block_ids=(ids,), num_computed_tokens=done) for r, ids, done in new
        ],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()),
        num_scheduled_tokens=scheduled or {}, scheduled_spec_decode_tokens={}, finished_req_ids=set(),
    )  # fmt: skip


class Engine:
    """A scheduler over ranks, as vLLM's: blocks are handed out once, loads are waited for, blocks that some rank did
    not fill are computed by all."""

    def __init__(self, ranks, deadline_s=5.0, **keys):
        self.ranks = ranks
        self.asker = ask.Asker([rank.path for rank in ranks], deadline_s)
        self.settings = settings.Settings(chunk_tokens=PER_CHUNK * BLOCK, **keys)
        self.plan = Plan(self.asker, self.settings, BLOCK, True, report_tokens=True)
        self.next_block, self.requests = 1, 0

    def run(self, tokens, salt=None):
        """Tokens that were loaded of a request for these blocks; all of its blocks are right afterwards."""
        self.requests += 1
        request = request_of(f"r{self.requests}", tokens, salt)
        ids = list(range(self.next_block, self.next_block + len(tokens)))
        self.next_block += len(tokens)
        self.plan.arrived(request)
        loadable = self.lookup(request)
        done = self.load(request, ids, loadable) if loadable else 0
        self.compute(request, ids, tokens, done)
        for rank in self.ranks:
            assert all(rank.do("holds", ids, tokens))
        return done * BLOCK

    def lookup(self, request):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            tokens, asynchronous = self.plan.matched(request, 0)
            self.plan.step(output_of())
            if tokens is not None:
                assert asynchronous == (tokens > 0)
                return tokens
            time.sleep(0.002)
        raise AssertionError("no answer")

    def load(self, request, ids, tokens):
        """Blocks that all ranks have filled."""
        self.plan.allocated(request, ids, tokens)
        loads, _ = self.plan.step(output_of())
        assert [load.request for load in loads] == [request.request_id]
        for rank in self.ranks:
            rank.do("load", request.request_id, plain([dataclasses.asdict(c) for c in loads[0].chunks]), loads[0].epoch,
                    loads[0].tenant.hex())  # fmt: skip
        failed = set()
        for rank in self.ranks:
            done = []
            until(lambda: any(done.append(r) or r[0] for r in [rank.do("received")]), 20, "load over")
            failed |= {block for _, blocks in done for block in blocks}
        self.plan.failed(failed)
        first = min((ids.index(block) for block in failed), default=tokens // BLOCK)
        return first

    def compute(self, request, ids, tokens, done):
        for rank in self.ranks:
            rank.do("fill", ids[done:], tokens[done:])
        left = {request.request_id: request.num_tokens - done * BLOCK}
        _, stores = self.plan.step(output_of([(request.request_id, ids, done * BLOCK)], left))
        for rank in self.ranks:
            rank.do("store", plain([dataclasses.asdict(store) for store in stores]))
        for rank in self.ranks:
            until(lambda: rank.do("stored", [request.request_id]), 20, "stored")
        self.plan.finished(request)

    def close(self):
        self.asker.close()


@pytest.fixture
def make(tmp_path):
    started = []

    def start(*ranks, folder="one", **keys):
        made = [Rank(tmp_path / folder, number, **more) for number, more in enumerate(ranks)]
        started.extend(made)
        started.append(Engine(made, **keys))
        return started[-1]

    yield start
    for one in reversed(started):
        one.kill() if isinstance(one, Rank) else one.close()


def test_two_ranks_load_what_both_hold(make):
    engine = make({}, {})
    tokens = prompt_of(0, 12)
    assert engine.run(tokens) == 0
    assert engine.run(tokens) == 12 * BLOCK
    assert engine.run(prompt_of(1, 12, shared=9)) == 8 * BLOCK
    assert engine.run(prompt_of(2, 12)) == 0
    assert [rank.do("counters").get("failed_loads", 0) for rank in engine.ranks] == [0, 0]


def test_the_rank_with_fewer_chunks_decides(make):
    """One has room for a few chunks only."""
    engine = make({"capacity": "16MiB"}, {"capacity": "1MiB"})
    prompts = [prompt_of(number, 20) for number in range(10)]
    for tokens in prompts:
        engine.run(tokens)
    found = [engine.lookup(request_of(f"q{n}", tokens)) for n, tokens in enumerate(prompts)]
    assert min(found) < 20 * BLOCK  # the small one lost some
    large = ask.Asker([engine.ranks[0].path], 5)
    number = large.ask([h for h in request_of("x", prompts[0]).block_hashes[PER_CHUNK - 1 :: PER_CHUNK]])
    until(lambda: large.answer(number, 0.01) == (5, 0), 20, "the large one has all")
    large.close()
    assert engine.run(prompts[-1]) > 0


def test_a_load_that_fails_on_one_rank_after_both_said_yes(make):
    engine = make({}, {})
    tokens = prompt_of(0, 12)
    engine.run(tokens)
    request = request_of("q", tokens)
    assert engine.lookup(request) == 12 * BLOCK
    engine.ranks[1].do("lose")
    ids = list(range(100, 112))
    done = engine.load(request, ids, 12 * BLOCK)
    assert done == 0
    engine.compute(request, ids, tokens, done)
    assert all(all(rank.do("holds", ids, tokens)) for rank in engine.ranks)
    assert engine.run(tokens) == 12 * BLOCK  # stored again where it was lost


def test_a_tenant_fills_its_own_share_only(make):
    """tenant_l1_bytes caps what one cache salt holds; prompts without one are a tenant of their own."""
    engine = make({"tenant": "128KiB"})  # 32 blocks
    own = {salt: prompt_of(number, 8) for number, salt in enumerate((None, "red", "blue"))}
    for salt, tokens in own.items():
        assert engine.run(tokens, salt) == 0
    for number in range(10, 18):
        engine.run(prompt_of(number, 8), "red")  # more than its share: it loses its own
    assert engine.run(own[None], None) == engine.run(own["blue"], "blue") == 8 * BLOCK
    assert engine.lookup(request_of("q", own["red"], "red")) < 8 * BLOCK
    counts = [engine.lookup(request_of(f"q{number}", prompt_of(number, 8), "red")) for number in range(10, 18)]
    assert 0 < sum(counts) <= 32 * BLOCK


def test_a_rank_that_dies_ends_the_cache_not_the_requests(make):
    engine = make({}, {})
    tokens = prompt_of(0, 12)
    engine.run(tokens)
    engine.ranks[1].kill()
    assert engine.lookup(request_of("q", tokens)) == 0
    assert engine.lookup(request_of("p", tokens)) == 0


def test_a_rank_that_dies_while_it_is_asked(make):
    engine = make({}, {"late_s": 60.0})
    request = request_of("q", prompt_of(0, 12))
    engine.plan.arrived(request)
    assert engine.plan.matched(request, 0) == (None, False)
    engine.ranks[1].kill()
    assert engine.lookup(request) == 0


def test_a_rank_that_answers_late_is_waited_for_in_later_steps(make):
    engine = make({}, {"late_s": 0.3})
    tokens = prompt_of(0, 12)
    engine.run(tokens)
    request = request_of("q", tokens)
    engine.plan.arrived(request)
    began = time.monotonic()
    assert engine.plan.matched(request, 0) == (None, False)
    assert time.monotonic() - began < 0.25  # a step does not wait for it
    assert engine.lookup(request) == 12 * BLOCK


def test_a_rank_that_answers_too_late_has_nothing(make):
    engine = make({}, {"late_s": 2.0}, deadline_s=0.2)
    engine.ranks[0].do("fill", [1], [1])
    assert engine.lookup(request_of("q", prompt_of(0, 12))) == 0


def test_a_reset_reaches_all_ranks_and_what_was_under_way(make):
    engine = make({}, {})
    tokens = prompt_of(0, 12)
    engine.run(tokens)
    request = request_of("q", tokens)
    assert engine.lookup(request) == 12 * BLOCK
    ids = list(range(100, 112))
    engine.plan.allocated(request, ids, 12 * BLOCK)
    loads, _ = engine.plan.step(output_of())
    engine.plan.reset()
    for rank in engine.ranks:  # planned before the reset, it fails after it
        rank.do("load", "q", plain([dataclasses.asdict(c) for c in loads[0].chunks]), loads[0].epoch)
        until(lambda: rank.do("received") == [["q"], ids], 20, "all of it failed")
    assert engine.run(tokens) == 0
    assert engine.run(tokens) == 12 * BLOCK
    assert [rank.do("counters")["resets"] for rank in engine.ranks] == [1, 1]


def test_a_reset_of_one_replica_leaves_the_shared_tier_to_the_others(make, tmp_path, redis):
    """Two engines of the same weights share a tier. One is reset, as by /sleep or an update of its weights."""
    first, second, third = (make({"l2": redis.url}, folder=name) for name in "abc")
    tokens = prompt_of(0, 12)
    first.run(tokens)

    def shared(engine):
        return until(lambda: engine.lookup(request_of(f"q{time.time()}", tokens)) == 12 * BLOCK, 20, "all is shared")

    shared(second)
    first.plan.reset()
    assert first.lookup(request_of("q", tokens)) == 0  # its weights may be others now
    shared(third)
    other = prompt_of(1, 12)
    first.run(other)  # by whatever weights it has
    assert first.lookup(request_of("p", other)) == 12 * BLOCK
    time.sleep(0.5)
    assert second.lookup(request_of("p", other)) == third.lookup(request_of("p", other)) == 0
    shared(second)
    names = [engine.ranks[0].do("key", "11" * 32) for engine in (first, second, third)]
    second.plan.reset()
    second.lookup(request_of("r", other))
    names.append(second.ranks[0].do("key", "11" * 32))
    assert names[1] == names[2] and len(set(names)) == 3  # nor do two that were reset share anything


def test_what_old_weights_computed_is_not_stored_after_a_reset(make):
    engine = make({}, {})
    tokens = prompt_of(0, 12)
    request, ids = request_of("old", tokens), list(range(1, 13))
    assert engine.lookup(request) == 0
    for rank in engine.ranks:
        rank.do("fill", ids, [t + 7 for t in tokens])  # other weights, other bytes
    new = [("old", ids, 0)]
    _, stores = engine.plan.step(output_of(new, {"old": 8 * BLOCK}))
    assert len(stores) == 2
    engine.plan.reset()
    for rank in engine.ranks:  # they come late
        rank.do("store", plain([dataclasses.asdict(store) for store in stores]))
        until(lambda: rank.do("stored", ["old"]), 20, "thrown away")
    later = output_of([("old", ids, 8 * BLOCK)], {"old": 4 * BLOCK})
    assert engine.plan.step(later)[1] == []  # nor what it computes from now on
    assert engine.plan.finished(request) is True
    assert engine.run(tokens) == 0


# --- events ---------------------------------------------------------------------------------------


def told(subscriber, count):
    found = []
    until(lambda: found.extend(subscriber.take()) or len(found) >= count, 20, f"{count} events")
    return found


def test_a_chunk_is_published_when_all_ranks_hold_it_and_removed_when_one_lost_it(make):
    engine = make({}, {})
    woken = []
    subscriber = events.Subscriber(
        [rank.path for rank in engine.ranks], ask.LISTEN, types.SimpleNamespace(exception=print), lambda: woken.append(1)
    )  # fmt: skip
    try:
        tokens = prompt_of(0, 8)
        engine.run(tokens)
        found = told(subscriber, 2)
        request = request_of("x", tokens)
        assert [e.kind for e in found] == [events.STORED] * 2
        assert [h for e in found for h in e.hashes] == request.block_hashes
        assert found[1].parent == request.block_hashes[PER_CHUNK - 1] and found[0].parent is None
        ids = b"".join(e.tokens for e in found)
        assert list(memoryview(ids).cast("I")) == request.all_token_ids[: 8 * BLOCK]
        engine.ranks[1].do("lose")
        gone = told(subscriber, 2)
        assert [e.kind for e in gone] == [events.REMOVED] * 2
        until(lambda: woken == [] or not subscriber.has_some(), 5, "taken")
        engine.ranks[0].do("lose")  # nothing that another rank could still have
        engine.run(prompt_of(1, 4))
        assert {h for e in told(subscriber, 1) for h in e.hashes} == set(request_of("y", prompt_of(1, 4)).block_hashes)
        engine.run(prompt_of(2, 4))
        until(lambda: subscriber.has_some() and woken, 20, "the engine wakes for events that no subscriber takes")
    finally:
        subscriber.close()


def test_frames_are_what_was_packed():
    one = events.Event(events.STORED, 1, (b"a" * 32, b"b" * 32), b"c" * 32, bytes(range(32)), 4, "lora é")
    bare = events.Event(events.REMOVED, 2, (b"a" * 8,))
    for event in (one, bare, events.Event(events.CLEARED, 0, ())):
        frame = events.pack(event)
        assert events.unpack(frame[4:]) == event
        for length in range(4, len(frame)):
            with pytest.raises(ValueError):
                events.unpack(frame[4:length])
        with pytest.raises(ValueError):
            events.unpack(frame[4:] + b"x")


def test_whatever_comes_is_an_event_or_a_value_error():
    rng = random.Random(8)
    good = events.pack(events.Event(events.STORED, 1, (b"a" * 32, b"b" * 32), b"c" * 32, bytes(32), 4, "x"))[4:]
    read = 0
    for _ in range(5000):
        data = bytearray(good if rng.random() < 0.7 else rng.randbytes(rng.randrange(80)))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(min(len(data), 24))] = rng.randrange(256)
        try:
            read += isinstance(events.unpack(bytes(data)), events.Event)
        except ValueError:
            continue
    assert 0 < read < 5000
