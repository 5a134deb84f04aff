"""A real server of two data-parallel ranks, of which kvway makes two workers: fields, events, metrics, predictions."""

import concurrent.futures
import random

import pytest

from mixed import prose
from rig.client import COMPLETIONS, ask
from rig.router import Router, parse_metrics
from rig.wait import until, unused_row
from server import MODEL, VENV, Engine
from talks import AT_ONCE, CONFIG, Talks, report
from test_kvaware import BLOCK, FULL, right
from told import WISH, complete

RANKS = 2
SYSTEMS, TALKS, TURNS = 8, 5, 5  # system prompts, talks of each, turns of each talk
START_SECONDS = 600  # two engine cores, a coordinator and two API servers, on two cores


class Ranked(Engine):
    name = "ranked"

    def start(self):
        if self.starts == 0:  # a port of each for each rank
            self.events, self.replay = unused_row(RANKS), unused_row(RANKS)
        super().start()

    def environment(self):
        return {"CORE": "nobind", "OMP_WAIT_POLICY": "passive"}

    def options(self):
        return ["--data-parallel-size", str(RANKS)]

    def answered(self):
        """Answers by rank."""
        page = parse_metrics(ask(self.port, "GET", "/metrics").body.decode(), "vllm:request_success_total")
        found = dict.fromkeys(range(RANKS), 0)
        for (_, labels), value in page.items():
            found[int(dict(labels)["engine"])] += int(value)
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not VENV or not MODEL:
        pytest.fail("run tests/engine/run.sh, or set KVW_ENGINE_VENV and KVW_ENGINE_MODEL")
    engine = Ranked(tmp_path_factory.mktemp("ranked"), 0)
    try:
        until(engine.healthy, START_SECONDS, "server up")
        yield engine
    finally:
        engine.kill()


def asked_of(server, rank, prompt):
    """By another client."""
    fields = [("X-data-parallel-rank", str(rank))]
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
    answer = ask(server.port, "POST", COMPLETIONS, fields, body, timeout=120)
    assert answer.status == 200, answer


def names(server):
    return [f"{server.url}@{rank}" for rank in range(RANKS)]


@pytest.fixture
def router(server, tmp_path):
    """All that the ranks hold is known."""
    server.forget()
    router = Router(tmp_path, [server], CONFIG)
    try:
        router.wait_up([server])
        for rank in range(RANKS):
            asked_of(server, rank, prose(random.Random(rank), 600))
        coverage = lambda name: router.metric("kvway_worker_cache_coverage", worker=name, reporter="engine")  # noqa: E731
        until(lambda: all(coverage(name) == FULL for name in names(server)), 60, "coverage of both ranks")
        yield router
    finally:
        router.stop()


def test_talks(server, router):
    """Two hundred turns of forty talks: both ranks have some, and what each has cached is known."""
    before, talks = server.answered(), [Talks(seed) for seed in range(SYSTEMS)]
    turns = [(talk, number) for _ in range(TURNS) for number in range(TALKS) for talk in talks]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda turn: turn[0].step(router, turn[1]), turns))
    wrong = sum(not right(seen) for _, seen in rows)
    report(router, "two ranks", rows, BLOCK)
    assert len(rows) == 200 and wrong <= 5
    assert {seen.worker for _, seen in rows} == set(names(server))
    router.wait_idle()
    until(lambda: sum(server.answered().values()) - sum(before.values()) == len(rows), 20, "all counted by the server")
    for rank, name in enumerate(names(server)):
        sent = sum(seen.worker == name for _, seen in rows)
        assert server.answered()[rank] - before[rank] == sent, "a request went to another rank than was meant"
        assert sent > len(rows) // 10
    assert router.metric("kvway_rank_refusals_total") == 0


def test_what_one_rank_loses(server, router):
    """The cache of one rank is filled with other prompts by another client, which the other rank's is not."""
    rng = random.Random(2)
    texts = [prose(rng, 6000) for _ in range(8)]
    homes = [complete(router, text).worker for text in texts]
    assert set(homes) == set(names(server))
    assert all(right(complete(router, text)) for text in texts)
    for _ in range(server.blocks // 300):
        asked_of(server, 0, [rng.randrange(10, 600) for _ in range(12000)])
    name = "kvway_worker_cache_sequence"
    last = [router.metric(name, worker=one, reporter="engine") for one in names(server)]
    asked_of(server, 0, [rng.randrange(10, 600) for _ in range(64)])
    until(lambda: router.metric(name, worker=names(server)[0], reporter="engine") > last[0], 20, "events")
    for text, home in zip(texts, homes, strict=True):
        said = ask(router.admin_port, "POST", f"/explain?path={COMPLETIONS}", (), {"model": "tiny", "prompt": text}).json()
        held = {worker["worker"]: worker.get("hit_tokens", 0) for worker in said["workers"]}
        assert (held[home] == 0) == (home == names(server)[0]), (held, home)
    seen = [complete(router, text) for text in texts]
    assert all(right(one) for one in seen), seen


def test_a_reset_of_the_server(server, router):
    """vLLM resets all ranks at once."""
    rng = random.Random(3)
    texts = [prose(rng, 6000) for _ in range(6)]
    for text in texts:
        complete(router, text)
    assert router.ask("POST", "/reset_prefix_cache", WISH).status == 200
    for text in texts:
        seen = complete(router, text)
        assert seen.predicted == seen.actual == 0, seen
