"""Arguments of bench/run.sh and the list of benchmarks."""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import lib_events  # noqa: E402 (the path comes first)
import lib_pick  # noqa: E402
import lib_proxy  # noqa: E402
import lib_replay  # noqa: E402
import lib_routers  # noqa: E402
import lib_trace  # noqa: E402
from lib_procs import BenchError  # noqa: E402

LOAD = "bench/load/kvb-load"

# name: (function, what ninja must build)
BENCHES = {
    "proxy": (lib_proxy.bench_proxy, [LOAD]),
    "stream": (lib_proxy.bench_stream, [LOAD]),
    "scan": (lib_proxy.bench_scan, ["bench/micro/scan_bench"]),
    "pick": (lib_pick.bench_pick, [lib_pick.PROGRAM, lib_pick.KVAWARE]),
    "events": (lib_events.bench_events, [lib_events.PROGRAM, "bench/sim/kvsim"]),
    "idle": (lib_proxy.bench_idle, [LOAD]),
    "loops": (lib_proxy.bench_loops, [LOAD]),
    "trace": (lib_trace.bench_trace, ["bench/sim/kvsim", "bench/load/kvbench"]),
    "routers": (lib_routers.bench_routers,
                [LOAD, "bench/sim/kvsim", "bench/load/kvbench"]),
    "replay": (lib_replay.bench_replay, ["bench/replay/kvb-replay"]),
}
NEED_TRACE = ("trace", "replay", "routers")
# What an option is where it was not given and it differs between benchmarks.
DEFAULTS = {
    "events": {"workers": [64], "rate": 200, "seconds": 60.0},
    "loops": {"rate": 8000},
    "trace": {"workers": [4, 8], "requests": 2000, "rate_scale": 1.0, "speed": 20.0},
    "routers": {"workers": [8], "requests": 1000, "rate_scale": 2.0, "speed": 2.0},
    "replay": {"workers": [8]},
}

HELP = """
benchmarks:
  proxy    CPU per request and requests/s at 2, 32 and 256 KB: kvway roundrobin and prefixaware,
           HAProxy, nginx, one thread each; every prompt differs, prefixes are shared
  stream   400 event streams: CPU per chunk, added delay
  scan     bytes/s of the body scan against jansson
  pick     decisions/s of prefixaware on a tree of 1M nodes (depth 64, 8 to 1,024 workers, one and
           two threads), their 99th percentile, inserts/s, bytes per cached token; what two threads
           gain beside what a pointer chase gains; decisions of kvaware, alone and beside a thread that
           applies 128,000 block events/s
  events   KV events of 64 workers, 2,000 blocks a second each for a minute, into kvway with kvaware:
           CPU of the thread that takes them, lag, losses, latency of requests with them and without
  idle     memory of each of 10,000 idle kept-alive clients
  loops    CPU per request of two loops against one, spread of the work between them
  trace    replay of a trace through kvway to simulated workers: roundrobin, session, prefixaware
           on 4 and 8 workers; TRACE=FILE names the trace
  routers  kvway, vllm-router and sglang-router (from PyPI, into venvs in the build directory): CPU
           per request at 2, 32 and 256 KB; with TRACE=FILE the quality of their choices on 8 workers
  replay   the strategies prefixaware and kvaware, their peers' policies and a bound that no router can beat, in
           simulated time: on a trace (TRACE=FILE), or --scenario NAME without one
  all      all of them (trace, routers and replay only if TRACE is set)

Two cores are needed: one for the proxy, one for load and backends. The table goes to standard
error; standard output has one JSON object a line: bench, metric, value, unit, peer, ratio (ours /
peer, median of pairs of the same round), peer_value, and what tells the line apart.
Absolute figures only describe this machine; compare ratios of one run.
"""


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench/run.sh", epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures kvway beside its peers.")
    parser.add_argument("name", choices=[*BENCHES, "all"], metavar="NAME")
    parser.add_argument("--build", default="build-release", help=argparse.SUPPRESS)
    parser.add_argument("--targets", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5, help="at least 5 for a figure to quote")
    parser.add_argument("--seconds", "-s", type=float,
                        help="counted per round and proxy (1.5); events: of all phases with events (60)")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers alone")
    parser.add_argument("--more-peers", action="store_true",
                        help="also HAProxy with tune.bufsize 32768; routers: also consistent_hash")
    parser.add_argument("--no-logs", action="store_true",
                        help="proxy: leave out the run with access logs on")
    parser.add_argument("--body-kb", type=int, nargs="+", default=[2, 32, 256], help="proxy, routers")
    parser.add_argument("--interval-us", type=int, default=20000,
                        help="stream: between two events of one stream")
    parser.add_argument("--clients", type=int, default=10000, help="idle")
    parser.add_argument("--rate", type=int, help="requests per second: loops (8000), events (200)")
    parser.add_argument("--line", type=int, metavar="N", help="pick: only this line of its table, from 0")
    parser.add_argument("--trace", help="trace, routers, replay: the file (or TRACE in the environment)")
    parser.add_argument("--requests", type=int,
                        help="trace (2000), routers (1000), replay (all): the first N")
    parser.add_argument("--workers", type=int, nargs="+",
                        help="trace: 4 8; events: 64; routers, replay: 8, and the rate grows with them")
    parser.add_argument("--rate-scale", type=float,
                        help="trace (1), routers (2): density of arrivals on 8 workers; in "
                        "proportion on others")
    parser.add_argument("--speed", type=float,
                        help="trace (20), routers (2): how much faster than the clock the workers run")
    parser.add_argument("--trace-rounds", type=int, default=3, help="routers: of the replay")
    parser.add_argument("--agree", type=int, default=40, metavar="N",
                        help="trace: first show on N requests that speed 1 gives the same; 0: do not")
    parser.add_argument("--scale", action="append", metavar="X[,X]",
                        help="replay: rate of arrivals on 8 workers, times the trace's (1.5,2)")
    parser.add_argument("--seeds", type=int, default=5, help="replay: runs of each line")
    parser.add_argument("--policies", metavar="NAME[,NAME]", help="replay: only these")
    parser.add_argument("--scenario", metavar="NAME",
                        help="replay: a made workload instead of a trace, or `all` of them")
    parser.add_argument("--plot", metavar="FILE", help="replay: goodput against load, as SVG")
    return parser.parse_args(argv)


def with_defaults(name, options):
    """The options as one benchmark sees them."""
    own = argparse.Namespace(**vars(options))
    for key, value in {"seconds": 1.5, **DEFAULTS.get(name, {})}.items():
        if getattr(own, key) is None:
            setattr(own, key, value)
    return own


def selected(options):
    """Names to run."""
    if options.name != "all":
        return [options.name]
    traced = options.trace or os.environ.get("TRACE")
    return [name for name in BENCHES if name not in NEED_TRACE or traced]


def main(argv):
    """Runs what was asked; 1 if a measurement could not be made."""
    options = parse(argv)
    names = selected(options)
    if options.targets:
        targets = {target for name in names for target in BENCHES[name][1]}
        if not options.peers_only and names not in (["scan"], ["pick"], ["replay"]):
            targets.add("src/kvway")
        print(" ".join(sorted(targets)))
        return 0
    failed = 0
    for name in names:
        try:
            BENCHES[name][0](with_defaults(name, options))
        except BenchError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
