"""The strategy `kvaware` and LMCache's controller protocol: kvsim's workers speak it, kvway is the
controller. What a worker has in its CPU tier counts, whatever its device forgot."""

import signal
import socket
import time

import pytest

from rig import msgpack, zmtp
from rig.client import COMPLETIONS
from rig.kvaware import SHOWN, complete, coverage, ids, wait_coverage, wait_keys, wait_log
from rig.router import Router, settle
from rig.sim import Sim
from rig.status import told as words_of
from rig.wait import Port, until, unused_port

CHUNK = 32


@pytest.fixture
def stage(tmp_path, kvway):
    """stage(count, *options): workers with LMCache, a process each, and how to make their router."""
    ports, sims = [], []

    class Stage:
        def __init__(self, count, *options, instance="i"):
            mine = [Port() for _ in range(3)]
            ports.extend(mine)
            self.pull, self.reply, self.beat = (f"127.0.0.1:{port.number}" for port in mine)
            self.instances = [f"{instance}{i}" for i in range(count)]
            self.ports = [unused_port() for _ in range(count)]
            self.sims = [self.start(i, *options) for i in range(count)]

        @property
        def workers(self):
            return [sim.workers[0] for sim in self.sims]

        def start(self, i, *options):
            sim = Sim(
                tmp_path,
                1,
                "--lmcache-controller",
                f"pull={self.pull},reply={self.reply}",
                "--lmcache-instance",
                self.instances[i],
                "--lmcache-chunk-size",
                CHUNK,
                "--lmcache-heartbeat-s",
                0.2,
                "--port",
                self.ports[i],
                *options,
                name=f"sim{len(sims)}",
            )
            sims.append(sim)
            return sim

        def router(self, more=None, named=True, full=True):
            rows = [
                {"url": w.url, **({"lmcache_instance": name} if named else {})}
                for w, name in zip(self.workers, self.instances)
            ]
            config = {
                **SHOWN,
                "kvaware.lmcache.pull": self.pull,
                "kvaware.lmcache.reply": self.reply,
                "kvaware.lmcache.heartbeat": self.beat,
                "kvaware.lmcache.chunk_size": CHUNK,
                "kvaware.lmcache.detect": False,
                "workers": rows,
                **(more or {}),
            }
            router = kvway(self.workers, config)
            if full:
                wait_coverage(router, self.workers, "lmcache")
            return router

        def chunks(self, i):
            return self.workers[i].stats()["lmcache"]["chunks"]

        def forget_devices(self):
            for worker in self.workers:
                assert worker.ask("POST", "/reset_prefix_cache").json() == {"success": True}

    yield Stage
    for sim in sims:
        sim.kill()
    for port in ports:
        port.close()


def wait_right(made, router, tokens, chunk):
    """Until a prompt that was sent once is predicted to be in the CPU tier, rightly."""

    def right():
        prompt = ids(time.monotonic_ns(), tokens)
        first = complete(router, prompt)
        settle(3)  # what is on its way is believed under every name there is
        made.forget_devices()
        again = complete(router, prompt + [1] * 40)
        predicted = tokens // chunk * chunk
        return (again.worker, again.predicted, again.cached) == (first.worker, predicted, predicted)

    until(right, 60, "a prediction that is right")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_prompts_go_where_the_cpu_tier_has_them(stage, version):
    made = stage(3, "--lmcache-version", version, "--lmcache-hash", "sha256_cbor")
    router = made.router({"kvaware.lmcache.hash": "sha256_cbor"})
    for name in made.instances:
        wait_log(router, f"Worker registered: {name}")
    for seed in range(6):
        first = complete(router, ids(seed, 200))
        assert first.cached == 0
        wait_keys(router, 6 * (seed + 1))
        made.forget_devices()
        for _ in range(3):
            again = complete(router, ids(seed, 200))
            assert again.worker == first.worker, (first, again)
            assert again.cached == 192
            made.forget_devices()
            print(seed, first, again)

    def logged():
        """kvway logs it once a second at most, and only where LMCache's reports decided."""
        print(complete(router, ids(0, 200)))
        made.forget_devices()
        return any("Routing request to i" in line and "found by kvaware router" in line
                   for line in router.log().splitlines())

    until(logged, 15, "a decision by LMCache's reports in the log")


def test_version_03_is_found_out_and_served(stage):
    """Another hash, `None` in place of `()`; registration and heartbeats on the events' socket."""
    made = stage(2, "--lmcache-version", "0.3", "--lmcache-hash", "sha256_cbor")
    router = made.router({"kvaware.lmcache.hash": "sha256_cbor", "kvaware.lmcache.detect": True})
    for name in made.instances:
        wait_log(router, f"Worker registered: {name}")
    wait_right(made, router, 300, CHUNK)


def test_what_is_predicted_is_what_is_loaded(stage):
    made = stage(2)
    router = made.router()
    for seed in range(10):
        complete(router, ids(seed, 100 + 17 * seed))
        wait_keys(router, sum((100 + 17 * one) // CHUNK for one in range(seed + 1)))
    made.forget_devices()
    for seed in range(10):
        prompt = ids(seed, 100 + 17 * seed) + ids(1000 + seed, 50)
        outcome = complete(router, prompt)
        assert outcome.predicted == outcome.cached == (100 + 17 * seed) // CHUNK * CHUNK, (seed, outcome)


def test_evictions_are_heard(stage):
    made = stage(1, "--lmcache-cpu-tokens", CHUNK * 10)
    router = made.router()
    complete(router, ids(1, 200))
    wait_keys(router, 6)
    complete(router, ids(2, 300))  # nine chunks: five of the first prompt's six must go, its beginning first
    until(lambda: router.metric("kvway_kvaware_lmcache_total", what="evicts") == 5, 10, "the evictions")
    wait_keys(router, 10)
    made.forget_devices()
    settle(3)  # by then kvway no longer takes the first request's chunks for being on their way
    outcome = complete(router, ids(1, 200))
    assert outcome.predicted == outcome.cached == 0


def test_a_restarted_router_gets_everything_again(stage):
    made = stage(2)
    router = made.router()
    seeds = range(8)
    places = {seed: complete(router, ids(seed, 300)).worker for seed in seeds}
    assert len(set(places.values())) == 2
    until(lambda: sum(made.chunks(i) for i in range(2)) == 9 * len(seeds), 10, "the chunks")
    wait_keys(router, 72)  # else they hear it from the beginning at the second router, with no need to ask
    router.stop()
    router = made.router()
    until(lambda: all(w.stats()["lmcache"]["syncs"] >= 1 for w in made.workers), 20, "full syncs")
    wait_keys(router, 72)
    made.forget_devices()
    for seed in seeds:
        again = complete(router, ids(seed, 300))
        assert (again.worker, again.predicted, again.cached) == (places[seed], 288, 288)


def test_a_killed_worker_is_forgotten(stage):
    made = stage(2)
    router = made.router({"kvaware.lmcache.heartbeat_timeout": "1s"})
    first = complete(router, ids(1, 200))
    index = [w.url for w in made.workers].index(first.worker)
    wait_keys(router, 6)
    made.sims[index].signal(signal.SIGKILL)
    wait_keys(router, 0)
    again = complete(router, ids(1, 200))
    assert again.worker != first.worker and again.predicted == 0


def test_a_worker_that_leaves_is_forgotten_at_once(stage):
    made = stage(2)
    router = made.router({"kvaware.lmcache.heartbeat_timeout": "1h", "health.interval": "1h"})
    first = complete(router, ids(1, 200))
    index = [w.url for w in made.workers].index(first.worker)
    wait_keys(router, 6)
    made.sims[index].signal(signal.SIGTERM)
    wait_keys(router, 0)


def test_a_new_process_of_an_instance_holds_nothing(stage):
    made = stage(1)
    router = made.router()
    complete(router, ids(1, 200))
    wait_keys(router, 6)
    made.sims[0].kill()
    made.sims[0] = made.start(0)
    wait_keys(router, 0)
    wait_coverage(router, made.workers, "lmcache")
    # A probe may find out only now that the old process is gone, and the next one that there is a new one.
    other = {"model": "tiny", "prompt": ids(2, 10), "max_tokens": 1}
    answered = lambda: router.ask("POST", COMPLETIONS, body=other, timeout=30).status == 200  # noqa: E731
    until(answered, 15, "the new process to be used")
    assert complete(router, ids(1, 200)).cached == 0
    wait_keys(router, 6)


WRONG = {
    "seed": (["--lmcache-seed", "123"], {}),
    "chunk size": (["--lmcache-chunk-size", "64"], {}),
    "hash": (["--lmcache-hash", "sha256_cbor"], {}),
}


def test_a_wrong_setting_is_reported_and_requests_keep_flowing(stage):
    routers = [stage(2, *options).router(config) for options, config in WRONG.values()]
    seeds = iter(range(10**9))

    def told():
        for router in routers:
            complete(router, ids(next(seeds), 300))
        return all("kvaware never matches" in router.log() for router in routers)

    until(told, 60, "a statement")
    for router in routers:
        line = wait_log(router, "kvaware never matches instance=i")
        assert " warn " in line and "none of 5 prompts" in line
        assert "hash_seed: '0'" in line and "Set kvaware.lmcache.hash_seed to the engines' PYTHONHASHSEED" in line
        # What was only just sent there is no word of the controller's.
        assert "found by kvaware router" not in router.log()
        assert "Matched instance url None" in router.log()
        first = complete(router, ids(1000, 300))
        again = complete(router, ids(1000, 300))  # by text, as with prefixaware
        assert again.worker == first.worker and again.cached == 288
        # The page, kvway top and kvway explain name it, too.
        body = {"model": "tiny", "prompt": ids(1000, 300)}
        problem, top, explained = words_of(router, "kvaware_no_match", body)
        assert "kvaware never matches http://127.0.0.1:" in problem["what"] and "another hash than kvway" in problem["why"]
        assert "kvaware.lmcache.hash_seed to the engines' PYTHONHASHSEED" in top
        assert "its prompts are routed by text" in explained


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_found_out(stage, what):
    options, _ = WRONG[what]
    made = stage(2, *options)
    router = made.router({"kvaware.lmcache.detect": True})
    wait_right(made, router, 300, 64 if what == "chunk size" else CHUNK)
    key = {"seed": "hash_seed: '123'", "chunk size": "chunk_size: 64", "hash": "hash: sha256_cbor"}[what]
    wait_log(router, "names its chunks in another way", "set in kvaware.lmcache:", key)


def test_garbage_on_the_sockets_disturbs_no_worker(stage):
    made = stage(1)
    router = made.router()
    complete(router, ids(1, 200))
    wait_keys(router, 6)
    frames = [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x85\xa4type" + b"\xdb\xff\xff\xff\xff",
        b"{" * 5000,
        b'{"type": "BatchedKVOperationMsg", "operations": 3}',
        msgpack.pack({"type": "BatchedKVOperationMsg", "instance_id": "i0"}),
        msgpack.pack({"type": "NoSuchMsg"}),
        bytes(range(256)) * 40,
    ]
    for address, kind in ((made.pull, "PUSH"), (made.reply, "DEALER"), (made.beat, "DEALER")):
        port = int(address.rsplit(":", 1)[1])
        peer = zmtp.connect(port, kind)
        for frame in frames:
            peer.send(frame)
            peer.send(b"", frame)
            peer.send(b"", b"", frame, frame)
        peer.close()
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
    until(lambda: router.metric("kvway_kvaware_feed_total", what="refused") > 0, 10, "refusals")
    assert coverage(router, made.workers[0], "lmcache") == 2
    made.forget_devices()
    outcome = complete(router, ids(1, 200) + [5] * 40)
    assert outcome.predicted == outcome.cached == 192


def test_a_taken_port_is_reported(stage, tmp_path):
    made = stage(1)
    first = made.router()
    second = Router(tmp_path, made.workers, {**SHOWN, "kvaware.lmcache.pull": made.pull}, name="second")
    until(lambda: not second.alive(), 10, "the second router to end")
    second.stop(expect=1)
    assert f"kvaware.lmcache.pull: cannot listen on {made.pull}: the port is already taken" in second.log()
    assert complete(first, ids(1, 100)).cached == 0
