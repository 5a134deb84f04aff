"""The benchmark `replay-agree`: does the replay give what the same engines give behind a real kvway, over HTTP?

The first requests of a recorded trace go twice to the same simulated engines with the same configuration of kvway:
in simulated time with the routing library alone (bench/replay/kvb-replay), and through a kvway process to kvsim,
sent by kvbench. Between them is what the replay knows nothing of: HTTP, metrics that are read while requests come
and go, tokens whose length is learned, two cores that many programs share.

A run of a trace is chaotic: which worker one request takes decides what all later ones find. So each side is a mean,
the replay's over --seeds, HTTP's over --times, and the replay's spread between seeds says how far two such means may
be apart by chance. Fails where a figure of GATES is further from the replay's than MOST and than that, or where the
mean of its differences over all arms is more than MOST.

At the clock's speed nothing has to be divided, so several arms run side by side instead of one that is faster.
"""

import concurrent.futures
import json
import math
import os
import statistics
import subprocess
import urllib.request

from lib_peers import start_kvway, write
from lib_procs import BenchError, Workshop, raise_descriptor_limit
from lib_replay import parse_scales, run_one
from lib_report import emit, say, table
from lib_trace import rates, sim_stats, start_workers, trace_of

TARGETS = ["bench/sim/kvsim", "bench/load/kvbench", "bench/replay/kvb-replay"]
PROFILE = "reference-kv"
STRATEGIES = ("prefixaware", "roundrobin")
KV_TOKENS = (1000000, 300000, 200000)
MOST = 0.05
AT_ONCE = 12   # arms that run at the same time; each takes half of a core
LATE_MS = 10   # a run is made again if steps end later than this, in simulated ms and in the mean ...
TRIES = 3      # ... so often at most
# Between two requests, in real time, so that they reach the router in the trace's order: round robin gives each the
# worker that its number says. The replay has the same pause.
PAUSE_MS = 10
LEAD_MS = 200  # covers the pauses of a burst
# Simulated milliseconds; kvway's keys at their defaults but for the promise, which is the replay's (replay_slo.h).
TIMES_MS = {"health": {"interval": 2000, "metrics_interval": 10000},
            "admission": {"max_wait": 30000, "worker_queue": 1000},
            "service_level": {"ttft": 2000, "ttft_per_1k_tokens": 122, "tpot": 100}}
# {metric: (name, unit, function that reads it from kvbench's result)}
FIGURES = {
    "ttft_mean_s": ("TTFT mean", "s", lambda r: r["ttft_s"]["mean"]),
    "ttft_p50_s": ("p50", "s", lambda r: r["ttft_s"]["p50"]),
    "ttft_p90_s": ("p90", "s", lambda r: r["ttft_s"]["p90"]),
    "e2e_mean_s": ("E2E mean", "s", lambda r: r["e2e_s"]["mean"]),
    "cached_share": ("cached", "share", lambda r: r["cached_share"] or 0),
    "refused_share": ("refused", "share", lambda r: r["errors"].get("status 429", 0) / (r["completed"] + r["failed"])),
    "preemptions": ("preempted", "1", lambda r: r["preemptions"]),
}
GATES = ("ttft_mean_s", "e2e_mean_s", "cached_share")


class Arm:
    """One comparison: its scenario, and the figures of both sides."""

    def __init__(self, strategy, admission, kv_tokens, scale):
        self.strategy, self.admission, self.kv_tokens, self.scale = strategy, admission, kv_tokens, scale
        self.replay, self.http = [], []

    def label(self):
        """Returns its name as tables show it."""
        return (f"{self.strategy}{' + admission' if self.admission else ''}, KV {self.kv_tokens // 1000}k, "
                f"x{self.scale:g}")

    def settings(self, speed):
        """Returns (lines for the section routing, other sections) of kvway's configuration."""
        text = ""
        for section, keys in TIMES_MS.items():
            lines = [f"  {key}: {max(1, round(ms / speed))}ms\n" for key, ms in keys.items()]
            if section == "admission":
                lines.append(f"  enabled: {json.dumps(self.admission)}\n")
            text += f"{section}:\n" + "".join(lines)
        text += "upstream:\n  stall: 0s\n"  # the replay looks for no stopped engine
        return rates(speed) + f"  slow_start: {round(10000 / speed)}ms\n", text

    def difference(self, metric):
        """Returns (mean over HTTP, mean of the replay, their difference as a share, the difference that chance explains)."""
        ours, theirs = [run[metric] for run in self.http], [run[metric] for run in self.replay]
        one, other = statistics.mean(ours), statistics.mean(theirs)
        if other == 0:
            return one, other, None, None
        spread = statistics.stdev(theirs) / other if len(theirs) > 1 else 0
        return one, other, one / other - 1, 2 * spread * math.sqrt(1 / len(ours) + 1 / len(theirs))


def all_arms(options):
    """Returns all arms in the order of the table."""
    return [Arm(strategy, admission, kv_tokens, scale) for strategy in STRATEGIES for admission in (False, True)
            for kv_tokens in KV_TOKENS for scale in parse_scales(options.scale or ["1,1.5"])]


def run_replay(options, arm, trace, seed):
    """Makes one run in simulated time, with kvway's configuration."""
    routing, more = arm.settings(1)
    with Workshop() as shop:
        path = write(shop, "kvway.yaml", "workers:\n  - url: http://127.0.0.1:1\n"
                     f"routing:\n  strategy: {arm.strategy}\n{routing}{more}")
        return run_one(options, ["--trace", trace], "kvway", arm.scale, options.workers[0], seed,
                       ("--admission", "kvway" if arm.admission else "none", "--kv-tokens", str(arm.kv_tokens),
                        "--config", path, "--pause-ms", f"{PAUSE_MS * options.speed:g}"))


def preemptions(ports):
    """Returns the preemptions of all workers."""
    total = 0
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/sim/stats", timeout=10) as answer:
            total += json.load(answer)["preemptions"]
    return total


def play(options, arm, trace):
    """Makes one run over HTTP to fresh workers; returns kvbench's result, and how late the workers' steps ended (mean, simulated ms)."""
    count = options.workers[0]
    routing, more = arm.settings(options.speed)
    with Workshop() as shop:
        ports = shop.ports(count + 2)
        start_workers(shop, options, ports[:-2], ("--profile", PROFILE, "--kv-tokens", str(arm.kv_tokens)))
        router = start_kvway(shop, None, ports[-2:], ports[:-2], arm.strategy, options.build, extra=more,
                             routing=routing)
        result = shop.path("result.json")
        subprocess.run(
            [os.path.join(options.build, "bench/load/kvbench"), "trace", "--url", f"http://127.0.0.1:{router.port}",
             "--trace", trace, "--requests", str(options.requests), "--rate-scale", f"{arm.scale * count / 8:g}",
             "--speed", f"{options.speed:g}", "--lead-ms", str(LEAD_MS), "--pause-ms", str(PAUSE_MS),
             "--label", arm.label(), "--json", result],
            check=False, stdout=subprocess.DEVNULL)
        try:
            with open(result, encoding="utf-8") as file:
                measured = json.load(file)
        except OSError as error:
            raise BenchError(f"{arm.label()}: kvbench wrote no result") from error
        measured["preemptions"] = preemptions(ports[:-2])
        return measured, sim_stats(ports[:-2])["late_mean_ms"] * options.speed


def run_http(options, arm, trace):
    """Makes runs over HTTP until the machine kept up with one; returns its figures."""
    for _ in range(TRIES):
        measured, late_ms = play(options, arm, trace)
        if late_ms <= LATE_MS:
            break
        say(f"   {arm.label()}: steps ended {late_ms:.0f} ms late in the mean")
    else:
        raise BenchError(f"{arm.label()}: the machine is too busy: steps ended {late_ms:.0f} ms late in the mean")
    refused = measured["errors"].get("status 429", 0)
    if measured["failed"] > refused:
        raise BenchError(f"{arm.label()}: {measured['failed'] - refused} requests failed: {measured['errors']}")
    return {metric: value(measured) for metric, (_, _, value) in FIGURES.items()}


def run_all(options, arms, trace):
    """Runs both sides of all arms; one side after the other, since the replay takes all of the cores."""
    raise_descriptor_limit()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for arm in arms:
            arm.replay = list(pool.map(lambda seed, arm=arm: run_replay(options, arm, trace, seed),
                                       range(1, options.seeds + 1)))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE if options.speed == 1 else 1) as pool:
        jobs = [(arm, pool.submit(run_http, options, arm, trace)) for _ in range(options.times) for arm in arms]
        for arm, job in jobs:
            arm.http.append(job.result())
            say(f"   {arm.label()}: TTFT mean {arm.http[-1]['ttft_mean_s']:.3f} s, replay "
                f"{statistics.mean(run['ttft_mean_s'] for run in arm.replay):.3f} s")


def apart(arms):
    """Returns a sentence for each difference that is too large."""
    faults = []
    for metric in GATES:
        shares = []
        for arm in arms:
            _, _, share, chance = arm.difference(metric)
            if share is None:
                continue
            shares.append(share)
            if abs(share) > max(MOST, chance):
                faults.append(f"{arm.label()}: {FIGURES[metric][0]} {share:+.1%} (chance: {chance:.1%})")
        if shares and abs(statistics.mean(shares)) > MOST:
            faults.append(f"all arms: {FIGURES[metric][0]} {statistics.mean(shares):+.1%}")
    return faults


def cell(arm, metric):
    """Returns `HTTP / replay` and their difference as the table shows them."""
    one, other, share, _ = arm.difference(metric)
    text = f"{one:.4g} / {other:.4g}"
    return text if share is None or metric == "refused_share" else f"{text} {share:+.1%}"


def bench_replay_agree(options):
    """Compares both sides; raises BenchError where they differ too much."""
    trace = trace_of(options)
    arms = all_arms(options)
    run_all(options, arms, trace)
    table(f"replay-agree: {os.path.basename(trace)}, {options.requests} requests, {options.workers[0]} workers: HTTP "
          f"(speed {options.speed:g}, mean of {options.times}) / replay (mean of {options.seeds} seeds), all simulated",
          ["", *(name for name, _, _ in FIGURES.values())],
          [[arm.label(), *(cell(arm, metric) for metric in FIGURES)] for arm in arms])
    for metric in GATES:
        shares = [share for share in (arm.difference(metric)[2] for arm in arms) if share is not None]
        say(f"  {FIGURES[metric][0]}: differences {min(shares):+.1%} to {max(shares):+.1%}, mean "
            f"{statistics.mean(shares):+.1%}")
    for arm in arms:
        for metric, (_, unit, _) in FIGURES.items():
            one, other, share, chance = arm.difference(metric)
            emit("replay-agree", metric, one, unit, peer="replay", peer_value=other,
                 ratio=None if share is None else 1 + share, chance=chance, strategy=arm.strategy,
                 admission=arm.admission, kv_tokens=arm.kv_tokens, scale=arm.scale, workers=options.workers[0],
                 requests=options.requests, speed=options.speed, times=options.times, seeds=options.seeds,
                 values=[run[metric] for run in arm.http], simulated=True)
    faults = apart(arms)
    if faults:
        raise BenchError(f"more than {MOST:.0%} apart: " + "; ".join(faults))
