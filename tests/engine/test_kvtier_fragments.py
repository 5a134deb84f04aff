"""Fragments inside a real engine: requests that ask for it take known text that is no prefix; others never do.

The control stores marked bytes in the place of fragments (poisoned.py): blended answers change, exact ones do not.
"""

import random

import pytest
from connected import ConnectedEngine, at_once, of_size

CONFIG = {**of_size(256), "fragments": {"enabled": True, "min_tokens": 32}}
WORDS = 600  # token ids of the model from 10 on
BLOCK = 32


def document(seed, tokens):
    rng = random.Random(seed)
    return [rng.randrange(10, WORDS) for _ in range(tokens)]


A, B, C = document(1, 200), document(2, 151), document(3, 90)
ORDERS = [[A, B], [B, A], [B, C, A], [C, A], [A, C, B], [C, B]]


def ask(engine, parts, asks=None, question=7, salt=None):
    """The answer's tokens as text, and how many of the prompt's the engine did not compute."""
    prompt = [token for part in parts for token in part] + document(1000 + question, 20)
    ends, at = [], 0
    for part in parts:
        at += len(part)
        ends.append(at)
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    if asks is not None:
        body["kv_transfer_params"] = {"kvtier.fragments": asks, "kvtier.fragment_bounds": ends}
    if salt is not None:
        body["cache_salt"] = salt
    found = engine.post("/v1/completions", body)
    return found["choices"][0]["text"], (found["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0


def whole(parts):
    """Tokens of these documents in whole blocks."""
    return sum(map(len, parts)) // BLOCK * BLOCK


@pytest.fixture(scope="module")
def plain(directory):
    """What exact answers are: fragments are off, whatever requests ask for."""
    engine = ConnectedEngine(directory, 70, of_size(256)).ready()
    yield engine
    engine.kill()


@pytest.fixture(scope="module")
def right(plain):
    return {i: ask(plain, parts, question=i)[0] for i, parts in enumerate(ORDERS)}


def test_off_nothing_changes(plain, right):
    plain.forget_all()
    for asks in ("store", True, False):
        for i, parts in enumerate(ORDERS[:3]):
            assert ask(plain, parts, asks, i)[0] == right[i]
    counts = plain.counts()
    assert counts["kvtier:blended_tokens_total"] == counts["kvtier:stored_fragment_chunks_total"] == 0


@pytest.fixture(scope="module")
def engine(directory):
    engine = ConnectedEngine(directory, 71, CONFIG).ready()
    yield engine
    engine.kill()


def stored(engine, chunks):
    """Waits until so many chunks of fragments are stored."""
    from rig.wait import until

    until(lambda: engine.counts()["kvtier:stored_fragment_chunks_total"] >= chunks, 30, f"{chunks} chunks stored")


def test_known_text_is_taken_in_any_order(engine, right):
    # exact, and its fragments are kept: 200 and 151 tokens in chunks of 64, and 20 of the question
    assert ask(engine, [A, B], "store", 0) == (right[0], 0)
    stored(engine, 4 + 3 + 1)
    assert ask(engine, [A, B], True, 20)[1] == whole([A, B])
    # at the same place behind the same text its answer is the exact one; the question is known, too
    assert ask(engine, [A, B], True, 0) == (right[0], whole([A, B]) + BLOCK)
    # in another order it is taken all the same
    assert ask(engine, [B, A], True, 1)[1] == whole([B, A])
    # a text that is not known ends the run
    assert ask(engine, [B, C, A], True, 2)[1] == whole([B])
    assert ask(engine, [C, B], True, 5) == (right[5], 0)
    counts = engine.counts()
    assert counts["kvtier:blended_tokens_total"] == whole([A, B]) + BLOCK + whole([B, A])  # the engine had the rest
    assert counts["kvtier:failed_blocks_total"] == 0
    # C stood first in a prompt of which nothing was cached, so that it was kept
    stored(engine, 4 + 3 + 1 + 2)
    assert ask(engine, [B, C, A], True, 22)[1] == whole([B, C, A])


def test_a_tenant_has_its_own(engine):
    assert ask(engine, [B, A], True, 30, salt="someone")[1] == 0
    assert ask(engine, [B, A], True, 31)[1] > 0


def test_exact_requests_get_no_blended_byte(directory, right):
    poisoned = ConnectedEngine(directory, 72, CONFIG, module="poisoned").ready()
    try:
        assert ask(poisoned, [A, B, C], "store", 50)[1] == 0
        stored(poisoned, 4 + 3 + 2)
        order = [(i, asks) for i in range(len(ORDERS)) for asks in (True, None, False, "store")] * 2
        random.Random(5).shuffle(order)
        found = at_once(lambda one: ask(poisoned, ORDERS[one[0]], one[1], one[0])[0], order)
        blended = [text != right[i] for (i, asks), text in zip(order, found, strict=True) if asks is True]
        assert all(blended), "marked bytes did not change an answer: this test shows nothing"
        for (i, asks), text in zip(order, found, strict=True):
            assert asks is True or text == right[i], (i, asks)
        poisoned.forget()  # from memory this time
        for i, parts in enumerate(ORDERS):
            assert ask(poisoned, parts, None, i)[0] == right[i]
        assert poisoned.counts()["kvtier:blended_tokens_total"] > 0
    finally:
        poisoned.kill()
