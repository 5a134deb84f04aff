"""events: what KV events of many workers cost kvway, and whether requests feel them.

64 simulated engines publish KV events (bench/load/kvb_events.c) at a fixed rate to a kvway with the strategy
kvaware; meanwhile it sends prompts of token ids that those engines hold at a fixed rate, to workers that
answer at once. Phases with and without events take turns, so that a ratio compares neighbours in time.

With --coordinator, 64 LMCache servers of the multi-process mode report the same caches to kvway as their
coordinator: each posts once a second (LMCache's default) what it stored and dropped, in chunks of 16 tokens.

kvway has one core with all its threads (one event loop, the feed, ZeroMQ's own), load and workers the other.
"""

import json
import os
import statistics
import subprocess
import time
import urllib.request

import lib_report as report
from lib_procs import BenchError, Workshop, cores, raise_descriptor_limit, wait_ready

PROGRAM = "bench/load/kvb-events"
BATCHES = 100  # KV-event batches per second and engine; each stores ten blocks and removes ten
HELD = 80  # chains of 50 blocks: 4,000 blocks of 16 tokens on each engine
PIECES = 5  # batches that store one chain
POSTS = 1  # per second and LMCache server; each has what BATCHES batches of an engine have
SETTLE_S = 3  # time for kvway to ask engines that fall silent whether it missed events


class Metrics:
    """kvway's figures at one moment: {(name, labels): value}."""

    def __init__(self, port):
        url = f"http://127.0.0.1:{port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except OSError as error:
            raise BenchError(f"{url}: {error}") from error
        self.values = {}
        for line in lines:
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                self.values[name] = float(value)

    def get(self, name, labels=""):
        """Returns one sample; 0 if the page has none."""
        return self.values.get(name + labels, 0.0)

    def feed(self, what):
        """Returns a counter of the thread that receives KV events."""
        return self.get("kvway_kvaware_feed_total", f'{{what="{what}"}}')

    def quantile(self, name, share, before):
        """Returns an upper bound, in seconds, of the quantile of what a histogram has counted since `before`."""
        return bound_of(self.buckets(name, before), share)

    def buckets(self, name, before):
        """Returns {upper bound: how many observations since `before` are not above it}."""
        totals = {}
        for key, value in self.values.items():
            if key.startswith(name + "_bucket"):
                bound = float(key.split('le="')[1].split('"')[0])
                totals[bound] = totals.get(bound, 0) + value - before.values.get(key, 0.0)
        return totals


def bound_of(totals, share):
    """Returns the smallest upper bound that this share of the observations does not exceed."""
    most = max(totals.values(), default=0)
    for bound in sorted(totals):
        if most and totals[bound] >= share * most:
            return bound
    return float("nan")


class Bench:
    """Workers, kvway and the engines of one run."""

    def __init__(self, shop, options):
        self.shop = shop
        self.count = options.workers[0]
        self.proxy_core, self.load_core = cores()
        ports = shop.ports(3 * self.count + 2)
        self.ports = ports
        self.admin = ports[1]
        self.http = ports[2:2 + self.count]
        self.events = ports[2 + self.count]
        build = options.build
        self.sim = shop.start(
            [os.path.join(build, "bench/sim/kvsim"), "--workers", str(self.count), "--port",
             str(self.http[0]), "--model", "bench", "--profile", "instant", "--keepalive-s", "0",
             "--fixed-response", "512"], core=self.load_core, log="kvsim.out")
        wait_ready(f"http://127.0.0.1:{self.http[-1]}/health", self.sim)
        self.coordinator = options.coordinator
        source = ["--port", str(self.events), "--rate", str(BATCHES)]
        if self.coordinator:
            source = ["--coordinator", f"127.0.0.1:{self.events}", "--rate", str(POSTS),
                      "--pieces", str(BATCHES // POSTS)]
            self.kvway = self.start_kvway(build)
        self.engines = shop.start(
            [os.path.join(build, PROGRAM), "--engines", str(self.count), *source,
             "--held", str(HELD), "--url", f"127.0.0.1:{ports[0]}",
             "--requests", str(options.rate)], core=self.load_core, log=None,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self.engines.stdout.readline():
            raise BenchError("kvb-events did not start")
        if not self.coordinator:
            self.kvway = self.start_kvway(build)

    def start_kvway(self, build):
        """Starts kvway with one event loop."""
        feeds = ""
        if self.coordinator:
            rows = "".join(f"  - url: http://127.0.0.1:{port}\n    lmcache_instance: mp-{i}\n"
                           for i, port in enumerate(self.http))
            feeds = f"kvaware:\n  lmcache:\n    coordinator: 127.0.0.1:{self.events}\n" \
                    "    heartbeat_timeout: 1h\n"
        else:
            rows = "".join(
                f"  - url: http://127.0.0.1:{port}\n"
                f"    events_endpoint: tcp://127.0.0.1:{self.events + i}\n"
                f"    events_replay: tcp://127.0.0.1:{self.events + self.count + i}\n"
                for i, port in enumerate(self.http))
        path = self.shop.path("kvway.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"""listen: 127.0.0.1:{self.ports[0]}
loops: 1
admin:
  listen: 127.0.0.1:{self.admin}
drain:
  settle: 0s
workers:
{rows}routing:
  strategy: kvaware
{feeds}log:
  level: warn
  access: off
""")
        process = self.shop.start([os.path.join(build, "src", "router", "kvway"), "-c", path],
                                  core=self.proxy_core, log="kvway.out")
        try:
            wait_ready(f"http://127.0.0.1:{self.ports[0]}/ready", process)
        except BenchError as error:
            raise BenchError(f"kvway: {error}\n{self.shop.log_tail('kvway.out')}") from error
        time.sleep(2)  # the first probes of all workers, and the feed's connections
        return process

    def cpu_seconds(self):
        """Returns the processor time of all of kvway's threads, exact to the nanosecond."""
        folder = f"/proc/{self.kvway.pid}/task"
        total = 0
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def phase(self, name, seconds):
        """Runs one phase; returns the load's result together with kvway's figures."""
        before, cpu = Metrics(self.admin), self.cpu_seconds()
        self.engines.stdin.write(f"{name} {seconds}\n")
        self.engines.stdin.flush()
        line = self.engines.stdout.readline()
        if not line:
            raise BenchError("kvb-events ended")
        result = json.loads(line)
        result["kvway_cpu"] = (self.cpu_seconds() - cpu) / result["seconds"]
        after = Metrics(self.admin)
        if result["errors"] or result["refused"]:
            raise BenchError(f"{result['errors']} requests and {result['refused']} reports failed\n"
                             f"{self.shop.log_tail('kvway.out')}")
        result["feed_cpu"] = (after.get("kvway_kvaware_feed_cpu_seconds_total") -
                              before.get("kvway_kvaware_feed_cpu_seconds_total")) / result["seconds"]
        for what in ("batches", "events", "dropped_events", "lost_batches", "gaps", "refused", "replays"):
            result["feed_" + what] = after.feed(what) - before.feed(what)
        for what in ("gaps", "dropped"):
            label = f'{{what="{what}"}}'
            result["coordinator_" + what] = (
                after.get("kvway_kvaware_coordinator_total", label) -
                before.get("kvway_kvaware_coordinator_total", label))
        result["lag_p99_ms"] = after.get("kvway_kvaware_feed_lag_p99_seconds") * 1e3
        result["lags"] = after.buckets("kvway_kvaware_feed_lag_seconds", before)
        result["exact"] = (after.get("kvway_kvaware_prompts_total", '{tokens="exact"}') -
                           before.get("kvway_kvaware_prompts_total", '{tokens="exact"}'))
        result["added_p99_us"] = after.quantile("kvway_added_latency_seconds", 0.99, before) * 1e6
        return result


def bench_events(options):
    """Measures the event thread's CPU, lag and lost events, and the ratio of requests' p99 with events to that without."""
    raise_descriptor_limit()
    pairs = max(1, options.rounds)
    seconds = options.seconds / pairs
    with Workshop() as shop:
        bench = Bench(shop, options)
        bench.phase("events", HELD * PIECES / BATCHES + 2)  # fills the engines' caches; later batches also remove blocks
        quiet, busy = [], []
        for number in range(pairs):
            for name in (("quiet", "events") if number % 2 == 0 else ("events", "quiet")):
                if name == "quiet":
                    time.sleep(SETTLE_S)
                result = bench.phase(name, seconds)
                (quiet if name == "quiet" else busy).append(result)
                report.say(f"  {name}: p50 {result['p50_us']} us, p99 {result['p99_us']} us, "
                           f"{result['blocks'] / result['seconds']:.0f} block events/s, "
                           f"late {result['late_ms']:.1f} ms, feed {result['feed_cpu']:.3f} cores, "
                           f"{result['feed_replays']:.0f} replays")
        if bench.kvway.poll() is not None:
            raise BenchError(f"kvway ended\n{shop.log_tail('kvway.out')}")
        if not sum(result["feed_batches"] for result in busy):
            raise BenchError(f"kvway took no batch of events\n{shop.log_tail('kvway.out')}")
    report_phases(options, quiet, busy)


def report_phases(options, quiet, busy):
    """Prints JSON lines and the table."""
    def total(key):
        return sum(result[key] for result in busy)

    def emit(metric, value, unit, **more):
        report.emit("events", metric, value, unit, workers=options.workers[0], **more)
        rows.append([metric, value, unit])

    rows = []
    spent = total("seconds")
    emit("block_events_per_s", total("blocks") / spent, "1/s",
         per_worker=total("blocks") / spent / options.workers[0])
    emit("batches_per_s", total("batches") / spent, "1/s",
         per_worker=total("batches") / spent / options.workers[0])
    emit("late_ms_max", max(result["late_ms"] for result in busy), "ms")
    emit("feed_cpu_share", sum(r["feed_cpu"] * r["seconds"] for r in busy) / spent, "cores")
    emit("kvway_cpu_share", sum(r["kvway_cpu"] * r["seconds"] for r in busy) / spent, "cores",
         quiet=statistics.median(r["kvway_cpu"] for r in quiet))
    lags = {}
    for result in busy:
        for bound, count in result["lags"].items():
            lags[bound] = lags.get(bound, 0) + count
    emit("lag_ms_p99", busy[-1]["lag_p99_ms"], "ms", bound_of_all=bound_of(lags, 0.99) * 1e3)
    emit("dropped_events", total("feed_dropped_events") + total("coordinator_dropped"), "events",
         lost_batches=total("feed_lost_batches"),
         gaps=total("feed_gaps") + total("coordinator_gaps"), refused=total("feed_refused"))
    emit("batches_missed", total("batches") - total("feed_batches"), "batches")
    emit("exact_share", sum(r["exact"] for r in quiet + busy) /
         max(1, sum(r["requests"] for r in quiet + busy)), "of requests")
    for key, name in (("p50_us", "routing_p50"), ("p99_us", "routing_p99")):
        value = statistics.median(r[key] for r in busy)
        without = statistics.median(r[key] for r in quiet)
        emit(name, value, "us", peer="without events",
             ratio=statistics.median(a[key] / b[key] for a, b in zip(busy, quiet)),
             peer_value=without)
    emit("added_p99_bound", statistics.median(r["added_p99_us"] for r in busy), "us",
         peer="without events", peer_value=statistics.median(r["added_p99_us"] for r in quiet))
    ratio = statistics.median(a["p99_us"] / b["p99_us"] for a, b in zip(busy, quiet))
    rows.append(["routing_p99 with events / without", ratio, ""])
    report.table(f"KV events of {options.workers[0]} simulated "
                 f"{'LMCache servers' if options.coordinator else 'engines'}", ["figure", "value", "unit"],
                 rows)
