"""The benchmark `fleet`: a trace through kvway to eight simulated workers with real tiers.

Two parts. `value`: what routing, tiers, both, the kind of shared tier, and fetch-or-recompute are worth, on
the same trace at the same moments. `faults`: the same fleet at two loads, with one worker and the Redis
master killed in the middle: requests that fail beyond those that streamed from the dead worker, bytes that
came back wrong, and whether the hit rate recovers, with a picture of where prompts' tokens came from over
time.

Each worker is a process of its own, so that killing it is killing a worker. Every figure is simulated: GPU
and transfers are models, the router, the caches, Redis and kvtierd are real, payloads are shrunk.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import statistics
import subprocess
import threading
import time
import urllib.request

from lib_fleet_plot import write_plot
from lib_fleet_redis import sentinels
from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, raise_descriptor_limit, wait_ready, wanted
from lib_report import emit, say, table
from lib_sim_speed import limits, rates
from lib_sim_times import answers_of, cached_share, e2e_mean, percentile, times_of, ttfts
from lib_tables_daemon import SharedTier, kvtierd, redis
from lib_trace import EVENTS, WHERE, check_times, sim_stats

TARGETS = ["bench/sim/kvsim", "bench/load/kvbench", "cache/daemon/kvtierd"]
PARTS = ("value", "faults")
WORKERS = 8
PROFILE = "llama-8b-h100"  # the GPU's cache by its data sheet: 400,000 tokens a worker
L1, NVME = "48GiB", "384GiB"
SHRINK = 16384
CHUNK = 512  # tokens per hash id of the trace, and per chunk
CHUNKS = 30  # chunks per request: at least the trace's mean
LOADS = (1.0, 2.0)
# Runs compare the times of the same requests, so kvway is to refuse none, however long a strategy lets it wait.
NOT_REFUSED = {"admission.max_wait": "1h"}
SAMPLE_S = 0.5
DOWN_S = 3.0  # real seconds until the killed worker is started again
RECOVERED = 0.8  # share of the hit rate before the faults at which the fleet counts as recovered
SOURCES = ("GPU", "CPU", "NVMe", "shared")


class Worker:
    """One simulated worker in its own process."""

    def __init__(self, fleet, index, port):
        self.fleet, self.index, self.port = fleet, index, port
        self.process = None

    def start(self):
        """Starts the worker; `ready` waits for it."""
        options, shop = self.fleet.options, self.fleet.shop
        args = [os.path.join(options.build, "bench/sim/kvsim"), "--port", str(self.port), "--profile",
                PROFILE, "--speed", f"{options.speed:g}", "--kv-events-config", EVENTS,
                *self.fleet.tier_arguments(self.index)]
        self.process = shop.start(args, log=f"kvsim{self.index}.out")

    def ready(self):
        """Waits until the worker answers."""
        try:
            wait_ready(f"http://127.0.0.1:{self.port}/health", self.process, 60)
        except BenchError as error:
            raise BenchError(f"kvsim: {error}\n{self.fleet.shop.log_tail(f'kvsim{self.index}.out')}") from error

    def kill(self):
        """Kills the worker at once, as a power failure would."""
        self.process.kill()
        self.process.wait()
        self.fleet.shop.processes.remove(self.process)

    def metrics(self):
        """Returns {name{labels}: value} of the worker's metrics, or None while it does not run."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        found = {}
        for line in lines:
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found


def total(metrics, name, label=""):
    """Returns the sum of a metric over its label sets that contain `label`."""
    return sum(value for key, value in metrics.items()
               if key.split("{")[0] == name and label in key)


class Fleet:
    """Workers, shared tier and router of one run; a context manager."""

    def __init__(self, options, strategy, tiers=True, l2=None, more=()):
        """l2: a context whose value is a SharedTier, or None."""
        self.options, self.strategy, self.tiers, self.more = options, strategy, tiers, more
        self.make_l2 = l2
        self.stack = contextlib.ExitStack()
        self.shop = self.l2 = self.proxy = None
        self.workers = []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.shop = stack.enter_context(Workshop())
            if self.make_l2 is not None:
                self.l2 = stack.enter_context(self.make_l2(self.shop))
            ports = self.shop.ports(WORKERS + 2)
            self.workers = [Worker(self, i, ports[i]) for i in range(WORKERS)]
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                worker.ready()
            self.proxy = start_kvway(self.shop, None, ports[WORKERS:], ports[:WORKERS], self.strategy,
                                     self.options.build, routing=rates(self.options.speed),
                                     extra=limits(self.options.speed, NOT_REFUSED))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *what):
        return self.stack.__exit__(*what)

    def tier_arguments(self, index):
        """Returns kvsim's arguments for the tiers of one worker."""
        if not self.tiers:
            return []
        args = ["--l1", L1, "--nvme", f"{self.shop.path(f'nvme{index}')}:{NVME}", "--shrink", str(SHRINK),
                "--tier-config", f"control: {{tokens_per_chunk: {CHUNK}}}"]
        if self.l2 is not None:
            args += ["--tier-config", f'l2: {{url: "{self.l2.url}"}}']  # a URL of Sentinels contains commas
            if self.l2.segment:
                args += ["--l2-segment", self.l2.segment]
        return args + list(self.more)

    def replay(self, trace, load, label):
        """Runs kvbench on the trace; returns its result."""
        result = self.shop.path("result.json")
        subprocess.run(
            [os.path.join(self.options.build, "bench/load/kvbench"), "trace", "--url",
             f"http://127.0.0.1:{self.proxy.port}", "--trace", trace, "--requests",
             str(self.options.requests), "--rate-scale", f"{load:g}", "--speed",
             f"{self.options.speed:g}", "--label", label, "--json", result],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with open(result, encoding="utf-8") as file:
                return json.load(file)
        except OSError as error:
            raise BenchError(f"{label}: kvbench wrote no result") from error

    def wrong_bytes(self):
        """Returns how many bytes read from tiers differ from those that were stored, summed over the workers that answer."""
        return sum(total(worker.metrics() or {}, "kvsim:wrong_bytes_total") for worker in self.workers)


class Watch(threading.Thread):
    """Records every SAMPLE_S seconds which sources gave the prompts' tokens; a context manager."""

    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet = fleet
        self.begun = time.monotonic()
        self.over = threading.Event()
        self.samples = []  # (seconds, [tokens by source], tokens asked)
        self.marks = []  # (seconds, words)
        self.last = {}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *what):
        self.over.set()
        self.join()

    def mark(self, words):
        """Records that something happened now."""
        self.marks.append((time.monotonic() - self.begun, words))

    def run(self):
        while not self.over.wait(SAMPLE_S):
            self._sample()

    def _sample(self):
        came, asked = [0.0] * len(SOURCES), 0.0
        for worker in self.fleet.workers:
            metrics = worker.metrics()
            if metrics is None:
                self.last.pop(worker.index, None)
                continue
            now = [total(metrics, "vllm:prefix_cache_hits_total"),
                   *(total(metrics, "kvsim:loaded_tokens_total", f'tier="{tier}"')
                     for tier in ("l1", "nvme", "l2")),
                   total(metrics, "vllm:prompt_tokens_total")]
            before = self.last.get(worker.index, [0.0] * len(now))
            if now[-1] < before[-1]:
                before = [0.0] * len(now)
            for i in range(len(SOURCES)):
                came[i] += now[i] - before[i]
            asked += now[-1] - before[-1]
            self.last[worker.index] = now
        self.samples.append((time.monotonic() - self.begun, came, asked))

    def share(self, begin, end):
        """Returns the share of the prompt tokens between two moments that came from caches."""
        asked = sum(sample[2] for sample in self.samples if begin <= sample[0] < end)
        came = sum(sum(sample[1]) for sample in self.samples if begin <= sample[0] < end)
        return came / asked if asked else 0.0


def at_load(options, load):
    """The options, slower where there is more to do: a request that reaches its worker too late for the moment at
    which it is due has waited in simulated time, too."""
    own = argparse.Namespace(**vars(options))
    own.speed = options.speed / load
    return own


# --- value ------------------------------------------------------------------------------------------


def arms(options):
    """Returns [(name, a function that makes the Fleet)] of all fleets that are compared, plain round robin first."""
    def daemon(shop):
        return kvtierd(shop, options, options.requests * CHUNKS)

    return [
        ("round robin, no tiers", lambda: Fleet(options, "roundrobin", tiers=False)),
        ("routing alone", lambda: Fleet(options, "prefixaware", tiers=False)),
        ("tiers alone", lambda: Fleet(options, "roundrobin", l2=redis)),
        ("prefixaware and tiers", lambda: Fleet(options, "prefixaware", l2=redis)),
        ("kvaware and tiers", lambda: Fleet(options, "kvaware", l2=redis)),
        ("... kvtierd for Redis", lambda: Fleet(options, "kvaware", l2=daemon)),
        ("... always fetched", lambda: Fleet(options, "kvaware", l2=redis,
                                            more=("--fetch-or-recompute", "off"))),
    ]


def value_of(make, trace, load, name):
    """Runs one fleet at one load; returns its figures, in the workers' own time."""
    with make() as fleet:
        result = fleet.replay(trace, load, name)
        wrong = fleet.wrong_bytes()
        if isinstance(fleet.l2, SharedTier):
            fleet.l2.check()
        ports = [worker.port for worker in fleet.workers]
        answers = answers_of([times_of(port) for port in ports])
        check_times(fleet.options, name, sim_stats(ports))
    if result["failed"] or wrong or len(answers) != result["completed"]:
        raise BenchError(f"{name}: {result['failed']} requests failed, {result['completed']} were answered, the "
                         f"workers report {len(answers)} answers, {wrong:.0f} bytes were wrong")
    times = ttfts(answers)
    return {"cached_share": cached_share(answers), "ttft_mean_s": statistics.fmean(times),
            "ttft_p50_s": percentile(times, 50), "ttft_p90_s": percentile(times, 90),
            "e2e_mean_s": e2e_mean(answers)}


def measure_value(options, trace):
    """Measures all fleets at the higher load."""
    load = LOADS[-1]
    options = at_load(options, load)
    rows, first = [], None
    for name, make in arms(options):
        say(f"fleet: {name}, load {load:g} ...")
        figures = value_of(make, trace, load, name)
        first = first or figures
        rows.append([name, *figures.values()])
        for metric, value in figures.items():
            emit("fleet", metric, value, "share" if metric == "cached_share" else "s",
                 peer="round robin, no tiers", ratio=value / first[metric] if first[metric] else None,
                 peer_value=first[metric], arm=name, load=load, simulated=True, speed=options.speed)
    table(f"value of each part, {WORKERS} workers, {options.requests} requests, rate x{load:g}, simulated",
          ["", "not computed", "TTFT mean s", "p50", "p90", "E2E mean s"], rows)


# --- faults -----------------------------------------------------------------------------------------


def break_things(fleet, watch, seconds):
    """Kills the Redis master, then a worker, and starts the worker again. Returns how many requests the worker
    was answering."""
    time.sleep(seconds)
    fleet.l2.kill_master()
    watch.mark("Redis master killed")
    time.sleep(seconds / 4)
    victim = max(fleet.workers, key=lambda w: total(w.metrics() or {}, "vllm:num_requests_running"))
    state = victim.metrics() or {}
    running = total(state, "vllm:num_requests_running")
    victim.kill()
    watch.mark("worker killed")
    time.sleep(DOWN_S)
    victim.start()
    victim.ready()
    watch.mark("worker back")
    return running


def run_faults(options, trace, strategy, load, folder):
    """Makes one run with faults, checks it and draws it."""
    label = f"{strategy}, load {load:g}"
    options = at_load(options, load)
    say(f"fleet: faults, {label} ...")
    with (Fleet(options, strategy, l2=sentinels) as fleet, Watch(fleet) as watch,
          concurrent.futures.ThreadPoolExecutor(1) as breaker):  # its thread stays, for the process that it starts
        expected = duration_of(trace, options.requests) / load / options.speed
        broken = breaker.submit(break_things, fleet, watch, expected / 3)
        result = fleet.replay(trace, load, label)
        running = broken.result()
        time.sleep(2 * SAMPLE_S)
        wrong = fleet.wrong_bytes()
    first, last = watch.marks[0][0], watch.marks[-1][0]
    end = watch.samples[-1][0]
    before = watch.share(first * 0.4, first)
    after = watch.share(last + (end - last) / 3, end)
    write_plot(os.path.join(folder, f"fleet-{strategy}-{load:g}.svg"),
               f"where prompts' tokens came from: {label}, simulated", watch, SOURCES, options.speed)
    good = (result["failed"] <= running and wrong == 0 and after >= RECOVERED * before)
    for metric, value, unit in (("failed_requests", result["failed"], "1"), ("wrong_bytes", wrong, "1"),
                                ("hit_share_before", before, "share"), ("hit_share_after", after, "share")):
        emit("fleet", metric, value, unit, strategy=strategy, load=load, good=good, simulated=True,
             speed=options.speed, answering_when_killed=running)
    return [label, result["failed"], running, wrong, before, after, "yes" if good else "NO"], good


def duration_of(trace, requests):
    """Returns how many seconds of the trace its first `requests` requests span."""
    with open(trace, encoding="utf-8") as file:
        stamps = [int(re.search(r'"timestamp":\s*(\d+)', line)[1])
                  for line, _ in zip(file, range(requests))]
    return (stamps[-1] - stamps[0]) / 1000


def measure_faults(options, trace):
    """Runs both strategies at both loads, with faults."""
    folder = options.plots or os.path.join(options.build, "tables")
    os.makedirs(folder, exist_ok=True)
    rows, fine = [], True
    for strategy in ("prefixaware", "kvaware"):
        for load in LOADS[:1] if options.small else LOADS:
            row, good = run_faults(options, trace, strategy, load, folder)
            rows.append(row)
            fine = fine and good
    table(f"a worker and the Redis master killed, {WORKERS} workers, {options.requests} requests, simulated",
          ["", "failed", "answering when killed", "wrong bytes", "not computed before", "after", "good"], rows)
    say(f"   pictures in {folder}")
    if not fine:
        raise BenchError("more failed than the dead worker was answering, bytes were wrong, or hits did not recover")


def bench_fleet(options):
    """Runs both parts, or the one that --only names."""
    trace = options.trace or os.environ.get("TRACE")
    if not trace:
        raise BenchError(WHERE)
    raise_descriptor_limit()
    if wanted(options, "value"):
        measure_value(options, trace)
    if wanted(options, "faults"):
        measure_faults(options, trace)
