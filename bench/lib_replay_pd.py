"""The benchmark `replay-pd`: workers with roles in simulated time (bench/replay/kvb-replay --pd).

Eight workers without roles, and as 2 that prefill and 6 that decode, 4 and 4, 6 and 2: kvway's plans by
predicted seconds, with prefillers that may have whole requests and without, and the fixed rules of
others. One run of each: the seed decides nothing but ties.
"""

import concurrent.futures
import os

from lib_procs import BenchError
from lib_replay import parse_scales, run_one
from lib_report import emit, say, table
from lib_trace import WHERE

TARGETS = ["bench/replay/kvb-replay"]
WORKERS = 8
POOLS = ("2:6", "4:4", "6:2")
# name: arguments of kvb-replay besides --pd; the policy is kvway's unless they say otherwise
OURS = {"seconds": [], "seconds, whole": ["--pd-whole", "on"]}
FIXED = {rule: ["--pd-rule", rule] for rule in ("always", "llmd", "hyperpod", "dynamo")}
PROXY = "vllm proxy"
METRICS = {"goodput": "share", "ttft_mean_s": "s", "gap_p99_s": "s", "tpot_mean_s": "s", "e2e_mean_s": "s"}


def rows_of():
    """Returns [(pools, name, policy, arguments)]; pools None: workers without roles."""
    rows = [(None, "mixed", "kvway", [])]
    for pools in POOLS:
        for name, more in {**OURS, **FIXED}.items():
            rows.append((pools, name, "kvway", ["--pd", pools, *more]))
        rows.append((pools, PROXY, "round_robin", ["--pd", pools]))
    return rows


def run_rows(options, source, scale):
    """Runs all rows; returns {(pools, name): figures}."""
    more = ["--spread"] if source[0] == "--trace" else []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = pool.map(lambda row: run_one(options, source, row[2], scale, WORKERS, 1, [*row[3], *more]),
                        rows_of())
        return {row[:2]: figures for row, figures in zip(rows_of(), done)}


def show(title, figures):
    """Prints the table of one load."""
    rows = [[f"{pools or ''} {name}".strip(), f"{f['goodput']:.3f}", f"{f['ttft_mean_s']:.2f}",
             f"{f['gap_p99_s'] * 1000:.0f}", f"{f['tpot_mean_s'] * 1000:.0f}", f"{f['e2e_mean_s']:.1f}",
             f"{f['cached_share']:.3f}", f"{f.get('split_share', 0):.2f}"]
            for (pools, name), f in figures.items()]
    table(title, ["", "goodput", "TTFT s", "gap p99 ms", "TPOT ms", "E2E s", "cached", "split"], rows)


def judge(figures):
    """Prints how kvway's rows compare with the best fixed rule, with workers without roles, and with always splitting."""
    mixed = figures[None, "mixed"]
    for pools in POOLS:
        fixed = {name: figures[pools, name] for name in [*FIXED, PROXY]}
        best = max(fixed, key=lambda name: fixed[name]["goodput"])
        for name in OURS:
            f = figures[pools, name]
            say(f"  {pools} {name}: goodput {f['goodput'] - fixed[best]['goodput']:+.3f} against {best}, "
                f"{f['goodput'] - mixed['goodput']:+.3f} against mixed; "
                f"TTFT times {f['ttft_mean_s'] / mixed['ttft_mean_s']:.2f} of mixed's; "
                f"gap p99 times {f['gap_p99_s'] / fixed['always']['gap_p99_s']:.2f} of always'")


def bench_replay_pd(options):
    """Runs all rows on a trace or on a scenario."""
    trace = options.trace or os.environ.get("TRACE")
    if not options.scenario and not trace:
        raise BenchError(f"{WHERE}\nOr --scenario long, which needs no trace.")
    source = ["--scenario", options.scenario] if options.scenario else ["--trace", trace]
    name = options.scenario or f"trace {os.path.basename(trace)}"
    for scale in parse_scales(options.scale or ["0.5,1,1.5,2,2.5,3"]):
        figures = run_rows(options, source, scale)
        show(f"replay-pd, simulated: {name}; {WORKERS} workers, x{scale:g}", figures)
        judge(figures)
        for (pools, row), f in figures.items():
            for metric, unit in METRICS.items():
                emit("replay-pd", metric, f[metric], unit, pools=pools or "", rule=row, scale=scale,
                     simulated=True)
