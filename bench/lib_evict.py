"""The benchmark `evict`: eviction policies of libkvtier on a trace (bench/evict/kvb-evict).

Nothing is timed: a run is the same on any machine, but for the last digits of a float.
"""

import concurrent.futures
import json
import os
import subprocess

from lib_evict_plot import write_plot
from lib_procs import BenchError
from lib_report import emit, say, table
from lib_trace import WHERE

PROGRAM = "bench/evict/kvb-evict"
CAPACITIES = (0.5, 2, 5, 10, 20)  # in percent of the trace's distinct chunks
OPTIMUM = "optimum"
BASELINE = "lru"
DEFAULT = "default"


def program(options):
    """Returns the path of the built kvb-evict."""
    return os.path.join(options.build, PROGRAM)


def known(options):
    """Returns what kvb-evict knows: its policies, the default policy, and {scenario: description}."""
    text = subprocess.run([program(options), "--list"], check=True, capture_output=True,
                          text=True).stdout
    listed = json.loads(text)
    return (listed["policies"], listed["default"],
            {s["name"]: s["what"] for s in listed["scenarios"]})


def run_one(options, source, policy, capacity):
    """Runs one policy at one capacity; returns the figures."""
    command = [program(options), *source, "--policy", policy, "--capacity", f"{capacity:g}"]
    if options.requests and source[0] == "--trace":
        command += ["--requests", str(options.requests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def run_all(options, source, policies):
    """Runs all policies at all capacities; returns {(policy, capacity): figures}."""
    jobs = [(policy, capacity) for policy in policies for capacity in CAPACITIES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = pool.map(lambda job: run_one(options, source, *job), jobs)
        return dict(zip(jobs, done))


def print_table(title, results, policies, key):
    """Prints the table of one figure: a row per policy, a column per capacity."""
    table(title, ["", *(f"{capacity:g} %" for capacity in CAPACITIES)],
          [[policy, *(f"{results[policy, capacity][key]:.4f}" for capacity in CAPACITIES)]
           for policy in policies])


def emit_all(results, policies, what):
    """Prints JSON lines: each policy at each capacity against LRU and against the optimum."""
    for policy in policies:
        for capacity in CAPACITIES:
            ours = results[policy, capacity]
            for peer in (BASELINE, OPTIMUM):
                theirs = results[peer, capacity]
                if peer == policy:
                    continue
                for metric in ("hit_rate", "saved"):
                    if metric == "saved" and peer == OPTIMUM:
                        continue  # the optimum maximises hits and no other figure
                    ratio = ours[metric] / theirs[metric] if theirs[metric] else 1.0
                    emit("evict", metric, ours[metric], "share", policy=policy,
                         capacity=capacity / 100, chunks=ours["chunks"], peer=peer, ratio=ratio,
                         peer_value=theirs[metric], **what)


def sources_of(options, scenarios):
    """Returns [(arguments of kvb-evict, members that name the source in a JSON line, title)]."""
    if options.scenario:
        names = list(scenarios) if options.scenario == "all" else [options.scenario]
        for name in names:
            if name not in scenarios:
                raise BenchError(f"--scenario: no scenario {name}; there are: all, "
                                 f"{', '.join(scenarios)}")
        return [(["--scenario", name], {"scenario": name}, f"{name}: {scenarios[name]}")
                for name in names]
    trace = options.trace or os.environ.get("TRACE")
    if not trace:
        raise BenchError(f"{WHERE}\nOr --scenario NAME, which needs no trace: "
                         f"all, {', '.join(scenarios)}.")
    name = os.path.basename(trace)
    return [(["--trace", trace], {"trace": name}, f"trace {name}")]


def chosen(options, policies):
    """Returns all policies, or the named ones and those that they are compared with."""
    names = options.policies.split(",") if options.policies else [*policies, DEFAULT]
    for name in names:
        if name not in (*policies, DEFAULT, OPTIMUM):
            raise BenchError(f"--policies: no policy {name}; there are: "
                             f"{', '.join([*policies, DEFAULT, OPTIMUM])}")
    return [*dict.fromkeys([BASELINE, *names, OPTIMUM])]


def bench_evict(options):
    """Measures every policy at several capacities, against LRU and the offline optimum."""
    policies, default, scenarios = known(options)
    names = chosen(options, policies)
    for source, what, title in sources_of(options, scenarios):
        results = run_all(options, source, names)
        some = results[BASELINE, CAPACITIES[0]]
        print_table(f"evict, {title}: share of chunks that were there with all before them; room in "
                    f"percent of {some['distinct']} chunks; `default` is {default}",
                    results, names, "hit_rate")
        print_table("the same, each chunk by the time that computing it again takes",
                    results, [name for name in names if name != OPTIMUM], "saved")
        emit_all(results, [name for name in names if name != OPTIMUM], what)
        if options.plot:
            write_plot(options.plot, f"hit rate, {title}", {
                name: [(capacity, results[name, capacity]["hit_rate"]) for capacity in CAPACITIES]
                for name in names if name != DEFAULT}, default, OPTIMUM)
            say(f"hit rate against room: {options.plot}")
