"""The benchmark `routers`: kvway against the released Rust routers, vllm-router and sglang-router.

Both come from PyPI, pinned in peers/routers.txt, each into a venv of its own under the build
directory; one that cannot be installed is left out and named. Two questions:

- What does a request cost? kvb-load, as for HAProxy and nginx (lib_proxy.py).
- What does the choice of worker achieve? A trace over HTTP to freshly started kvsims. Requests are
  sent when they are due, not ahead with a header that says so: one of the peers drops headers it
  does not know, and all must meet the same load. Therefore the speed is low, since the time that a
  prompt needs through a router is multiplied by it.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

from lib_peers import PEERS, Proxy, start_kvway
from lib_procs import BenchError, Workshop, cores, raise_descriptor_limit, wait_ready
from lib_proxy import Stage, cpu_rows, split
from lib_report import best_peer, emit, median_of, ratio_of, say, table
from lib_sim_speed import rates
from lib_trace import LATE_MS, WHERE, sim_stats

# Arguments of each router besides those that both get. All other settings are the router's defaults.
ARGUMENTS = {
    "vllm-router": ["--log-level", "warning"],
    "sglang-router": ["--log-level", "warn", "--shutdown-grace-period-secs", "1"],
}
# One worker thread, and warnings only in the log (vllm-router's own option does not lower its level).
ENVIRONMENT = {"TOKIO_WORKER_THREADS": "1", "RUST_LOG": "warn"}
SERVERS = {"vllm-router": ["vllm-router"], "sglang-router": ["sglang-router", "launch"]}

# Figures of a replay: name, unit, whether less is better.
QUALITY = (("goodput", "share", False), ("cached_share", "share", False),
           ("ttft_mean_s", "s", True), ("e2e_mean_s", "s", True),
           ("trace_cpu_us_per_request", "us", True))


class Router:
    """An installed peer: name, version, and the folder of its programs."""

    def __init__(self, name, version, programs):
        self.name = name
        self.version = version
        self.programs = programs


def requirements(text):
    """Returns [(name, version)] of a requirements file in which every line pins one package."""
    found = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, version = line.split("==")
            found.append((name.strip(), version.strip()))
    return found


def run_quietly(args):
    """Runs a program; returns the last line of its output if it failed, else None."""
    try:
        done = subprocess.run(args, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    return ((done.stdout + done.stderr).strip().splitlines() or ["no output"])[-1]


def install(build, name, version):
    """Returns the router, installed into a venv of its own if it is not there yet; BenchError says why it cannot be."""
    folder = os.path.join(build, "peers", f"{name}-{version}")
    programs = os.path.join(folder, "bin")
    if run_quietly([os.path.join(programs, name), "--help"]) is None:
        return Router(name, version, programs)
    say(f"routers: installing {name} {version} ...")
    shutil.rmtree(folder, ignore_errors=True)
    fault = run_quietly([sys.executable, "-m", "venv", folder]) or run_quietly(
        [os.path.join(programs, "pip"), "install", "--quiet", "--disable-pip-version-check",
         "--only-binary", ":all:", f"{name}=={version}"]) or run_quietly(
        [os.path.join(programs, name), "--help"])
    if fault:
        shutil.rmtree(folder, ignore_errors=True)
        raise BenchError(f"{name} {version} is left out: {fault}")
    return Router(name, version, programs)


def install_all(build):
    """Returns {name: Router} of the routers that could be installed."""
    with open(os.path.join(PEERS, "routers.txt"), encoding="utf-8") as file:
        wanted = requirements(file.read())
    routers = {}
    for name, version in wanted:
        try:
            routers[name] = install(build, name, version)
        except BenchError as error:
            say(f"routers: {error}")
    if not routers:
        raise BenchError("none of the routers could be installed; pip and python3-venv are needed")
    return routers


def wait_workers(name, port, process, count):
    """Waits until the router has found all its workers healthy."""
    url = f"http://127.0.0.1:{port}/readiness"
    wait_ready(url, process, seconds=60)
    for _ in range(600):
        with urllib.request.urlopen(url, timeout=5) as answer:
            if json.load(answer)["healthy_workers"] == count:
                return
        time.sleep(0.1)
    raise BenchError(f"{name}: not all {count} workers became healthy")


def start_router(shop, core, router, ports, workers, policy="cache_aware"):
    """Starts a peer with one worker thread; ports are its own two: for clients and for metrics."""
    log = f"{router.name}-{ports[0]}.out"
    command = SERVERS[router.name]
    process = shop.start(
        [os.path.join(router.programs, command[0]), *command[1:], "--host", "127.0.0.1", "--port",
         str(ports[0]), "--worker-urls", *[f"http://127.0.0.1:{port}" for port in workers],
         "--policy", policy, "--worker-startup-check-interval", "1", "--prometheus-host",
         "127.0.0.1", "--prometheus-port", str(ports[1]), *ARGUMENTS[router.name]],
        core=core, log=log, env={**os.environ, **ENVIRONMENT})
    try:
        wait_workers(router.name, ports[0], process, len(workers))
    except BenchError as error:
        raise BenchError(f"{router.name}: {error}\n{shop.log_tail(log)}") from error
    for path in glob.glob(f"/proc/{process.pid}/task/*/children"):
        with open(path, encoding="ascii") as file:
            if file.read().strip():
                raise BenchError(f"{router.name} has child processes; their CPU is not counted")
    return Proxy(router.name, ports[0], process, process.pid)


def cpu_ns(pid):
    """Returns the nanoseconds for which a process' threads have run."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def emit_against(routers, metric, unit, smaller_is_better, ours, peers, **more):
    """Prints a JSON line against each peer, with its version, and one against the best."""
    value = median_of(ours, metric)

    def line(label, name, **extra):
        other = median_of(peers[name], metric)
        version = routers[name.split()[0]].version
        emit("routers", metric, value, unit, peer=label,
             ratio=ratio_of(ours, peers[name], metric) if other else None, peer_value=other,
             peer_version=version, **extra, **more)

    for name in peers:
        line(name, name)
    if len(peers) > 1:
        best = best_peer(peers, metric, smaller_is_better)
        line("best", best, best=best)


# --- CPU ----------------------------------------------------------------------------------------


def measure_size(stage, proxies, body_kb):
    """Runs rounds over all proxies; returns {proxy: [result]}. A proxy that fails is named and left out."""
    results = {proxy: [] for proxy in proxies}
    for number in range(stage.options.rounds):
        shift = number % len(proxies)
        for proxy in proxies[shift:] + proxies[:shift]:
            if proxy not in results:
                continue
            try:
                results[proxy].append(stage.load.job(
                    "requests", port=proxy.port, pid=proxy.pid, body=body_kb * 1024,
                    connections=16 if body_kb >= 256 else 32, warmup_ms=300,
                    duration_ms=int(stage.options.seconds * 1000)))
            except BenchError as error:
                if proxy.strategy:
                    raise
                say(f"routers: {proxy.name} is left out at {body_kb} KB: {error}")
                del results[proxy]
    return results


def pss_mib(pid):
    """Returns a process' memory; shared pages are divided among their users."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def bench_cpu(options, routers):
    """Measures CPU per request at each body size."""
    with Stage(options) as stage:
        proxies = stage.ours(("prefixaware",))
        for router in routers.values():
            proxies.append(start_router(stage.shop, stage.proxy_core, router, stage.take_ports(2),
                                        stage.load.ports))
        for body_kb in options.body_kb:
            results = measure_size(stage, proxies, body_kb)
            rows = cpu_rows(results, "cpu_us_per_request")
            for row, (proxy, rounds) in zip(rows, results.items()):
                row += [median_of(rounds, "requests_per_second"),
                        median_of(rounds, "latency_us_p99"), f"{pss_mib(proxy.pid):.0f}"]
            table(f"routers, {body_kb} KB bodies, {options.rounds} rounds of "
                  f"{options.seconds:g} s, one core, every prompt differs",
                  ["", "CPU us/request", "spread", "of its core", "requests/s", "p99 us",
                   "then MiB"], rows)
            ours, peers = split(results)
            for strategy, rounds in ours.items():
                if peers:
                    emit_against(routers, "cpu_us_per_request", "us", True, rounds, peers,
                                 strategy=strategy, body_kb=body_kb, threads=1)


# --- Quality ------------------------------------------------------------------------------------


class Entry:
    """One proxy in the replay: its name, how it starts, and whether its workers must answer requests for token ids."""

    def __init__(self, name, start, scale_out=False):
        self.name = name
        self.start = start  # function of (shop, core, ports, workers)
        self.scale_out = scale_out


def entries(options, routers):
    """Returns the proxies in the replay."""
    found = []
    if not options.peers_only:
        found.append(Entry("kvway", lambda shop, core, ports, workers: start_kvway(
            shop, core, ports, workers, "prefixaware", options.build,
            routing=rates(options.speed))))

    def add(name, suffix="", scale_out=False, policy="cache_aware"):
        if name in routers:
            found.append(Entry(name + suffix, lambda shop, core, ports, workers: start_router(
                shop, core, routers[name], ports, workers, policy), scale_out))

    # This router asks workers for token ids, so its policy works only with workers that answer: vLLM with
    # --enable-scale-out. By default vLLM refuses.
    add("vllm-router", scale_out=True)
    add("vllm-router", " default vLLM")
    add("sglang-router")
    if options.more_peers:
        add("vllm-router", " consistent_hash", policy="consistent_hash")
    return found


def flat(result, cpu, late_ms):
    """Returns the figures of kvbench's result that are compared; late_ms: how late the workers' steps ended."""
    done = result["completed"] + result["failed"]
    return {"goodput": result["goodput"], "cached_share": result["cached_share"] or 0.0,
            "ttft_mean_s": result["ttft_s"]["mean"], "ttft_p99_s": result["ttft_s"]["p99"],
            "tpot_mean_s": result["tpot_s"]["mean"], "e2e_mean_s": result["e2e_s"]["mean"],
            "failed": result["failed"], "requests": done,
            "prompt_tokens": result["prompt_tokens"],
            "steps_late_ms": late_ms, "late_p99_s": (result["late_s"] or {}).get("p99", 0.0),
            "trace_cpu_us_per_request": cpu / done / 1000 if done else 0.0,
            "cpu_share": cpu / 1e9 / (result["duration_s"] / result["speed"])}


def start_sims(shop, options, ports, scale_out):
    """Starts a kvsim with a worker on each port."""
    args = [os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(len(ports)), "--port",
            str(ports[0]), "--threads", "2", "--speed", f"{options.speed:g}"]
    process = shop.start(args + (["--enable-scale-out"] if scale_out else []), log="kvsim.out")
    wait_ready(f"http://127.0.0.1:{ports[-1]}/health", process)


def replay_once(options, entry, workers, trace):
    """Replays the trace once through one router, to fresh workers."""
    say(f"routers: {entry.name}, {workers} workers, {options.requests} requests, "
        f"speed {options.speed:g} ...")
    with Workshop() as shop:
        raise_descriptor_limit()
        ports = shop.ports(workers + 2)
        start_sims(shop, options, ports[:workers], entry.scale_out)
        proxy = entry.start(shop, cores()[0], ports[workers:], ports[:workers])
        result = shop.path("result.json")
        before = cpu_ns(proxy.pid)
        subprocess.run(
            [os.path.join(options.build, "bench/load/kvbench"), "trace", "--url",
             f"http://127.0.0.1:{proxy.port}", "--model", "sim", "--trace", trace, "--requests",
             str(options.requests), "--rate-scale", f"{options.rate_scale * workers / 8:g}",
             "--speed", f"{options.speed:g}", "--lead-ms", "0", "--label", entry.name, "--json",
             result], check=False, stdout=subprocess.DEVNULL)
        used = cpu_ns(proxy.pid) - before
        late_ms = sim_stats(ports[:workers])["late_mean_ms"]
        try:
            with open(result, encoding="utf-8") as file:
                measured = flat(json.load(file), used, late_ms)
        except OSError as error:
            raise BenchError(f"{entry.name}: kvbench wrote no result") from error
    if late_ms * options.speed > LATE_MS:
        say(f"routers: {entry.name}: the workers' steps ended {late_ms:.1f} ms late: the machine is too "
            "busy for this speed, and this row's times are too long")
    return measured


def check_same_load(results):
    """Raises BenchError unless all routers got the same requests."""
    loads = {(r["requests"], r["prompt_tokens"]) for rounds in results.values() for r in rounds
             if r["failed"] == 0}
    if len(loads) > 1:
        raise BenchError(f"the routers did not meet the same requests: {sorted(loads)}")


def show_quality(options, trace, workers, results):
    """Prints the table of one number of workers."""
    keys = (("goodput", 100), ("cached_share", 100), ("ttft_mean_s", 1), ("ttft_p99_s", 1),
            ("tpot_mean_s", 1000), ("e2e_mean_s", 1), ("failed", 1),
            ("trace_cpu_us_per_request", 1), ("cpu_share", 100), ("steps_late_ms", 1),
            ("late_p99_s", 1))
    rows = [[name, *(median_of(rounds, key) * by for key, by in keys)]
            for name, rounds in results.items()]
    table(f"routers, trace {os.path.basename(trace)}, {options.requests} requests, {workers} "
          f"workers, arrivals x{options.rate_scale * workers / 8:g}, {options.trace_rounds} "
          f"rounds: simulated, speed {options.speed:g}",
          ["", "goodput %", "cached %", "TTFT s", "p99", "TPOT ms", "E2E s", "failed",
           "CPU us/request", "of its core %", "steps late ms", "late p99 s"], rows)


def bench_quality(options, routers, trace):
    """Replays the trace through all routers, one after the other."""
    takers = entries(options, routers)
    for workers in options.workers:
        results = {entry.name: [] for entry in takers}
        for number in range(options.trace_rounds):
            shift = number % len(takers)
            for entry in takers[shift:] + takers[:shift]:
                results[entry.name].append(replay_once(options, entry, workers, trace))
        check_same_load(results)
        show_quality(options, trace, workers, results)
        ours = results.pop("kvway", None)
        if ours is None or not results:
            continue
        for metric, unit, smaller in QUALITY:
            emit_against(routers, metric, unit, smaller, ours, results, strategy="prefixaware",
                         workers=workers, rate_scale=options.rate_scale, simulated=True,
                         speed=options.speed)


def bench_routers(options):
    """Measures CPU per request, then replays the trace if one is given."""
    routers = install_all(options.build)
    if options.body_kb:
        bench_cpu(options, routers)
    trace = options.trace or os.environ.get("TRACE")
    if trace:
        bench_quality(options, routers, trace)
    else:
        say(f"routers: without a trace only CPU is measured. {WHERE}")
