"""The benchmark `tables`: what vendors have published, run again on simulated workers with real tiers.

Each table of lib_tables_facts.py is run at its middle point and along its sweeps, both arms at each point,
through kvway, with the workloads of `lmcache bench engine` as kvbench has them. A figure's gain is ours /
base; it reproduces the published one where it lies within TOLERANCE of it. Times are the client's
(lib_tables_client.py). Every figure is a simulated one: the GPU and the transfers are models (kvsim
--list-profiles, --list-links), the caches and the router are real, payloads are shrunk, and time runs --speed
times as fast, kvway's time limits with it (lib_sim_speed.py). The table `printed` is in lib_tables_printed.py.
"""

import argparse
import concurrent.futures
import copy
import json
import os

import lib_tables_printed as printed
import lib_tables_thresholds as thresholds
from lib_procs import BenchError, raise_descriptor_limit
from lib_report import cell, emit, say, table
from lib_tables_facts import tables
from lib_tables_plot import short, write_plot
from lib_tables_run import TARGETS, run_arm

__all__ = ["TARGETS", "bench_tables"]
SPEED = 5.0  # default of --speed; the table `printed` has 1
TOLERANCE = 0.15  # share by which a gain may differ from the published ratio
SHARE_TOLERANCE = 0.01  # amount by which a share may differ from the published one
SHARES = ("success",)
AT_ONCE = 2  # runs that are made at the same time
# Further figures: what the client sees besides the published ones, and what workers measure of the same requests.
MORE = ("success", "sent", "requests", "refused", "ttft_p50", "ttft_p90", "worker_ttft_p50", "worker_ttft_p90", "itl_p50",
        "output_tokens_per_s", "cost", "cached_share", "loaded_l2")
# Figures by which shared tiers are compared, which direction is better, and the share by which two equal runs differ.
LESS, MOST, NOISE = ("ttft_p50", "ttft_p90"), ("output_tokens_per_s",), 0.02


def key_of(fleet, workload):
    """Returns a key under which equal runs are made once: an arm without the swept tier is the same at all points."""
    fleet = copy.deepcopy(fleet)
    for there, rate in ((fleet.l1_bytes, "gpu_bytes_per_s"), (fleet.nvme_bytes, "nvme_bytes_per_s"),
                        (fleet.l2, "l2_bytes_per_s")):
        if not there:
            setattr(fleet, rate, 0)
    return json.dumps([vars(fleet), vars(workload)], sort_keys=True)


def points_of(spec):
    """Returns [(sweep or None, value, base, ours, workload)], the middle point first."""
    points = [(None, None, spec.base, spec.ours, spec.workload)]
    for sweep in spec.sweeps:
        for value in sweep.values:
            base, ours, workload = copy.deepcopy((spec.base, spec.ours, spec.workload))
            for fleet in (base, ours):
                sweep.apply(fleet, workload, value)
            points.append((sweep, value, base, ours, workload))
    return points


def run_points(spec, options):
    """Runs all points; returns [(sweep, value, figures of base, figures of ours)] and {where: {name: figures}} of the other arms."""
    points = points_of(spec)
    if options.small:
        points = points[:1]
    jobs = {}
    for _, _, base, ours, workload in points:
        for fleet in (base, ours):
            jobs.setdefault(key_of(fleet, workload), (fleet, workload))
    for fleet in (fleet for arms in spec.others.values() for fleet in arms.values()):
        jobs.setdefault(key_of(fleet, spec.workload), (fleet, spec.workload))
    done, results = 0, {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {pool.submit(run_arm, fleet, workload, options): key
                   for key, (fleet, workload) in jobs.items()}
        for future in concurrent.futures.as_completed(futures):
            results[futures[future]] = future.result()
            done += 1
            say(f"tables: {spec.name}: {done} of {len(jobs)} runs")
    return ([(sweep, value, results[key_of(base, workload)], results[key_of(ours, workload)])
             for sweep, value, base, ours, workload in points],
            {where: {name: results[key_of(fleet, spec.workload)] for name, fleet in arms.items()}
             for where, arms in spec.others.items()})


def gain(base, ours, figure):
    """Returns ours / base."""
    return ours[figure] / base[figure] if base[figure] else float("nan")


def label_of(sweep, value):
    """Returns a point's name for people."""
    return "middle" if sweep is None else f"{sweep.name} {short(value)} {sweep.unit}".strip()


def reproduces(spec, base, ours, name):
    """Returns whether this point reproduces one published figure: its gain or, where the figure is a share, both arms' values."""
    if name in SHARES:
        return all(abs(arm[name] - wanted) <= SHARE_TOLERANCE
                   for arm, wanted in zip((base, ours), spec.published[name]))
    return abs(gain(base, ours, name) / spec.ratios[name] - 1) <= TOLERANCE


def hits(spec, base, ours):
    """Returns the published figures that this point reproduces."""
    return [name for name in spec.ratios if reproduces(spec, base, ours, name)]


def sentence(spec, measured):
    """Returns a sentence on the assumptions that explain the published gain."""
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
        text += (f" Not reproducible, since no point of the sweep has it: {', '.join(never)}. The published facts do "
                 "not suffice.")
    return text


def show(spec, measured, options):
    """Prints the assumptions, both arms at the middle point, and the gains along the sweeps."""
    say(f"\n== {spec.title}  [simulated]\n   published by {spec.source}")
    for words, lines in (("published", spec.facts), ("assumed", spec.assumptions)):
        for line in lines:
            say(f"   {words}: {line}")
    _, _, base, ours = measured[0]
    rows = []
    for name, wanted in spec.ratios.items():
        published = spec.published.get(name, ("-", "-"))
        rows.append([name, published[0], published[1], wanted, base[name], ours[name], gain(base, ours, name)])
    for name in MORE:
        if name in base and name in ours and name not in spec.ratios:
            rows.append([name, "-", "-", "-", base[name], ours[name], gain(base, ours, name)])
    table(f"{spec.name}: the middle point at the client (worker_: at the workers, without what waits at kvway), "
          "simulated", ["", "published base", "published ours", "gain", "base", "ours", "gain"], rows)
    rows = [[label_of(sweep, value)] + [gain(base, ours, name) for name in spec.ratios]
            for sweep, value, base, ours in measured]
    rows.append(["published", *spec.ratios.values()])
    table(f"{spec.name}: gains (ours / base) along the sweeps, simulated", ["", *spec.ratios], rows)
    say(f"   a real millisecond is {options.speed:g} simulated ones: times to first token of a few hundredths of a "
        "second differ by that; kvway's time limits are divided by the speed, but for constants of its admission of "
        "0.1 to 2 s that no key names")
    say(f"   {sentence(spec, measured)}")


def nearest(spec, measured, name):
    """Returns the point whose gain is nearest to the published one."""
    return min(measured, key=lambda p: abs(gain(p[2], p[3], name) / spec.ratios[name] - 1))


def pair_of(base, ours):
    """Returns two figures as text for a page."""
    return f"{cell(base, 3)}, {cell(ours, 3)}"


def page_rows(spec, measured):
    """Returns rows of bench/tables/README.md: both arms' figures where they are published, gains, and which of them are reproduced."""
    for name, wanted in spec.ratios.items():
        sweep, value, base, ours = nearest(spec, measured, name)
        middle = measured[0][2:]
        reached = any(reproduces(spec, *point[2:], name) for point in measured)
        yield (f"| {spec.name} | {name} | {pair_of(*spec.published[name]) if name in spec.published else '-'} | "
               f"{pair_of(*(arm[name] for arm in middle))} | {wanted:.3g} | {gain(*middle, name):.3g} | "
               f"{gain(base, ours, name):.3g}: {label_of(sweep, value)} | {'reproduced' if reached else 'not reproducible'} |")


def emit_json(spec, measured, options):
    """Prints a JSON line for each published figure, with the point that is nearest to it."""
    for name, wanted in spec.ratios.items():
        sweep, value, base, ours = nearest(spec, measured, name)
        found = gain(base, ours, name)
        emit("tables", "gain", found, "ratio", peer="published", ratio=found / wanted, peer_value=wanted,
             table=spec.name, figure=name, point=label_of(sweep, value),
             reproduced=any(reproduces(spec, *point[2:], name) for point in measured), base=base[name],
             ours=ours[name], simulated=True, speed=options.speed)


def order_of(first, other, key):
    """Returns 1 where the first is better, -1 where it is worse, 0 where both are equal within the noise."""
    ratio = gain(other, first, key)
    if abs(ratio - 1) <= NOISE:
        return 0
    return 1 if (ratio < 1) == (key in LESS) else -1


def show_others(spec, others):
    """Prints arms that differ in the shared tier alone, and whether the published order holds."""
    for where, arms in others.items():
        (first, ours), *rest = arms.items()
        names = [name for name in MORE if name in ours]
        table(f"{spec.name}: {where}, at the client, simulated", ["", *names],
              [[name, *(figures[key] for key in names)] for name, figures in arms.items()])
        for name, figures in rest:
            orders = {key: order_of(ours, figures, key) for key in (*LESS, *MOST)}
            words = [f"{word} in {', '.join(found)}" for word, sign in (("better", 1), ("alike", 0), ("worse", -1))
                     if (found := [key for key, order in orders.items() if order == sign])]
            read = "" if ours["loaded_l2"] else "; the shared tier was not read at all, so that this says nothing of it"
            say(f"   {first} against {name}: {'; '.join(words)}{read}")
            for key in orders:
                emit("tables", "against_other", ours[key], "1", peer=name, ratio=gain(figures, ours, key),
                     peer_value=figures[key], table=spec.name, where=where, figure=key, loaded_l2=ours["loaded_l2"],
                     simulated=True)
    if others:
        say(f"   published: {spec.claim}")


def with_speed(most, asked):
    """Returns the options with a speed that the table allows."""
    options = argparse.Namespace(**vars(asked))
    options.speed = min(asked.speed or SPEED, most)
    return options


def wanted(asked, name):
    """Is this table asked for? `printed`, which takes an hour at the clock's speed, only by its name."""
    return name in asked.table if asked.table else name != printed.NAME


def check_names(names):
    """Raises BenchError for an unknown table."""
    known = [printed.NAME, *(spec.name for spec in tables()), thresholds.NAME]
    for name in names or []:
        if name not in known:
            raise BenchError(f"--table {name}: there are {', '.join(known)}")


def bench_tables(asked):
    """Runs all tables, or those that --table names."""
    raise_descriptor_limit()
    folder = asked.plots or os.path.join(asked.build, "tables")
    os.makedirs(folder, exist_ok=True)
    check_names(asked.table)
    if wanted(asked, printed.NAME):
        printed.bench_printed(asked)
    for spec in tables():
        if not wanted(asked, spec.name):
            continue
        options = with_speed(spec.most_speed, asked)
        measured, others = run_points(spec, options)
        show(spec, measured, options)
        emit_json(spec, measured, options)
        show_others(spec, others)
        say("\n".join(f"   {row}" for row in page_rows(spec, measured)))
        path = os.path.join(folder, f"{spec.name}.svg")
        write_plot(path, spec, [(sweep, value, {name: gain(base, ours, name) for name in spec.ratios})
                                for sweep, value, base, ours in measured])
        say(f"   {path}")
    if wanted(asked, thresholds.NAME):
        thresholds.BUILD = asked.build
        thresholds.show(TOLERANCE)
        thresholds.emit_json(TOLERANCE)
        path = os.path.join(folder, f"{thresholds.NAME}.svg")
        thresholds.write_plot(path)
        say(f"   {path}")
