"""How well kvway knows what its engines have cached, by its own metrics."""

import concurrent.futures
import functools
import json
import random
import subprocess
import threading

import pytest

from mixed import COMPLETIONS, Mixed, prose
from rig.client import ask
from rig.router import PROGRAM
from rig.wait import until
from told import WISH, complete, send

SEED = 20
ALONE = 120  # of the 200 requests; the rest four at a time
CONFIG = {
    "http.decision_headers": "on_request",
    "expose.engine_control": True,
    "routing.slow_start": "0s",
}
BLOCK = 32


@pytest.fixture
def router(engines, kvway):
    """kvway that reports its predictions and knows the models and cache sizes of both engines."""
    router = kvway(CONFIG)

    def known():
        told = ask(router.admin_port, "POST", "/explain", (), {"model": "tiny", "prompt": "x"}).json()
        sizes = [router.metric("kvway_worker_kv_capacity_tokens", worker=e.url) for e in engines]
        return all(sizes) and "other_model" not in {w["verdict"] for w in told["workers"]}

    until(known, 10, "models and capacity")
    return router


def send_all(router, mixed):
    """[(kind, Seen)]: first one at a time, then several, a session's own turns still in order."""
    turns = [threading.Lock() for _ in mixed.sessions]

    def step(number):
        with turns[number]:
            return mixed.step(number, functools.partial(send, router))

    seen = [step(number) for number in mixed.order[:ALONE]]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return seen + list(pool.map(step, mixed.order[ALONE:]))


def table(rows):
    print(f"\n{'kind':10} requests  prompt  predicted  actual  error  over")
    for kind in sorted({kind for kind, _ in rows}) + [None]:
        some = [seen for name, seen in rows if kind in (name, None)]
        mean = lambda values: sum(values) / len(some)  # noqa: E731
        print(
            f"{kind or 'all':10} {len(some):8} {mean(s.prompt for s in some):7.0f}"
            f" {mean(s.predicted for s in some):10.0f} {mean(s.actual for s in some):7.0f}"
            f" {mean(abs(s.predicted - s.actual) for s in some):6.1f}"
            f" {mean(s.predicted > s.actual for s in some):5.0%}"
        )


def test_predicted_against_actual(router):
    mixed = Mixed(SEED)
    rows = send_all(router, mixed)
    router.wait_idle()
    table(rows)
    compared = router.metric("kvway_cached_tokens_comparisons_total")
    error = router.metric("kvway_cached_tokens_error_total") / compared
    prompt = router.metric("kvway_cached_tokens_compared_total") / compared
    print(f"by kvway's metrics: {compared:.0f} requests, mean error {error:.1f} tokens")
    assert compared == len(rows) == 200
    assert sum(s.actual for _, s in rows) > 0.3 * sum(s.prompt for _, s in rows)
    # A header counts tokens by bytes of text; a metric, made after the answer, by the prompt's real tokens.
    in_headers = sum(abs(seen.predicted - seen.actual) for _, seen in rows) / compared
    assert max(in_headers, error) < 64 + 0.02 * prompt


def hits_there(router, worker, rng):
    """New prompts, each twice, until one has its second turn on this worker: its Seen."""
    for _ in range(30):
        text = prose(rng, 6000)
        first = complete(router, text)
        assert first.predicted == first.actual == 0
        second = complete(router, text)
        assert second.worker == first.worker
        if second.worker == worker:
            return second
    raise AssertionError(f"nothing goes to {worker}")


def near(seen):
    return seen.actual > 1000 and abs(seen.predicted - seen.actual) <= 2 * BLOCK


def test_a_restarted_engine_is_known_to_have_forgotten(engines, router):
    rng = random.Random(1)
    text = prose(rng, 6000)
    home = complete(router, text).worker
    assert near(complete(router, text))
    next(engine for engine in engines if engine.url == home).restart()
    lost = lambda: router.metric("kvway_worker_cache_losses_total", worker=home) == 1  # noqa: E731
    until(lost, 20, "restart noticed")
    until(lambda: router.metric("kvway_worker_usable", worker=home) == 1, 20, "back")
    again = complete(router, text)
    assert again.predicted == again.actual == 0
    assert near(hits_there(router, home, rng))
    assert router.metric("kvway_worker_overpredicted_tokens_total") <= 4 * BLOCK


def test_a_reset_that_passes_through_is_known(engines, router):
    rng = random.Random(2)
    texts = [prose(rng, 6000) for _ in range(6)]
    homes = [complete(router, text).worker for text in texts]
    assert all(near(complete(router, text)) for text in texts)
    answer = router.ask("POST", "/reset_prefix_cache", WISH)
    assert answer.status == 200
    emptied = answer.headers.get("x-kvway-worker")
    assert emptied in homes
    for text, home in zip(texts, homes):
        seen = complete(router, text)
        assert near(seen) if home != emptied else seen.predicted == seen.actual == 0
        assert near(complete(router, text))


def test_what_is_explained_happens(router):
    """Headers, POST /explain and `kvway explain` say the same, and it comes to pass."""
    admin = f"127.0.0.1:{router.admin_port}"

    def explained_first(path, body, stream):
        router.wait_idle()
        said = ask(router.admin_port, "POST", f"/explain?path={path}", (), body).json()
        argv = [str(PROGRAM), "explain", "--json", "--admin", admin, "--path", path]
        done = subprocess.run(argv, input=json.dumps(body), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        text, seen = send(router, path, body, stream)
        for told in (said, printed):
            assert (told["worker"], told["reason"]) == (seen.worker, seen.reason)
            assert told["predicted_cached_tokens"] == seen.predicted
        return text, seen

    mixed = Mixed(SEED + 1)
    rows = [mixed.step(number, explained_first) for number in mixed.order[:60]]
    table(rows)
    assert sum(seen.predicted > 100 for _, seen in rows) > 10


def test_learned_prefill_rate_is_the_engines_own(engines, router):
    """Prompts that are new to the engine, one at a time: it reports tokens and seconds of each.

    Its best, since others use this machine too; kvway takes a high percentile for the same reason.
    """
    rng = random.Random(3)
    rates = {engine.url: [] for engine in engines}
    for size in 24 * [1000] + 30 * [12000]:
        before = {engine.url: engine.prefills() for engine in engines}
        body = {"model": "tiny", "prompt": prose(rng, size), "max_tokens": 2}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        _, seen = send(router, COMPLETIONS, body, stream=True)
        engine = next(engine for engine in engines if engine.url == seen.worker)
        until(lambda: engine.prefills().count > before[engine.url].count, 5, "counted")
        seconds = engine.prefills().seconds - before[engine.url].seconds
        if size > 1000:
            rates[engine.url].append((seen.prompt - seen.actual) / seconds)
    for engine in engines:
        own = sorted(rates[engine.url])[len(rates[engine.url]) * 9 // 10]
        learned = router.metric("kvway_worker_observed_prefill_tokens_per_second", worker=engine.url)
        print(f"{engine.url}: {own:.0f} tokens/s by the engine, {learned:.0f} by kvway")
        assert own / 2 < learned < own * 2
