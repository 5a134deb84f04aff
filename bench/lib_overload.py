"""The benchmark `overload`: what admission is worth, in simulated time (bench/replay/kvb-replay).

Every row is a routing policy with an admission before it: kvway's with its own and without, each
peer's with what its project publishes and without. Three parts: a recorded trace at half to four times
its rate, where refused requests are lost; programs of agents, whose clients come back; and two
classes of which the lower one alone is too much. Figures are medians over the seeds.
"""

import concurrent.futures
import os
import statistics

from lib_procs import BenchError
from lib_replay import LIMIT, known_policies, parse_scales, run_one
from lib_replay_plot import write_plot
from lib_report import emit, say, table
from lib_trace import WHERE

TARGETS = ["bench/replay/kvb-replay"]
NONE = "none"
OURS = ("kvway", "kvway")
# {(policy, admission): its name in the picture; None: the picture leaves it out}
ROWS = {
    OURS: "kvway",
    ("kvway", NONE): "kvway, nothing refused",
    ("llmd", "llmd"): "llm-d flow control",
    ("llmd", "llmd_tuned"): "llm-d, tuned for this",
    ("llmd", NONE): None,
    ("cache_aware", "vllm_router"): "vllm-router",
    ("cache_aware", "sglang_gateway"): "SGLang gateway",
    ("cache_aware", "sglang_engine"): "SGLang engine, tuned",
    ("cache_aware", NONE): None,
    ("least_requests", "bounded"): "HAProxy maxconn",
    ("least_requests", "bounded_tuned"): "HAProxy, tuned for this",
    ("least_requests", "envoy"): "Envoy adaptive",
    ("least_requests", "envoy_tuned"): "Envoy, tuned for this",
    ("least_requests", NONE): None,
    ("dynamo", NONE): None,
    ("lmetric", NONE): None,
    (LIMIT, NONE): "limit",
}
# {part: (scenario, or None for the trace; scales; scales of --quick; metrics; the metric that is compared)}
PARTS = {
    "trace": (None, [0.5, 1, 1.5, 2, 2.5, 3, 4], [1, 3], ("goodput", "ttft_p99_s", "refused_share"),
              "goodput"),
    "programs": ("programs", [1, 2, 3], [1], ("turn_goodput", "programs_per_hour", "refused_share",
                                              "ttft_p99_s"), "turn_goodput"),
    "agents": ("agentic", [1, 2, 3], [1], ("turn_goodput", "programs_per_hour", "refused_share",
                                           "ttft_p99_s"), "turn_goodput"),
    "classes": ("two_classes", [1], [1], ("goodput", "ttft_p99_s", "refused_share"), "goodput"),
}
UNITS = {"ttft_p99_s": "s", "wait_max_s": "s", "programs_per_hour": "1/h"}


def run_all(options, source, rows, scales, workers):
    """Runs all rows at all scales; returns {(scale, row): [figures of each seed]}."""
    jobs = [(scale, row, seed) for scale in scales for row in rows
            for seed in range(1, options.seeds + 1)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = pool.map(lambda job: run_one(options, source, job[1][0], job[0], workers, job[2],
                                            ("--admission", job[1][1])), jobs)
        results = {}
        for (scale, row, _), figures in zip(jobs, done):
            results.setdefault((scale, row), []).append(figures)
    return results


def median(runs, metric):
    """Returns the median over the seeds; None where a row lacks this figure (the limit has few)."""
    values = [run[metric] for run in runs if metric in run]
    return statistics.median(values) if values else None


def class_medians(runs, metric):
    """Returns {class: median over the seeds}."""
    numbers = range(max((len(run.get("classes", [])) for run in runs), default=0))
    return {number: statistics.median(run["classes"][number][metric] for run in runs)
            for number in numbers}


def is_peer(row):
    """Returns whether the row's policy is another project's."""
    return row[0] not in (OURS[0], LIMIT)


def emit_row(results, scale, row, metrics, more):
    """Prints the JSON lines of one row."""
    runs = results[scale, row]
    about = {"policy": row[0], "admission": row[1], "scale": scale, "seeds": len(runs),
             "simulated": True, **more}
    for metric in metrics:
        value = median(runs, metric)
        if value is not None:
            emit("overload", metric, value, UNITS.get(metric, "share"), **about)
    for metric in ("goodput", "refused_share", "wait_max_s"):
        for number, value in class_medians(runs, metric).items():
            emit("overload", metric, value, UNITS.get(metric, "share"), **about,
                 **{"class": number})


def emit_ratio(results, scale, metric, peer, row, more):
    """Prints our row's figure against that of one other row."""
    value, other = median(results[scale, OURS], metric), median(results[scale, row], metric)
    emit("overload", metric, value, UNITS.get(metric, "share"), policy=OURS[0], admission=OURS[1],
         scale=scale, seeds=len(results[scale, OURS]), peer=peer, best="+".join(row),
         peer_value=other, ratio=value / other if other else None, simulated=True, **more)


def emit_all(results, scale, rows, part, more):
    """Prints the JSON lines of one rate."""
    _, _, _, metrics, compared = PARTS[part]
    for row in rows:
        emit_row(results, scale, row, metrics, more)
    if OURS not in rows:
        return
    if (OURS[0], NONE) in rows:
        for metric in metrics:
            if metric in (compared, "programs_per_hour"):
                emit_ratio(results, scale, metric, "none", (OURS[0], NONE), more)
    peers = [row for row in rows if is_peer(row)]
    if peers:
        best = max(peers, key=lambda row: median(results[scale, row], compared))
        emit_ratio(results, scale, compared, "best", best, more)


def cell(value, digits=3):
    """Returns a figure as the table shows it."""
    return "-" if value is None else f"{value:.{digits}f}"


def print_goodput(title, results, scales, rows, metric):
    """Prints the table of one metric: a line per row, a column per rate."""
    table(f"{title}: {metric}", ["policy + admission", *(f"x{scale:g}" for scale in scales)],
          [[" + ".join(row), *(cell(median(results[scale, row], metric)) for scale in scales)]
           for row in rows])


def print_refusals(results, scale, rows):
    """Prints how soon our refusals came, since a rule bounds that time."""
    runs = [run for row in rows if row == OURS for run in results[scale, row]]
    if runs and "refused_slow_share" in runs[0]:
        slow = max(run["refused_slow_share"] for run in runs)
        late = max(run["refused_late_s"] for run in runs)
        say(f"  kvway at x{scale:g}: {slow:.2%} of the refusals came later than 100 ms and than the "
            f"answer was due, the latest {late:.2f} s")


def print_classes(results, scale, rows):
    """Prints each class's figures."""
    table(f"by class, x{scale:g}", ["policy + admission", "class", "goodput", "refused", "longest wait s"],
          [[" + ".join(row), number, cell(goodput),
            cell(class_medians(results[scale, row], "refused_share")[number]),
            cell(class_medians(results[scale, row], "wait_max_s")[number], 1)]
           for row in rows
           for number, goodput in class_medians(results[scale, row], "goodput").items()])


def chosen_rows(options, part):
    """Returns all rows, or those of the named policies; without the limit where clients come back, since its bound says little there."""
    rows = [row for row in ROWS if part == "trace" or row[0] != LIMIT]
    if options.policies:
        names = options.policies.split(",")
        known = [*known_policies(options)[0], LIMIT]
        for name in names:
            if name not in known:
                raise BenchError(f"--policies: no policy {name}; there are: {', '.join(known)}")
        rows = [row for row in rows if row[0] in names]
    return rows


def draw(path, title, results, scales, rows):
    """Draws goodput against load; rows that refuse nothing are dashed."""
    write_plot(path, title,
               {ROWS[row]: [(scale, [median(results[scale, row], "goodput")]) for scale in scales]
                for row in rows if ROWS[row]}, dashed=(LIMIT, ROWS[OURS[0], NONE]))
    say(f"goodput against load: {path}")


def run_part(options, part, workers):
    """Runs one part; prints its tables and lines, and draws its picture."""
    scenario, scales, quick, metrics, _ = PARTS[part]
    trace = options.trace or os.environ.get("TRACE")
    source = ["--scenario", scenario] if scenario else ["--trace", trace]
    name = scenario or os.path.basename(trace)
    scales = parse_scales(options.scale) if options.scale else quick if options.quick else scales
    rows = chosen_rows(options, part)
    results = run_all(options, source, rows, scales, workers)
    title = f"overload, simulated: {name}, {workers} workers, {options.seeds} seeds"
    for metric in metrics:
        print_goodput(title, results, scales, rows, metric)
    for scale in scales:
        print_refusals(results, scale, rows)
        if part == "classes":
            print_classes(results, scale, rows)
        emit_all(results, scale, rows, part,
                 {"workers": workers, ("scenario" if scenario else "trace"): name})
    if options.plot and part == "trace":
        draw(options.plot, f"promises kept, {name}, {workers} workers (simulated)", results, scales,
             rows)


def bench_overload(options):
    """Compares admissions on a trace and on scenarios."""
    parts = list(options.only or PARTS)
    if "trace" in parts and not (options.trace or os.environ.get("TRACE")):
        if options.only:
            raise BenchError(WHERE)
        say(f"No trace, so only what needs none. {WHERE}")
        parts.remove("trace")
    if options.quick:
        options.seeds = 1
    for workers in options.workers:
        for part in parts:
            run_part(options, part, workers)
