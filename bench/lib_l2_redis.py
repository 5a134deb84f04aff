"""l2 --only redis: bytes per second into Redis and out of it, against a raw client.

Ours is the shared tier in its native format as the default configuration has it: header with the
full key, TTL, deadlines, and every value verified before it counts. The raw client (raw_redis.c)
moves as many values of the same size, under as many keys, over as many connections with as many
under way, and does nothing else. Both put from and get into as much memory. redis-benchmark, which
keeps no value, is shown too, without a ratio.

One redis-server with a core of its own, nothing persisted. The figures of its processor time show whether
it limited both.
"""

import shutil
import socket
import subprocess
import time

import lib_report as report
from lib_l2_pairs import GB, Program, rounds_of, take_turns, emit_pair
from lib_procs import BenchError, Workshop, cores, pinned

TARGETS = ["bench/l2/raw_redis", "bench/l2/tier_redis"]
CONNECTIONS = 4
MEMORY = 256 << 20  # of values
BYTES = 1 << 30     # of a run
# (bytes of a value, under way)
SIZES = [(64 << 10, 32), (1 << 20, 8), (4 << 20, 8)]
SMALL = [(64 << 10, 8)]


def ask_redis(port, *words):
    """Sends one command; returns its short reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(f"*{len(words)}\r\n".encode() +
                     b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words))
        return link.recv(4096)


def start_redis(shop, core):
    """Starts a server on a free port and waits until it answers; returns (process, port)."""
    if shutil.which("redis-server") is None:
        raise BenchError("redis-server is not installed: deploy/packages.sh peers")
    port = shop.ports(1)[0]
    process = shop.start(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                          "--appendonly", "no", "--dir", shop.folder], core=core, log="redis.log")
    for _ in range(200):
        try:
            if ask_redis(port, "PING").startswith(b"+PONG"):
                return process, port
        except OSError:
            time.sleep(0.05)
    raise BenchError(f"redis-server does not answer: {shop.log_tail('redis.log')}")


def with_costs(result):
    """Adds processor time per GB to a run's figures."""
    moved = result["bytes"] / GB
    return {**result, "cpu_per_gb": result["cpu_seconds"] / moved,
            "server_cpu_per_gb": result["server_cpu_seconds"] / moved,
            "server_busy": result["server_cpu_seconds"] / result["seconds"]}


def benchmark_speed(port, core, size, depth, keys, count):
    """Runs redis-benchmark; returns its bytes per second as (put, get)."""
    done = subprocess.run(pinned(
        ["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-t", "set,get", "-d", str(size), "-c",
         str(CONNECTIONS), "-P", str(max(1, depth // CONNECTIONS)), "-n", str(count), "-r", str(keys),
         "--csv"], core), check=False, capture_output=True, text=True)
    speeds = {}
    for line in done.stdout.splitlines():
        cells = [cell.strip('"') for cell in line.split(",")]
        if cells[0] in ("SET", "GET"):
            speeds[cells[0]] = float(cells[1]) * size
    if len(speeds) != 2:
        raise BenchError(f"redis-benchmark: {done.stderr.strip() or 'no figures'}")
    return speeds["SET"], speeds["GET"]


class Size:
    """One size of values, and the results of all its rounds."""

    def __init__(self, options, server, port, size, depth):
        self.options, self.port, self.size, self.depth = options, port, size, depth
        self.core = cores()[1]
        self.keys = (1 << 20 if options.small else MEMORY) // size
        self.bytes = 4 << 20 if options.small else BYTES
        self.args = ["-p", port, "-s", server.pid, "-c", size, "-k", self.keys, "-n", CONNECTIONS,
                     "-d", depth, "-b", self.bytes]
        self.ours = Program(options, "tier_redis", self.core)
        self.raw = Program(options, "raw_redis", self.core)
        self.results = {"put": ([], []), "get": ([], [])}

    def measure(self):
        """Measures rounds of put and get."""
        for index in range(rounds_of(self.options)):
            for what, flag in (("put", "-w"), ("get", "-r")):
                pair = take_turns(index, lambda way=flag: self.ours.run(*self.args, way),
                                  lambda way=flag: self.raw.run(*self.args, way))
                for kept, result in zip(self.results[what], pair):
                    kept.append(with_costs(result))

    def add_rows(self, speed_rows, cost_rows):
        """Prints JSON lines and adds rows to both tables."""
        reference = benchmark_speed(self.port, self.core, self.size, self.depth, self.keys,
                                    self.bytes // self.size)
        name = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size >> 10} KiB"
        more = {"value_bytes": self.size, "connections": CONNECTIONS, "depth": self.depth,
                "keys": self.keys}
        for (what, (ours, raw)), benchmark in zip(self.results.items(), reference):
            row = emit_pair(f"redis_{what}_bytes_per_second", "bytes/s", ours, raw, "bytes_per_second",
                            "raw_redis", redis_benchmark=benchmark,
                            server_busy=report.median_of(ours, "server_busy"),
                            peer_server_busy=report.median_of(raw, "server_busy"), **more)
            speed_rows.append([f"{what} {name}", *row, benchmark / GB])
            row = emit_pair(f"redis_{what}_cpu_seconds_per_gb", "s/GB", ours, raw, "cpu_per_gb", "raw_redis",
                            **more)
            cost_rows.append([f"{what} {name}", *row, report.median_of(ours, "server_cpu_per_gb"),
                              report.median_of(raw, "server_cpu_per_gb")])


def bench_redis(options):
    """Measures all sizes of values."""
    speed_rows, cost_rows = [], []
    with Workshop() as shop:
        server, port = start_redis(shop, cores()[0])
        for size, depth in SMALL if options.small else SIZES:
            ask_redis(port, "FLUSHALL")
            one = Size(options, server, port, size, depth)
            one.measure()
            one.add_rows(speed_rows, cost_rows)
    columns = ["", "ours", "from-to", "raw client", "from-to", "ratio", "from-to"]
    report.table(f"Redis, {CONNECTIONS} connections (GB/s)", [*columns, "redis-benchmark"], speed_rows)
    report.table("clients' processor time (s/GB), and redis-server's under each",
                 [*columns, "server", "server, raw"], cost_rows)
