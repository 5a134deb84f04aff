"""Models of windows and full attention: several groups of KV caches in the connector, without an engine."""

import ctypes
import random
import time
import types

import pytest

from rig.kvtier_plan import BLOCK, FakeAsker, name, output_of, request_of
from rig.router import BUILD

from kvtier import groups, settings  # noqa: E402
from kvtier.groups import ENDS, WHOLE, Groups, end_keys  # noqa: E402
from kvtier.parts import GroupedCache, Part  # noqa: E402
from kvtier.scheduler import Plan  # noqa: E402
from rig.kvtier_groups import BLOCK_BYTES, Engine, Manager, Memory, hashes_of  # noqa: E402

PER_CHUNK = 4


class Asker(FakeAsker):
    def ask(self, names, tenant, ends):
        self.ends = ends
        return super().ask(names, tenant)


def made(windows=((1, 6),), ranks=1, tails=False, blocks=64):
    """(plan, tables, manager) of group 0, which sees all, and windows."""
    manager = Manager(blocks, 1 + len(windows))
    tables = groups.Tables(Groups((0,), windows), PER_CHUNK, tails, lambda: manager, ranks)
    asked = settings.Settings(chunk_tokens=PER_CHUNK * BLOCK, save_unfull_chunk=tails)
    return Plan(Asker(), asked, BLOCK, True, groups=tables), tables, manager


def found(plan, request, count, computed=0):
    """What matched() says when ranks have so many chunks."""
    plan.matched(request, computed)
    plan.asker.replies[plan.asker.number] = (count, 0)
    return plan.matched(request, computed)


def table(count, window, first=100):
    """Blocks of a group that full attention, and of one of which only the last `window` are there."""
    return list(range(first, first + count)), [0] * (count - window) + list(range(500, 500 + window))


def pieces(load):
    return [(c.name, c.part, c.skip, c.block_ids) for c in load.chunks]


# --- what to load ---


def test_windows_are_loaded_where_they_end():
    plan, _, _ = made()
    request = request_of(13)
    assert found(plan, request, 3) == (12 * BLOCK, True)
    assert plan.asker.ends == 2  # a window of six blocks reaches into two chunks of four
    whole, window = table(12, 6)
    plan.allocated(request, (whole, window), 12 * BLOCK)
    (load,) = plan.step(output_of())[0]
    assert pieces(load) == [
        (name(3), WHOLE, [0], [whole[0:4]]), (name(7), WHOLE, [0], [whole[4:8]]), (name(11), WHOLE, [0], [whole[8:12]]),
        (name(7), ENDS, [2], [window[6:8]]), (name(11), ENDS, [0], [window[8:12]]),
    ]  # fmt: skip


def test_short_windows_are_a_part_of_the_last_chunk():
    plan, _, _ = made(((1, 1), (2, 3)))
    request = request_of(13)
    assert found(plan, request, 2) == (8 * BLOCK, True) and plan.asker.ends == 1
    whole, one = table(8, 1)
    three = [0] * 5 + [700, 701, 702]
    plan.allocated(request, (whole, one, three), 8 * BLOCK)
    (load,) = plan.step(output_of())[0]
    assert pieces(load)[2:] == [(name(7), ENDS, [0, 0], [one[7:], three[5:]])]


def test_what_the_engine_has_of_a_window_is_not_loaded():
    plan, _, _ = made()
    request = request_of(13)
    assert found(plan, request, 2, computed=6 * BLOCK) == (6 * BLOCK, True)
    assert plan.asker.asked[-1] == [name(7), name(11)]
    whole, window = table(12, 6)
    plan.allocated(request, (whole, window), 6 * BLOCK)
    (load,) = plan.step(output_of())[0]
    assert pieces(load) == [
        (name(7), WHOLE, [2], [whole[6:8]]), (name(11), WHOLE, [0], [whole[8:12]]),
        (name(7), ENDS, [2], [window[6:8]]), (name(11), ENDS, [0], [window[8:12]]),
    ]  # fmt: skip


def test_the_first_question_leaves_out_what_the_engine_has_of_all_groups():
    plan, tables, manager = made(((1, 6), (2, 2)))
    plan.local_blocks, cached = tables.local_blocks, manager.block_pool.cached
    cached |= {(name(n), 0) for n in range(12)} | {(name(7), 1), (name(7), 2), (name(11), 1)}
    assert tables.local_blocks(request_of(13)) == 8  # a window of the third chunk is gone
    plan.arrived(request_of(13))
    assert plan.asker.asked == [[name(11)]]
    cached.clear()
    assert tables.local_blocks(request_of(13)) == 0


def test_a_hit_ends_where_a_chunk_ends():
    plan, _, _ = made()
    exact = request_of(8, tokens=8 * BLOCK)  # its last token is computed, and with it the last chunk
    assert found(plan, exact, 1) == (4 * BLOCK, True)
    assert plan.asker.asked == [[name(3)]]


def test_an_answer_about_more_chunks_says_nothing_of_windows_before():
    plan, _, _ = made()
    request = request_of(13)
    plan.matched(request, 0)
    plan.asker.replies[plan.asker.number] = (3, 0)
    plan.matched(request, 0)
    track = plan.tracks["r"]
    track.wanted = track.wanted[0], track.wanted[1][:2]
    track.asked = track.asked[:2]  # of which it was said that three are there
    assert plan.matched(request, 0) == (None, False) and len(plan.asker.asked) == 2


@pytest.mark.parametrize(
    "whole, window",
    [
        (table(12, 6)[0], table(12, 5)[1]),  # the window lacks a block
        (table(12, 6)[0], table(12, 7)[1]),  # vLLM wants one more than windows have
        ([0, *table(12, 6)[0][1:]], table(12, 6)[1]),
        (table(11, 6)[0], table(12, 6)[1]),
    ],
)
def test_a_load_into_other_blocks_than_those_of_the_window_fails(whole, window):
    plan, _, _ = made()
    request = request_of(13)
    found(plan, request, 3)
    plan.allocated(request, (whole, window), 12 * BLOCK)
    (load,) = plan.step(output_of())[0]
    assert [c.name for c in load.chunks] == [bytes(32)]


def test_a_load_that_failed_is_computed_and_stored_again():
    plan, _, manager = made()
    request = request_of(13)
    found(plan, request, 3)
    whole, window = table(12, 6)
    plan.allocated(request, (whole, window), 12 * BLOCK)
    plan.step(output_of())
    plan.failed_requests({"r", "another"})
    asked = plan.asker.number
    assert plan.matched(request, 0) == (0, False) and plan.asker.number == asked
    for group in (0, 1):
        manager.grow("r", group, 13)
    new = output_of(new=[("r", [], 0)], scheduled={"r": 13 * BLOCK})
    new.scheduled_new_reqs[0].block_ids = manager.get_block_ids("r")
    assert len(plan.step(new)[1]) == 6


# --- what to store ---


def computed(plan, manager, blocks, window=None, done=0, first=True):
    """Stores of a step that computes a request's blocks behind `done`. window: the first block that it still has."""
    for group in (0, 1):
        manager.grow("r", group, blocks)
    if window is not None:
        manager.drop("r", 1, 0, window)
    out = output_of(
        new=[("r", [], done * BLOCK)] if first else [], cached=[] if first else [("r", [], done * BLOCK)],
        scheduled={"r": (blocks - done) * BLOCK},
    )  # fmt: skip
    if first:
        out.scheduled_new_reqs[0].block_ids = manager.get_block_ids("r")
    else:
        out.scheduled_cached_reqs.new_block_ids = [tuple(ids[done:] for ids in manager.get_block_ids("r"))]
    return plan.step(out)[1]


def test_a_chunk_is_stored_with_the_ends_of_windows():
    plan, _, manager = made(((1, 3),))
    plan.matched(request_of(9), 0)
    stores = computed(plan, manager, 9)
    whole, window = manager.get_block_ids("r")
    assert [(s.name, s.part, s.count, s.block_ids, s.parent) for s in stores] == [
        (name(3), WHOLE, 4, [whole[0:4]], None), (name(3), ENDS, 4, [window[1:4]], name(3)),
        (name(7), WHOLE, 4, [whole[4:8]], name(3)), (name(7), ENDS, 4, [window[5:8]], name(7)),
    ]  # fmt: skip
    assert [len(s.hashes) for s in stores] == [4, 0, 4, 0]  # ends cause no events


def test_ends_that_the_engine_gave_away_are_not_stored():
    plan, _, manager = made()
    plan.matched(request_of(13), 0)
    stores = computed(plan, manager, 12, window=5, done=11)  # it found eleven blocks in its own cache
    assert [(s.name, s.part) for s in stores] == [
        (name(3), WHOLE), (name(7), WHOLE), (name(11), WHOLE), (name(11), ENDS)]  # fmt: skip
    manager.drop("r", 1, 0, 9)
    plan.failed_requests({"r"})
    assert [s.part for s in computed(plan, manager, 12, done=11)] == [WHOLE] * 3


def test_blocks_of_windows_are_held_until_all_ranks_have_copied_them():
    plan, tables, manager = made(((1, 3),), ranks=2)
    plan.matched(request_of(5), 0)
    stores = computed(plan, manager, 4)
    free, ends = len(manager.block_pool.free), stores[1]
    assert [s.ticket > 0 for s in stores] == [False, True] and set(tables.held) == {ends.ticket}
    manager.drop("r", 1, 0, 4)
    assert len(manager.block_pool.free) == free + 1  # but for the three of the window
    tables.copied([ends.ticket])
    assert len(manager.block_pool.free) == free + 1
    tables.copied([ends.ticket, 77])
    assert len(manager.block_pool.free) == free + 4 and not tables.held
    tables.copied([ends.ticket])
    assert len(manager.block_pool.free) == free + 4


def test_an_engine_takes_steps_until_held_blocks_are_copied(monkeypatch):
    """Ranks say so in steps alone: where no request was left, `/pause` and resets found blocks in use for ever."""
    plan, tables, manager = made(((1, 3),))
    plan.matched(request_of(5), 0)
    assert not tables.wait()
    ends = computed(plan, manager, 4)[1]
    assert tables.wait()
    now = groups.time.monotonic()
    monkeypatch.setattr(groups.time, "monotonic", lambda: now + groups.COPY_S + 1)
    assert not tables.wait()  # a rank that says nothing costs no steps for ever
    monkeypatch.undo()
    assert tables.wait()
    tables.copied([ends.ticket])
    assert not tables.wait()


def test_a_step_that_fails_holds_no_blocks():
    plan, tables, manager = made()
    plan.matched(request_of(9), 0)
    plan._measure = None
    with pytest.raises(TypeError):
        computed(plan, manager, 9)
    assert not tables.held and all(block.ref_cnt == 1 for ids in manager.get_block_ids("r") for block in
                                   (manager.block_pool.blocks[i] for i in ids))  # fmt: skip


def test_a_hold_that_fails_leaves_nothing_held(monkeypatch):
    """No rank hears of the others of that step."""
    plan, tables, manager = made()
    plan.matched(request_of(9), 0)
    pool, touched = manager.block_pool, []

    def touch(blocks):
        if touched:
            raise MemoryError
        touched.append(blocks)
        type(pool).touch(pool, blocks)

    monkeypatch.setattr(pool, "touch", touch, raising=False)
    with pytest.raises(MemoryError):
        computed(plan, manager, 9)
    assert touched and not tables.held and all(pool.blocks[i].ref_cnt == 1 for ids in manager.get_block_ids("r") for i in ids)


def test_a_ticket_that_is_lost_is_waited_for_once(monkeypatch):
    """Those that come later are not: the engine would never preempt again."""
    plan, tables, manager = made(((1, 3),))
    now = [groups.time.monotonic()]
    monkeypatch.setattr(groups.time, "monotonic", lambda: now[0])
    plan.matched(request_of(9), 0)
    computed(plan, manager, 4)
    now[0] += groups.COPY_S + 1
    later = tables.hold([manager.get_block_ids("r")[1][:1]])
    assert tables.wait()
    tables.copied([later])
    assert tables.held and not tables.wait()


# --- which engines are served ---


def spec(made="FullAttentionSpec", **more):
    return type(made, (), {"block_size": BLOCK, **more})()


def said_of(*specs, **more):
    config = types.SimpleNamespace(kv_cache_groups=[types.SimpleNamespace(kv_cache_spec=s, **more) for s in specs])
    return groups.find(config, [type(s).__name__ for s in specs], BLOCK)


def test_windows_and_full_attention_are_served():
    window = spec("SlidingWindowSpec", sliding_window=100)
    assert said_of(spec(), window, window) == (Groups((0,), ((1, 7), (2, 7))), None)
    assert said_of(window, spec())[0] == Groups((1,), ((0, 7),))
    assert said_of(spec(), spec("SlidingWindowSpec", sliding_window=97))[0].windows == ((1, 6),)
    kept = spec("SlidingWindowSpec", sliding_window=97, extra_retained_tokens=1)
    assert said_of(spec(), kept)[0].windows == ((1, 7),)


def test_other_kinds_are_refused_by_name():
    window = spec("SlidingWindowSpec", sliding_window=64)
    for kind in ("MambaSpec", "ChunkedLocalAttentionSpec", "CrossAttentionSpec", "RSWASpec", "SlidingWindowMLASpec"):
        answer, why = said_of(spec(), window, spec(kind))
        assert answer is None and kind in why
    for specs in ([window, window], [spec(), spec()]):
        answer, why = said_of(*specs)
        assert answer is None and "2 groups of KV caches" in why
    other = spec("SlidingWindowSpec", sliding_window=64)
    other.block_size = 2 * BLOCK
    assert "blocks of 32 tokens" in said_of(spec(), other)[1]
    assert "draft model" in said_of(spec(), window, is_eagle_group=True)[1]
    assert "not the engine's own" in said_of(spec(), window, enable_kv_transfer=False)[1]


def test_names_and_boundaries():
    assert list(end_keys(3, 2)) == [2, 1] and list(end_keys(1, 4)) == [0] and list(end_keys(5, 1)) == [4]
    one = Groups((0,), ((1, 6),))
    assert one.ends(4, False) == 2 and one.ends(4, True) == 3 and one.ends(8, False) == 1
    assert one.describe() != Groups((0,), ((1, 5),)).describe()


# --- bytes ---


def test_an_object_is_one_group_after_the_other():
    memory = ctypes.create_string_buffer(16 * BLOCK_BYTES)
    part = Part([Memory(memory, 16), Memory(memory, 16)], [2, None])
    for block in range(16):
        ctypes.memset(ctypes.addressof(memory) + block * BLOCK_BYTES, block, BLOCK_BYTES)
    assert part.chunk_bytes(4) == 6 * BLOCK_BYTES and part.chunk_bytes(1) == 2 * BLOCK_BYTES
    room = ctypes.create_string_buffer(6 * BLOCK_BYTES)
    cut = 100  # segments that end anywhere
    segments = [(ctypes.addressof(room) + at, min(cut, 6 * BLOCK_BYTES - at)) for at in range(0, 6 * BLOCK_BYTES, cut)]
    assert part.gather([[3, 4], [5, 6, 7, 8]], segments, None)
    assert room.raw == b"".join(bytes([n]) * BLOCK_BYTES for n in range(3, 9))
    assert part.scatter([[], [12, 13]], [2, 1], 4, segments, None)()
    assert memory.raw[12 * BLOCK_BYTES : 14 * BLOCK_BYTES] == bytes([6]) * BLOCK_BYTES + bytes([7]) * BLOCK_BYTES
    assert part.scatter([[14], []], [1, 0], 4, segments, None)()
    assert memory.raw[14 * BLOCK_BYTES : 15 * BLOCK_BYTES] == bytes([4]) * BLOCK_BYTES


def test_layers_have_to_be_those_of_the_groups():
    with pytest.raises(ValueError, match="other layers"):
        GroupedCache(lambda _: None, {"a": None, "b": None, "c": None}, [["a"], ["b"]], Groups((0,), ((1, 1),)))


# --- a rank ---


@pytest.fixture
def engine_of(tmp_path, monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))
    started = []

    def start(*arguments, **more):
        started.append(Engine(tmp_path, *arguments, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_a_boundary_without_its_windows_is_a_miss(engine_of):
    copies = iter([True, True, False, True, True, True, True])  # the ends of the third chunk are not stored
    engine = engine_of((3,), 2, before_gather=lambda: next(copies))
    tokens = list(range(10))
    assert engine.run(tokens, [10]) == 0
    names = hashes_of(tokens)[1::2]
    assert [engine.has(n) for n in names] == [True] * 5
    assert [engine.has(n, ENDS) for n in names] == [True, True, False, True, True]
    assert engine.run(tokens[:9], [9]) == 4  # the fourth chunk's end needs the third's window
    assert engine.run(tokens, [10]) == 10  # the last two chunks have all that a window of three blocks needs


def test_windows_come_back_whatever_was_given_away(engine_of):
    """Random prompts with common beginnings, computed in steps of any size, in blocks that are used again at once; some
    copies fail, all are late."""
    rng = random.Random(5)

    def before_gather():
        time.sleep(0.001)  # the engine goes on
        return rng.random() > 0.1

    engine, loads, shared = engine_of((5, 2), 2, 56, before_gather, True), 0, 0
    for _ in range(60):
        base = rng.randrange(3)
        common, length = rng.randrange(1, 12), rng.randrange(1, 16)
        tokens = [(base, n) if n < common else rng.randrange(4) for n in range(length)]
        steps = [rng.choice((1, 1, 2, 3, 7)) for _ in range(length)]
        request = engine.begin(tokens)
        best = 0  # what a boundary needs is looked up chunk by chunk
        names = request.block_hashes
        for end in range(1, length + 1):
            if end % 2 and end != length:
                continue
            chunks = [*range(2, end + 1, 2), *([end] if end % 2 else [])]
            need = [c for c in chunks if c > end - 5]
            if all(engine.has(names[c - 1]) for c in chunks) and all(engine.has(names[c - 1], ENDS) for c in need):
                best = end
        loaded = engine.run(tokens, steps)
        assert loaded <= best
        loads, shared = loads + (loaded > 0), shared + (best > 0)
        assert not engine.tables.held and len(engine.manager.block_pool.free) == 55
    assert loads > 15 and loads > 0.7 * shared


def test_a_load_that_was_never_planned_fails_and_the_cache_goes_on(engine_of):
    engine, tokens = engine_of((3,), 2), list(range(9))
    assert engine.run(tokens, [9]) == 0
    request = engine.begin(tokens)
    assert engine.lookup(request) == 8
    engine.plan.reset()  # before the engine allocates blocks for what it was answered
    assert engine.load(request, 8) == 0
    engine.compute(request, 0, [9])
    engine.finish(request)
    assert engine.run(tokens, [9]) == 8 and engine.rank.thread.is_alive()
