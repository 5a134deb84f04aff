"""Arguments of bench/run.sh and the list of benchmarks."""

import argparse
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import lib_cache  # noqa: E402 (the path comes first)
import lib_crowd  # noqa: E402
import lib_engine  # noqa: E402
import lib_events  # noqa: E402
import lib_evict  # noqa: E402
import lib_fleet  # noqa: E402
import lib_fleet_change  # noqa: E402
import lib_fragments  # noqa: E402
import lib_gpu  # noqa: E402
import lib_keys  # noqa: E402
import lib_l2  # noqa: E402
import lib_overload  # noqa: E402
import lib_pick  # noqa: E402
import lib_proxy  # noqa: E402
import lib_replay  # noqa: E402
import lib_replay_agree  # noqa: E402
import lib_replay_mp  # noqa: E402
import lib_replay_pd  # noqa: E402
import lib_replay_scale  # noqa: E402
import lib_replicas  # noqa: E402
import lib_routers  # noqa: E402
import lib_sim_agree  # noqa: E402
import lib_state  # noqa: E402
import lib_tables  # noqa: E402
import lib_tables_thresholds  # noqa: E402
import lib_tls  # noqa: E402
import lib_trace  # noqa: E402
import lib_trace_overload  # noqa: E402
from lib_procs import BenchError, Workshop  # noqa: E402

LOAD = "bench/load/kvb-load"
ENDING = (signal.SIGTERM, signal.SIGINT)


def bench_trace(options):
    """Compares strategies; with --overload, compares admission with none and with a bound on each worker."""
    if options.overload:
        lib_trace_overload.bench_trace_overload(options, lib_trace.trace_of(options))
    else:
        lib_trace.bench_trace(options)


# {name: (function, targets that ninja must build)}
BENCHES = {
    "proxy": (lib_proxy.bench_proxy, [LOAD]),
    "tls": (lib_tls.bench_tls, [LOAD]),
    "keys": (lib_keys.bench_keys, lib_keys.TARGETS),
    "stream": (lib_proxy.bench_stream, [LOAD]),
    "scan": (lib_proxy.bench_scan, ["bench/micro/scan_bench"]),
    "pick": (lib_pick.bench_pick, [lib_pick.PROGRAM, lib_pick.KVAWARE, lib_pick.ADMISSION]),
    "state": (lib_state.bench_state, [lib_state.PROGRAM, lib_state.ROUTER, lib_state.LOAD]),
    "events": (lib_events.bench_events, [lib_events.PROGRAM, "bench/sim/kvsim"]),
    "idle": (lib_proxy.bench_idle, [LOAD]),
    "loops": (lib_proxy.bench_loops, [LOAD]),
    "trace": (bench_trace, ["bench/sim/kvsim", "bench/load/kvbench"]),
    "routers": (lib_routers.bench_routers,
                [LOAD, "bench/sim/kvsim", "bench/load/kvbench"]),
    "replay": (lib_replay.bench_replay, ["bench/replay/kvb-replay"]),
    "replay-agree": (lib_replay_agree.bench_replay_agree, lib_replay_agree.TARGETS),
    "replay-mp": (lib_replay_mp.bench_replay_mp, lib_replay_mp.TARGETS),
    "replay-pd": (lib_replay_pd.bench_replay_pd, lib_replay_pd.TARGETS),
    "replay-scale": (lib_replay_scale.bench_replay_scale, lib_replay_scale.TARGETS),
    "replicas": (lib_replicas.bench_replicas, lib_replicas.TARGETS),
    "overload": (lib_overload.bench_overload, lib_overload.TARGETS),
    "evict": (lib_evict.bench_evict, [lib_evict.PROGRAM]),
    "cache": (lib_cache.bench_cache, lib_cache.TARGETS),
    "l2": (lib_l2.bench_l2, lib_l2.TARGETS),
    "sim-agree": (lib_sim_agree.bench_sim_agree, lib_sim_agree.TARGETS),
    "fragments": (lib_fragments.bench_fragments, lib_fragments.TARGETS),
    "gpu": (lib_gpu.bench_gpu, [lib_gpu.PROGRAM]),
    "engine": (lib_engine.bench_engine, lib_engine.TARGETS),
    "crowd": (lib_crowd.bench_crowd, lib_crowd.TARGETS),
    "tables": (lib_tables.bench_tables, [*lib_tables.TARGETS, lib_tables_thresholds.PROGRAM]),
    "fleet": (lib_fleet.bench_fleet, lib_fleet.TARGETS),
    "fleet-change": (lib_fleet_change.bench_fleet_change, lib_fleet_change.TARGETS),
}
NEED_TRACE = ("trace", "replay", "replay-agree", "replay-mp", "replay-pd", "replay-scale", "overload", "routers", "evict",
              "fleet")
NEED_ENGINE = ("engine",)
# Defaults of options that differ between benchmarks.
DEFAULTS = {
    "crowd": {"workers": [2], "clients": 2000, "seconds": 20.0, "speed": 4.0},
    "idle": {"clients": 8000},
    "events": {"workers": [64], "rate": 200, "seconds": 60.0},
    "loops": {"rate": 8000},
    "trace": {"workers": [4, 8], "requests": 2000, "rate_scale": 1.0, "speed": 20.0},
    "trace --overload": {"workers": [8], "requests": 700, "rate_scale": 3.0, "speed": 1.0},
    "routers": {"workers": [8], "requests": 1000, "rate_scale": 2.0, "speed": 2.0},
    "replay": {"workers": [8], "seeds": 5},
    "replay-agree": {"workers": [8], "seeds": 10, "requests": 1000, "speed": 1.0},
    "overload": {"workers": [8], "seeds": 3},
    "replicas": {"workers": lib_replicas.WORKERS, "seconds": 5.0},
    "tables": {"rounds": 1},
    "fleet": {"speed": 12.0, "requests": 2000},
    "fleet-change": {"seconds": 4.0},
    "sim-agree": {"speed": 8.0},
}

HELP = """
benchmarks:
  proxy    CPU per request and requests/s at 2, 32 and 256 KB: kvway roundrobin and prefixaware,
           HAProxy, nginx, one thread each; every prompt differs, prefixes are shared
  tls      TLS 1.3: handshakes a second and CPU, full and resumed; CPU per request at 2, 32 and 256 KB over
           kept-alive connections: kvway, HAProxy, nginx, one thread and the same certificate each. --to-workers,
           instead of these: requests that kvway sends to workers in clear, by TLS, and by TLS of the kernel
  keys     100,000 keys of clients: one found, their file read, requests lost while it is replaced three times under
           load, their worst p99 against that without; fails if a request is lost
  stream   400 event streams: CPU per chunk, added delay
  scan     bytes/s of the body scan against jansson
  pick     decisions/s of prefixaware on a tree of 1M nodes (depth 64, 8 to 1,024 workers, one and
           two threads), their 99th percentile, inserts/s, bytes per cached token; what two threads
           gain, compared with a pointer chase; decisions of kvaware, alone and while a thread applies
           128,000 block events/s. --admission, instead of these: requests that admission takes in a second
           and core, with 8 and 64 workers, while none, 100 and 2,000 wait
  state    a snapshot of a prefix tree of 10M nodes: seconds, bytes, times of requests meanwhile and alone
  events   KV events of 64 workers, 2,000 blocks a second each for a minute, into kvway with kvaware:
           CPU of the thread that takes them, lag, losses, latency of requests with them and without.
           --coordinator: the same caches, reported by 64 LMCache servers once a second
  idle     memory of each of 8,000 idle kept-alive clients
  loops    CPU per request of two loops against one, spread of the work between them
  trace    replay of a trace through kvway to simulated workers: roundrobin, session, prefixaware
           on 4 and 8 workers; TRACE=FILE names the trace. --overload, instead of that: at three times its
           rate and the clock's speed, kvway with admission and a service level, without, and HAProxy with a
           bound; goodput, the slow end of TTFT, what is refused; --quick for a look
  routers  kvway, vllm-router and sglang-router (from PyPI, into venvs in the build directory): CPU
           per request at 2, 32 and 256 KB; with TRACE=FILE the quality of their choices on 8 workers
  replay   the strategies prefixaware and kvaware, their peers' policies and a bound that no router can beat, in
           simulated time: on a trace (TRACE=FILE), or --scenario NAME without one
  replay-agree  the first 1,000 requests of a trace (TRACE=FILE) by the replay, and over HTTP through kvway to the same
           engines at the clock's speed: two strategies, with admission and without, three sizes of KV memory; fails
           where times or the cached share differ by more than 5 % and more than by chance; half an hour
  replay-mp  LMCache servers behind eight workers in simulated time: loads from their common storage ahead of time,
           and without; on a trace (TRACE=FILE) or --scenario long; --scale
  replay-pd  workers with roles in simulated time: eight as 2 that prefill and 6 that decode, 4 and 4, 6 and 2;
           plans by seconds and the fixed rules of others, on a trace (TRACE=FILE) or --scenario long; --scale
  replay-scale  how many workers there are, by six signals of autoscalers, against fleets of a fixed size: a trace
           (TRACE=FILE) whose rate rises and falls, workers that come after three minutes, in simulated time; promises
           kept and worker-hours
  replicas  four kvways that share their load through Redis, before 8, 64 and 1,024 simulated workers: commands and
           bytes of each, CPU, p99 of requests through one of them and through a kvway that shares nothing
  overload  what admission is worth: kvway's and its peers' as published, a trace (TRACE=FILE) at half to four
           times its rate, programs of agents whose clients come back, two classes, in simulated time; --only
           trace, programs, agents or classes; --quick for a look
  crowd    2,000 clients within 20 s (--clients, --seconds), while simulated workers at speed 4 can answer one in twenty of them
           in time: lost when refused, coming back after Retry-After (--retries), or leaving while they wait; goodput
           against the replay of the same, refusals, memory, requests of clients that had left; fails if a rule is broken
  evict    eviction policies of libkvtier, through its own index: hit rate at five sizes of a tier,
           against LRU and an offline optimum; on a trace (TRACE=FILE), or --scenario NAME without one
  cache    libkvtier: put, verify and get in memory against memcpy and XXH3, lookups, memory per chunk; files
           against fio, on the disk (--folder) and on a loop device; --only memory, --only nvme
  l2       shared tiers and kvtierd: Redis against a raw client, gets from shared memory against memcpy and
           XXH3, PUTs into kvtierd against a loopback stream, leases by 1, 4 and 64 clients, lookups while
           redis-server is stopped; --only redis, shm, put, leases or stall
  sim-agree  simulated workers with tiers (memory, files, Redis) give the same at --speed (8) as at the clock's:
           --requests (300) made requests at both; fails where a figure differs by more than 5 %
  engine   kvtier inside a real vLLM on the CPU (KVW_ENGINE_VENV names its environment): time to first token from
           memory, files, Redis and kvtierd against computing, and the processor time that the connector adds
           when no prompt comes twice, with a gate; --only gain, --only cost, --quick to see that it works
  fragments  keys of cached text moved to other positions (RoPE), for each kind of value, against memcpy of the same
           bytes, one thread; then time to first token, simulated, when documents come in any order: exact prefixes
           only, and fragments with keys moved at that rate; through kvway to four workers with kvaware.fragments and
           without; --only kernel, rag, router; --only quality: what answers of a small model lose, eight minutes,
           by the torch of KVW_ENGINE_VENV
  gpu      gathers and scatters of 16-token blocks into chunks of 4 MiB: the host backend against memcpy; where
           there is a GPU, against one contiguous pinned copy, each way and both at once
  tables   published figures of tiered caches and routing, run again on simulated workers with real tiers:
           lists every assumption and varies one at a time, a plot of each table; --table NAME for one. --table
           printed: a publication's command word for word (by kvbench, with --peer lmcache also by lmcache), through
           kvway with its defaults against round robin without admission, at the clock's speed
  fleet    a trace (TRACE=FILE) through kvway to 8 simulated workers with real tiers: what routing, tiers and
           both are worth; a worker and the Redis master killed in the middle; --only value, --only faults
  fleet-change  64 streaming clients while the fleet changes: reloads twice a second, 1,000 workers that join by one
           reload and leave again, 100 changes a second by /workers; fails if a request is dropped; --only
           reload, join or admin
  all      all of them (trace, routers, replay, replay-agree, replay-mp, replay-pd, overload, evict and fleet only if TRACE is set, engine if
           KVW_ENGINE_VENV is)

Two cores are needed: one for the proxy, one for load and backends. The table goes to standard
error; standard output has one JSON object per line: bench, metric, value, unit, peer, ratio (ours /
peer, median of pairs of the same round), peer_value, and the parameters of the line.
Absolute figures only describe this machine; compare ratios of one run.
"""


PARTS = {"cache": lib_cache.PARTS, "l2": lib_l2.PARTS, "engine": lib_engine.PARTS, "fleet": lib_fleet.PARTS,
         "fleet-change": lib_fleet_change.PARTS, "overload": lib_overload.PARTS, "fragments": lib_fragments.PARTS}


def parse(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="bench/run.sh", epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures kvway and kvtier against their peers.")
    parser.add_argument("name", choices=[*BENCHES, "all"], metavar="NAME")
    parser.add_argument("--build", default="build-release", help=argparse.SUPPRESS)
    parser.add_argument("--targets", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help="at least 5 for a figure to quote (5; tables --table printed: 1)")
    parser.add_argument("--seconds", "-s", type=float,
                        help="counted per round and proxy (1.5); events: of all phases with events (60)")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers alone")
    parser.add_argument("--more-peers", action="store_true",
                        help="also HAProxy with tune.bufsize 32768; routers: also consistent_hash")
    parser.add_argument("--no-logs", action="store_true",
                        help="proxy: leave out the run with access logs on")
    parser.add_argument("--to-workers", action="store_true",
                        help="tls: requests that go to workers by TLS, against those in clear, and no peers")
    parser.add_argument("--keys", action="store_true",
                        help="proxy: kvway with keys of clients against kvway without, and no peers")
    parser.add_argument("--traces", type=float, nargs="?", const=0.1, metavar="RATIO",
                        help="proxy: kvway that exports the spans of this share of its requests (0.1) and whose page is "
                        "open, against neither, and HAProxy with spans against HAProxy without")
    parser.add_argument("--legs", action="store_true",
                        help="proxy: kvway that has each prompt prefilled by another worker, against one leg, and no peers")
    parser.add_argument("--body-kb", type=int, nargs="+", default=[2, 32, 256], help="proxy, routers")
    parser.add_argument("--interval-us", type=int, default=20000,
                        help="stream: between two events of one stream")
    parser.add_argument("--clients", type=int, help="idle (8000; kvway takes no more than half of its descriptors as "
                        "clients), crowd (2000)")
    parser.add_argument("--times", type=int, default=2, help="crowd: each load through one kvway (2); "
                        "replay-agree: each line over HTTP (2)")
    parser.add_argument("--rate", type=int, help="requests per second: loops (8000), events (200), "
                        "pick --admission (20000, simulated)")
    parser.add_argument("--admission", action="store_true", help="pick: what admission takes, alone")
    parser.add_argument("--coordinator", action="store_true", help="events: LMCache servers report, not engines")
    parser.add_argument("--line", type=int, metavar="N", help="pick: only this line of its table, from 0")
    parser.add_argument("--trace", help="trace, routers, replay, replay-agree, overload, evict: the file (or TRACE in "
                        "the environment)")
    parser.add_argument("--requests", type=int,
                        help="trace, fleet (2000), routers, replay-agree (1000), sim-agree (300), replay, evict (all): "
                        "the first N")
    parser.add_argument("--workers", type=int, nargs="+",
                        help="trace: 4 8; events: 64; replicas: 8 64 1024; routers, replay, overload: 8, and the rate grows "
                        "with them")
    parser.add_argument("--rate-scale", type=float,
                        help="trace (1), routers (2): density of arrivals on 8 workers; in "
                        "proportion on others")
    parser.add_argument("--speed", type=float,
                        help="trace (20), tables (5; the table printed 1), fleet (12), sim-agree (8), routers (2), replay-agree (1): how much "
                        "faster than the clock the workers run")
    parser.add_argument("--trace-rounds", type=int, default=3, help="routers: of the replay")
    parser.add_argument("--overload", action="store_true", help="trace: admission against none and HAProxy's bound")
    parser.add_argument("--retries", type=int, default=5, metavar="N",
                        help="trace --overload: how often a refused client comes back, after Retry-After (5)")
    parser.add_argument("--agree", type=int, default=40, metavar="N",
                        help="trace: first show on N requests that speed 1 gives the same; 0: do not")
    parser.add_argument("--scale", action="append", metavar="X[,X]",
                        help="replay (1.5,2), replay-agree (1,1.5), overload: rate of arrivals on 8 workers, times the "
                        "trace's")
    parser.add_argument("--seeds", type=int, help="replay (5), replay-agree (10), overload (3): runs of each line")
    parser.add_argument("--policies", metavar="NAME[,NAME]", help="replay, overload, evict: only these")
    parser.add_argument("--scenario", metavar="NAME",
                        help="replay, evict: a made workload instead of a trace, or `all` of them")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="PART[,PART]",
                        help="; ".join(f"{name}: {', '.join(parts)}" for name, parts in PARTS.items()))
    parser.add_argument("--models-given", type=int, default=0, metavar="N",
                        help="fleet-change: each worker has N models in the file; 0: they are asked")
    parser.add_argument("--quick", action="store_true", help="engine: two rounds; overload: one "
                        "seed, few rates; pick: one short round; keys: 2,000; trace --overload: 40 requests; to see that it works")
    parser.add_argument("--tokens", type=int, nargs="+", help="engine: lengths of prompts (1000 4000 8000)")
    parser.add_argument("--small", action="store_true", help="l2, fleet: next to nothing, to see that it works; tables: no sweeps")
    parser.add_argument("--table", action="append", metavar="NAME", help="tables: only this one; may be repeated")
    parser.add_argument("--duration", type=float, metavar="S", help="tables --table printed: of the load (180)")
    parser.add_argument("--tiers", nargs="+", metavar="TIERS", help="tables --table printed: l1, l1+l2 (both)")
    parser.add_argument("--kv-tokens", type=int, nargs="+", metavar="N",
                        help="tables --table printed: KV cache of a server's GPUs (200000 400000 1000000)")
    parser.add_argument("--plots", metavar="FOLDER", help="tables, fleet: where plots go (tables in the build directory)")
    parser.add_argument("--peer", choices=["lmcache"],
                        help="cache: compare with this; tables --table printed: let it ask as well; LMCACHE_PYTHON names a "
                        "Python that has it")
    parser.add_argument("--folder", help="cache: where files are written; engine: where its model is kept (the "
                        "build directory)")
    parser.add_argument("--plot", metavar="FILE",
                        help="as SVG, replay, overload: goodput against load, evict: hit rate against room, "
                        "engine: seconds to first token")
    options = parser.parse_args(argv)
    known = PARTS.get(options.name, ()) if options.name != "all" else [part for parts in PARTS.values() for part in parts]
    for part in options.only or []:
        if part not in known:
            parser.error(f"--only {part}: {options.name} has {', '.join(known) or 'no parts'}")
    return options


def with_defaults(name, options):
    """Returns the options with the defaults of one benchmark."""
    own = argparse.Namespace(**vars(options))
    given = DEFAULTS.get(f"{name} --overload" if name == "trace" and options.overload else name, {})
    for key, value in {"seconds": 1.5, "rounds": 5, **given}.items():
        if getattr(own, key) is None:
            setattr(own, key, value)
    return own


def selected(options):
    """Returns the names of the benchmarks to run."""
    if options.name != "all":
        return [options.name]
    traced = options.trace or os.environ.get("TRACE")
    engine = os.environ.get("KVW_ENGINE_VENV")
    return [name for name in BENCHES
            if (name not in NEED_TRACE or traced) and (name not in NEED_ENGINE or engine)]


def end(number, _frame):
    """Handles SIGTERM and SIGINT: ends what runs, removes files and segments, and ends this program."""
    for ignored in ENDING:
        signal.signal(ignored, signal.SIG_IGN)
    Workshop.ending = True
    for shop in list(Workshop.open_now):  # workshops of other threads, too; these threads then find their servers gone
        shop.terminate()
    raise SystemExit(128 + number)


def main(argv):
    """Runs the benchmarks that were asked for; returns 1 if one could not be made or went over its limit."""
    options = parse(argv)
    names = selected(options)
    if options.targets:
        try:  # a bad option ends the program before anything is built
            if options.name == "engine":
                lib_engine.find_vllm()
            elif "quality" in (options.only or []):
                lib_fragments.find_torch()
        except BenchError as error:
            print(f"{options.name}: {error}", file=sys.stderr)
            return 2
        targets = {target for name in names for target in BENCHES[name][1]}
        if not options.peers_only and names not in (["scan"], ["pick"], ["state"], ["replay"], ["replay-mp"], ["replay-pd"], ["overload"], ["evict"],
                                               ["cache"], ["l2"], ["gpu"], ["sim-agree"], ["engine"]):
            targets.add("src/router/kvway")
        print(" ".join(sorted(targets)))
        return 0
    for number in ENDING:
        signal.signal(number, end)
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
