"""l2: shared tiers and kvtierd against their peers.

Servers (redis-server, kvtierd, the receiver of a plain stream) run on one core, clients on the other, ours and
the peer's alike. Ours and the peer take turns within each round, ours first in every second one; a
ratio is the median of the ratios of one round's pairs. What each part measures says its own file.
"""

import lib_l2_daemon
import lib_l2_redis
import lib_l2_stall
import lib_report as report
from lib_procs import BenchError, cores, wanted

# {name for --only: the function that measures this part}
PARTS = {
    "redis": lib_l2_redis.bench_redis,
    "shm": lib_l2_daemon.bench_shm,
    "put": lib_l2_daemon.bench_put,
    "leases": lib_l2_daemon.bench_leases,
    "stall": lib_l2_stall.bench_stall,
}
TARGETS = sorted({*lib_l2_daemon.TARGETS, *lib_l2_redis.TARGETS, *lib_l2_stall.TARGETS})


def bench_l2(options):
    """Runs all parts, or the one that --only names; if one cannot run, the others still do."""
    server, client = cores()
    report.say(f"servers on core {server}, clients on core {client}")
    faults = []
    for name, part in PARTS.items():
        if wanted(options, name):
            try:
                part(options)
            except BenchError as error:
                faults.append(f"{name}: {error}")
    if faults:
        raise BenchError("; ".join(faults))
