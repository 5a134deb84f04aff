"""The connector's side in the engine's scheduler, step by step, without an engine and without ranks."""

import sys
import time
import types

import pytest

from rig.kvtier_plan import BLOCK, FakeAsker, name, output_of, plan, request_of, store_all  # noqa: F401

from kvtier import ask, library, media, settings, work  # noqa: E402
from kvtier.scheduler import Plan  # noqa: E402


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
    assert work.item_of(stores[0], lambda name, tenant, part=None: tenant + bytes(16), 1000).tenant.bytes[:] == list(red)


def test_nothing_is_waited_for_while_requests_run(plan):
    plan.settings.step_wait_s = plan.wait_left_s = 0.05
    plan.step(output_of(scheduled={"running": 1}))
    assert plan.matched(request_of(8), 0) == (None, False)
    assert plan.asker.waits == [0.0]
    plan.finished(types.SimpleNamespace(request_id="running"))
    plan.matched(request_of(8), 0)
    assert plan.asker.waits[-1] > 0


def lines_of(function):
    """How many lines of Python a call executes: its price, whatever else the machine does."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_a_step_of_256_requests_takes_little_of_the_engine_core(plan, capsys):
    """A dozen lines for a request that only goes on; the time is the least of many, of which others take no part."""
    count, tokens, least, lines = 256, 4 * BLOCK + 1, 1e9, []
    requests = [request_of(8, tokens=tokens, request_id=f"r{n}") for n in range(count)]
    for request in requests:
        store_all(plan, request, 5)
    for step in range(300):
        cached = [(r.request_id, None, tokens + step % 40) for r in requests]
        output = output_of(cached=cached, scheduled={r.request_id: 1 for r in requests})
        if step % 10 == 9:
            lines.append(lines_of(lambda: plan.step(output)))
            continue
        began = time.perf_counter_ns()
        plan.step(output)
        least = min(least, time.perf_counter_ns() - began)
    with capsys.disabled():
        print(f"\na step with {count} running requests: {least / 1000:.0f} us, {min(lines)} to {max(lines)} lines")
    assert max(lines) <= 12 * count


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


def test_a_load_of_which_nothing_came_is_not_tried_again(plan):
    """vLLM 0.32 admitted no second one while others that were loaded waited behind it, for ever."""
    first, second = request_of(8, request_id="first"), request_of(8, request_id="second")
    for number, request in enumerate((first, second)):
        plan.matched(request, 0)
        plan.asker.replies[number + 1] = (2, 0)
        assert plan.matched(request, 0) == (8 * BLOCK, True)
        plan.allocated(request, list(range(number * 8, number * 8 + 8)), 8 * BLOCK)
    plan.step(output_of())
    plan.failed({*range(8), 14, 15})
    assert plan.matched(first, 0) == (0, False)
    plan.matched(second, 0)
    plan.asker.replies[3] = (2, 0)
    assert plan.matched(second, 0) == (8 * BLOCK, True)


def test_a_preempted_request_starts_again(plan):
    request = request_of(8)
    plan.matched(request, 0)
    plan.asker.replies[1] = (0, 255)
    assert plan.matched(request, 0) == (0, False)
    _, stores = plan.step(output_of(new=[("r", list(range(8)), 0)], scheduled={"r": 8 * BLOCK}))
    assert len(stores) == 2
    plan.tracks["r"].answer = None
    plan.asker.replies[2] = (0, 255)
    assert plan.matched(request, 0) == (0, False)
    again = output_of(cached=[("r", list(range(20, 28)), 0)], scheduled={"r": 4 * BLOCK}, resumed=["r"])
    _, stores = plan.step(again)  # what waited when it was preempted was not stored
    assert [s.block_ids for s in stores] == [[20, 21, 22, 23]] and plan.tracks["r"].block_ids == list(range(20, 28))
    _, stores = plan.step(output_of(cached=[("r", None, 4 * BLOCK)], scheduled={"r": 4 * BLOCK}))
    assert [s.block_ids for s in stores] == [[24, 25, 26, 27]]


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


def test_an_engine_that_only_reads_stores_nothing(plan):
    plan.settings.read_only = plan.settings.save_unfull_chunk = True
    request = request_of(10)
    plan.matched(request, 0)
    plan.asker.replies[1] = (1, 0)
    assert plan.matched(request, 0) == (4 * BLOCK, True)
    plan.allocated(request, list(range(10)), 4 * BLOCK)
    loads, _ = plan.step(output_of())
    assert [c.name for c in loads[0].chunks] == [name(3)]
    _, stores = plan.step(output_of(new=[("r", list(range(10)), 4 * BLOCK)], scheduled={"r": 6 * BLOCK}))
    assert stores == [] and plan.finished(request) is False


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
    for number, private in enumerate(({"cache_salt": "x"}, {"mm_features": [image_at(0, "x")]}, {"prompt_embeds": [1.0]})):
        stores = store_all(plan, request_of(8, request_id=f"p{number}", **private), 8)
        assert len(stores) == 2 and all(s.token_ids is None for s in stores)
    quiet = Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True)
    assert all(s.token_ids is None for s in store_all(quiet, request_of(8), 8))


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


def image_at(token, identifier):
    return types.SimpleNamespace(identifier=identifier, mm_position=types.SimpleNamespace(offset=token))


def names_asked(plan, *images, request_id="r"):
    """Of the three chunks of a prompt with these images."""
    plan.arrived(request_of(12, request_id=request_id, mm_features=list(images)))
    return plan.asker.asked[-1]


def new_plan(**more):
    return Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True, **more)


def test_an_image_that_a_client_names_has_another_name_in_each_process():
    """After a restart another picture of the same uuid was served the keys and values of the first."""
    place, said = 6 * BLOCK + 3, []
    (named,), (given,) = media.mark(["5f"], None), media.mark(["5f"], ["5f"])
    first, second = new_plan(), new_plan(unnamed=lambda: said.append(1))
    text = names_asked(first, request_id="text")
    assert names_asked(first, image_at(place, named)) == names_asked(second, image_at(place, named)) == text
    assert said == []
    own, others = (names_asked(plan, image_at(place, given), request_id="given") for plan in (first, second))
    assert said == [1]
    assert own[0] == others[0] == text[0] and len({*text, *own, *others}) == 7
    both = [image_at(place, named), image_at(10 * BLOCK, given)]
    assert names_asked(first, *both, request_id="both") == [*text[:2], own[2]]
    first.matched(request_of(12, request_id="given", mm_features=[image_at(place, given)]), 0)
    new = [("given", list(range(12)), 0)]
    stores = first.step(output_of(new=new, scheduled={"given": 12 * BLOCK + 1}))[1]
    assert [s.name for s in stores] == own and [s.parent for s in stores] == [None, *own[:2]]


def test_an_image_that_a_client_names_is_forgotten_with_the_engine_own_cache(plan):
    """Then the engine itself would compute another picture of that name."""
    given = image_at(3, "5f")
    before = names_asked(plan, given)
    assert names_asked(plan, given, request_id="again") == before
    plan.engine_forgot()
    assert not set(names_asked(plan, given, request_id="later")) & set(before)


def test_images_that_come_while_a_request_runs_are_looked_at(plan):
    text = names_asked(plan, request_id="text")
    request = request_of(8, mm_features=[])
    plan.arrived(request)
    assert plan.asker.asked[-1] == text[:2]
    request.mm_features.append(image_at(9 * BLOCK, "5f"))
    request.block_hashes += [name(n) for n in range(8, 12)]
    request.num_tokens += 4 * BLOCK
    plan.matched(request, 0)
    assert plan.asker.asked[-1][:2] == text[:2] and plan.asker.asked[-1][2] != text[2]


def test_no_client_makes_the_mark_of_a_name_by_content():
    named, *given = media.mark(["x"] * 3, [None, "x", "y"])
    forged = media.mark([named], [named])
    assert [media.is_named(image_at(0, i)) for i in (named, *given, *forged)] == [True, False, False, False]
    by_adapter = image_at(0, f"adapter:{named}")  # of which vLLM keeps what another adapter of the name made of it
    by_adapter.mm_hash = named
    assert not media.is_named(by_adapter)


def test_prompts_are_computed_from_their_first_image_where_its_data_may_be_dropped():
    plan = new_plan(images=False)
    image = image_at(5 * BLOCK, media.mark(["5f"], None)[0])
    assert names_asked(plan, image) == names_asked(new_plan(), request_id="text")[:1]
    request = request_of(12, mm_features=[image])
    assert len(store_all(plan, request, 12)) == 1
