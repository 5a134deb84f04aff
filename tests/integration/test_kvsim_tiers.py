"""kvsim's workers over real tiers: each embeds libkvtier with its memory, its files and a real shared
tier, and every byte that comes back from there is checked by the simulator itself."""

import collections
import contextlib
import json
import random
import signal
import subprocess
import threading

import pytest

from rig import msgpack, zmtp
from rig.client import Client
from rig.kvaware import BLOCK, SHOWN, complete, ids, wait_coverage, wait_heard, wait_keys
from rig.kvtierd import Kvtierd
from rig.router import parse_metrics
from rig.sim import PROGRAM, Sim
from rig.wait import Port, until

CHUNK = 64  # tokens, so that prompts stay small
CONFIG = f"control: {{tokens_per_chunk: {CHUNK}}}"
PROMPT = 10 * CHUNK + 7  # has ten whole chunks


@pytest.fixture
def sim(tmp_path):
    """sim(*options): the first worker of a kvsim that must end with 0; `wrong` is checked at the end."""
    made = []

    def make(*options, count=1, **keys):
        options = ["--tier-config", CONFIG, *options]
        made.append(Sim(tmp_path, count, *options, name=f"kvsim{len(made)}", **keys))
        for worker in made[-1].workers:
            worker.process = made[-1]
        return made[-1].workers[0] if count == 1 else made[-1].workers

    yield make
    for one in made:
        if one.alive():
            for worker in one.workers:
                assert tiers(worker)["wrong_bytes"] == 0
            one.signal(15)
        assert one.wait() == 0, one.log()
        assert "Sanitizer" not in one.log() and "runtime error" not in one.log(), one.log()


@pytest.fixture
def kvtierd(tmp_path):
    daemon = Kvtierd(tmp_path, {"segment.size": "32MiB"}).wait_up().wait_writable()
    yield daemon
    daemon.stop()
    daemon.remove()


def tiers(worker):
    return worker.stats()["tiers"]


def metric(worker, name, **labels):
    found = [
        value
        for (sample, have), value in parse_metrics(worker.ask("GET", "/metrics").body.decode()).items()
        if sample == name and all((k, v) in have for k, v in labels.items())
    ]
    assert found, f"no metric {name}{labels}"
    return sum(found)


class Asked:
    """One answered completion: its text, and where its prompt's tokens were found."""

    def __init__(self, worker, prompt, tokens=4, **more):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, **more}
        answer = worker.ask("POST", "/v1/completions", body=body)
        assert answer.status == 200, answer
        told = {name.lower(): value for name, value in answer.headers}["x-sim-hits"]
        self.hits = {part.split("=")[0]: int(part.split("=")[1]) for part in told.split()}
        self.text = answer.json()["choices"][0]["text"]
        self.cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert sum(self.hits.values()) == self.cached


def wait_stored(worker, chunks, tier):
    """Until so many chunks lie in a tier, by libkvtier's own word."""
    until(lambda: metric(worker, "kvtier_tier_stores_total", tier=tier) >= chunks, 20, f"chunks in {tier}")


def wait_unheld(worker):
    """Until no lease holds a chunk in memory; what waits for a dead server is held until it is given up."""
    until(lambda: metric(worker, "kvtier_tier_leased_chunks", tier="l1") == 0, 20, "no chunk to be held")


def forget_device(worker):
    assert worker.ask("POST", "/reset_prefix_cache").json() == {"success": True}


# Where a prompt is found


def test_what_the_device_forgot_is_loaded_from_memory(sim):
    worker = sim("--l1", "8GiB")
    first = Asked(worker, ids(1, PROMPT))
    assert first.hits == {"gpu": 0, "l1": 0, "nvme": 0, "l2": 0}
    again = Asked(worker, ids(1, PROMPT))
    assert again.hits["gpu"] == again.cached > 0  # what the device has is not loaded
    forget_device(worker)
    loaded = Asked(worker, ids(1, PROMPT))
    assert loaded.hits == {"gpu": 0, "l1": 10 * CHUNK, "nvme": 0, "l2": 0}
    assert loaded.text == again.text == first.text
    assert tiers(worker)["checked_chunks"] == 10 and tiers(worker)["loaded_l1"] == 10 * CHUNK
    assert metric(worker, "kvsim:loaded_tokens_total", tier="l1") == 10 * CHUNK
    assert metric(worker, "vllm:external_prefix_cache_hits_total") == 10 * CHUNK


def test_the_metrics_that_confirm_cache_hits(sim):
    """The six of HyperPod's page, as a worker with LMCache or kvtier has them."""
    worker = sim("--l1", "8GiB")
    Asked(worker, ids(1, PROMPT))
    again = Asked(worker, ids(1, PROMPT))
    forget_device(worker)
    Asked(worker, ids(1, PROMPT))
    assert metric(worker, "vllm:prefix_cache_hits_total") == again.cached
    assert metric(worker, "vllm:prefix_cache_queries_total") == 3 * PROMPT
    assert metric(worker, "lmcache:num_vllm_hit_tokens_total") == again.cached
    assert 10 * CHUNK <= metric(worker, "lmcache:num_lookup_hits_total")
    assert metric(worker, "lmcache:num_lookup_hits_total") < metric(worker, "lmcache:num_lookup_tokens_total")
    assert metric(worker, "lmcache:request_cache_hit_rate_count") == 3
    assert metric(worker, "lmcache:request_cache_hit_rate_sum") == pytest.approx((again.cached + 10 * CHUNK) / PROMPT)


def test_generated_tokens_are_stored_too(sim):
    worker = sim("--l1", "8GiB")
    prompt = ids(2, CHUNK)
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 3 * CHUNK, "return_token_ids": True}
    answer = worker.ask("POST", "/v1/completions", body=body).json()["choices"][0]
    whole = prompt + answer["token_ids"]
    forget_device(worker)
    # the last token that came out was never computed, so its chunk is not whole
    assert Asked(worker, whole).hits["l1"] == 3 * CHUNK


def test_shrunk_memory_holds_as_many_chunks_as_the_full_one_would(sim):
    worker = sim("--tier-config", "control: {tokens_per_chunk: 16}", "--l1", "16GiB")  # 8192 chunks of 2 MiB
    Asked(worker, ids(5, 5000 * 16 + 1))
    until(lambda: metric(worker, "kvtier_tier_chunks", tier="l1") == 5000, 20, "5000 chunks in memory")
    assert metric(worker, "kvtier_tier_evictions_total", tier="l1") == 0


def test_shrunk_files_hold_as_many_chunks_as_full_ones_would(sim, tmp_path):
    worker = sim("--l1", "8GiB", "--nvme", f"{tmp_path}/files:8GiB")  # 1024 chunks of 8 MiB
    Asked(worker, ids(6, 600 * CHUNK + 1))
    until(lambda: metric(worker, "kvtier_tier_chunks", tier="nvme") == 600, 20, "600 chunks in files")
    assert metric(worker, "kvtier_tier_evictions_total", tier="nvme") == 0


def test_a_salt_and_an_adapter_keep_chunks_apart(sim):
    worker = sim("--l1", "8GiB", "--lora", "other")
    prompt = ids(3, PROMPT)
    Asked(worker, prompt)
    forget_device(worker)
    assert Asked(worker, prompt, cache_salt="s").cached == 0
    assert Asked(worker, prompt, model="other").cached == 0
    forget_device(worker)
    assert Asked(worker, prompt, cache_salt="s").hits["l1"] == 10 * CHUNK
    assert Asked(worker, prompt, model="other").hits["l1"] == 10 * CHUNK


def test_a_second_worker_loads_from_redis_what_the_first_computed(sim, redis):
    first = sim("--l1", "8GiB", "--l2", redis.url)
    second = sim("--l1", "8GiB", "--l2", redis.url)
    one = Asked(first, ids(4, PROMPT))
    wait_stored(first, 10, "l2")
    two = Asked(second, ids(4, PROMPT))
    assert one.cached == 0 and two.hits == {"gpu": 0, "l1": 0, "nvme": 0, "l2": 10 * CHUNK}
    assert two.text == one.text
    assert tiers(second)["checked_chunks"] == 10
    forget_device(second)
    assert Asked(second, ids(4, PROMPT)).hits["l1"] == 10 * CHUNK  # it stays in memory


def test_a_second_worker_loads_from_kvtierd_what_the_first_computed(sim, kvtierd):
    options = ["--l1", "8GiB", "--l2", kvtierd.url, "--l2-segment", kvtierd.segment_name]
    first, second = sim(*options), sim(*options)
    one = Asked(first, ids(5, PROMPT))
    wait_stored(first, 10, "l2")
    two = Asked(second, ids(5, PROMPT))
    assert one.cached == 0 and two.hits["l2"] == 10 * CHUNK and two.text == one.text
    assert tiers(second)["checked_chunks"] == 10


def test_files_outlive_the_simulator(sim, tmp_path):
    options = ["--l1", "8GiB", "--nvme", f"{tmp_path}/kv:64GiB"]
    worker = sim(*options)
    first = Asked(worker, ids(6, PROMPT))
    wait_stored(worker, 10, "nvme")
    worker.process.signal(15)
    assert worker.process.wait() == 0
    worker = sim(*options)
    again = Asked(worker, ids(6, PROMPT))
    assert again.hits == {"gpu": 0, "l1": 0, "nvme": 10 * CHUNK, "l2": 0} and again.text == first.text
    assert worker.ask("GET", "/sim/restart").status == 200  # memory and device are empty again
    assert Asked(worker, ids(6, PROMPT)).hits["nvme"] == 10 * CHUNK


# Under pressure


class Flood:
    """Requests whose prompts share beginnings, from several threads, until it is stopped."""

    def __init__(self, workers, seeds):
        self.workers, self.seeds, self.answered, self.failures = workers, seeds, 0, []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=[number]) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        rng = random.Random(number)
        while not self.over.is_set():
            prompt = ids(rng.choice(self.seeds), PROMPT)[: rng.randrange(CHUNK, PROMPT)]
            body = {"model": "tiny", "prompt": prompt, "max_tokens": 2}
            try:
                answer = rng.choice(self.workers).ask("POST", "/v1/completions", body=body)
                if answer.status != 200:
                    self.failures.append(answer)
            except OSError as error:
                self.failures.append(error)
            self.answered += 1

    def wait_more(self, count):
        enough = self.answered + count
        until(lambda: self.answered >= enough, 60, "more answers")

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def test_no_byte_is_wrong_and_no_request_fails_when_redis_dies_under_pressure(sim, redis, tmp_path):
    # room for 4 prompts on the device, 16 chunks in memory, more on disk: all of them evict
    workers = sim(
        "--l1", "128MiB", "--nvme", f"{tmp_path}/kv:1GiB", "--l2", redis.url, "--kv-tokens", 4 * PROMPT,
        count=2,
    )
    flood = Flood(workers, range(100, 130))
    try:
        until(lambda: sum(tiers(w)["loaded_l2"] for w in workers) > 0, 30, "something to come from Redis")
        redis.kill()
        flood.wait_more(60)
    finally:
        flood.stop()
    assert not flood.failures
    assert sum(tiers(w)["checked_chunks"] for w in workers) > 0
    for worker in workers:
        assert metric(worker, "kvsim:wrong_bytes_total") == 0
        assert metric(worker, "kvtier_tier_evictions_total", tier="l1") > 0
        until(lambda: tiers(worker)["under_way"] == 0, 20, "nothing to be under way")  # noqa: B023
        assert worker.stats()["running"] == worker.stats()["waiting"] == 0
        wait_unheld(worker)


def test_clients_that_leave_while_their_prompt_is_loaded(sim, redis):
    worker = sim("--l1", "8GiB", "--l2", redis.url, "--link", "ethernet-10g", profile="reference")
    Asked(worker, ids(7, PROMPT))
    wait_stored(worker, 10, "l2")
    assert worker.ask("GET", "/sim/restart").status == 200  # so that it has to come from Redis
    for _ in range(5):
        with Client(worker.port) as client:
            body = {"model": "tiny", "prompt": ids(7, PROMPT), "max_tokens": 4}
            client.send_request("POST", "/v1/completions", [], body)
            until(lambda: worker.stats()["load"] > 0, 5, "the request to be there")
    until(lambda: worker.stats()["load"] == 0 and tiers(worker)["under_way"] == 0, 20, "all to be released")
    assert worker.stats()["blocks_used"] == 0
    wait_unheld(worker)
    assert Asked(worker, ids(7, PROMPT)).cached >= 9 * CHUNK


def test_a_shared_tier_that_hangs_costs_a_while_and_no_request(sim, redis):
    worker = sim("--l1", "8GiB", "--l2", redis.url, "--tier-config", "l2: {deadline: 200ms}")
    Asked(worker, ids(9, PROMPT))
    wait_stored(worker, 10, "l2")
    redis.signal(signal.SIGSTOP)
    try:
        assert Asked(worker, ids(10, PROMPT)).cached == 0  # no server says whether it is there
        forget_device(worker)
        assert Asked(worker, ids(9, PROMPT)).hits["l1"] == 10 * CHUNK
    finally:
        redis.signal(signal.SIGCONT)
    until(lambda: tiers(worker)["under_way"] == 0, 20, "nothing to be under way")


def test_workers_of_several_loops_share_a_tier(sim, redis, tmp_path):
    workers = sim(
        "--l1", "128MiB", "--nvme", f"{tmp_path}/kv:1GiB", "--l2", redis.url, "--threads", 2,
        "--kv-tokens", 4 * PROMPT, count=3,
    )
    flood = Flood(workers, range(200, 215))
    try:
        until(lambda: sum(tiers(w)["loaded_l2"] for w in workers) > 0, 30, "something to come from Redis")
        flood.wait_more(30)
    finally:
        flood.stop()
    assert not flood.failures


# What routers hear


def test_events_name_the_tier(sim, kvtierd, tmp_path):
    told = {"enable_kv_cache_events": True, "endpoint": "tcp://*:0", "topic": "kv@tiny"}
    worker = sim(
        "--l1", "128MiB", "--nvme", f"{tmp_path}/kv:1GiB", "--l2", kvtierd.url,
        "--l2-segment", kvtierd.segment_name,
        "--kv-events-config", json.dumps(told),
    )
    endpoint = worker.ask("GET", "/kv_event_sources").json()["0"]["endpoint"]
    held, sequence, chunk = collections.defaultdict(set), [], CHUNK // BLOCK
    places = {"GPU": ("GPU", None), "CPU": ("CPU", None), "NVMe": ("STORAGE", "LOCAL")}
    places["L2"] = ("STORAGE", "REMOTE")

    def hear(listener, seed, **blocks):
        """Asks, and listens until so many blocks are reported to be in these places."""
        Asked(worker, ids(seed, PROMPT))
        while any(len(held[places[name]]) != count for name, count in blocks.items()):
            _, number, batch = listener.receive(20)
            sequence.append(int.from_bytes(number, "big"))
            for event in msgpack.unpack(batch)[1]:
                place = held[event["medium"], event.get("locality")]
                if event["type"] == "BlockStored":
                    place.update(event["block_hashes"])
                else:
                    place.difference_update(event["block_hashes"])

    with contextlib.closing(zmtp.subscribe(int(endpoint.rsplit(":", 1)[1]), b"kv@")) as listener:
        hear(listener, 300, GPU=PROMPT // BLOCK, CPU=10 * chunk, NVMe=10 * chunk, L2=10 * chunk)
        for name in ("CPU", "NVMe", "L2"):
            assert held[places[name]] <= held[places["GPU"]]
        hear(listener, 301, NVMe=20 * chunk, L2=20 * chunk)
        assert len(held[places["CPU"]]) <= 16 * chunk  # memory has room for 16 chunks
    assert sequence == list(range(len(sequence)))


def test_a_router_finds_what_lies_in_memory_only(sim, kvway):
    told = {"enable_kv_cache_events": True, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0",
            "topic": "kv@tiny"}
    options = ["--l1", "8GiB", "--kv-events-config", json.dumps(told)]
    workers = [sim(*options) for _ in range(3)]
    router = kvway(workers, SHOWN)
    wait_coverage(router, workers, "engine")
    for seed in range(10, 16):
        first = complete(router, ids(seed, PROMPT))
        holder = next(w for w in workers if w.url == first.worker)
        until(lambda: metric(holder, "kvtier_tier_chunks", tier="l1") >= 10, 10, "chunks")  # noqa: B023
        forget_device(holder)
        Asked(holder, ids(seed + 100, 40))  # it publishes the reset with the next step
        wait_heard(router, workers)
        again = complete(router, ids(seed, PROMPT) + [1] * 5)
        assert again.worker == first.worker and again.reason == "kvaware"
        assert again.cached == 10 * CHUNK and again.predicted == again.cached
        assert metric(holder, "kvsim:loaded_tokens_total", tier="l1") > 0


def test_lmcaches_controller_hears_of_memory(sim, kvway):
    """The library itself is the LMCache worker; a router that is the controller finds its chunks."""
    pull, reply, beat = Port(), Port(), Port()
    told = f"pull=127.0.0.1:{pull.number},reply=127.0.0.1:{reply.number}"
    options = ["--l1", "8GiB", "--lmcache-controller", told, "--lmcache-chunk-size", CHUNK]
    workers = [sim(*options, "--lmcache-instance", f"i{i}", "--lmcache-heartbeat-s", 0.2) for i in range(2)]
    config = {
        **SHOWN,
        "kvaware.lmcache.pull": f"127.0.0.1:{pull.number}",
        "kvaware.lmcache.reply": f"127.0.0.1:{reply.number}",
        "kvaware.lmcache.heartbeat": f"127.0.0.1:{beat.number}",
        "kvaware.lmcache.chunk_size": CHUNK,
        "kvaware.lmcache.detect": False,
        "workers": [{"url": w.url, "lmcache_instance": f"i{i}"} for i, w in enumerate(workers)],
    }
    router = kvway(workers, config)
    wait_coverage(router, workers, "lmcache")
    first = complete(router, ids(17, PROMPT))
    holder = next(w for w in workers if w.url == first.worker)
    wait_keys(router, 10, 20)
    forget_device(holder)
    again = complete(router, ids(17, PROMPT) + [1] * 5)
    assert again.worker == first.worker and again.cached == 10 * CHUNK
    for port in (pull, reply, beat):
        port.close()


# Time


def seconds_of(worker, name):
    """Sum of a histogram in simulated seconds."""
    return metric(worker, f"{name}_sum") * worker.stats()["speed"]


def simulated(sim, folder, speed):
    """Prompts that come from the device, from memory and from files; what they took, simulated."""
    worker = sim(
        "--l1", "1GiB", "--nvme", f"{folder}:64GiB", "--speed", speed, "--fetch-or-recompute", "off",
        profile="llama-8b-h100",
    )
    for turn in range(2):
        for seed in range(20, 26):
            Asked(worker, ids(seed, 40 * CHUNK), tokens=8)
        wait_stored(worker, 240, "nvme")
        forget_device(worker)
    loaded = tiers(worker)
    assert loaded["loaded_nvme"] > 0
    return (
        seconds_of(worker, "vllm:time_to_first_token_seconds"),
        seconds_of(worker, "vllm:e2e_request_latency_seconds"),
        loaded["loaded_l1"] + loaded["loaded_nvme"],
    )


def test_simulated_times_do_not_depend_on_the_speed(sim, tmp_path):
    slow = simulated(sim, tmp_path / "slow", 1)
    fast = simulated(sim, tmp_path / "fast", 8)
    assert fast == pytest.approx(slow, rel=0.05)


def test_a_load_takes_what_the_link_takes(sim):
    took = {}
    for link in ("pcie5-x16", "pcie4-x16"):
        worker = sim("--l1", "64GiB", "--link", link, profile="llama-8b-h100")
        for seed in (30, 31):  # the second one is loaded in a worker that has nothing else to do
            Asked(worker, ids(seed, 3000 * 2))
        forget_device(worker)
        before = seconds_of(worker, "vllm:time_to_first_token_seconds")
        loaded = Asked(worker, ids(30, 3000 * 2)).hits["l1"]
        took[link] = seconds_of(worker, "vllm:time_to_first_token_seconds") - before
    extra = loaded * 131072 * (1 / 25e9 - 1 / 50e9)
    assert took["pcie4-x16"] - took["pcie5-x16"] == pytest.approx(extra, rel=0.2)


def test_transfers_are_measured_at_full_size(sim):
    worker = sim("--l1", "64MiB", "--shrink", 1, "--kv-bytes-per-token", 1024, profile="reference")
    assert not tiers(worker)["modelled"] and tiers(worker)["payload_bytes"] == CHUNK * 1024
    assert "measured" in worker.process.log() and metric(worker, "kvsim:tier_timing_modelled") == 0
    Asked(worker, ids(8, PROMPT))
    wait_stored(worker, 10, "l1")  # a real copy takes its time
    forget_device(worker)
    assert Asked(worker, ids(8, PROMPT)).hits["l1"] == 10 * CHUNK


@pytest.mark.parametrize("mode, link, fetched", [
    ("on", "ethernet-10g", 0),  # 1.2 GB/s is less than 24,700 tokens/s x 131,072 bytes
    ("on", "shm", 40 * CHUNK),
    ("off", "ethernet-10g", 40 * CHUNK),
])
def test_what_computes_faster_is_not_fetched(sim, redis, mode, link, fetched):
    options = ["--l1", "8GiB", "--l2", redis.url, "--link", link, "--fetch-or-recompute", mode]
    writer = sim(*options, profile="llama-8b-h100")
    Asked(writer, ids(40, 40 * CHUNK + 1))
    wait_stored(writer, 40, "l2")
    reader = sim(*options, profile="llama-8b-h100")
    Asked(reader, ids(41, 40 * CHUNK + 1))  # teaches how fast it computes
    assert Asked(reader, ids(40, 40 * CHUNK + 1)).hits["l2"] == fetched
    assert tiers(reader)["left"] == (0 if fetched else 40)


# Options


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--l1", "much"], "--l1: expected a size such as 64GiB, 20GB"),
        (["--nvme", "/var/tmp/kv:20G"], "--nvme: expected a size"),
        (["--nvme", "/var/tmp/kv"], "FOLDER:SIZE"),
        (["--l2", "http://x"], "--l2"),
        (["--tier-config", "no such file"], "neither a file nor YAML"),
        (["--tier-config", "l1: {capacitty: 1GiB}"], "capacitty"),
        (["--shrink", "4"], "there are no tiers"),
        (["--l1", "1GiB", "--tier-timing", "measured"], "--shrink 1"),
        (["--l1", "1GiB", "--link", "string"], "--list-links"),
    ],
)
def test_mistakes_are_reported(options, complaint):
    done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and complaint in done.stderr


def test_sizes_are_taken_as_publications_write_them(sim):
    worker = sim("--l1", "20 GB", "--kv-bytes-per-token", "320KiB", "--shrink", "8192")
    # 953 chunks of 64 x 320 KiB, of which each takes 64 KiB of shrunk memory
    assert f"L1 of {20 * 10**9 // (CHUNK * 320 * 1024) * 65536 / 2**20:.0f} MiB a worker" in worker.process.log()


def test_links_have_sources():
    listing = subprocess.run([PROGRAM, "--list-links"], capture_output=True, text=True).stdout
    for name in ("pcie5-x16", "nvme-gen4", "ethernet-25g", "ethernet-100g", "shm"):
        assert f"\n{name}:\n" in listing
