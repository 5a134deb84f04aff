"""The benchmark `replicas`: what it costs that several kvways know each other's load.

Four replicas with `replicas.redis` and one kvway without stand before the same simulated workers. All workers but two are slow
and busy: each kvway holds a quarter as many streams there as there are workers, so that what the replicas say to
each other is as long as it gets. The other two serve another model at once: requests for that one show what a client
notices, through a replica and through the kvway that shares nothing, in turn.

Commands and bytes are those that kvway counts, processor time that of the thread which asks Redis.
"""

import json
import os
import socket
import statistics
import subprocess
import time
import urllib.request

from lib_l2_redis import start_redis
from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, raise_descriptor_limit
from lib_report import emit, say, table

TARGETS = ["bench/sim/kvsim", "bench/load/kvbench"]
WORKERS = [8, 64, 1024]
REPLICAS = 4
FAST = 2                # workers of the model that p99_of asks for
SLOW_SPEED = "0.01"     # about one token a second
QPS, REQUESTS = 300, 600  # requests per second, and requests, of one measurement of times to the first token
QUIET = "health:\n  interval: 30s\n  metrics_interval: 10m\n  models_interval: 10m\n"


def start_sim(shop, options, model, count, *more):
    """Starts a kvsim with `count` workers; returns their ports."""
    listing = shop.path(f"{model}.ports")
    process = shop.start([os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(count), "--port", "0",
                          "--ports-file", listing, "--model", model, *more], log=f"{model}.out")
    for _ in range(200):
        if os.path.exists(listing):
            with open(listing, encoding="utf-8") as file:
                return [int(line.split()[2].rsplit(":", 1)[1]) for line in file]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise BenchError(f"kvsim: {shop.log_tail(f'{model}.out')}")


def read(port, path):
    """Returns a page of an admin address."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read().decode()


def wait_for(what, condition, seconds=60):
    """Waits until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def replica_metrics(port):
    """Returns {name{labels}: value} of the metrics kvway_replicas_*."""
    rows = [line.rpartition(" ") for line in read(port, "/metrics").splitlines()]
    return {row[0]: float(row[2]) for row in rows if row[0].startswith("kvway_replicas_")}


def thread_seconds(pid, name):
    """Returns the processor time of a process' threads of one name; None: of all its threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
            if name is not None and file.read().strip() != name:
                continue
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def hold(port, count, label):
    """Opens streams that no client reads; each keeps a worker busy until it is closed."""
    held = []
    for number in range(count):
        body = json.dumps({"model": "slow", "stream": True, "max_tokens": 1000, "ignore_eos": True,
                           "messages": [{"role": "user", "content": f"{label} {number} " * 8}]})
        link = socket.create_connection(("127.0.0.1", port), timeout=30)
        link.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        held.append(link)
    return held


class Router:
    """A kvway and its two addresses."""

    def __init__(self, shop, options, workers, extra):
        ports = shop.ports(2)
        self.admin = ports[1]
        self.proxy = start_kvway(shop, None, ports, workers, "prefixaware", options.build, extra=QUIET + extra)
        self.port, self.pid = ports[0], self.proxy.pid

        def known():
            return all(worker["models"] for worker in json.loads(read(self.admin, "/workers")))

        wait_for("kvway knows all workers' models", known)


def p99_of(options, shop, router):
    """Returns the 99th percentile of milliseconds to the first token."""
    result = shop.path("look.json")
    subprocess.run(
        [os.path.join(options.build, "bench/load/kvbench"), "chat", "--url", f"http://127.0.0.1:{router.port}",
         "--model", "fast", "--users", "64", "--rounds", "1", "--sessions", str(REQUESTS), "--requests", str(REQUESTS),
         "--qps", str(QPS), "--answer-tokens", "2", "--json", result],
        check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with open(result, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise BenchError("kvbench wrote no result") from error
    if found["failed"]:
        raise BenchError(f"{found['failed']} requests failed")
    return found["ttft_s"]["p99"] * 1000


def look(routers, seconds):
    """Watches the replicas for some seconds; returns what their exchange takes per second and replica, in the mean."""
    def sample():
        return [(replica_metrics(r.admin), thread_seconds(r.pid, "kvway-sharing")) for r in routers]

    def grown(name):
        return sum(b[0].get(name, 0) - a[0].get(name, 0) for a, b in zip(before, after)) / len(routers) / took

    begun, before = time.monotonic(), sample()
    time.sleep(seconds)
    after, took = sample(), time.monotonic() - begun
    if grown('kvway_replicas_commands_total{result="failed"}') > 0:
        raise BenchError("commands to Redis failed")
    return {
        "commands": grown('kvway_replicas_commands_total{result="ok"}'),
        "sent_bytes": grown('kvway_replicas_bytes_total{direction="sent"}'),
        "received_bytes": grown('kvway_replicas_bytes_total{direction="received"}'),
        "cpu_share": sum(b[1] - a[1] for a, b in zip(before, after)) / len(routers) / took,
    }


def measure(options, workers):
    """Measures one size of fleet; returns its row."""
    held = []
    with Workshop() as shop:
        try:
            redis, redis_port = start_redis(shop, None)
            ports = start_sim(shop, options, "slow", workers - FAST, "--profile", "reference", "--speed", SLOW_SPEED)
            ports += start_sim(shop, options, "fast", FAST, "--profile", "instant")
            share = f"replicas:\n  redis: redis://127.0.0.1:{redis_port}\n"
            replicas = [Router(shop, options, ports, share) for _ in range(REPLICAS)]
            plain = Router(shop, options, ports, "")
            wait_for("all replicas know each other",
                     lambda: all(replica_metrics(r.admin)["kvway_replicas_peers"] == REPLICAS - 1 for r in replicas))
            for number, router in enumerate([*replicas, plain]):
                held += hold(router.port, max(1, (workers - FAST) // REPLICAS), f"stream of {number}:")
            time.sleep(2)
            redis_before, begun = thread_seconds(redis.pid, None), time.monotonic()
            figures = look(replicas, options.seconds)
            figures["redis_cpu_share"] = (thread_seconds(redis.pid, None) - redis_before) / (time.monotonic() - begun)
            times = {"with": [], "without": []}
            for turn in range(options.rounds):
                order = [("with", replicas[0]), ("without", plain)]
                for name, router in order if turn % 2 == 0 else reversed(order):
                    times[name].append(p99_of(options, shop, router))
            figures["p99_with_ms"] = statistics.median(times["with"])
            figures["p99_without_ms"] = statistics.median(times["without"])
            figures["p99_ratio"] = statistics.median(a / b for a, b in zip(times["with"], times["without"]))
            figures["spread"] = (min(times["with"] + times["without"]), max(times["with"] + times["without"]))
        finally:
            for link in held:
                link.close()
    return figures


UNITS = {"commands": "1/s", "sent_bytes": "B/s", "received_bytes": "B/s", "cpu_share": "share of a core",
         "redis_cpu_share": "share of a core", "p99_with_ms": "ms", "p99_without_ms": "ms", "p99_ratio": "1"}


def bench_replicas(options):
    """Measures all sizes of fleet."""
    raise_descriptor_limit()
    rows = []
    for workers in options.workers:
        say(f"replicas: {workers} workers ...")
        figures = measure(options, workers)
        for metric, unit in UNITS.items():
            emit("replicas", metric, figures[metric], unit, workers=workers, replicas=REPLICAS, simulated=True)
        rows.append([workers, *(figures[metric] for metric in UNITS),
                     f"{figures['spread'][0]:.2f}..{figures['spread'][1]:.2f}"])
    table(f"{REPLICAS} replicas of kvway, each second and replica (Redis: all of them), TTFT of other requests meanwhile",
          ["workers", "commands", "bytes sent", "received", "CPU", "Redis' CPU", "p99 with, ms", "without", "ratio",
           "spread"], rows)
