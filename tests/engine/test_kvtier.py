"""kvtier inside a real engine: answers do not depend on it, wherever the keys and values come from.

One engine without the connector says what the answers are (reference.py). Every test asks all prompts,
several at a time, greedy, with weights that make each answer depend on the whole prompt. What needs
no engine of its own shares one, which forgets everything between tests.
"""

import json
import random
import shutil
import socket
import time

import pytest
from connected import (
    ASKED, BLOCK, COUNT, ConnectedEngine, LONG_TOKENS, answers, at_once, cached, loadable, of_size, texts, through,
)
from reference import compare
from rig.client import ask
from rig.wait import until

HITS = "vllm:prompt_tokens_cached_by_source_total"


@pytest.fixture(scope="module")
def shared(directory):
    engine = ConnectedEngine(directory, 50, of_size(1024)).ready()
    yield engine
    engine.kill()


@pytest.fixture
def engine(shared):
    shared.forget_all()
    return shared


def idle(engine):
    counts = engine.counts()
    return counts["vllm:num_requests_running"] + counts["vllm:num_requests_waiting"] == 0


def test_cold_and_after_a_reset(engine, right):
    before = engine.counts()
    found = answers(engine)
    compare(found, right)
    assert cached(found) == 0  # no prompt has anything in common with another
    engine.forget()
    again = answers(engine)
    compare(again, right)
    assert cached(again) >= loadable(ASKED)
    found = engine.counts() - before
    assert found["kvtier:failed_blocks_total"] == 0
    assert found["lmcache:num_lookup_hits_total"] > 0
    assert found["vllm:external_prefix_cache_hits_total"] >= loadable(ASKED)
    assert found[f"{HITS}:host"] >= loadable(ASKED)


def test_zeros_in_the_cache_change_the_answers(engine_of, right):
    """The control: if loaded blocks did not matter, the other tests would prove nothing."""
    engine = engine_of(of_size(1024), module="zeroed")
    compare(answers(engine), right)  # nothing is loaded yet
    engine.forget()
    again = texts(answers(engine))
    loaded = [i for i, prompt in enumerate(ASKED) if len(prompt) > 2 * BLOCK]
    changed = [i for i in loaded if again[i] != right.short[i]]
    print(f"\nzeroed: {len(changed)} of {len(loaded)} answers with loaded blocks differ")
    assert len(changed) > 0.9 * len(loaded)


def test_a_reset_of_all_forgets(engine, right):
    compare(answers(engine, ASKED[:40]), right)
    engine.forget_all()
    again = answers(engine, ASKED[:40])
    compare(again, right)
    assert cached(again) == 0


def test_equal_prompts_at_once(engine, right):
    """Each prompt three times among each other: first all are new, then some are being loaded."""
    order = [i for i in range(COUNT) for _ in range(3)]
    for _ in range(2):
        compare(answers(engine, [ASKED[i] for i in order]), right, order)
        engine.forget()
    assert engine.counts()["kvtier:failed_blocks_total"] == 0


def leave(engine, prompt, after):
    """Asks for a long answer and closes: after=None: once it has begun, else after so many seconds."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 400, "temperature": 0, "stream": True,
            "ignore_eos": True}  # fmt: skip
    text = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", engine.port)) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                     b"content-length: %d\r\n\r\n" % len(text) + text)  # fmt: skip
        if after is None:
            assert sock.recv(512).startswith(b"HTTP/1.1 200")
        else:
            time.sleep(after)


def test_cancelled_requests(engine, right):
    """Clients leave while their prompts wait, are looked up, computed, stored, loaded, or answered."""
    rng = random.Random(3)
    for _ in range(2):
        calls = [(prompt, rng.choice((None, 0.001, rng.uniform(0, 0.1)))) for prompt in ASKED]
        at_once(lambda call: leave(engine, *call), calls)
        until(lambda: idle(engine), 60, "no request in the engine")
        engine.forget()
    compare(answers(engine), right)
    engine.forget()
    again = answers(engine)
    compare(again, right)
    assert cached(again) >= loadable(ASKED)


def test_after_sleep(engine, right):
    """An engine that goes to sleep has its connector forget, too; what comes after is stored again."""
    compare(answers(engine), right)
    engine.post("/sleep?level=1")
    assert ask(engine.port, "GET", "/is_sleeping").json()["is_sleeping"]
    engine.post("/wake_up")
    compare(answers(engine), right)
    engine.forget()
    again = answers(engine)
    compare(again, right)
    assert cached(again) >= loadable(ASKED)


def test_after_weights_were_reloaded_in_place(engine, right):
    """Nothing says that they are the same ones, so what is cached is not used; what comes after is stored again."""
    compare(answers(engine), right)
    engine.post("/collective_rpc", {"method": "reload_weights"})
    engine.forget()
    again = answers(engine)
    compare(again, right)
    assert cached(again) == 0
    engine.forget()
    again = answers(engine)
    compare(again, right)
    assert cached(again) >= loadable(ASKED)
    assert "reload_weights may have changed weights" in engine.log()


def test_preemption(engine_of, right):
    """An engine whose own cache is too small for what runs at once: its requests lose their blocks in
    the middle of long answers, and begin again with what kvtier has of them."""
    engine = engine_of(of_size(512), blocks=64)
    some = list(right.long)
    for _ in range(2):
        found = at_once(lambda i: engine.complete(ASKED[i], LONG_TOKENS)[0], some)
        wrong = [i for i, text in zip(some, found, strict=True) if text != right.long[i]]
        assert not wrong, f"{len(wrong)} of {len(some)} long answers differ"
    assert engine.counts()["vllm:num_preemptions_total"] >= 3
    compare(answers(engine), right)


def test_warm_from_nvme_after_a_restart(engine_of, right, tmp_path):
    nvme = {"path": str(tmp_path / "store"), "capacity": "1GiB", "sync_time": "50ms"}
    engine = engine_of(of_size(64, nvme=nvme))
    compare(answers(engine), right)
    engine.wait_stored("nvme")
    engine.restart()  # by SIGKILL
    again = answers(engine)
    compare(again, right)
    assert cached(again) > 0.9 * loadable(ASKED)
    assert engine.counts()[f"{HITS}:disk"] > 0.8 * loadable(ASKED)
    assert engine.count_after_a_step("kvtier:tier_corrupt_total") == 0


def second_engine(engine_of, right, l2):
    """One engine fills a shared tier, another answers from it."""
    first, second = engine_of(*[of_size(64, l2=l2)] * 2)
    compare(answers(first), right)
    first.wait_stored("l2")
    again = answers(second)
    compare(again, right)
    assert cached(again) > 0.9 * loadable(ASKED)
    counts = second.counts()
    assert counts[f"{HITS}:external_unspecified"] > 0.8 * loadable(ASKED)
    second.wait_count("kvtier:tier_loads_total:l2", 100 if COUNT >= 300 else 1)
    assert second.counts()["kvtier:tier_corrupt_total"] == 0


def test_a_second_engine_through_redis(engine_of, right, redis):
    second_engine(engine_of, right, {"url": redis.url})


def test_a_second_engine_through_kvtierd(engine_of, right, daemon):
    second_engine(engine_of, right, through(daemon))
    until(lambda: daemon.metric("kvtierd_leases") == 0, 40, "no lease held")


def test_the_folder_vanishes(engine_of, right, tmp_path):
    store = tmp_path / "store"
    engine = engine_of(of_size(64, nvme={"path": str(store), "capacity": "1GiB"}))
    compare(answers(engine, ASKED[:100]), right)
    shutil.rmtree(store)
    engine.forget()
    compare(answers(engine, ASKED[:100]), right)


def test_a_cache_that_cannot_be_opened(engine_of, right):
    """The library says why, the engine computes."""
    engine = engine_of({"l1": {"capacity": "60TiB"}})
    compare(answers(engine, ASKED[:20]), right)
    assert "System will operate in degraded mode (recompute)" in engine.log()
