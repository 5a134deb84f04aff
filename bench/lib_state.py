"""state: a snapshot of a large prefix tree: seconds, bytes, what requests notice of it, and when a kvway that reads it serves."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time

from lib_procs import BenchError, free_ports

PROGRAM = "bench/micro/state_bench"
NODES = 10_000_000
ROUTER = "src/router/kvway"
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: 127.0.0.1:{admin}}}
state: {{file: {path}, interval: 1h}}
routing: {{strategy: prefixaware, prefixaware: {{tree_bytes: {tree}}}}}
workers: [{workers}]
"""


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def serves(port, process, seconds=150):
    """A connection on which /health was answered."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=150)
            if get(connection, "/health")[0] == 200:
                return connection
        except OSError:
            time.sleep(0.002)
    raise BenchError("kvway does not serve")


def measure_start(router, path, nodes, directory):
    """Seconds from exec until /health answers, until the tree is there, and times of /health meanwhile."""
    port, admin = free_ports(2)
    config = os.path.join(directory, "kvway.yaml")
    workers = ", ".join(f"{{url: 'http://127.0.1.{i}:1'}}" for i in range(64))
    with open(config, "w") as file:
        file.write(CONFIG.format(port=port, admin=admin, path=path, tree=nodes * 300 + (64 << 20), workers=workers))
    begun = time.monotonic()
    with open(os.path.join(directory, "log"), "w+") as log, \
            subprocess.Popen([router, "-c", config], stdout=log, stderr=log) as process:
        try:
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
        finally:
            process.kill()
    return row


def bench_state(options):
    """One program, one JSON line; a table on standard error."""
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
        row["start"] = measure_start(os.path.join(options.build, ROUTER), path, nodes, directory)
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
