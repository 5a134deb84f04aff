"""l2 --only stall: lookups and gets while redis-server stands still (SIGSTOP), and afterwards.

The cache asks Redis again for every lookup and has hardly any memory of its own; deadlines and breaker
are the default configuration's. Each lookup and get has a limit of its own, which is the peer here:
`ratio` is the 99th percentile by that limit, and must not be much more than 1. Phases: before the stop,
`stalled` until the breaker opened, `open` until the continuation, and after something was found again
(what is found meanwhile is in the cache's own memory). `stall_breaker_opens_ms`
counts from the stop, `stall_recovers_ms` from the continuation to the first lookup that finds
something, most of which is the breaker's pause. Every byte that is got is compared.
"""

import lib_report as report
from lib_l2_pairs import Program
from lib_l2_redis import start_redis
from lib_procs import BenchError, Workshop, cores

TARGETS = ["bench/l2/stall"]
LIMITS_MS = {"find": 20, "get": 200}
PHASES = ("before", "stalled", "open", "after")


def bench_stall(options):
    """Measures one stall of the server."""
    server_core, client_core = cores()
    args = ["-f", LIMITS_MS["find"], "-g", LIMITS_MS["get"]]
    if options.small:
        args += ["-D", 100, "-B", 100, "-a", 200, "-t", 3000]
    with Workshop() as shop:
        server, port = start_redis(shop, server_core)
        result = Program(options, "stall", client_core).run("-p", port, "-s", server.pid, *args)
    if result["opened_ms"] < 0 or result["back_ms"] < 0:
        raise BenchError("the breaker did not open" if result["opened_ms"] < 0 else
                         "nothing was found any more after the stall")
    rows = []
    for name, limit in LIMITS_MS.items():
        for phase in PHASES:
            one = result[name][phase]
            report.emit("l2", f"stall_{name}_p99_ms", one["p99_ms"], "ms", peer="limit",
                        ratio=one["p99_ms"] / limit, peer_value=limit, phase=phase, p50=one["p50_ms"],
                        max=one["max_ms"], calls=one["calls"], found=one["found"])
            rows.append([f"{name} {phase}", one["calls"], one["found"], one["p50_ms"], one["p99_ms"],
                         one["max_ms"], limit])
    for metric, key in (("stall_breaker_opens_ms", "opened_ms"), ("stall_recovers_ms", "back_ms")):
        report.emit("l2", metric, result[key], "ms")
    report.table("a server that stands still (ms)",
                 ["", "calls", "found", "p50", "p99", "max", "limit"], rows)
    report.say(f"  the breaker opened {result['opened_ms']:.0f} ms after the stop; found something again "
               f"{result['back_ms']:.0f} ms after the continuation")
