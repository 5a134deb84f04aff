"""The benchmark `tables`: what vendors have published, run again on simulated workers with real tiers.

Each table of lib_tables_facts.py is run at its middle point and along its sweeps, both arms at each point,
through kvway, with the workloads of `lmcache bench engine` as kvbench has them. A figure's gain is ours /
base; it reproduces the published one where it lies within TOLERANCE of it. Every figure is a simulated one:
the GPU and the transfers are models (kvsim --list-profiles, --list-links), the caches and the router are
real, payloads are shrunk, and time runs --speed times as fast.
"""

import argparse
import concurrent.futures
import contextlib
import copy
import json
import os
import statistics
import subprocess

import lib_tables_thresholds as thresholds
from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, free_ports, raise_descriptor_limit, wait_ready
from lib_report import emit, say, table
from lib_sim_speed import limits, rates
from lib_sim_times import answers_of, percentile, times_of, ttfts
from lib_tables_daemon import kvtierd, redis
from lib_tables_facts import tables
from lib_tables_plot import short, write_plot
from lib_trace import EVENTS, LATE_MS, sim_stats

TARGETS = ["bench/sim/kvsim", "bench/load/kvbench", "cache/daemon/kvtierd"]
TOLERANCE = 0.15  # of a published ratio
AT_ONCE = 2  # runs at the same time
SHRINK = 8192  # payloads; what a chunk counts and how long it travels is that of its full size
CHUNK = 256  # tokens
SPARE = 1.3  # of the shared tier's room: for what is replaced, and for reading in
TEMPLATE = 20  # tokens that a round of a talk has besides
# kvsim cuts ASCII text every four characters; the filler words of these workloads have five or three,
# the space included. Lengths are stretched so that prompts have the tokens that are asked for.
STRETCH = {"mrc-shared-prompt-length": 4 / 5, "mrc-chat-history-length": 4 / 3,
           "mrc-user-input-length": 4 / 5, "ldqa-document-length": 4 / 3}

LENGTHS = ("mrc-shared-prompt-length", "mrc-chat-history-length", "ldqa-document-length")


def figures_of(workers):
    """Figures from the workers' /sim/times. The warm-up's answers have one token."""
    rows = [row for row in answers_of(workers) if row["generated_tokens"] > 1]
    if not rows:
        raise BenchError("no request was answered")
    ttft = ttfts(rows)
    itl = [(row["end_ns"] - row["first_ns"]) / 1e9 / (row["generated_tokens"] - 1) for row in rows]
    elapsed = (max(row["end_ns"] for row in rows) - min(row["submit_ns"] for row in rows)) / 1e9
    return {
        "requests": len(rows), "elapsed": elapsed, "ttft_mean": statistics.mean(ttft),
        "ttft_p50": percentile(ttft, 50), "ttft_p90": percentile(ttft, 90),
        "itl_p50": percentile(itl, 50), "itl_p90": percentile(itl, 90),
        "output_tokens_per_s": sum(row["generated_tokens"] for row in rows) / elapsed,
    }


def sim_arguments(fleet, ports, options, shop, l2):
    """kvsim's command line for a fleet."""
    args = [os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(fleet.workers), "--port",
            str(ports[0]), "--profile", fleet.profile, "--kv-tokens", str(fleet.kv_tokens), "--speed",
            f"{options.speed:g}"]
    if fleet.prefill_rate:
        args += ["--prefill-rate", f"{fleet.prefill_rate:g}"]
    if fleet.l1_bytes:
        args += ["--l1", str(fleet.l1_bytes), "--shrink", str(SHRINK)]
    if fleet.nvme_bytes:
        args += ["--nvme", f"{shop.path('nvme')}:{fleet.nvme_bytes}"]
    if l2:
        args += ["--l2", l2.url]
        if l2.segment:
            args += ["--l2-segment", l2.segment]
    if fleet.strategy == "kvaware":
        args += ["--kv-events-config", EVENTS]
    if fleet.l2 and fleet.l2_bytes_per_s:
        args += ["--link", f"l2={fleet.l2_bytes_per_s:g}"]
    return args


def chunks_of(workload):
    """That all talks have at their ends, at most."""
    said = workload.options
    rounds = said["mrc-qps"] * said["mrc-duration"] / workload.count + 2
    tokens = (said["mrc-shared-prompt-length"] + said["mrc-chat-history-length"]
              + rounds * (said["mrc-user-input-length"] + said["mrc-output-length"] + TEMPLATE))
    return int(workload.count * (int(tokens / CHUNK) + 1) * SPARE)


def shared_tier(shop, fleet, workload, options):
    """The shared tier as a context; its value is None where there is none."""
    if fleet.l2 == "kvtierd":
        return kvtierd(shop, options, chunks_of(workload))
    if fleet.l2 == "redis":
        return redis(shop)
    return contextlib.nullcontext()


def bench_command(workload, options, port, folder):
    """kvbench's command line."""
    args = [os.path.join(options.build, "bench/load/kvbench"), workload.name, "--engine-url",
            f"http://127.0.0.1:{port}", "--output-dir", folder, "--ignore-eos", "--quiet",
            "--session-header", "x-user-id", "--speed", f"{options.speed:g}"]
    said = {name: round(value * STRETCH[name]) if name in STRETCH else value
            for name, value in workload.options.items()}
    # How many there are is the volume divided by the length of one.
    length = sum(said.get(name, 0) for name in LENGTHS)
    said["tokens-per-gb-kvcache"] = -(-workload.count * length // said["kv-cache-volume"])
    return args + [word for name, value in said.items() for word in (f"--{name}", f"{value}")]


def check_late(fleet, ports, options):
    """Says where the machine was too busy for this speed."""
    late = sim_stats(ports)["late_mean_ms"] * options.speed
    if late > LATE_MS:
        say(f"tables: {fleet.strategy}, {fleet.workers} workers: steps ended {late:.0f} simulated ms late: the "
            "machine is too busy for this speed")


def run_arm(fleet, workload, options):
    """One run; its figures."""
    with Workshop() as shop, shared_tier(shop, fleet, workload, options) as l2:
        ports = free_ports(fleet.workers + 2)
        sim = shop.start(sim_arguments(fleet, ports, options, shop, l2), log="kvsim.out")
        try:
            wait_ready(f"http://127.0.0.1:{ports[fleet.workers - 1]}/health", sim, 60)
        except BenchError as error:
            raise BenchError(f"kvsim: {error}\n{shop.log_tail('kvsim.out')}") from error
        proxy = start_kvway(shop, None, ports[fleet.workers:], ports[:fleet.workers], fleet.strategy,
                            options.build, routing=rates(options.speed), extra=limits(options.speed))
        done = subprocess.run(bench_command(workload, options, proxy.port, shop.folder), check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"{workload.name}: kvbench: {done.stderr.strip()[-300:]}")
        check_late(fleet, ports[:fleet.workers], options)
        if l2:
            l2.check()
        return figures_of([times_of(port) for port in ports[:fleet.workers]])


def key_of(fleet, workload):
    """The same run is made once: an arm without the tier that is swept does not change."""
    fleet = copy.deepcopy(fleet)
    if not fleet.l2:
        fleet.l2_bytes_per_s = 0
    return json.dumps([vars(fleet), vars(workload)], sort_keys=True)


def points_of(spec):
    """[(sweep or None, value, base, ours, workload)], the middle first."""
    points = [(None, None, spec.base, spec.ours, spec.workload)]
    for sweep in spec.sweeps:
        for value in sweep.values:
            base, ours, workload = copy.deepcopy((spec.base, spec.ours, spec.workload))
            for fleet in (base, ours):
                sweep.apply(fleet, workload, value)
            points.append((sweep, value, base, ours, workload))
    return points


def run_points(spec, options):
    """[(sweep, value, figures of base, figures of ours)]."""
    points = points_of(spec)
    if options.small:
        points = points[:1]
    jobs = {}
    for _, _, base, ours, workload in points:
        for fleet in (base, ours):
            jobs.setdefault(key_of(fleet, workload), (fleet, workload))
    done, results = 0, {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {pool.submit(run_arm, fleet, workload, options): key
                   for key, (fleet, workload) in jobs.items()}
        for future in concurrent.futures.as_completed(futures):
            results[futures[future]] = future.result()
            done += 1
            say(f"tables: {spec.name}: {done} of {len(jobs)} runs")
    return [(sweep, value, results[key_of(base, workload)], results[key_of(ours, workload)])
            for sweep, value, base, ours, workload in points]


def gain(base, ours, figure):
    """ours / base."""
    return ours[figure] / base[figure] if base[figure] else float("nan")


def label_of(sweep, value):
    """A point, for people."""
    return "middle" if sweep is None else f"{sweep.name} {short(value)} {sweep.unit}".strip()


def hits(spec, base, ours):
    """Published figures that this point reproduces."""
    return [name for name, wanted in spec.ratios.items()
            if abs(gain(base, ours, name) / wanted - 1) <= TOLERANCE]


def sentence(spec, measured):
    """What explains the published gain, in words."""
    best = max(measured, key=lambda point: len(hits(spec, *point[2:])))
    count = len(hits(spec, *best[2:]))
    missed = [name for name in spec.ratios if name not in hits(spec, *best[2:])]
    if count == len(spec.ratios):
        return (f"All {count} published gains lie within {TOLERANCE:.0%} at one point: "
                f"{label_of(*best[:2])}.")
    reached = [name for name in spec.ratios if any(name in hits(spec, *p[2:]) for p in measured)]
    never = [name for name in spec.ratios if name not in reached]
    text = (f"No point has all {len(spec.ratios)} published gains; the nearest, {label_of(*best[:2])}, has "
            f"{count} and misses {', '.join(missed)}.")
    if never:
        text += (f" No point of the sweep has that of {', '.join(never)}: the published facts do not suffice "
                 "to reproduce it.")
    return text


def show(spec, measured, options):
    """Assumptions, both arms in the middle, gains along the sweeps."""
    say(f"\n== {spec.title}  [simulated]\n   published by {spec.source}")
    for words, lines in (("published", spec.facts), ("assumed", spec.assumptions)):
        for line in lines:
            say(f"   {words}: {line}")
    _, _, base, ours = measured[0]
    rows = []
    for name, wanted in spec.ratios.items():
        published = spec.published.get(name, ("-", "-"))
        rows.append([name, published[0], published[1], wanted, base[name], ours[name], gain(base, ours, name)])
    table(f"{spec.name}: the middle point, simulated",
          ["", "published base", "published ours", "gain", "base", "ours", "gain"], rows)
    rows = [[label_of(sweep, value)] + [gain(base, ours, name) for name in spec.ratios]
            for sweep, value, base, ours in measured]
    rows.append(["published", *spec.ratios.values()])
    table(f"{spec.name}: gains (ours / base) along the sweeps, simulated", ["", *spec.ratios], rows)
    say(f"   a real millisecond is {options.speed:g} simulated ones: times to first token of a few hundredths of a "
        "second differ by that")
    say(f"   {sentence(spec, measured)}")


def emit_json(spec, measured, options):
    """JSON lines: of each published figure the point that comes nearest."""
    for name, wanted in spec.ratios.items():
        sweep, value, base, ours = min(
            measured, key=lambda p: abs(gain(p[2], p[3], name) / wanted - 1))
        found = gain(base, ours, name)
        emit("tables", "gain", found, "ratio", peer="published", ratio=found / wanted, peer_value=wanted,
             table=spec.name, figure=name, point=label_of(sweep, value),
             reproduced=abs(found / wanted - 1) <= TOLERANCE, simulated=True, speed=options.speed)


def with_speed(spec, asked):
    """The options, at the speed that a table allows."""
    options = argparse.Namespace(**vars(asked))
    options.speed = min(asked.speed, spec.most_speed)
    return options


def bench_tables(asked):
    """All tables, or those that --table names."""
    raise_descriptor_limit()
    folder = asked.plots or os.path.join(asked.build, "tables")
    os.makedirs(folder, exist_ok=True)
    for spec in tables():
        if asked.table and spec.name not in asked.table:
            continue
        options = with_speed(spec, asked)
        measured = run_points(spec, options)
        show(spec, measured, options)
        emit_json(spec, measured, options)
        path = os.path.join(folder, f"{spec.name}.svg")
        write_plot(path, spec, [(sweep, value, {name: gain(base, ours, name) for name in spec.ratios})
                                for sweep, value, base, ours in measured])
        say(f"   {path}")
    if not asked.table or thresholds.NAME in asked.table:
        thresholds.show(TOLERANCE)
        thresholds.emit_json(TOLERANCE)
        path = os.path.join(folder, f"{thresholds.NAME}.svg")
        thresholds.write_plot(path)
        say(f"   {path}")
