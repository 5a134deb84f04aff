"""`trace --overload`: what admission is worth over HTTP, with simulated workers at the clock's speed.

A recorded trace at a multiple of its rate goes through kvway with admission and a service level, through kvway without
admission, and through HAProxy with a bound for each worker and a queue that times out. Clients that are refused come back
when the answer says so, a few times; their waiting counts. A request that is refused for good is a promise that was not
kept, like a late one.

Admission learns over half a minute and a minute of real time, so the workers are no faster than the clock.
"""

import json
import os
import subprocess
import urllib.request

from lib_peers import Proxy, fill, start_kvway, wait_listening, write
from lib_procs import BenchError, Workshop, raise_descriptor_limit
from lib_report import emit, say, table
from lib_trace import check_times, sim_stats, start_workers

ARMS = ("kvway", "kvway without admission", "HAProxy")
# HAProxy's bounds as in bench/replay/admission_bounded.c, tuned for the public conversation trace.
BOUND = 16
QUEUE = "1200ms"
# Limits of a good answer that kvbench has by default.
PROMISE = """service_level:
  ttft: 2s
  ttft_per_1k_tokens: 122ms
  tpot: 100ms
"""
PROFILE = "reference-kv"
METRICS = (("overload_goodput", "share", "goodput"), ("overload_ttft_p99_s", "s", "ttft_p99_s"),
           ("overload_refused_share", "share", "refused_share"),
           ("overload_retries_per_request", "1", "retries"))


def start_bounded(shop, core, port, workers, limit):
    """Starts HAProxy with a bound for each worker."""
    servers = "".join(f"\tserver w{number} 127.0.0.1:{worker}\n" for number, worker in enumerate(workers))
    text = fill("haproxy-bounded.cfg.in", {"PORT": port, "MAXCONN": min(20000, (limit - 200) // 2), "BOUND": BOUND,
                                           "QUEUE": QUEUE, "SERVERS": servers})
    path = write(shop, "haproxy-bounded.cfg", text)
    log = "haproxy-bounded.out"
    try:
        process = shop.start(["haproxy", "-db", "-f", path], core=core, log=log)
    except OSError as error:
        raise BenchError(f"haproxy: {error}") from error
    wait_listening("haproxy", port, process, lambda: shop.log_tail(log))
    return Proxy("HAProxy", port, process, process.pid)


def start_arm(shop, options, arm, ports, limit):
    """Starts the router of one row; the last two ports are its own."""
    if arm == "HAProxy":
        return start_bounded(shop, None, ports[-2], ports[:-2], limit)
    enabled = arm == ARMS[0]
    extra = f"admission:\n  enabled: {json.dumps(enabled)}\n" + (PROMISE if enabled else "")
    return start_kvway(shop, None, ports[-2:], ports[:-2], "prefixaware", options.build, extra=extra)


def counts(port):
    """Returns {name: value} of kvway's metrics that have no labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        rows = [line.split() for line in answer.read().decode().splitlines() if line[:1] != "#"]
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and "{" not in row[0]}


def figures_of(measured):
    """Returns the figures of kvbench's result that are compared."""
    total = measured["completed"] + measured["failed"]
    refused = sum(measured["errors"].get(f"status {status}", 0) for status in (429, 503))
    return {"goodput": measured["goodput"], "ttft_p99_s": (measured["ttft_s"] or {}).get("p99"),
            "ttft_p50_s": (measured["ttft_s"] or {}).get("p50"), "requests": total,
            "refused_share": refused / total, "retries": measured["retried"] / total,
            "failed_otherwise": measured["failed"] - refused, "errors": measured["errors"]}


def run_arm(options, arm, workers, trace):
    """Replays the trace once through one router, to fresh workers."""
    limit = raise_descriptor_limit()
    with Workshop() as shop:
        ports = shop.ports(workers + 2)
        start_workers(shop, options, ports[:-2], ("--profile", PROFILE))
        router = start_arm(shop, options, arm, ports, limit)
        result = shop.path("result.json")
        subprocess.run(
            [os.path.join(options.build, "bench/load/kvbench"), "trace", "--url", f"http://127.0.0.1:{router.port}",
             "--trace", trace, "--requests", str(options.requests), "--rate-scale",
             f"{options.rate_scale * workers / 8:g}", "--speed", f"{options.speed:g}", "--retries",
             str(options.retries), "--label", arm, "--json", result],
            check=False, stdout=subprocess.DEVNULL)
        try:
            with open(result, encoding="utf-8") as file:
                figures = figures_of(json.load(file))
        except OSError as error:
            raise BenchError(f"{arm}: kvbench wrote no result") from error
        check_times(options, arm, sim_stats(ports[:-2]))
        figures["waited"] = None
        if arm == ARMS[0]:
            figures["waited"] = counts(ports[-1]).get("kvway_waited_total", 0)
    if figures["failed_otherwise"]:
        say(f"   {arm}: {figures['failed_otherwise']} requests failed otherwise: {figures['errors']}")
    return figures


def emit_all(options, results, workers):
    """Prints JSON lines: ours against each of the others, and each by itself."""
    about = {"workers": workers, "rate_scale": options.rate_scale, "requests": options.requests,
             "retries": options.retries, "simulated": True, "speed": options.speed}
    for metric, unit, key in METRICS:
        for arm, figures in results.items():
            value = figures[key]
            if arm != ARMS[0]:
                ours = results[ARMS[0]][key]
                emit("trace", metric, ours, unit, proxy=ARMS[0], peer=arm, peer_value=value,
                     ratio=ours / value if ours is not None and value else None, **about)
            else:
                emit("trace", metric, value, unit, proxy=arm, **about)


def bench_trace_overload(options, trace):
    """Runs the three routers one after the other, for each number of workers."""
    if options.quick:
        options.requests = min(options.requests, 40)
    for workers in options.workers:
        results = {}
        for arm in ARMS:
            try:
                results[arm] = run_arm(options, arm, workers, trace)
            except BenchError as error:
                if arm != "HAProxy":
                    raise
                say(f"   HAProxy is left out: {error}")
        table(f"overload over HTTP: {os.path.basename(trace)}, {options.requests} requests, {workers} workers, "
              f"arrivals x{options.rate_scale * workers / 8:g}, {options.retries} retries: simulated, speed "
              f"{options.speed:g}",
              ["", "goodput %", "TTFT p50 s", "p99", "refused %", "retries a request", "waited"],
              [[arm, r["goodput"] * 100, r["ttft_p50_s"] if r["ttft_p50_s"] is not None else "-",
                r["ttft_p99_s"] if r["ttft_p99_s"] is not None else "-", r["refused_share"] * 100, r["retries"],
                "-" if r["waited"] is None else int(r["waited"])] for arm, r in results.items()])
        emit_all(options, results, workers)
