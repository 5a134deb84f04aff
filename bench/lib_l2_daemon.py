"""l2 --only shm, put, leases: kvtierd, and libkvtier as its client.

`shm_get`: the tiered-storage tier's get of 4 MiB (a lease, the copy out of shared memory, the check of
what arrived, the release) against memcpy and XXH3-128 of the same bytes from the same memory, in one
process and into the same memory; one get after the other, and eight under way, where the daemon
grants the next leases while a chunk is being copied. The daemon, on the other core, reads all bytes of
an object for their checksum before it grants a lease, since its clients may write to the memory.

`kvtierd_put`: PUTs of 4 MiB, one after the other over one kept-alive connection, against a plain loopback
stream between two processes on the same two cores, whose receiver only receives. The daemon receives into
the segment, memory that no cache of the processor holds, computes a checksum over every byte, and evicts
to make room. New objects, as engines put them, and then new bytes for existing objects, which are copied
once more.

`kvtierd_leases`: a lease on an object in memory and its release, and leases on what is not there, by
1, 4 and 64 clients that one thread plays. For orientation next to the misses: nginx refusing everything.
"""

import contextlib
import glob
import os
import shutil

import lib_report as report
from lib_l2_pairs import GB, Program, rounds_of, take_turns, emit_pair, emit_alone
from lib_procs import BenchError, Workshop, cores, wait_ready

DAEMON = "cache/daemon/kvtierd"
TARGETS = [DAEMON, "bench/l2/shm_get", "bench/l2/daemon_put", "bench/l2/loop_stream",
           "bench/l2/lease_load"]
CHUNK = 4 << 20
SMALL_CHUNK = 64 << 10
OBJECTS = 64
CLIENTS = (1, 4, 64)
DEPTHS = (1, 8)
SEGMENT = 1 << 30
PUT_BYTES = 1 << 30
LARGE_LEASES = 2000  # leases of a run on large objects, all bytes of which the daemon reads before the grant

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    server {{ listen 127.0.0.1:{port}; location / {{ return 404; }}
              location = /health {{ return 200; }} }}
}}
"""


class Daemon:
    """kvtierd on one core with a segment of its own; a context manager that leaves nothing behind."""

    def __init__(self, options, shop, size=SEGMENT):
        self.shop = shop
        self.size = 32 << 20 if options.small else size
        self.segment = f"kvb-l2-{os.getpid()}"
        self.program = os.path.join(options.build, DAEMON)
        self.port, self.admin = shop.ports(2)
        if not os.path.exists(self.program):
            raise BenchError(f"{self.program} is not built")

    def __enter__(self):
        path = self.shop.path("kvtierd.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"listen: 127.0.0.1:{self.port}\nadmin: 127.0.0.1:{self.admin}\n"
                       f"segment:\n  name: {self.segment}\n  size: {self.size}\n")
        self.process = self.shop.start([self.program, "-c", path], core=cores()[0], log="kvtierd.log")
        try:
            wait_ready(f"http://127.0.0.1:{self.admin}/health", self.process)
        except BenchError as error:
            raise BenchError(f"{error}: {self.shop.log_tail('kvtierd.log')}") from error
        return self

    def __exit__(self, kind, value, trace):
        self.shop.stop(self.process)
        for path in (f"/dev/shm/{self.segment}", *glob.glob(f"/dev/shm/.{self.segment}.*")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    @property
    def args(self):
        """Returns the arguments that every client program gets."""
        return ["-p", self.port, "-s", self.process.pid]


def objects_of(options):
    """Returns the number of objects."""
    return 4 if options.small else OBJECTS


def name_of(size):
    """Returns a size as the JSON lines name it."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def get_depth(options, shop, depth, rows):
    """Measures gets with `depth` of them under way at a time."""
    with Daemon(options, shop) as daemon:
        result = Program(options, "shm_get", cores()[1]).run(
            "-p", daemon.port, "-g", daemon.segment, "-k", objects_of(options), "-c", CHUNK, "-d", depth,
            "-r", rounds_of(options), lines=True)
    peer = [{"bytes_per_second": one["peer"], "cpu_per_gb": one["peer_cpu_per_gb"]} for one in result]
    fused = [{"bytes_per_second": one["fused"]} for one in result]
    more = {"depth": depth, "chunk_bytes": CHUNK}
    rows.append([f"get of 4 MiB, {depth} under way",
                 *emit_pair("shm_get_bytes_per_second", "bytes/s", result, peer, "bytes_per_second",
                            "memcpy and xxh3", us=report.median_of(result, "us"),
                            copy_with_checksum=report.median_of(fused, "bytes_per_second"), **more),
                 report.median_of(result, "us")])
    emit_pair("shm_get_cpu_seconds_per_gb", "s/GB", result, peer, "cpu_per_gb", "memcpy and xxh3", **more)


def bench_shm(options):
    """Measures gets, and the round trip of a lease on objects of the same size."""
    rows = []
    with Workshop() as shop:
        for depth in DEPTHS:
            get_depth(options, shop, depth, rows)
        with Daemon(options, shop) as daemon:
            fill(options, daemon, CHUNK)
            trips = [lease(options, daemon.args, 1, count=LARGE_LEASES) for _ in range(rounds_of(options))]
    value, spread = emit_alone("shm_lease_round_trip_us", "us", trips, "p50_us", chunk_bytes=CHUNK)
    report.table("shared memory (GB/s; us of one)",
                 ["", "ours", "from-to", "memcpy, XXH3", "from-to", "ratio", "from-to", "us"], rows)
    report.say(f"  a lease on 4 MiB, by a client that does nothing else: {value:.0f} us ({spread})")


def put_pairs(options, daemon, *more):
    """Runs rounds of PUTs and of a plain stream; returns (results of ours, results of the peer)."""
    server, client = cores()
    size = 16 << 20 if options.small else PUT_BYTES
    args = ["-c", CHUNK, "-k", objects_of(options), "-b", size]
    put, stream = Program(options, "daemon_put", client), Program(options, "loop_stream", None)
    pairs = [take_turns(index, lambda: put.run(*daemon.args, *args, *more),
                        lambda: stream.run(*args, "-S", client, "-R", server))
             for index in range(rounds_of(options))]
    return [[{**result, "cpu_per_gb": result["cpu_seconds"] * GB / size,
              "server_cpu_per_gb": result["server_cpu_seconds"] * GB / size} for result in side]
            for side in zip(*pairs)]


def bench_put(options):
    """Measures PUTs of new objects, and PUTs that replace objects, against a plain stream."""
    rows = []
    with Workshop() as shop, Daemon(options, shop) as daemon:
        # Fills the segment once before the rounds, since the kernel clears pages at their first use.
        Program(options, "daemon_put", cores()[1]).run(*daemon.args, "-c", CHUNK, "-k", objects_of(options),
                                                       "-b", daemon.size)
        for name, replaces, more in (("", False, []), (", over others", True, ["-o"])):
            ours, peer = put_pairs(options, daemon, *more)
            for metric, unit, key, words in (
                    ("kvtierd_put_bytes_per_second", "bytes/s", "bytes_per_second", "PUT of 4 MiB (GB/s)"),
                    ("kvtierd_put_client_cpu_seconds_per_gb", "s/GB", "cpu_per_gb",
                     "  sender's processor (s/GB)"),
                    ("kvtierd_put_cpu_seconds_per_gb", "s/GB", "server_cpu_per_gb",
                     "  receiver's, with the checksum")):
                rows.append([words + name, *emit_pair(metric, unit, ours, peer, key, "loopback stream",
                                                      connections=1, replaces=replaces)])
    report.table("into kvtierd, which computes checksums, against a stream that is only received",
                 ["", "ours", "from-to", "stream", "from-to", "ratio", "from-to"], rows)


def fill(options, daemon, size):
    """Puts the objects that leases are asked for."""
    Program(options, "daemon_put", cores()[1]).run(
        *daemon.args, "-c", size, "-k", objects_of(options), "-b", 0)


def lease(options, args, clients, *more, count=10000):
    """Makes one run of leases; returns its figures."""
    count = 200 if options.small else count
    return Program(options, "lease_load", cores()[1]).run(
        *args, "-n", clients, "-k", objects_of(options), "-l", count, *more)


def start_nginx(shop, core):
    """Starts an nginx that refuses every request; returns arguments for lease_load."""
    if shutil.which("nginx") is None:
        raise BenchError("nginx is not installed: deploy/packages.sh peers")
    port = shop.ports(1)[0]
    path = shop.path("nginx.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(NGINX.format(folder=shop.folder, port=port))
    process = shop.start(["nginx", "-p", shop.folder, "-c", path], core=core, log="nginx.log")
    wait_ready(f"http://127.0.0.1:{port}/health", process)
    return ["-p", port, "-s", process.pid]


def emit_leases(rows, name, kept, **more):
    """Prints rate and latency of leases that have no peer."""
    rate, spread = emit_alone("kvtierd_leases_per_second", "1/s", kept, "per_second", **more)
    p99, p99_spread = emit_alone("kvtierd_lease_p99_us", "us", kept, "p99_us",
                                 p50=report.median_of(kept, "p50_us"), **more)
    cost = 1e6 * report.median_of([{"x": one["server_cpu_seconds"] / one["leases"]} for one in kept], "x")
    rows.append([name, rate, spread, report.median_of(kept, "p50_us"), p99, p99_spread, cost])


def lease_hits(options, shop, size, rows):
    """Measures leases on objects of one size, with their release."""
    count = LARGE_LEASES if size == CHUNK else 10000
    with Daemon(options, shop) as daemon:
        fill(options, daemon, size)
        for clients in CLIENTS:
            kept = [lease(options, daemon.args, clients, count=count) for _ in range(rounds_of(options))]
            emit_leases(rows, f"{name_of(size)}, {clients} clients", kept, clients=clients,
                        object_bytes=size, hit=True)


def lease_misses(options, shop, rows):
    """Measures leases on missing objects, in turns with nginx."""
    refuser = start_nginx(shop, cores()[0])
    with Daemon(options, shop) as daemon:
        for clients in CLIENTS:
            ours, nginx = [], []
            for index in range(rounds_of(options)):
                pair = take_turns(index, lambda n=clients: lease(options, daemon.args, n, "-m"),
                                  lambda n=clients: lease(options, refuser, n, "-m"))
                ours.append(pair[0])
                nginx.append(pair[1])
            emit_leases(rows, f"missing, {clients} clients", ours, clients=clients, hit=False)
            rows.append([f"  nginx, {clients} clients",
                         *emit_alone("nginx_refusals_per_second", "1/s", nginx, "per_second", clients=clients),
                         *(report.median_of(nginx, key) for key in ("p50_us", "p99_us")), "",
                         1e6 * report.median_of([{"x": one["server_cpu_seconds"] / one["leases"]}
                                                 for one in nginx], "x")])


def bench_leases(options):
    """Measures leases on objects of two sizes and on missing ones."""
    rows = []
    with Workshop() as shop:
        for size in (SMALL_CHUNK, CHUNK):
            lease_hits(options, shop, size, rows)
        lease_misses(options, shop, rows)
    report.table("leases; p50 and p99 in us, the daemon's processor in us a lease",
                 ["", "a second", "from-to", "p50", "p99", "from-to", "us"], rows)
