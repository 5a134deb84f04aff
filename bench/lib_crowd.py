"""The benchmark `crowd`: far more clients than simulated workers can answer, over HTTP.

All clients come within some seconds, each with a prompt of its own, and the workers can answer about one in twenty in time.
Three loads, each twice through one kvway: refused clients are lost; they come back when the answer says so; some leave
while they wait. A client that has left must never reach a worker, which the simulated workers count themselves, each
refusal must say when to come back, and memory must be the same after the second time as after the first.

The same arrivals go to bench/replay's kvb-replay, which knows neither HTTP nor this machine.
"""

import json
import os
import random
import subprocess
import threading
import time
import urllib.request

from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, raise_descriptor_limit
from lib_report import emit, say, table
from lib_sim_speed import rates
from lib_trace import start_workers

TARGETS = ["bench/sim/kvsim", "bench/load/kvbench", "bench/replay/kvb-replay"]
PROFILE = "reference-kv"
TOKENS = (6000, 9000)  # smallest and largest prompt: about 0.4 s of one worker's prefill
OUTPUT = 20
BLOCK = 512
# Limits of a good answer for kvbench and kvb-replay, in simulated time.
TTFT_MS, TTFT_PER_1K_MS, TPOT_MS = 2000, 122, 100
LEAVE_SHARE, LEAVE_AFTER_S = 0.25, 1.0
# A client comes back up to this share of Retry-After later than the answer says, so that clients do not come back in step.
SPREAD = 0.5
# {name: (whether refused clients come back, share of clients that leave)}
LOADS = {"lost": (False, 0.0), "come back": (True, 0.0), "leave": (False, LEAVE_SHARE)}
WITHIN = 0.05   # share by which goodput may differ from the replay's
FLAT = 0.25     # memory may grow by this share of all prompts' bytes from the first run to the second
RACE_MS = 50    # a request is on its way to a worker while its client leaves


def write_trace(path, clients, seconds):
    """Poisson arrivals of `clients` prompts that share nothing, in Mooncake's format."""
    rng = random.Random(1)
    at_s = 0.0
    with open(path, "w", encoding="utf-8") as file:
        for number in range(clients):
            at_s += rng.expovariate(clients / seconds)
            tokens = rng.randint(*TOKENS)
            blocks = -(-tokens // BLOCK)
            file.write(json.dumps({"timestamp": round(at_s * 1000), "input_length": tokens, "output_length": OUTPUT,
                                   "hash_ids": [number * 64 + block for block in range(blocks)]}) + "\n")


def promise(speed):
    """Returns the service level as lines of kvway's configuration, in real time."""
    return (f"service_level:\n  ttft: {TTFT_MS / speed:.0f}ms\n  ttft_per_1k_tokens: {TTFT_PER_1K_MS / speed:.0f}ms\n"
            f"  tpot: {TPOT_MS / speed:.0f}ms\n")


def sim_counts(ports):
    """Returns the workers' counts: sums, and the largest value of each name that ends in _ms."""
    total = dict(NO_COUNTS)
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/sim/stats", timeout=10) as answer:
            one = json.load(answer)
        for key in total:
            total[key] = max(total[key], one[key]) if key.endswith("_ms") else total[key] + one[key]
    return total


def metrics(port):
    """{name: value} of kvway's metrics that have no labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        rows = [line.split() for line in answer.read().decode().splitlines() if line[:1] != "#"]
    return {row[0]: float(row[1]) for row in rows if len(row) == 2 and "{" not in row[0]}


def rss(pid):
    """Returns a process' resident bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid):
    """Returns a process' processor time so far, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Records the largest resident size of a process; a context manager."""

    def __init__(self, pid):
        self.pid, self.peak, self.over = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        """Looks at the process every 20 ms."""
        while not self.over.wait(0.02):
            self.peak = max(self.peak, rss(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.over.set()
        self.thread.join()


def wait_quiet(port):
    """Waits until kvway has no request under way and none waiting."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        now = metrics(port)
        if now.get("kvway_exchanges", 0) == now.get("kvway_waiting_requests", 0) == 0:
            return
        time.sleep(0.1)
    raise BenchError(f"kvway still has {now.get('kvway_exchanges', 0):g} requests, of which "
                     f"{now.get('kvway_waiting_requests', 0):g} wait, 30 s after the last client")


def run_clients(shop, options, port, trace, load):
    """Runs kvbench and returns its result."""
    again, leave = LOADS[load]
    result = shop.path("result.json")
    subprocess.run(
        [os.path.join(options.build, "bench/load/kvbench"), "trace", "--url", f"http://127.0.0.1:{port}", "--trace",
         trace, "--speed", f"{options.speed:g}", "--lead-ms", "0", "--retries", str(options.retries if again else 0),
         "--retry-spread", str(SPREAD), "--leave-share", str(leave), "--leave-after", str(LEAVE_AFTER_S), "--label",
         load, "--json", result], check=False, stdout=subprocess.DEVNULL)
    try:
        with open(result, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise BenchError(f"{load}: kvbench wrote no result") from error


def figures_of(measured, counts, speed):
    """What is compared of one time; times but refused_real_s in simulated seconds. A goodput is of those that stayed."""
    errors = measured["errors"]
    total = measured["completed"] + measured["failed"]
    left = errors.get("left", 0)
    refused = errors.get("status 429", 0)
    stayed = (total / (total - left)) if total > left else 0
    refusals = measured["refused_s"] or {}
    return {
        "goodput": measured["goodput"] * stayed, "goodput_last_attempt": measured["last_goodput"] * stayed,
        "answered": measured["completed"], "good": round(measured["last_goodput"] * total),
        "kept_share": measured["last_goodput"] * total / measured["completed"] if measured["completed"] else None,
        "ttft_p99_s": (measured["last_ttft_s"] or {}).get("p99"), "refused_share": refused / total,
        "refused_after_p50_s": refusals.get("p50"), "refused_after_p99_s": refusals.get("p99"),
        "refused_after_max_s": refusals.get("max"), "refused_after_max_real_s": refusals.get("max", 0) / speed,
        "without_retry_after": measured["refused_mute"], "retries_per_request": measured["retried"] / total,
        "left_late_ms": 1000 * (measured["left_late_s"] or {}).get("max", 0), "sim_late_ms": counts["late_ms"],
        "left": left, "left_at_worker": counts["leavers"], "left_before": counts["left_before"],
        "left_before_ms": counts["left_before_ms"], "late_p99_s": (measured["late_s"] or {}).get("p99"),
        "failed_otherwise": measured["failed"] - left - refused, "errors": errors}


def run_load(options, load, workers, trace):
    """Runs one load twice through one kvway; returns the figures of the first run, and memory after both."""
    raise_descriptor_limit()
    with Workshop() as shop:
        ports = shop.ports(workers + 2)
        start_workers(shop, options, ports[:-2], ("--profile", PROFILE))
        kvway = start_kvway(shop, None, ports[-2:], ports[:-2], "prefixaware", options.build, extra=promise(options.speed),
                            routing=rates(options.speed))
        memory = [rss(kvway.pid)]
        results = []
        before = NO_COUNTS
        with Watch(kvway.pid) as watch:
            for _ in range(options.times):
                say(f"crowd: clients that are refused or wait {load}: {options.clients} ...")
                measured = run_clients(shop, options, kvway.port, trace, load)
                wait_quiet(ports[-1])
                counts = sim_counts(ports[:-2])
                now = {key: value if key.endswith("_ms") else value - before[key] for key, value in counts.items()}
                before = counts
                results.append(figures_of(measured, now, options.speed))
                time.sleep(1.0)
                memory.append(rss(kvway.pid))
        figures = dict(results[0])
        figures.update(bytes=options.clients * sum(TOKENS) / 2 * 4, cpu_s=cpu_s(kvway.pid), memory_start=memory[0], memory_peak=watch.peak, memory_first=memory[1], memory_after=memory[-1],
                       times=results, kvway=metrics(ports[-1]))
    return figures


def replay(options, load, workers, trace):
    """Runs the same load in simulated time; returns its figures, None for those that the replay does not know."""
    again, leave = LOADS[load]
    if leave:
        return None
    command = [os.path.join(options.build, "bench/replay/kvb-replay"), "--trace", trace, "--workers", str(workers),
               "--profile", PROFILE, "--policy", "kvway", "--admission", "kvway", "--retry", "on" if again else "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def faults_of(load, figures):
    """Returns a sentence for each rule that the figures break."""
    for number, one in enumerate(figures["times"], 1):
        where = f"{load}, time {number}"
        if one["without_retry_after"]:
            yield f"{where}: {one['without_retry_after']} refusals had no Retry-After"
        # The client left later than it had said, or the worker looked late: a busy machine.
        if one["left_before_ms"] > RACE_MS + one["left_late_ms"] + one["sim_late_ms"]:
            yield (f"{where}: {one['left_before']} requests came to a worker after their client had left, "
                   f"by {one['left_before_ms']:.0f} ms at most")
        if one["failed_otherwise"]:
            yield f"{where}: {one['failed_otherwise']} requests failed otherwise: {one['errors']}"
    if figures["memory_after"] - figures["memory_first"] > FLAT * figures["bytes"]:
        yield f"{load}: memory grew from {figures['memory_first'] >> 20} to {figures['memory_after'] >> 20} MiB"


NO_COUNTS = {"finished": 0, "leavers": 0, "left_before": 0, "left_before_ms": 0.0, "late_ms": 0.0}
UNITS = {"goodput": "share", "goodput_last_attempt": "share", "kept_share": "share", "answered": "requests",
         "ttft_p99_s": "s", "refused_share": "share", "refused_after_p50_s": "s", "refused_after_p99_s": "s",
         "refused_after_max_s": "s", "without_retry_after": "answers", "retries_per_request": "1", "left": "clients",
         "left_at_worker": "requests", "left_before": "requests", "left_before_ms": "ms", "left_late_ms": "ms", "sim_late_ms": "ms", "cpu_s": "s", "memory_start": "B",
         "memory_peak": "B", "memory_first": "B", "memory_after": "B"}


def emit_all(options, results, simulated, workers):
    """Prints the figures as JSON lines."""
    for load, figures in results.items():
        about = {"load": load, "clients": options.clients, "seconds": options.seconds, "workers": workers,
                 "retries": options.retries if LOADS[load][0] else 0, "simulated": True, "speed": options.speed}
        for metric, unit in UNITS.items():
            value = figures[metric]
            peer = {}
            if metric == "goodput" and simulated[load] is not None:
                other = simulated[load]["goodput"]
                peer = {"peer": "replay", "peer_value": other, "ratio": value / other if other else None,
                        "points": 100 * (value - other)}
            elif metric == "goodput_last_attempt" and load == "come back":
                other = results["lost"][metric]
                peer = {"peer": "lost", "peer_value": other, "ratio": value / other if other else None}
            emit("crowd", metric, value, unit, **peer, **about)


def show(options, results, simulated, workers):
    """Prints the table."""
    def known(value):
        return "-" if value is None else value

    table(f"crowd: {options.clients} clients within {options.seconds:g} s, {workers} workers, {options.retries} retries: "
          f"simulated, speed {options.speed:g}",
          ["refused or waiting clients", "goodput %", "replay %", "last attempt %", "answered", "kept %", "TTFT p99 s",
           "refused %", "after p50 s", "p99", "max", "left", "at a worker", "after leaving", "MiB: start", "peak", "after 1",
           "after all"],
          [[load, r["goodput"] * 100, known(simulated[load] and simulated[load]["goodput"] * 100),
            r["goodput_last_attempt"] * 100, r["answered"], known(r["kept_share"] and r["kept_share"] * 100),
            known(r["ttft_p99_s"]), r["refused_share"] * 100, known(r["refused_after_p50_s"]), known(r["refused_after_p99_s"]),
            known(r["refused_after_max_s"]), r["left"], r["left_at_worker"], r["left_before"],
            *(r[key] / (1 << 20) for key in ("memory_start", "memory_peak", "memory_first", "memory_after"))]
           for load, r in results.items()])


def bench_crowd(options):
    """Runs all loads; raises BenchError if one of the rules was broken."""
    faults = []
    for workers in options.workers:
        with Workshop() as shop:
            trace = shop.path("crowd.jsonl")
            write_trace(trace, options.clients, options.seconds)
            results = {load: run_load(options, load, workers, trace) for load in LOADS}
            simulated = {load: replay(options, load, workers, trace) for load in LOADS}
        show(options, results, simulated, workers)
        emit_all(options, results, simulated, workers)
        for load, figures in results.items():
            faults += faults_of(load, figures)
            if simulated[load] and abs(figures["goodput"] - simulated[load]["goodput"]) > WITHIN:
                faults.append(f"{load}: goodput {figures['goodput']:.1%}, the replay's is {simulated[load]['goodput']:.1%}")
        if results["come back"]["goodput_last_attempt"] <= results["lost"]["goodput_last_attempt"]:
            faults.append("coming back after Retry-After raised no goodput")
    if faults:
        raise BenchError("; ".join(faults))
