"""The benchmark `fleet-change`: what it costs that the fleet changes while clients stream.

Parts: `reload` (POST /reload twice a second, another file each time), `join` (1,000 workers join by one
reload and leave by another), `admin` (100 changes a second by /workers). kvway with one loop on one core;
clients, workers and this program on the other. All workers are one kvsim, under many addresses of loopback.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import lib_report as report
from lib_procs import BenchError, Workshop, cores, raise_descriptor_limit, wait_ready, wanted

TARGETS = ["bench/sim/kvsim"]
PARTS = ("reload", "join", "admin")
CLIENTS = 64
PERIOD_MS = 200  # between two requests of a client
STREAM = "8:5:200"  # kvsim's --fixed-stream: number of events, ms between them, bytes of each
STAYING = 24
JOINING = 1000
RELOADS_PER_S = 2
CHANGES_PER_S = 100
NEAR_S = 0.25  # requests that begin within this time after a call count as `around` it
HEALTH_S = 0.02  # seconds between two requests for /health
PATIENCE_S = 60
BUSY = 0.05  # share of a phase for which kvway may wait for its core; beyond it the times say little


def address(number):
    """Returns one of the many loopback addresses of the one kvsim."""
    return f"127.0.{number // 250}.{number % 250 + 1}"


def p99(values):
    """Returns the 99th percentile; 0 if there are no values."""
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else 0.0


class Admin:
    """A kept connection to the admin address."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def call(self, method, path, body=None, expect=(200,)):
        """Sends a request; returns (milliseconds, the answer's text)."""
        start = time.monotonic()
        headers = {"Content-Type": "application/json"}
        self.connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        spent = (time.monotonic() - start) * 1e3
        if answer.status not in expect:
            raise BenchError(f"{method} {path}: {answer.status} {text[:300]}")
        return spent, text

    def workers(self, state=""):
        """Returns how many workers kvway has in that state, or in all."""
        counts = [int(float(line.rsplit(" ", 1)[1])) for line in self.call("GET", "/metrics")[1].splitlines()
                  if line.startswith("kvway_workers{") and f'state="{state}' in line]
        if not counts:
            raise BenchError("/metrics has no kvway_workers")
        return sum(counts)


class Watcher(threading.Thread):
    """Asks the admin address for /health all the time, to see how long the control thread takes to answer."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.admin, self.ended, self.times_ms, self.error = Admin(port), threading.Event(), [], None

    def run(self):
        """Asks until `ended` is set."""
        try:
            while not self.ended.wait(HEALTH_S):
                self.times_ms.append(self.admin.call("GET", "/health")[0])
        except (BenchError, OSError, http.client.HTTPException) as error:
            self.error = error

    def stop(self):
        """Ends the thread; returns all times in ms."""
        self.ended.set()
        self.join()
        if self.error is not None:
            raise BenchError(f"/health: {self.error}")
        return self.times_ms


def read_ends(path):
    """What lib_fleet_clients.py wrote: requests that were begun, [(start in s, ms to the first event)] of those that
    were answered whole, and how many others ended how ({word: number}; `unended`: of those no end is known)."""
    ttft, others = [], {}
    with open(path, encoding="ascii") as lines:
        sent = int(next(lines, "0"))
        for line in lines:
            start, first, what = line.split()
            if what == "ok":
                ttft.append((int(start) / 1e9, int(first) / 1e3))
            else:
                others[what] = others.get(what, 0) + 1
    unended = sent - len(ttft) - sum(others.values())
    return sent, ttft, {**others, "unended": unended} if unended else others


class Clients:
    """The clients for one phase; `stop` gives what became of their requests."""

    def __init__(self, bench):
        self.bench, self.start = bench, time.monotonic()
        self.cpu, self.waited = bench.cpu_seconds()
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib_fleet_clients.py")
        self.output = bench.shop.path("clients.out")
        with open(self.output, "wb") as out:
            self.process = bench.shop.start(
                [sys.executable, program, str(bench.port), str(CLIENTS), str(PERIOD_MS)],
                core=bench.load_core, stdin=subprocess.PIPE, stdout=out)
        self.watcher = Watcher(bench.admin_port)
        self.watcher.start()

    def stop(self, may_be_cut=False):
        """Ends the clients; returns {ttft: [(start in s, ms)], health: [ms], cut, dropped, cpu_us}; BenchError if no request was answered."""
        health = self.watcher.stop()
        cpu, waited = self.bench.cpu_seconds()
        seconds = time.monotonic() - self.start
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE_S)
        self.bench.shop.processes.remove(self.process)
        sent, ttft, others = read_ends(self.output)
        if not ttft:
            raise BenchError(f"of {sent} requests none was answered: {others}\n{self.bench.shop.log_tail('kvway.out')}")
        cut = others.pop("cut", 0) if may_be_cut else 0
        self.bench.dropped(others)
        return {"ttft": ttft, "health": health, "cut": cut, "dropped": sent - cut - len(ttft), "requests": sent,
                "ttft_p99": p99([ms for _, ms in ttft]), "health_max": max(health),
                "cpu_us": (cpu - self.cpu) * 1e6 / len(ttft), "waited": (waited - self.waited) / seconds}


class Bench:
    """kvway, the workers, and what was measured; a context manager."""

    def __init__(self, options):
        self.options, self.shop = options, Workshop()
        self.proxy_core, self.load_core = cores()
        self.port, self.admin_port, self.origin = self.shop.ports(3)
        self.rows, self.waited, self.lost = [], [], {}

    def __enter__(self):
        self.shop.__enter__()
        try:
            build = self.options.build
            sim = self.shop.start(
                [os.path.join(build, "bench/sim/kvsim"), "--host", "0.0.0.0", "--port", str(self.origin),
                 "--model", "bench", "--profile", "instant", "--keepalive-s", "0", "--fixed-stream", STREAM],
                core=self.load_core, log="kvsim.out")
            wait_ready(f"http://127.0.0.1:{self.origin}/health", sim)
            self.write(range(STAYING))
            self.kvway = self.shop.start([os.path.join(build, "src/router/kvway"), "-c",
                                          self.shop.path("kvway.yaml")], core=self.proxy_core, log="kvway.out")
            wait_ready(f"http://127.0.0.1:{self.port}/ready", self.kvway)
            self.admin = Admin(self.admin_port)
            while self.ready()["serving"] < STAYING:
                time.sleep(0.02)
        except BaseException:
            self.shop.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *what):
        return self.shop.__exit__(*what)

    def url(self, number):
        """Returns a worker's URL."""
        return f"http://{address(number)}:{self.origin}"

    def write(self, numbers, limit="128KiB"):
        """Writes the configuration file with these workers."""
        models = self.options.models_given
        row = f", models: [{', '.join(['bench'] + [f'm{i}' for i in range(models - 1)])}]" if models else ""
        rows = "".join(f"  - {{url: \"{self.url(n)}\"{row}}}\n" for n in numbers)
        path = self.shop.path("kvway.yaml")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(f"""listen: 127.0.0.1:{self.port}
loops: 1
admin: {{listen: "127.0.0.1:{self.admin_port}"}}
drain: {{settle: 0s, worker: 10s}}
limits: {{high_water: {limit}}}
log: {{level: warn, access: "off"}}
workers:
{rows}""")
        os.replace(path + ".new", path)

    def cpu_seconds(self):
        """Returns the seconds for which kvway's threads have (run, waited for a core)."""
        folder, used, waited = f"/proc/{self.kvway.pid}/task", 0, 0
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                numbers = file.read().split()
            used += int(numbers[0])
            waited += int(numbers[1])
        return used / 1e9, waited / 1e9

    def rss(self):
        """Returns kvway's resident bytes."""
        with open(f"/proc/{self.kvway.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_workers(self, state, count):
        """Waits until `count` workers are in that state ("": in any); returns the seconds."""
        start = time.monotonic()
        while self.admin.workers(state) != count:
            if time.monotonic() - start > PATIENCE_S:
                raise BenchError(f"{self.admin.workers(state)} workers are {state or 'there'}, expected {count}")
            time.sleep(0.1)
        return time.monotonic() - start

    def ready(self):
        """Returns the counts of /ready."""
        return json.loads(self.admin.call("GET", "/ready")[1])

    def phase(self, what, **more):
        """Runs clients while what() runs; returns (the result of what(), that of the clients)."""
        clients = Clients(self)
        time.sleep(0.5)  # until the clients have begun
        result = what()
        return result, clients.stop(**more)

    def dropped(self, others):
        """Adds a phase's requests that were neither answered whole nor cut on purpose, by how they ended."""
        for what, count in others.items():
            self.lost[what] = self.lost.get(what, 0) + count

    def emit_dropped(self, part, rounds):
        """Prints how many requests of these phases were dropped."""
        self.emit("requests_dropped", sum(r["dropped"] for r in rounds), "requests", part=part,
                  requests=sum(r["requests"] for r in rounds))

    def quiet(self):
        """Runs a phase in which the fleet does not change."""
        result = self.phase(lambda: time.sleep(self.options.seconds))[1]
        self.waited.append(result["waited"])
        return result

    def emit(self, metric, value, unit, **more):
        """Prints a JSON line and adds a row to the table."""
        report.emit("fleet-change", metric, value, unit, **more)
        self.rows.append([metric + "".join(f" {more[key]}" for key in ("part", "at") if key in more), value,
                          unit, more.get("peer_value", ""), more.get("ratio", "")])

    def beside_quiet(self, metric, key, unit, busy, quiet, **more):
        """Prints a figure's median, and the median of its ratios to the quiet phase of the same round."""
        self.emit(metric, report.median_of(busy, key), unit, peer="quiet",
                  ratio=report.ratio_of(busy, quiet, key), peer_value=report.median_of(quiet, key), **more)

    def every(self, per_second, change):
        """Calls change(i) at that rate for the length of a phase; returns [(moment of the call, ms)]."""
        calls, start = [], time.monotonic()
        for i in range(int(self.options.seconds * per_second)):
            time.sleep(max(0, start + i / per_second - time.monotonic()))
            calls.append((time.monotonic(), change(i)))
        return calls


def bench_reload(bench):
    """Measures the part `reload`."""
    quiet, busy, calls = [], [], []

    def change(i):
        even = i % 2 == 0  # one worker leaves, another one joins, a key changes
        bench.write([*range(STAYING - 1), STAYING if even else STAYING - 1], "192KiB" if even else "128KiB")
        return bench.admin.call("POST", "/reload")[0]

    for _ in range(bench.options.rounds):
        quiet.append(bench.quiet())
        made, result = bench.phase(lambda: bench.every(RELOADS_PER_S, change))
        near = [ms for start, ms in result["ttft"] if any(-NEAR_S <= at - start <= NEAR_S / 10 for at, _ in made)]
        result["ttft_p99"] = p99(near)
        busy.append(result)
        calls += made
    times = [ms for _, ms in calls]
    bench.emit("reload_call_ms", statistics.median(times), "ms", part="reload", p99=p99(times), reloads=len(times))
    bench.beside_quiet("ttft_p99_ms", "ttft_p99", "ms", busy, quiet, part="reload")
    bench.beside_quiet("cpu_us_per_request", "cpu_us", "us", busy, quiet, part="reload")
    bench.beside_quiet("health_max_ms", "health_max", "ms", busy, quiet, part="reload")
    bench.emit_dropped("reload", [*busy, *quiet])
    bench.write(range(STAYING))
    bench.admin.call("POST", "/reload")
    bench.wait_workers("", STAYING)


def change_to(bench, numbers, *fields):
    """Reloads a file with these workers; returns the seconds until each of these counts of /ready agrees with it."""
    bench.write(numbers)
    start = time.monotonic()
    made = {"call_ms": bench.admin.call("POST", "/reload")[0]}
    for field in fields:
        while bench.ready()[field] != len(numbers):
            if time.monotonic() - start > PATIENCE_S:
                raise BenchError(f"{len(numbers)} workers are listed, and /ready says {bench.ready()}")
            time.sleep(0.02)
        made[field] = time.monotonic() - start
    return made


def leave(bench):
    """Reloads the file with the first workers alone; returns the seconds until the slots of the others are free, too."""
    made = change_to(bench, range(STAYING), "workers")
    return {**made, "slots": made["workers"] + bench.wait_workers("", STAYING)}


def bench_join(bench):
    """Measures the part `join`."""
    quiet, rss = [], [bench.rss()]
    phases = {"join": [], "stay": [], "leave": []}
    everyone = range(STAYING + JOINING)
    for _ in range(bench.options.rounds):
        quiet.append(bench.quiet())
        made, result = bench.phase(lambda: change_to(bench, everyone, "usable", "serving"))
        phases["join"].append({**result, **made})
        phases["stay"].append(bench.quiet())
        rss.append(bench.rss())
        made, result = bench.phase(lambda: leave(bench))
        phases["leave"].append({**result, **made})
    for name, key in (("join", "usable"), ("join", "serving"), ("leave", "workers"), ("leave", "slots")):
        if key in ("usable", "workers"):
            bench.emit(f"{name}_call_ms", report.median_of(phases[name], "call_ms"), "ms", part="join",
                       workers=JOINING)
        bench.emit(f"{name}_{key}_seconds", report.median_of(phases[name], key), "s", part="join", workers=JOINING)
    for name, rounds in phases.items():
        bench.beside_quiet("ttft_p99_ms", "ttft_p99", "ms", rounds, quiet, part="join", at=name)
        bench.beside_quiet("health_max_ms", "health_max", "ms", rounds, quiet, part="join", at=name)
        bench.beside_quiet("cpu_us_per_request", "cpu_us", "us", rounds, quiet, part="join", at=name)
    bench.emit_dropped("join", [*quiet, *(r for rounds in phases.values() for r in rounds)])
    bench.emit("rss_before_mib", rss[0] / 2**20, "MiB", part="join")
    bench.emit("rss_joined_mib", rss[-1] / 2**20, "MiB", part="join", first=rss[1] / 2**20)
    bench.emit("rss_left_mib", bench.rss() / 2**20, "MiB", part="join")


def bench_admin(bench):
    """Measures the part `admin`."""
    quiet, busy, calls = [], [], []

    def change(i):
        number = STAYING + i // 2 % 100
        if i % 2 == 0:
            return bench.admin.call("POST", "/workers", {"url": bench.url(number)}, (201,))[0]
        return bench.admin.call("DELETE", f"/workers/{address(number)}:{bench.origin}?now=true")[0]

    for _ in range(bench.options.rounds):
        quiet.append(bench.quiet())
        made, result = bench.phase(lambda: bench.every(CHANGES_PER_S, change), may_be_cut=True)
        busy.append(result)
        calls += [ms for _, ms in made]
    bench.emit("change_call_ms", statistics.median(calls), "ms", part="admin", p99=p99(calls), changes=len(calls))
    bench.beside_quiet("ttft_p99_ms", "ttft_p99", "ms", busy, quiet, part="admin")
    bench.beside_quiet("cpu_us_per_request", "cpu_us", "us", busy, quiet, part="admin")
    bench.beside_quiet("health_max_ms", "health_max", "ms", busy, quiet, part="admin")
    bench.emit_dropped("admin", [*busy, *quiet])
    bench.emit("streams_cut", sum(r["cut"] for r in busy), "requests", part="admin",
               requests=sum(r["requests"] for r in busy))
    bench.wait_workers("", STAYING)


def bench_fleet_change(options):
    """Runs all parts, or the one that --only names."""
    raise_descriptor_limit()
    with Bench(options) as bench:
        for part, run in zip(PARTS, (bench_reload, bench_join, bench_admin)):
            if wanted(options, part):
                run(bench)
        if bench.kvway.poll() is not None:
            raise BenchError(f"kvway ended\n{bench.shop.log_tail('kvway.out')}")
        said = bench.shop.log_tail("kvway.out")
    waited = statistics.median(bench.waited)
    bench.emit("waited_for_a_core", waited, "s/s")
    if waited > BUSY:
        report.say(f"kvway waited for its core in {waited * 100:.0f} % of the quiet time: other programs were "
                   "busy, and times say little")
    report.table(f"fleet-change, {options.rounds} rounds, {CLIENTS} streaming clients, "
                 f"{CLIENTS * 1000 // PERIOD_MS} requests/s", ["", "value", "unit", "quiet", "ratio"], bench.rows)
    if bench.lost:
        raise BenchError(f"requests were dropped: {bench.lost}\n{said}")
