"""The benchmark `sim-agree`: do workers with tiers give the same at the clock's speed and faster?

One simulated worker with memory, files and, where redis-server is installed, Redis below its device
gets the same made requests twice: at speed 1 and at --speed. Documents are asked about again and
again, more of them than the device and its memory hold, so that all tiers are met. Each request is
sent early and says when it is due, and counts as come at that very moment: a sample whose requests
come a tenth of a millisecond apart from another's meets other steps. What is compared is simulated,
so that it may not depend on the speed or on how busy the machine is.
"""

import json
import os
import random
import shutil
import statistics
import threading
import time
import urllib.request

from lib_procs import BenchError, Workshop, wait_ready
from lib_report import emit, say, table
from lib_sim_times import answers_of, cached_share, e2e_mean, percentile, times_of, ttfts
from lib_trace import stats_of

TARGETS = ["bench/sim/kvsim"]
MOST = 0.05  # share by which a figure may differ
PROFILE = "llama-8b-h100"
DOCUMENTS, TOKENS, QUESTION = 60, 4096, 412
PER_SECOND = 2.5
EARLY_NS = 500_000_000  # real time
OPTIONS = ["--kv-tokens", "20000", "--l1", "8GiB"]
NVME = "64GiB"

# {name: (title, unit, function that reads it from the worker's answers and stats)}
FIGURES = {
    "ttft_mean_s": ("TTFT mean", "s", lambda a, s: statistics.fmean(ttfts(a))),
    "ttft_p50_s": ("TTFT p50", "s", lambda a, s: percentile(ttfts(a), 50)),
    "ttft_p90_s": ("TTFT p90", "s", lambda a, s: percentile(ttfts(a), 90)),
    "e2e_mean_s": ("E2E mean", "s", lambda a, s: e2e_mean(a)),
    "cached_share": ("cached share", "share", lambda a, s: cached_share(a)),
    "loaded": ("loaded", "tokens", lambda a, s: s["tiers"]["loaded_l1"] + s["tiers"]["loaded_nvme"]),
    "loaded_l1": ("of it from memory", "tokens", lambda a, s: s["tiers"]["loaded_l1"]),
}
# Figures that are shown and not compared. A chunk that is being written to a lower tier cannot leave memory, so which of two leaves
# depends on real time; and the median lies between answers from memory and those from files, so that a
# few of them move it.
SHOWN = ("loaded_l1", "ttft_p50_s")


def made_requests(count):
    """Returns [(nanoseconds since the first request, prompt, tokens to generate)], the same at every call."""
    rng = random.Random(9)
    at_ns = 0
    for _ in range(count):
        document = min(int(rng.paretovariate(0.6)) - 1, DOCUMENTS - 1)
        words = random.Random(document)
        prompt = [words.randrange(1 << 16) for _ in range(TOKENS)]
        prompt += [rng.randrange(1 << 16) for _ in range(QUESTION)]
        yield at_ns, prompt, rng.randrange(10, 80)
        at_ns += int(rng.expovariate(PER_SECOND) * 1e9)


def send(port, due_ns, body, failed):
    """Sends one request, before it is due; appends an error to `failed`."""
    time.sleep(max(0, due_ns - EARLY_NS - time.monotonic_ns()) / 1e9)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body,
        {"content-type": "application/json", "x-sim-due": f"{due_ns} 0"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            answer.read()
    except OSError as error:
        failed.append(error)


def replay(port, speed, count):
    """Sends all requests and waits for their answers; returns the errors."""
    failed, threads = [], []
    bodies = [(at_ns, json.dumps({"model": "sim", "prompt": prompt, "max_tokens": tokens}).encode())
              for at_ns, prompt, tokens in made_requests(count)]
    begin_ns = time.monotonic_ns() + 2 * EARLY_NS
    for at_ns, body in bodies:
        due_ns = begin_ns + int(at_ns / speed)
        threads.append(threading.Thread(target=send, args=(port, due_ns, body, failed)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return failed


def start_redis(shop):
    """Starts a redis-server; returns its URL, or None where it is not installed."""
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    if server is None:
        say("sim-agree: redis-server is not installed: without a shared tier")
        return None
    (port,) = shop.ports(1)
    shop.start([server, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", shop.path(".")],
               log="redis.out")
    return f"redis://127.0.0.1:{port}"


def run_once(options, speed, requests):
    """Runs all requests at one speed, with a fresh worker; returns its answers as it timed them, and its stats."""
    say(f"sim-agree: {requests} requests at speed {speed:g} ...")
    with Workshop() as shop:
        (port,) = shop.ports(1)
        redis = start_redis(shop)
        worker = shop.start(
            [os.path.join(options.build, "bench/sim/kvsim"), "--port", str(port), "--profile", PROFILE,
             "--speed", f"{speed:g}", *OPTIONS, "--nvme", f"{shop.path('nvme')}:{NVME}",
             *(["--l2", redis] if redis else [])], log="kvsim.out")
        try:
            wait_ready(f"http://127.0.0.1:{port}/health", worker)
        except BenchError as error:
            raise BenchError(f"kvsim: {error}\n{shop.log_tail('kvsim.out')}") from error
        failed = replay(port, speed, requests)
        answers = answers_of([times_of(port)])
        check(speed, requests, answers, stats_of(port), failed)
        return answers, stats_of(port)


def check(speed, requests, answers, stats, failed):
    """Raises BenchError unless a run has what every run must have."""
    wrong = stats["tiers"]["wrong_bytes"]
    if failed or wrong or len(answers) != requests:
        raise BenchError(f"speed {speed:g}: {len(answers)} of {requests} answers, {len(failed)} failed "
                         f"({failed[:1]}), {wrong} wrong bytes")
    say(f"sim-agree: {stats['missed']} requests came too late for their first step, time stood still "
        f"{stats['tiers']['waits']} times for a tier and not long enough {stats['tiers']['late']} times; "
        f"steps ended {stats['late_mean_ms']:.2f} ms late in the mean")


def bench_sim_agree(options):
    """Runs at both speeds; raises BenchError where a figure differs by more than it may."""
    requests = options.requests or 300
    slow, slow_stats = run_once(options, 1.0, requests)
    fast, fast_stats = run_once(options, options.speed, requests)
    rows, apart = [], []
    for metric, (name, unit, value) in FIGURES.items():
        one, other = value(slow, slow_stats), value(fast, fast_stats)
        ratio = other / one if one else None
        rows.append([name, one, other, ratio or "-"])
        emit("sim-agree", metric, other, unit, peer="speed 1", peer_value=one, ratio=ratio,
             speed=options.speed, requests=requests, simulated=True)
        if metric not in SHOWN and abs(other - one) > MOST * abs(one):
            apart.append(name)
    table(f"the same {requests} requests at speed 1 and {options.speed:g}: simulated",
          ["", "speed 1", f"speed {options.speed:g}", "ratio"], rows)
    if apart:
        raise BenchError(f"more than {MOST:.0%} apart: {', '.join(apart)}")
