"""`kvaware` and cached text that is not a prefix: documents come in any order, and reach the worker that holds them."""

import random
import statistics

import pytest

from rig.client import COMPLETIONS, ask
from rig.kvaware import SHOWN, Outcome
from rig.sim import Sim
from rig.wait import until

SEPARATOR = " # # "
WORDS = "sea king ship isle wind tide dawn boat tale keys memo coin".split()
ON = {**SHOWN, "kvaware.fragments.enabled": True, "kvaware.fragments.min_tokens": 64, "health.metrics_interval": "200ms"}


def document(n):
    rng = random.Random(n)
    return f"document {n}: " + " ".join(rng.choices(WORDS, k=400))


def prompt(*which):
    return SEPARATOR.join([document(n) for n in which] + ["What is it about?"])


@pytest.fixture
def start(tmp_path):
    """start(count, *options): workers that blend, unless the options say otherwise."""
    sims = []

    def make(count, *options):
        sims.append(Sim(tmp_path, count, *options, name=f"sim{len(sims)}"))
        return sims[-1].workers

    yield make
    for sim in sims:
        sim.kill()


BLENDING = ["--fragments", "0.15", "--fragments-min", "64"]


class Answer(Outcome):
    def __init__(self, answer):
        super().__init__(answer)
        headers = {name.lower(): value for name, value in answer.headers}
        self.fragments = int(headers.get("x-kvway-predicted-fragment-tokens", 0))


def send(router, *which, **more):
    body = {"model": "tiny", "prompt": prompt(*which), "max_tokens": 1, **more}
    return Answer(router.ask("POST", COMPLETIONS, body=body, timeout=30))


def explain(router, text, **more):
    answer = ask(router.admin_port, "POST", "/explain", body={"model": "tiny", "prompt": text, **more})
    assert answer.status == 200, answer
    return answer.json()


def rest(router, workers, verb):
    for worker in workers:
        path = f"/workers/{worker.url.removeprefix('http://')}/{verb}"
        assert ask(router.admin_port, "POST", path).status == 200


def wait_blending(router, workers):
    def all_blend():
        page = explain(router, "x")
        return sum(worker.get("blends", False) for worker in page["workers"]) == len(workers)

    until(all_blend, 15, "kvway to read that all workers blend")


def test_documents_in_another_order_reach_the_worker_that_holds_them(start, kvway):
    workers = start(4, *BLENDING)
    router = kvway(workers, ON)
    wait_blending(router, workers)
    homes = {}
    for home, first in zip(workers, range(0, 12, 3), strict=True):  # three documents each, while the others rest
        rest(router, [worker for worker in workers if worker is not home], "drain")
        homes[first] = send(router, first, first + 1, first + 2).worker
        rest(router, [worker for worker in workers if worker is not home], "undrain")
    assert list(homes.values()) == [worker.url for worker in workers]
    for turn in range(3):
        for first, home in homes.items():
            order = [first + 2, first, first + 1][turn:] + [first + 2, first, first + 1][:turn]
            answer = send(router, 100 + 10 * turn + first, *order)  # behind a new one: no prefix is shared
            assert answer.worker == home and answer.reason == "fragments", (turn, first, answer)
            assert answer.fragments > 0 and answer.predicted == answer.fragments
            assert abs(answer.fragments - answer.cached) < 0.1 * answer.cached, (answer, answer.fragments)
    assert router.metric("kvway_predicted_fragment_tokens_total") > 0
    assert 0 < router.metric("kvway_kvaware_fragment_entries") <= router.metric("kvway_kvaware_fragment_entries_limit")
    assert router.metric("kvway_decisions_total", strategy="kvaware", reason="fragments") == 12


def test_exact_requests_and_other_tenants_count_no_fragments(start, kvway):
    workers = start(2, *BLENDING)
    router = kvway(workers, ON)
    wait_blending(router, workers)
    send(router, 1, 2)
    exact = send(router, 8, 2, 1, kv_transfer_params={"kvtier.fragments": False})
    assert (exact.fragments, exact.cached) == (0, 0)
    other = send(router, 9, 2, 1, cache_salt="other")
    assert (other.fragments, other.cached) == (0, 0)
    assert send(router, 10, 2, 1).fragments > 0
    page = explain(router, prompt(11, 1, 2))
    assert page["predicted_fragment_tokens"] > 0 and page["reason"] == "fragments"
    assert any(worker["fragment_tokens"] > 0 for worker in page["workers"])
    page = explain(router, prompt(11, 1, 2), kv_transfer_params={"kvtier.fragments": False})
    assert page["predicted_fragment_tokens"] == 0


@pytest.mark.parametrize("options, config", [([], ON), (BLENDING, SHOWN)], ids=["no worker blends", "off"])
def test_without_it_nothing_is_counted(start, kvway, options, config):
    workers = start(2, *options)
    router = kvway(workers, config)
    send(router, 1, 2)
    answer = send(router, 8, 2, 1)
    assert answer.fragments == 0 and answer.reason != "fragments"
    assert router.metric("kvway_predicted_fragment_tokens_total") == 0


def test_more_is_reused_and_mean_time_to_first_token_falls(start, kvway):
    """Simulated: the workers' own moments. Eight sets of three documents in any order, four workers."""
    means, reused = [], []
    for config in (SHOWN, ON):
        workers = start(4, *BLENDING, "--speed", "50", "--profile", "llama-8b-h100")
        router = kvway(workers, config)
        if config is ON:
            wait_blending(router, workers)
        rng = random.Random(5)
        sets = [tuple(range(3 * i, 3 * i + 3)) for i in range(8)]
        for n in range(60):
            chosen = list(rng.choice(sets))
            rng.shuffle(chosen)
            send(router, 1000 + n, *chosen)
        rows = [line.split(",") for worker in workers
                for line in ask(worker.port, "GET", "/sim/times").body.decode().splitlines()[1:]]
        assert len(rows) == 60
        means.append(statistics.fmean(int(row[1]) - int(row[0]) for row in rows))
        reused.append(sum(worker.stats()["fragments"]["reused_tokens"] for worker in workers))
        print(f"mean {means[-1] / 1e6:.2f} ms simulated, {reused[-1]} tokens reused")
    assert reused[1] > reused[0] and means[1] < means[0]
