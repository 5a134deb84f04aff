"""state: a snapshot of a large prefix tree: seconds, bytes, what requests notice of it, and when a kvway that reads it serves."""

import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from lib_procs import BenchError, Load, Workshop, cores, wait_ready

PROGRAM = "bench/micro/state_bench"
NODES = 10_000_000
ROUTER = "src/router/kvway"
LOAD = "bench/load/kvb-load"
HTTP_NODES = 1_000_000  # nodes that unique prompts add to the tree
HTTP_RATE = 1000
HTTP_ROUNDS = 3
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: 127.0.0.1:{admin}}}
state: {{file: {path}, interval: {interval}}}
routing: {{strategy: prefixaware, prefixaware: {{tree_bytes: {tree}}}}}
workers: [{workers}]
"""


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def serves(port, process, seconds=150):
    """Waits until /health answers; returns the connection on which it did."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=150)
            if get(connection, "/health")[0] == 200:
                return connection
        except OSError:
            time.sleep(0.002)
    raise BenchError("kvway does not serve")


def measure_start(router, path, nodes):
    """Returns the seconds from exec until /health answers and until the tree is read, and the times that /health took in between."""
    with Workshop() as shop:
        port, admin = shop.ports(2)
        workers = ", ".join(f"{{url: 'http://127.0.1.{i}:1'}}" for i in range(64))
        with open(shop.path("kvway.yaml"), "w") as file:
            file.write(CONFIG.format(port=port, admin=admin, path=path, tree=nodes * 300 + (64 << 20), workers=workers,
                                     interval="1h"))
        begun = time.monotonic()
        process = shop.start([router, "-c", shop.path("kvway.yaml")], log="kvway.out")
        connection = serves(port, process)
        row = {"health_s": round(time.monotonic() - begun, 2)}
        page = serves(admin, process)
        times, asked = [], 0.0
        while True:
            before = time.monotonic()
            get(connection, "/health")
            times.append(time.monotonic() - before)
            if before - asked > 0.1:
                asked = before
                if "\nkvway_state_recalling 1\n" not in get(page, "/metrics")[1]:
                    break
            time.sleep(0.001)
        row["recalled_s"] = round(time.monotonic() - begun, 2)
        times.sort()
        row["health_p99_ms"] = round(times[int(0.99 * (len(times) - 1))] * 1e3, 2)
        row["health_max_ms"] = round(times[-1] * 1e3, 2)
        row["nodes_known"] = int(float(next(
            line.split()[-1] for line in get(page, "/metrics")[1].splitlines()
            if line.startswith("kvway_tree_nodes "))))
        process.kill()  # SIGKILL, since kvway writes its tree again on SIGTERM
        return row


def sample(text, name):
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((name + " ", name + "{")))


def measure_http(options, nodes, seconds):
    """p99 of requests over HTTP at a fixed rate, while snapshots of a large tree are written one after the other and without,
    in turn."""
    router_core, load_core = cores()
    with Workshop() as shop:
        ports = shop.ports(6)
        load = Load(shop, os.path.join(options.build, LOAD), load_core, ports[0], blocks=1 << 26)

        def configure(interval):
            with open(shop.path("kvway.yaml"), "w") as file:
                file.write(CONFIG.format(port=ports[4], admin=ports[5], path=shop.path("state"), tree=1 << 30, interval=interval,
                                         workers=", ".join(f"{{url: 'http://127.0.0.1:{port}'}}" for port in load.ports)))

        configure("1h")
        process = shop.start([os.path.join(options.build, ROUTER), "-c", shop.path("kvway.yaml")], core=router_core, log="kvway")
        wait_ready(f"http://127.0.0.1:{ports[5]}/ready", process)
        page = http.client.HTTPConnection("127.0.0.1", ports[5], timeout=60)

        def metric(name):
            return sample(get(page, "/metrics")[1], name)

        while metric("kvway_tree_nodes") < nodes:
            load.job("requests", port=ports[4], body=32768, connections=16, unique=1, warmup_ms=0, duration_ms=1000)
        row = {"rate": HTTP_RATE, "without_p50_us": [], "without_p99_us": [], "with_p50_us": [], "with_p99_us": [], "snapshots": []}
        for _ in range(1 if options.quick else HTTP_ROUNDS):
            for when, interval in (("without", "1h"), ("with", "1s")):
                configure(interval)
                process.send_signal(signal.SIGHUP)
                time.sleep(0.2 if options.quick else 3)  # until a snapshot under way has ended
                before = metric("kvway_state_snapshots_total")
                done = load.job("requests", port=ports[4], pid=process.pid, body=2048, connections=64, unique=1, rate=HTTP_RATE,
                                duration_ms=int(seconds * 1000))
                row[f"{when}_p50_us"].append(done["latency_us_p50"])
                row[f"{when}_p99_us"].append(done["latency_us_p99"])
                if when == "with":
                    row["snapshots"].append(int(metric("kvway_state_snapshots_total") - before))
        row["nodes"] = int(metric("kvway_tree_nodes"))
        row["snapshot_bytes"] = int(metric("kvway_state_snapshot_bytes"))
        row["snapshot_s"] = round(metric("kvway_state_snapshot_seconds"), 2)
        return row


def bench_state(options):
    """Runs the benchmark; prints JSON lines, and a table on standard error."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    nodes, seconds = (100_000, 1) if options.quick else (NODES, options.seconds)
    with tempfile.TemporaryDirectory(prefix="kvway-state-bench-", dir="/var/tmp") as directory:
        path = os.path.join(directory, "state")
        command = [program, "-n", str(nodes), "-s", str(seconds), "-o", path]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise BenchError(f"state_bench ended with status {done.returncode}")
        row = json.loads(done.stdout)
        row["start"] = measure_start(os.path.join(options.build, ROUTER), path, nodes)
    row["http"] = measure_http(options, 20_000 if options.quick else HTTP_NODES, seconds)
    print(json.dumps(row, separators=(",", ":")))
    print(f"{row['nodes']:,} nodes: written in {row['write_s']} s ({row['write_cpu_s']} s of CPU), "
          f"{row['bytes'] / 2**20:,.0f} MiB; checked in {row['check_s']} s, recalled in {row['recall_s']} s",
          file=sys.stderr)
    for when in ("alone", "meanwhile"):
        times = row[when]
        print(f"requests {when:10} p50 {times['p50_us']:8} us  p99 {times['p99_us']:8} us  "
              f"p99.9 {times['p999_us']:8} us  max {times['max_us']:8} us", file=sys.stderr)
    start = row["start"]
    print(f"a kvway that reads it answers /health after {start['health_s']} s and knows {start['nodes_known']:,} nodes after "
          f"{start['recalled_s']} s; /health meanwhile p99 {start['health_p99_ms']} ms  max {start['health_max_ms']} ms",
          file=sys.stderr)
    over_http = row["http"]
    for when in ("without", "with"):
        print(f"over HTTP, {over_http['nodes']:,} nodes, {HTTP_RATE} requests/s, {when:7} snapshots: p50 "
              f"{statistics.median(over_http[when + '_p50_us'])} us  p99 {statistics.median(over_http[when + '_p99_us'])} us "
              f"(rounds {over_http[when + '_p99_us']})", file=sys.stderr)
    print(f"snapshots written in each round {over_http['snapshots']}, {over_http['snapshot_s']} s each", file=sys.stderr)
