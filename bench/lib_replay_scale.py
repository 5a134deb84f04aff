"""The benchmark `replay-scale`: how many workers there are, by signals of autoscalers, in simulated time.

A trace whose rate rises and falls once; workers that serve three minutes after they were asked for; and one autoscaler
(Kubernetes' rule) that acts by one signal at one target, as fast as Kubernetes does by default or as kvway's own objects
allow (`calm`). Besides, fleets of a fixed size. What counts is the share of requests that were answered as promised, and
the hours of workers that this took.
"""

import concurrent.futures
import os
import statistics

from lib_procs import BenchError
from lib_replay import parse_scales, run_one, values_of
from lib_report import emit, say, table
from lib_trace import WHERE

TARGETS = ["bench/replay/kvb-replay"]
MOST = 16  # workers
LEAST = 2
WAVE = "0.7"
FIXED = range(4, 13)
# signal: targets
SIGNALS = {
    "predicted_p90": (0.6, 0.8, 1.0),
    "predicted_p50": (0.3, 0.4, 0.5),
    "waiting": (0.25, 1, 4),
    "running": (8, 16, 32),
    "gpu": (0.8, 0.9, 0.95),
    "kv": (0.2, 0.3, 0.5),
}
CALM = (("predicted_p90", 0.6), ("predicted_p90", 0.8), ("running", 8), ("gpu", 0.9))
METRICS = {"goodput": ("promises_kept", "share"), "worker_hours": ("worker_hours", "h"),
           "refused_share": ("refused_share", "share"), "ttft_p99_s": ("ttft_p99_s", "s"),
           "workers_most": ("workers_most", "workers")}


def rows_of():
    """[(signal, target, behavior)]; signal `fixed`: the target is the number of workers."""
    return [*(("fixed", n, "") for n in FIXED),
            *((name, target, "kubernetes") for name, all_of in SIGNALS.items() for target in all_of),
            *((name, target, "calm") for name, target in CALM)]


def run_row(options, trace, scale, row):
    """One fleet: its figures, by seed."""
    signal, target, behavior = row
    workers = target if signal == "fixed" else MOST
    more = ["--admission", "kvway", "--spread", "--wave", WAVE]
    if signal != "fixed":
        more += ["--scale-by", f"{signal}:{target:g}", "--scale-least", str(LEAST),
                 "--scale-behavior", behavior]
    # The rate is the trace's own times `scale`, however many workers there are.
    return [run_one(options, ["--trace", trace], "kvway", scale * 8 / workers, workers, seed, more)
            for seed in range(1, (options.seeds or 1) + 1)]


def mean(runs, metric):
    """Over the seeds."""
    return statistics.mean(values_of(runs, metric))


def spared(figures, row):
    """By how much cheaper the row is than the smallest fixed fleet that keeps as many promises; None: there is none."""
    kept = mean(figures[row], "goodput")
    fixed = [figures["fixed", n, ""] for n in FIXED]
    enough = [mean(runs, "worker_hours") for runs in fixed if mean(runs, "goodput") >= kept]
    return 1 - mean(figures[row], "worker_hours") / min(enough) if enough else None


def show(title, figures):
    """The table of one load."""
    rows = []
    for row, runs in figures.items():
        part = spared(figures, row) if row[0] != "fixed" else None
        rows.append([f"{row[0]} {row[1]:g} {row[2]}".strip(), f"{mean(runs, 'goodput'):.3f}", f"{mean(runs, 'worker_hours'):.2f}",
                     f"{mean(runs, 'workers_most'):.0f}", f"{mean(runs, 'refused_share'):.3f}",
                     f"{mean(runs, 'ttft_p99_s'):.1f}", "-" if part is None else f"{part:+.0%}"])
    table(title, ["", "kept", "worker-hours", "most", "refused", "TTFT p99 s", "spared"], rows)
    say("spared: worker-hours less than those of the smallest fixed fleet that keeps as many promises")


def bench_replay_scale(options):
    """All fleets on a trace."""
    trace = options.trace or os.environ.get("TRACE")
    if not trace:
        raise BenchError(WHERE)
    for scale in parse_scales(options.scale or ["1"]):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            done = pool.map(lambda row, at=scale: run_row(options, trace, at, row), rows_of())
            figures = dict(zip(rows_of(), done))
        show(f"replay-scale, simulated: trace {os.path.basename(trace)}, x{scale:g}, rate times 1 - {WAVE} to 1 + {WAVE}",
             figures)
        for row, runs in figures.items():
            signal, target, behavior = row
            part = spared(figures, row)
            for metric, (name, unit) in METRICS.items():
                emit("replay-scale", name, mean(runs, metric), unit, signal=signal, target=target, behavior=behavior,
                     scale=scale, seeds=len(runs), simulated=True)
            if signal != "fixed" and part is not None:
                emit("replay-scale", "spared_share", part, "share", signal=signal, target=target,
                     behavior=behavior, scale=scale, simulated=True)
