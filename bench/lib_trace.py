"""The benchmark `trace`: a recorded trace over HTTP through kvway to simulated workers.

Every strategy meets freshly started workers with empty caches and the same requests at the same
moments. Times are those of the simulated workers; which model and GPU they stand for is kvsim's
default profile.
"""

import argparse
import json
import os
import subprocess
import urllib.request

from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, raise_descriptor_limit, wait_ready
from lib_report import emit, say, table
from lib_sim_speed import rates

STRATEGIES = ("roundrobin", "session", "prefixaware")
WHERE = ("TRACE=FILE is needed: requests in Mooncake's format. The public originals are at\n"
         "https://github.com/kvcache-ai/Mooncake, folder FAST25-release/traces\n"
         "(conversation_trace.jsonl, toolagent_trace.jsonl, synthetic_trace.jsonl).")


# Settings that make two runs of one sample equal to the digit: requests reach the router in the
# trace's order (a pause between them, in real time, within a longer lead), and a session's worker is
# its hash's, whatever the others have to do.
IN_ORDER = ("--pause-ms", "2", "--lead-ms", "50")
BY_HASH = {"session": "  session:\n    load_bound: 100\n"}
# A run is doubtful if steps end later than this in the mean, in simulated ms; a step takes 10 to 500.
LATE_MS = 50
# Each worker publishes on free ports; /kv_event_sources names them.
EVENTS = json.dumps({"enable_kv_cache_events": True, "endpoint": "tcp://*:0",
                     "replay_endpoint": "tcp://*:0"})


def start_workers(shop, options, ports, more=()):
    """Starts a kvsim with a worker on each port; more: further options of kvsim."""
    process = shop.start(
        [os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(len(ports)), "--port",
         str(ports[0]), "--speed", f"{options.speed:g}", *more], log="kvsim.out")
    try:
        wait_ready(f"http://127.0.0.1:{ports[-1]}/health", process)
    except BenchError as error:
        raise BenchError(f"kvsim: {error}\n{shop.log_tail('kvsim.out')}") from error


def stats_of(port):
    """Returns the counts of a worker's /sim/stats."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/sim/stats", timeout=10) as answer:
        return json.load(answer)


def sim_stats(ports):
    """Returns the sums of the workers' counts about requests that were sent early."""
    total = {"early": 0, "missed": 0, "late_mean_ms": 0}
    for port in ports:
        one = stats_of(port)
        for key in total:
            total[key] = max(total[key], one[key]) if key == "late_mean_ms" else total[key] + one[key]
    return total


def check_times(options, label, stats):
    """Whether the workers' simulated times are what they claim to be; says so where not."""
    if options.speed != 1 and stats["early"] < options.requests:
        raise BenchError(f"{label}: only {stats['early']} of {options.requests} requests reached the workers "
                         "with x-sim-due: the proxy drops this header")
    if stats["missed"] > options.requests / 50 or stats["late_mean_ms"] * options.speed > LATE_MS:
        say(f"   {label}: {stats['missed']} requests came too late for their first step, steps "
            f"ended {stats['late_mean_ms']:.2f} ms late: the machine is too busy for this speed")


def run_once(options, strategy, workers, trace, same_ports=None):
    """One replay; returns kvbench's result. `same_ports`: a sample to be compared with another, so
    its requests are kept in order; the workers' ports, since session hashes URLs, and kvway's two."""
    say(f"trace: {strategy}, {workers} workers, {options.requests} requests, "
        f"speed {options.speed:g} ...")
    with Workshop() as shop:
        raise_descriptor_limit()
        ports = same_ports or shop.ports(workers + 2)
        start_workers(shop, options, ports[:workers])
        routing = rates(options.speed) + (BY_HASH.get(strategy, "") if same_ports else "")
        proxy = start_kvway(shop, None, ports[workers:], ports[:workers], strategy, options.build,
                            routing=routing)
        result = shop.path("result.json")
        label = f"{strategy}/{workers}"
        subprocess.run(
            [os.path.join(options.build, "bench/load/kvbench"), "trace", "--url",
             f"http://127.0.0.1:{proxy.port}", "--trace", trace, "--requests",
             str(options.requests), "--rate-scale", f"{options.rate_scale * workers / 8:g}",
             "--speed", f"{options.speed:g}", *(IN_ORDER if same_ports else ()), "--label", label,
             "--json", result],
            check=False, stdout=subprocess.DEVNULL)
        try:
            with open(result, encoding="utf-8") as file:
                measured = json.load(file)
        except OSError as error:
            raise BenchError(f"{label}: kvbench wrote no result; kvway said: "
                             f"{shop.log_tail(os.path.basename(proxy.process.args[-1])[:-5] + '.out')}"
                             ) from error
        check_times(options, label, sim_stats(ports[:workers]))
        return measured


AGREE = (("ttft_mean_s_sample", "TTFT mean", lambda r: r["ttft_s"]["mean"]),
         ("ttft_p50_s_sample", "TTFT p50", lambda r: r["ttft_s"]["p50"]),
         ("e2e_mean_s_sample", "E2E mean", lambda r: r["e2e_s"]["mean"]),
         ("cached_share_sample", "cached share", lambda r: r["cached_share"]))


def show_agreement(options, trace):
    """Runs the same first requests at the clock's speed and at --speed; prints what the speed changes."""
    sample = argparse.Namespace(**vars(options))
    sample.requests = options.agree
    workers = options.workers[-1]
    rows = []
    with Workshop() as shop:
        ports = shop.ports(workers + 2)
        for strategy in STRATEGIES:
            sample.speed = options.speed
            fast = run_once(sample, strategy, workers, trace, ports)
            sample.speed = 1.0
            slow = run_once(sample, strategy, workers, trace, ports)
            for metric, name, value in AGREE:
                ratio = value(fast) / value(slow) if value(slow) else None
                rows.append([strategy, name, value(slow), value(fast), ratio or "-"])
                emit("trace", metric, value(fast), "share" if "share" in metric else "s",
                     peer="speed 1", ratio=ratio, peer_value=value(slow), strategy=strategy,
                     workers=workers, simulated=True, speed=options.speed)
    table(f"does speed {options.speed:g} agree with 1? {workers} workers, the first "
          f"{options.agree} requests in order", ["", "", "speed 1", f"speed {options.speed:g}",
                                                 "ratio"], rows)


def trace_of(options):
    """Returns the path of the trace that was named."""
    trace = options.trace or os.environ.get("TRACE")
    if not trace:
        raise BenchError(WHERE)
    return trace


def bench_trace(options):
    """Round robin, session and prefixaware on the same simulated workers."""
    trace = trace_of(options)
    if options.agree and options.speed != 1:
        show_agreement(options, trace)
    for workers in options.workers:
        results = {}
        for strategy in STRATEGIES:
            results[strategy] = run_once(options, strategy, workers, trace)
        rows = []
        for strategy, r in results.items():
            late = (r["late_s"] or {}).get("p99", 0)
            rows.append([strategy, r["ttft_s"]["mean"], r["ttft_s"]["p50"], r["ttft_s"]["p99"],
                         r["tpot_s"]["mean"] * 1000, r["e2e_s"]["mean"], r["goodput"] * 100,
                         (r["cached_share"] or 0) * 100, r["failed"], late])
        table(f"trace {os.path.basename(trace)}, {options.requests} requests, {workers} workers, "
              f"arrivals x{options.rate_scale * workers / 8:g}: simulated, speed {options.speed:g}",
              ["", "TTFT s", "p50", "p99", "TPOT ms", "E2E s", "goodput %", "cached %", "failed",
               "late p99 s"], rows)
        base = results["roundrobin"]
        for strategy, r in results.items():
            more = {"strategy": strategy, "workers": workers, "simulated": True,
                    "speed": options.speed, "failed": r["failed"]}
            for metric, unit, value, other in (
                    ("ttft_mean_s", "s", r["ttft_s"]["mean"], base["ttft_s"]["mean"]),
                    ("cached_share", "share", r["cached_share"], base["cached_share"]),
                    ("goodput", "share", r["goodput"], base["goodput"])):
                emit("trace", metric, value, unit, peer="roundrobin",
                     ratio=value / other if value is not None and other else None, **more)
