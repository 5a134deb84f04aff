"""The benchmark `trace`: a recorded trace over HTTP through kvway to simulated workers.

Every strategy meets freshly started workers with empty caches and the same requests at the same
moments. Times are those of the simulated workers; which model and GPU they stand for is kvsim's
default profile.
"""

import argparse
import json
import os
import subprocess

from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, free_ports, raise_descriptor_limit, wait_ready
from lib_report import emit, say, table

STRATEGIES = ("roundrobin", "session", "prefixaware")
WHERE = ("TRACE=FILE is needed: requests in Mooncake's format. The public originals are at\n"
         "https://github.com/kvcache-ai/Mooncake, folder FAST25-release/traces\n"
         "(conversation_trace.jsonl, toolagent_trace.jsonl, synthetic_trace.jsonl).")


def start_workers(shop, options, count):
    """kvsim with `count` workers; returns their ports."""
    ports_file = shop.path("workers")
    process = shop.start(
        [os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(count), "--ports-file",
         ports_file, "--speed", f"{options.speed:g}"], log="kvsim.out")
    while not os.path.exists(ports_file):
        if process.poll() is not None:
            raise BenchError(f"kvsim ended: {shop.log_tail('kvsim.out')}")
    with open(ports_file, encoding="utf-8") as file:
        ports = [int(line.rstrip("/\n").rsplit(":", 1)[1]) for line in file]
    wait_ready(f"http://127.0.0.1:{ports[-1]}/health", process)
    return ports


def run_once(options, strategy, workers, trace):
    """One replay; returns kvbench's result."""
    say(f"trace: {strategy}, {workers} workers, {options.requests} requests, "
        f"speed {options.speed:g} ...")
    with Workshop() as shop:
        raise_descriptor_limit()
        ports = start_workers(shop, options, workers)
        proxy = start_kvway(shop, None, free_ports(2), ports, strategy, options.build)
        result = shop.path("result.json")
        label = f"{strategy}/{workers}"
        subprocess.run(
            [os.path.join(options.build, "bench/load/kvbench"), "trace", "--url",
             f"http://127.0.0.1:{proxy.port}", "--trace", trace, "--requests",
             str(options.requests), "--rate-scale", f"{options.rate_scale * workers / 8:g}",
             "--speed", f"{options.speed:g}", "--label", label, "--json", result],
            check=False, stdout=subprocess.DEVNULL)
        try:
            with open(result, encoding="utf-8") as file:
                return json.load(file)
        except OSError as error:
            raise BenchError(f"{label}: kvbench wrote no result; kvway said: "
                             f"{shop.log_tail(os.path.basename(proxy.process.args[-1])[:-5] + '.out')}"
                             ) from error


def show_agreement(options, trace):
    """The same first requests at the clock's speed and at the one used: what the speed changes."""
    sample = argparse.Namespace(**vars(options))
    sample.requests = options.agree
    workers = options.workers[-1]
    fast = run_once(sample, "session", workers, trace)
    sample.speed = 1.0
    slow = run_once(sample, "session", workers, trace)
    rows = []
    for name, value in (("TTFT mean s", lambda r: r["ttft_s"]["mean"]),
                        ("TPOT mean s", lambda r: r["tpot_s"]["mean"]),
                        ("E2E mean s", lambda r: r["e2e_s"]["mean"]),
                        ("cached share", lambda r: r["cached_share"])):
        rows.append([name, value(slow), value(fast),
                     value(fast) / value(slow) if value(slow) else "-"])
    table(f"does speed {options.speed:g} agree with 1? session, {workers} workers, the first "
          f"{options.agree} requests", ["", "speed 1", f"speed {options.speed:g}", "ratio"], rows)
    emit("trace", "ttft_mean_s_sample", fast["ttft_s"]["mean"], "s", peer="speed 1",
         ratio=fast["ttft_s"]["mean"] / slow["ttft_s"]["mean"],
         peer_value=slow["ttft_s"]["mean"], strategy="session", workers=workers,
         simulated=True, speed=options.speed)


def bench_trace(options):
    """Round robin, session and prefixaware on the same simulated workers."""
    trace = options.trace or os.environ.get("TRACE")
    if not trace:
        raise BenchError(WHERE)
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
