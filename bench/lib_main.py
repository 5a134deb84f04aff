"""Arguments of bench/run.sh and the list of benchmarks."""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import lib_proxy  # noqa: E402 (the path comes first)
import lib_trace  # noqa: E402
from lib_procs import BenchError  # noqa: E402

LOAD = "bench/load/kvb-load"

# name: (function, what ninja must build)
BENCHES = {
    "proxy": (lib_proxy.bench_proxy, [LOAD]),
    "stream": (lib_proxy.bench_stream, [LOAD]),
    "scan": (lib_proxy.bench_scan, ["bench/micro/scan_bench"]),
    "idle": (lib_proxy.bench_idle, [LOAD]),
    "loops": (lib_proxy.bench_loops, [LOAD]),
    "trace": (lib_trace.bench_trace, ["bench/sim/kvsim", "bench/load/kvbench"]),
}

HELP = """
benchmarks:
  proxy    CPU per request and requests/s at 2, 32 and 256 KB: kvway roundrobin and prefixaware,
           HAProxy, nginx, one thread each; every prompt differs, prefixes are shared
  stream   400 event streams: CPU per chunk, added delay
  scan     bytes/s of the body scan against jansson
  idle     memory of each of 10,000 idle kept-alive clients
  loops    CPU per request of two loops against one, spread of the work between them
  trace    replay of a trace through kvway to simulated workers: roundrobin, session, prefixaware
           on 4 and 8 workers; TRACE=FILE names the trace
  all      all of them (trace only if TRACE is set)

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
    parser.add_argument("--seconds", type=float, default=1.5, help="counted per round and proxy")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers alone")
    parser.add_argument("--more-peers", action="store_true",
                        help="also HAProxy with tune.bufsize 32768")
    parser.add_argument("--no-logs", action="store_true",
                        help="proxy: leave out the run with access logs on")
    parser.add_argument("--body-kb", type=int, nargs="+", default=[2, 32, 256], help="proxy")
    parser.add_argument("--interval-us", type=int, default=20000,
                        help="stream: between two events of one stream")
    parser.add_argument("--clients", type=int, default=10000, help="idle")
    parser.add_argument("--rate", type=int, default=8000, help="loops: requests per second")
    parser.add_argument("--trace", help="trace: the file (or TRACE in the environment)")
    parser.add_argument("--requests", type=int, default=2000, help="trace: the first N")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8], help="trace")
    parser.add_argument("--rate-scale", type=float, default=1.0,
                        help="trace: density of arrivals on 8 workers; in proportion on others")
    parser.add_argument("--speed", type=float, default=20.0,
                        help="trace: how much faster than the clock the workers run")
    parser.add_argument("--agree", type=int, default=40, metavar="N",
                        help="trace: first show on N requests that speed 1 gives the same; 0: do not")
    return parser.parse_args(argv)


def selected(options):
    """Names to run."""
    if options.name != "all":
        return [options.name]
    return [name for name in BENCHES if name != "trace" or options.trace or os.environ.get("TRACE")]


def main(argv):
    """Runs what was asked; 1 if a measurement could not be made."""
    options = parse(argv)
    names = selected(options)
    if options.targets:
        targets = {target for name in names for target in BENCHES[name][1]}
        if not options.peers_only and names != ["scan"]:
            targets.add("src/kvway")
        print(" ".join(sorted(targets)))
        return 0
    failed = 0
    for name in names:
        try:
            BENCHES[name][0](options)
        except BenchError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
