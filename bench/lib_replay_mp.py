"""The benchmark `replay-mp`: LMCache servers behind eight workers in simulated time (bench/replay/kvb-replay --mp).

Each worker's server keeps as much in its memory as the worker's KV cache has, and all share a storage of sixteen
times that, at 2 and at 10 GB/s a server: with kvway's prefetches from that storage and without, against
workers that have no servers. Policy kvway; one run of each.
"""

import concurrent.futures
import os

from lib_procs import BenchError
from lib_replay import parse_scales, run_one
from lib_report import emit, table
from lib_trace import WHERE

TARGETS = ["bench/replay/kvb-replay"]
WORKERS = 8
KV_TOKENS = 250_000  # a quarter of the profile's, so that caches forget
SERVERS = ["--mp", f"{KV_TOKENS}:{16 * KV_TOKENS}"]
ROWS = {"no servers": []}
for gbytes in (2, 10):
    for prefetch in ("off", "on"):
        ROWS[f"{gbytes} GB/s, prefetch {prefetch}"] = [
            *SERVERS, "--mp-l2-gbytes", str(gbytes), "--mp-prefetch", prefetch]
METRICS = {"goodput": "share", "ttft_mean_s": "s", "ttft_p99_s": "s", "cached_share": "share"}


def run_rows(options, source, scale):
    """{name: figures}."""
    more = ["--kv-tokens", str(KV_TOKENS), *(["--spread"] if source[0] == "--trace" else [])]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = pool.map(lambda row: run_one(options, source, "kvway", scale, WORKERS, 1, [*row, *more]),
                        ROWS.values())
        return dict(zip(ROWS, done))


def bench_replay_mp(options):
    """All rows of a trace or of a scenario."""
    trace = options.trace or os.environ.get("TRACE")
    if not options.scenario and not trace:
        raise BenchError(f"{WHERE}\nOr --scenario long, which needs no trace.")
    source = ["--scenario", options.scenario] if options.scenario else ["--trace", trace]
    name = options.scenario or f"trace {os.path.basename(trace)}"
    for scale in parse_scales(options.scale or ["0.5,1,1.5,2"]):
        figures = run_rows(options, source, scale)
        table(f"replay-mp, simulated: {name}; {WORKERS} workers, x{scale:g}",
              ["", "goodput", "TTFT s", "TTFT p99 s", "cached", "from L2 Mtok", "ahead Mtok", "waited"],
              [[row, f"{f['goodput']:.3f}", f"{f['ttft_mean_s']:.3f}", f"{f['ttft_p99_s']:.2f}",
                f"{f['cached_share']:.3f}", f"{f.get('mp_l2_tokens', 0) / 1e6:.1f}",
                f"{f.get('mp_prefetched_tokens', 0) / 1e6:.1f}",
                f"{f.get('mp_waited_for_l2_share', 0):.3f}"] for row, f in figures.items()])
        for row, f in figures.items():
            for metric, unit in METRICS.items():
                emit("replay-mp", metric, f[metric], unit, rule=row, scale=scale, simulated=True)
