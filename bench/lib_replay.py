"""The benchmark `replay`: policies against each other in simulated time (bench/replay/kvb-replay).

Each run is one process: a policy, a rate, a seed. A seed disturbs the rate of arrivals by at most
0.8 % and decides ties, and all policies meet the same seeds, so two of them are compared by the
differences of pairs.
"""

import concurrent.futures
import json
import math
import os
import statistics
import subprocess

from lib_procs import BenchError
from lib_report import emit, say, table
from lib_replay_plot import write_plot
from lib_trace import WHERE

OURS = "kvway"
EXACT = "kvaware"  # our strategy that is fed with KV events; compared with OURS and with the peers
LIMIT = "limit"
# {metric: (unit, whether smaller is better)}
METRICS = {
    "cached_share": ("share", False), "ttft_mean_s": ("s", True), "ttft_p50_s": ("s", True),
    "ttft_p90_s": ("s", True), "ttft_p99_s": ("s", True), "tpot_mean_s": ("s", True),
    "e2e_mean_s": ("s", True), "goodput": ("share", False), "imbalance": ("ratio", True),
    "foretold": ("share", False),
}
COMPARED = ("goodput", "e2e_mean_s", "ttft_mean_s")
# Student's t at 97.5 % for 1, 2, ... degrees of freedom; for more than ten, the value of ten.
T975 = (math.inf, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def program(options):
    """Returns the path of the built kvb-replay."""
    return os.path.join(options.build, "bench/replay/kvb-replay")


def half_width(values):
    """Returns half the width of the mean's 95 % interval; None for a single value."""
    if len(values) < 2:
        return None
    t = T975[min(len(values) - 1, len(T975) - 1)]
    return t * statistics.stdev(values) / math.sqrt(len(values))


def known_policies(options):
    """Returns what kvb-replay knows: {policy: whether it is a peer's} and {scenario: description}."""
    text = subprocess.run([program(options), "--list"], check=True, capture_output=True,
                          text=True).stdout
    known = json.loads(text)
    return ({p["name"]: p["peer"] for p in known["policies"]},
            {s["name"]: s["what"] for s in known["scenarios"]})


def run_one(options, source, policy, scale, workers, seed, more=()):
    """Makes one run, with `more` arguments; returns its figures."""
    # A trace's rate is meant for 8 workers; a scenario's rate grows with the number of workers by itself.
    rate = scale * workers / 8 if source[0] == "--trace" else scale
    command = [program(options), *source, "--policy", policy, "--scale", f"{rate:g}",
               "--workers", str(workers), "--seed", str(seed), *more]
    if options.requests and source[0] == "--trace":
        command += ["--requests", str(options.requests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def run_all(options, source, policies, scales, workers):
    """Runs all policies at all scales; returns {(scale, policy): [figures of each seed]}."""
    jobs = [(scale, policy, seed) for scale in scales for policy in policies
            for seed in range(1, options.seeds + 1)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = pool.map(lambda job: run_one(options, source, job[1], job[0], workers, job[2]), jobs)
        results = {}
        for (scale, policy, _), figures in zip(jobs, done):
            results.setdefault((scale, policy), []).append(figures)
    return results


def values_of(runs, metric):
    """Returns one metric's values over the seeds; [] where a policy lacks it (the limit has no percentiles)."""
    return [run[metric] for run in runs if metric in run]


def cell(runs, metric, factor=1.0, digits=3):
    """Returns mean and interval as the table shows them."""
    values = [value * factor for value in values_of(runs, metric)]
    if not values:
        return "-"
    width = half_width(values)
    text = f"{statistics.mean(values):.{digits}f}"
    return text if width is None else f"{text}±{width:.{digits}f}"


def print_table(title, results, scale, policies):
    """Prints the table of all policies at one rate."""
    rows = []
    for policy in policies:
        runs = results[scale, policy]
        rows.append([policy, cell(runs, "cached_share"), cell(runs, "ttft_mean_s", digits=2),
                     cell(runs, "ttft_p50_s", digits=2), cell(runs, "ttft_p90_s", digits=1),
                     cell(runs, "ttft_p99_s", digits=1), cell(runs, "tpot_mean_s", 1000, 0),
                     cell(runs, "e2e_mean_s", digits=2), cell(runs, "goodput"),
                     cell(runs, "imbalance"), cell(runs, "foretold")])
    table(title, ["", "cached", "TTFT s", "p50", "p90", "p99", "TPOT ms", "E2E s", "goodput",
                  "imbalance", "foretold"], rows)


def best_of(results, scale, peers, metric):
    """Returns the peer with the best mean."""
    better = min if METRICS[metric][1] else max
    return better(peers, key=lambda p: statistics.mean(values_of(results[scale, p], metric)))


def difference(ours, theirs, metric):
    """Returns the mean of ours - theirs over the same seeds, and half the width of its 95 % interval."""
    pairs = [a - b for a, b in zip(values_of(ours, metric), values_of(theirs, metric))]
    return statistics.mean(pairs), half_width(pairs)


def print_comparison(results, scale, policy, others):
    """Prints how a policy compares with the best of the others, in each of the figures that count."""
    ours = results[scale, policy]
    for metric in COMPARED:
        best = best_of(results, scale, others, metric)
        by, width = difference(ours, results[scale, best], metric)
        gain = -by if METRICS[metric][1] else by
        word = "equal within the interval to"
        if width is None or abs(by) > width:
            word = "better than" if gain > 0 else "worse than"
        interval = "" if width is None else f" ± {width:.3g}"
        base = statistics.mean(values_of(results[scale, best], metric))
        share = f" ({by / base:+.1%})" if base else ""
        say(f"  {policy}, {metric}: {word} that of {best}, difference {by:+.3g}{interval}{share}")


def comparisons(policies, peers):
    """Returns [(policy of ours, the policies that it is compared with, their common name)]."""
    found = [(ours, peers, "best") for ours in (OURS, EXACT) if ours in policies and peers]
    if OURS in policies and EXACT in policies:
        found.append((EXACT, [OURS], OURS))
    return found


def emit_all(results, scale, workers, policies, peers, more):
    """Prints the JSON lines of one rate."""
    for policy in policies:
        for metric, (unit, _) in METRICS.items():
            values = values_of(results[scale, policy], metric)
            if values:
                emit("replay", metric, statistics.mean(values), unit, policy=policy, scale=scale,
                     workers=workers, seeds=len(values), ci95=half_width(values), simulated=True,
                     **more)
    for ours, others, name in comparisons(policies, peers):
        for metric in COMPARED:
            best = best_of(results, scale, others, metric)
            value = statistics.mean(values_of(results[scale, ours], metric))
            other = statistics.mean(values_of(results[scale, best], metric))
            by, width = difference(results[scale, ours], results[scale, best], metric)
            emit("replay", metric, value, METRICS[metric][0], policy=ours, scale=scale,
                 workers=workers, peer=name, best=best, peer_value=other,
                 ratio=value / other if other else None, difference=by, difference_ci95=width,
                 simulated=True, **more)


def mean_share(runs, worker):
    """Returns a worker's share of the requests, in the mean over the runs."""
    return statistics.mean(run["worker_share"][worker] for run in runs)


def sentence_mixed(runs, workers):
    """Describes a run in which one worker is three times slower."""
    even = 1 / workers
    fair = (1 / 3) / (workers - 1 + 1 / 3)
    return (f"the slow worker got {mean_share(runs, 0):.1%} of the requests; an even share is "
            f"{even:.1%}, one by speed {fair:.1%}")


def sentence_stall(runs, workers):
    """Describes a run in which one worker stands still for a minute."""
    sent = statistics.mean(run["stalled_share"] for run in runs)
    return (f"of the requests that came while the worker stood still it got {sent:.1%} "
            f"(an even share is {1 / workers:.1%})")


def sentence_hot(runs, workers):
    """Describes a run in which one prefix gets more requests than one worker can answer."""
    holders = statistics.mean(run["holders"] for run in runs)
    share = max(mean_share(runs, w) for w in range(workers))
    return (f"in the end {holders:.1f} of {workers} workers held the prefix; the busiest got "
            f"{share:.1%} of the requests, {statistics.mean(values_of(runs, 'cached_share')):.1%} "
            "of all prompt tokens came from a cache")


def sentence_cached(runs, _):
    """Describes a run by how much of the prompts came from caches."""
    return (f"{statistics.mean(values_of(runs, 'cached_share')):.1%} of all prompt tokens came from "
            f"a cache, mean TTFT {statistics.mean(values_of(runs, 'ttft_mean_s')):.2f} s")


def sentence_foretold(runs, workers):
    """Describes a run in which workers' caches change without the router's doing."""
    foretold = values_of(runs, "foretold")
    known = f", {statistics.mean(foretold):.1%} of the hits were foretold" if foretold else ""
    return sentence_cached(runs, workers) + known


def sentence_uniform(runs, _):
    """Describes a run in which nothing can be reused."""
    return (f"busiest worker {statistics.mean(values_of(runs, 'imbalance')):.3f} times the mean, "
            f"mean TTFT {statistics.mean(values_of(runs, 'ttft_mean_s')):.3f} s")


SENTENCES = {"mixed": sentence_mixed, "stall": sentence_stall, "hot_prefix": sentence_hot, "tenants": sentence_cached,
        "agentic": sentence_cached, "programs": sentence_cached, "two_classes": sentence_uniform,
        "uniform": sentence_uniform, "long": sentence_uniform, "short": sentence_uniform,
        "resets": sentence_foretold, "foreign": sentence_foretold}


def say_what_happened(name, results, scale, workers, policies):
    """Prints sentences on what happened in a scenario."""
    say(f"What happened ({name}):")
    for policy in policies:
        runs = results[scale, policy]
        if "worker_share" in runs[0]:
            say(f"  {policy}: {SENTENCES[name](runs, workers)}; "
                f"goodput {statistics.mean(values_of(runs, 'goodput')):.1%}")


def parse_scales(text):
    """Returns the numbers of a list such as 1.5,2."""
    try:
        scales = [float(part) for item in text for part in item.split(",")]
    except ValueError as error:
        raise BenchError(f"--scale: {error}") from error
    return scales


def chosen_policies(options, known):
    """Returns all policies, or the named ones; the limit comes last."""
    if options.policies:
        names = options.policies.split(",")
        for name in names:
            if name not in known and name != LIMIT:
                raise BenchError(f"--policies: no policy {name}; there are: "
                                 f"{', '.join([*known, LIMIT])}")
        return names
    return [*known, LIMIT]


def sources_of(options, scenarios):
    """Returns [(arguments of kvb-replay, name of the source, title)]."""
    names = list(scenarios) if options.scenario == "all" else [options.scenario]
    if options.scenario:
        for name in names:
            if name not in scenarios:
                raise BenchError(f"--scenario: no scenario {name}; there are: all, "
                                 f"{', '.join(scenarios)}")
        return [(["--scenario", name], name, f"{name}: {scenarios[name]}") for name in names]
    trace = options.trace or os.environ.get("TRACE")
    if not trace:
        raise BenchError(f"{WHERE}\nOr --scenario NAME, which needs no trace: "
                         f"all, {', '.join(scenarios)}.")
    name = os.path.basename(trace)
    return [(["--trace", trace], name, f"trace {name}")]


def bench_replay(options):
    """Compares our strategies, the peers and the limit, on a trace or on scenarios."""
    known, scenarios = known_policies(options)
    policies = chosen_policies(options, known)
    peers = [policy for policy in policies if known.get(policy)]
    for source, name, title in sources_of(options, scenarios):
        scenario = source[0] == "--scenario"
        scales = parse_scales(options.scale or (["1"] if scenario else ["1.5", "2"]))
        for workers in options.workers:
            results = run_all(options, source, policies, scales, workers)
            for scale in scales:
                print_table(f"replay, simulated: {title}; {workers} workers, x{scale:g}, "
                            f"{options.seeds} seeds, mean ± 95 % interval", results, scale, policies)
                for ours, others, _ in comparisons(policies, peers):
                    print_comparison(results, scale, ours, others)
                if scenario:
                    say_what_happened(name, results, scale, workers, policies)
                emit_all(results, scale, workers, policies, peers,
                         {"scenario" if scenario else "trace": name})
            if options.plot:
                write_plot(options.plot, f"{title}, {workers} workers (simulated)", {
                    policy: [(scale, values_of(results[scale, policy], "goodput"))
                             for scale in scales] for policy in policies})
                say(f"goodput against load: {options.plot}")
