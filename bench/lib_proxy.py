"""The benchmarks of the proxy itself: proxy, stream, idle, loops, scan.

Proxies under comparison run side by side, all pinned to one core, and are loaded one after the
other within each round: nothing that changes from minute to minute meets only one of them. A proxy
that is not being loaded sleeps.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import urllib.request

import lib_report as report
from lib_peers import haproxy_spans, haproxy_tracer, start_haproxy, start_kvway, start_nginx
from lib_procs import BenchError, Load, Workshop, cores, raise_descriptor_limit, wait_ready
from lib_report import emit, emit_ratios, median_of, say, spread_of, table

STRATEGIES = ("roundrobin", "prefixaware")
PAGE_S = 1  # between two looks of an open page (src/router/status/ui.js)


class Stage:
    """Load generator and proxies of one benchmark; use as a context manager."""

    def __init__(self, options, load=()):
        """load: further options for kvb-load."""
        self.options = options
        self.load_options = load
        self.shop = Workshop()
        self.limit = raise_descriptor_limit()
        self.proxy_core, self.load_core = cores()
        self.ports = self.shop.ports(40)
        self.load = None

    def __enter__(self):
        self.shop.__enter__()
        self.load = Load(self.shop, os.path.join(self.options.build, "bench/load/kvb-load"),
                         self.load_core, self.ports[0], more=self.load_options)
        return self

    def __exit__(self, *what):
        return self.shop.__exit__(*what)

    def take_ports(self, count):
        """Returns ports for a proxy; the workshop's first four are the backends'."""
        taken = self.ports[4:4 + count]
        del self.ports[4:4 + count]
        return taken

    def peers(self, nginx=True, logs=False):
        """Starts HAProxy and nginx."""
        found = [start_haproxy(self.shop, self.proxy_core, self.take_ports(1)[0], self.load.ports,
                               self.limit, logs)]
        if nginx:
            found.append(start_nginx(self.shop, self.proxy_core, self.take_ports(1)[0],
                                     self.load.ports, self.limit, logs))
        if self.options.more_peers and not logs:
            found.append(start_haproxy(self.shop, self.proxy_core, self.take_ports(1)[0],
                                       self.load.ports, self.limit,
                                       more="\n\ttune.bufsize 32768"))
        return found

    def kvway(self, strategy, core=None, **more):
        """Starts kvway."""
        return start_kvway(self.shop, self.proxy_core if core is None else core,
                           self.take_ports(2), self.load.ports, strategy, self.options.build,
                           **more)

    def ours(self, strategies=STRATEGIES, **more):
        """Starts a kvway for each of the strategies, or none where only peers are to be measured."""
        if self.options.peers_only:
            return []
        return [self.kvway(strategy, **more) for strategy in strategies]


def interleave(stage, proxies, job):
    """Runs job(proxy) for all proxies in every round; returns {proxy: [result, ...]}."""
    results = {proxy: [] for proxy in proxies}
    for number in range(stage.options.rounds):
        # Every round begins with another proxy, so that no one always follows the same one.
        shift = number % len(proxies)
        for proxy in proxies[shift:] + proxies[:shift]:
            results[proxy].append(job(proxy))
    return results


def split(results):
    """Returns ({strategy: rounds} of kvway, {name: rounds} of the peers)."""
    ours = {p.strategy: r for p, r in results.items() if p.strategy}
    return ours, {p.name: r for p, r in results.items() if not p.strategy}


def cpu_rows(results, key):
    """Returns the table's rows: median, spread, share of the core."""
    rows = []
    for proxy, rounds in results.items():
        low, high = spread_of(rounds, key)
        share = median_of(rounds, "proxy_cpu_share")
        rows.append([proxy.label(), median_of(rounds, key), f"{low:.4g}..{high:.4g}",
                     f"{share * 100:.0f} %"])
    return rows


def proxy_size(stage, proxies, body_kb, **more):
    """Measures one body size and prints its table and JSON lines."""
    options = stage.options
    connections = 16 if body_kb >= 256 else 32

    def job(proxy):
        return stage.load.job("requests", port=proxy.port, pid=proxy.pid, body=body_kb * 1024,
                              connections=connections, warmup_ms=300,
                              duration_ms=int(options.seconds * 1000))

    results = interleave(stage, proxies, job)
    rows = cpu_rows(results, "cpu_us_per_request")
    saturated = {}
    for row, (proxy, rounds) in zip(rows, results.items()):
        saturated[proxy] = median_of(rounds, "proxy_cpu_share") >= 0.95
        row.append(median_of(rounds, "requests_per_second") if saturated[proxy]
                   else "core not full")
        row.append(median_of(rounds, "latency_us_p99"))
    log = ", access log on" if more.get("log") else ""
    table(f"proxy, {body_kb} KB bodies, {connections} connections, "
          f"{options.rounds} rounds of {options.seconds:g} s{log}",
          ["", "CPU us/request", "spread", "of its core", "requests/s", "p99 us"], rows)
    ours, peers = split(results)
    for strategy, rounds in ours.items():
        emit_ratios("proxy", "cpu_us_per_request", "cpu_us_per_request", "us", rounds, peers,
                    strategy=strategy, body_kb=body_kb, threads=1, **more)
        full = {p.name: results[p] for p in results if not p.strategy and saturated[p]}
        if full and any(saturated[p] for p in results if p.strategy == strategy):
            emit_ratios("proxy", "requests_per_second", "requests_per_second", "1/s", rounds, full,
                        smaller_is_better=False, strategy=strategy, body_kb=body_kb, threads=1,
                        **more)


def start_with_keys(stage):
    """Starts a kvway that demands API keys; the load sends the one that is written here (load/bodies.c)."""
    path = stage.shop.path("keys.yaml")
    digest = hashlib.sha256(b"sk-bench-0123456789").hexdigest()
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"keys:\n  - name: bench\n    sha256: {digest}\n")
    proxy = stage.kvway("prefixaware", extra=f"auth:\n  keys_file: {path}\n")
    proxy.strategy = "prefixaware, with keys"
    return proxy


def pair_size(stage, bare, other, body_kb, what, peer, others=(), **more):
    """Measures one body size through two kvways, and through others in the same rounds; prints the table, and the JSON
    lines of the two. Returns the results."""
    options = stage.options

    def job(proxy):
        return stage.load.job("requests", port=proxy.port, pid=proxy.pid, body=body_kb * 1024, connections=32,
                              warmup_ms=300, duration_ms=int(options.seconds * 1000))

    results = interleave(stage, [bare, other, *others], job)
    table(f"proxy with {what}, {body_kb} KB bodies, 32 connections, {options.rounds} rounds of {options.seconds:g} s",
          ["", "CPU us/request", "spread", "of its core"], cpu_rows(results, "cpu_us_per_request"))
    emit_ratios("proxy", "cpu_us_per_request", "cpu_us_per_request", "us", results[other],
                {peer: results[bare]}, strategy="prefixaware", body_kb=body_kb, threads=1, **more)
    return results


# Takes messages with spans, reads nothing of them, and answers that all is well. GET: how many traces a Datadog
# tracer said that it sent.
COLLECTOR = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    traces = 0
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        count = self.headers["x-datadog-trace-count"]
        Handler.traces += int(count or 0)
        self.answer(b"{}" if count else b"")
    def do_GET(self):
        self.answer(b"%d" % self.traces)
    def answer(self, text):
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def start_collector(stage):
    """Starts a collector on the load's core; returns its port."""
    port = stage.take_ports(1)[0]
    process = stage.shop.start([sys.executable, "-c", COLLECTOR, str(port)], core=stage.load_core, log="collector.out")
    wait_ready(f"http://127.0.0.1:{port}/", process)
    return port


def start_with_traces(stage, ratio):
    """kvway that exports the spans of this share of its requests."""
    port, taken = start_collector(stage), stage.take_ports(2)
    proxy = start_kvway(stage.shop, stage.proxy_core, taken, stage.load.ports, "prefixaware", stage.options.build,
                        extra=f"tracing:\n  endpoint: http://127.0.0.1:{port}\n  ratio: {ratio}\n")
    proxy.admin = taken[1]
    proxy.strategy = f"prefixaware, traces at {ratio * 100:g} %"
    return proxy


def peers_with_spans(stage, ratio):
    """HAProxy without spans, and one that exports those of this share of its requests; none where the distribution
    has no tracer for it."""
    if haproxy_tracer() is None:
        say("HAProxy is left out: its tracer is not installed (package libdd-opentracing0)")
        return []
    port = start_collector(stage)
    bare, traced = (start_haproxy(stage.shop, stage.proxy_core, stage.take_ports(1)[0], stage.load.ports, stage.limit,
                                  spans=spans) for spans in ("", haproxy_spans(stage.shop, port, ratio)))
    traced.name, traced.collector = f"haproxy, spans at {ratio * 100:g} %", port
    return [bare, traced]


def read(port, path):
    """Returns what a server on this machine answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def count_of(page, name):
    """The sum of a metric's samples."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((name + " ", name + "{")))


@contextlib.contextmanager
def page_open(admin):
    """Fetches what kvway's page shows as often as an open page does."""
    closed, failed = threading.Event(), []

    def look():
        try:
            while not closed.wait(PAGE_S):
                with urllib.request.urlopen(f"http://127.0.0.1:{admin}/status", timeout=10) as answer:
                    answer.read()
        except OSError as error:
            failed.append(error)

    page = threading.Thread(target=look)
    page.start()
    try:
        yield
    finally:
        closed.set()
        page.join()
    if failed:
        raise BenchError(f"the page: {failed[0]}")


def emit_spans(ours, theirs, **more):
    """Prints what spans cost kvway against HAProxy: each is given as its rounds without and with them."""
    key = "cpu_us_per_request"
    emit_ratios("proxy", key, key, "us", ours[1], {"haproxy with spans": theirs[1]}, strategy="prefixaware", **more)
    (our_ratio, their_ratio) = (report.ratio_of(with_them, bare, key) for bare, with_them in (ours, theirs))
    emit("proxy", "cpu_with_spans_over_without", our_ratio, "", peer="haproxy", ratio=our_ratio / their_ratio,
         peer_value=their_ratio, strategy="prefixaware", **more)
    say(f"CPU with spans over CPU without: kvway {our_ratio:.3f}, HAProxy {their_ratio:.3f}")


def bench_traces(options):
    """CPU per request with spans exported and the page open against neither; kvway's other threads count, too. In the
    same rounds HAProxy with spans exported against HAProxy without."""
    with Stage(options) as stage:
        bare, traced = stage.kvway("prefixaware"), start_with_traces(stage, options.traces)
        peers = peers_with_spans(stage, options.traces)
        with page_open(traced.admin):
            for body_kb in options.body_kb:
                results = pair_size(stage, bare, traced, body_kb, "traces and the page open", "kvway without traces",
                                    others=peers, traces=options.traces)
                if peers:
                    emit_spans([results[bare], results[traced]], [results[peer] for peer in peers],
                               body_kb=body_kb, threads=1, traces=options.traces)
        text = read(traced.admin, "/metrics")
        exported, dropped = (count_of(text, f"kvway_traces_{what}_total") for what in ("exported", "dropped"))
        say(f"{exported:.0f} requests exported, {dropped:.0f} dropped")
        theirs = [int(read(peer.collector, "/")) for peer in peers[1:]]
        for count in theirs:
            say(f"{count} requests of HAProxy's exported")
    if min([exported, *theirs]) < 100:
        raise BenchError("a collector got next to nothing")


def start_with_legs(stage):
    """Starts a kvway that has each prompt prefilled by one of two workers and decoded by one of two others."""
    roles = "".join(f"  - {{url: http://127.0.0.1:{port}, role: {role}}}\n"
                    for port, role in zip(stage.load.ports, ("prefill", "prefill", "decode", "decode")))
    taken = stage.take_ports(2)
    proxy = start_kvway(stage.shop, stage.proxy_core, taken, (), "prefixaware", stage.options.build,
                        roles=roles, extra="pd:\n  threshold: 0\n")
    proxy.admin = taken[1]
    proxy.strategy = "prefixaware, two legs"
    return proxy


def quantile_of(page, name, share):
    """Returns the upper bound of the histogram's bucket in which that share of the values ends, and how many values there are."""
    buckets = []
    for line in page.splitlines():
        if line.startswith(f"{name}_bucket"):
            bound = line.split('le="')[1].split('"')[0]
            buckets.append((float(bound), float(line.rsplit(" ", 1)[1])))
    count = buckets[-1][1] if buckets else 0
    return next((bound for bound, below in buckets if below >= share * count), float("inf")), int(count)


def bench_legs(options):
    """Measures CPU per request of two legs against one, and kvway's part of the hand-over between them."""
    with Stage(options, ("--transfers",)) as stage:
        bare, split = stage.kvway("prefixaware"), start_with_legs(stage)
        for body_kb in options.body_kb:
            pair_size(stage, bare, split, body_kb, "two legs", "kvway with one leg", legs=2)
        with urllib.request.urlopen(f"http://127.0.0.1:{split.admin}/metrics") as page:
            text = page.read().decode()
    seconds, count = quantile_of(text, "kvway_pd_handover_seconds", 0.99)
    if count == 0:
        raise BenchError("no request was split")
    table("kvway's part of the hand-over: from the last byte of the prefiller's answer to the first one sent",
          ["", "p99 us, at most", "hand-overs"], [["kvway", seconds * 1e6, count]])
    emit("proxy", "handover_us_p99", seconds * 1e6, "us", legs=2, strategy="prefixaware", threads=1)


def bench_proxy(options):
    """Measures CPU per request and requests per second against HAProxy and nginx."""
    if options.legs:
        bench_legs(options)
        return
    if options.traces is not None:
        bench_traces(options)
        return
    if options.keys:
        with Stage(options) as stage:
            bare, keyed = stage.kvway("prefixaware"), start_with_keys(stage)
            for body_kb in options.body_kb:
                pair_size(stage, bare, keyed, body_kb, "keys of clients", "kvway without keys", keys=True)
        return
    with Stage(options) as stage:
        proxies = stage.ours() + stage.peers()
        for body_kb in options.body_kb:
            proxy_size(stage, proxies, body_kb)
    if options.no_logs:
        return
    with Stage(options) as stage:
        proxies = stage.ours(("prefixaware",), logs=True)
        for proxy in proxies + (peers := stage.peers(logs=True)):
            proxy.name = proxy.name.replace("-log", "")
        proxy_size(stage, proxies + peers, 2, log=True)


def bench_stream(options):
    """Measures CPU per chunk and added delay of 400 event streams."""
    with Stage(options) as stage:
        proxies = stage.ours(("prefixaware",)) + stage.peers()

        class Direct:
            """The backends without a proxy: what the measurement itself adds."""
            name, strategy, port, pid = "direct", None, stage.load.ports[0], 0

        def job(proxy):
            result = stage.load.job("stream", port=proxy.port, pid=proxy.pid, streams=400,
                                    interval_us=options.interval_us, warmup_ms=500,
                                    duration_ms=int(options.seconds * 2000))
            if result["lost"]:
                raise BenchError(f"{proxy.name}: {result['lost']} of {result['sent']} events "
                                 "did not arrive")
            return result

        results = interleave(stage, [Direct] + proxies, job)
        direct = results.pop(Direct)
        for rounds in results.values():
            for result, base in zip(rounds, direct):
                for key in ("p50", "p99"):
                    result[f"added_{key}"] = result[f"delay_us_{key}"] - base[f"delay_us_{key}"]
        rows = cpu_rows(results, "cpu_us_per_chunk")
        for row, rounds in zip(rows, results.values()):
            row += [median_of(rounds, "added_p50"), median_of(rounds, "added_p99")]
        table(f"stream, 400 streams, {1e6 / options.interval_us:g} events/s each, "
              f"{options.rounds} rounds; direct delay p50 {median_of(direct, 'delay_us_p50'):.1f} "
              f"p99 {median_of(direct, 'delay_us_p99'):.1f} us",
              ["", "CPU us/chunk", "spread", "of its core", "added us p50", "p99"], rows)
        ours, peers = split(results)
        for strategy, rounds in ours.items():
            for metric, key in (("cpu_us_per_chunk", "cpu_us_per_chunk"),
                                ("added_delay_us_p50", "added_p50"),
                                ("added_delay_us_p99", "added_p99")):
                emit_ratios("stream", metric, key, "us", rounds, peers, strategy=strategy,
                            streams=400, threads=1)


def bench_idle(options):
    """Measures the memory of an idle kept-alive client."""
    rounds = max(1, min(options.rounds, 3))
    measured = {}
    for _ in range(rounds):
        with Stage(options) as stage:  # fresh processes, since a process' memory does not shrink again
            for proxy in stage.ours(("prefixaware",)) + stage.peers():
                # HAProxy counts two descriptors for each of its connections.
                room = (stage.limit - 200) // 2 if "haproxy" in proxy.name else stage.limit - 400
                clients = min(options.clients, int(room / 1.06))
                result = stage.load.job("idle", port=proxy.port, pid=proxy.pid,
                                        connections=clients)
                measured.setdefault((proxy.name, proxy.strategy), []).append(result)
    rows = [[f"kvway {strategy}" if strategy else name, median_of(results, "bytes_per_client"),
             results[0]["clients"], f"{median_of(results, 'pss_before') / 2**20:.1f} MiB"]
            for (name, strategy), results in measured.items()]
    table(f"idle, {rounds} rounds with fresh processes; user memory (PSS), not the kernel's",
          ["", "bytes/client", "clients", "before"], rows)
    peers = {name: results for (name, strategy), results in measured.items() if not strategy}
    for (name, strategy), results in measured.items():
        if strategy:
            emit_ratios("idle", "bytes_per_client", "bytes_per_client", "B", results, peers,
                        strategy=strategy, clients=results[0]["clients"])


def bench_loops(options):
    """Measures CPU per request of two event loops against one at the same load, and how evenly the two are loaded."""
    if options.peers_only:
        return
    with Stage(options) as stage:
        both = [stage.proxy_core, stage.load_core]
        one = stage.kvway("prefixaware", core=both, loops=1)
        two = stage.kvway("prefixaware", core=both, loops=2)

        def job(proxy):
            return stage.load.job("requests", port=proxy.port, pid=proxy.pid, body=2048,
                                  connections=256, rate=options.rate, warmup_ms=500,
                                  duration_ms=int(options.seconds * 1000))

        results = interleave(stage, [one, two], job)
        rows = []
        for count, proxy in ((1, one), (2, two)):
            rounds = results[proxy]
            rows.append([f"{count} loop{'s' if count > 1 else ''}",
                         median_of(rounds, "cpu_us_per_request"),
                         median_of(rounds, "requests_per_second"),
                         median_of(rounds, "latency_us_p99"),
                         f"{median_of(rounds, 'busiest_thread_share') * 100:.0f} %"])
        table(f"loops, {options.rate} requests/s, 256 connections, {options.rounds} rounds",
              ["", "CPU us/request", "requests/s", "p99 us", "busiest thread's share"], rows)
        emit("loops", "cpu_us_per_request", median_of(results[two], "cpu_us_per_request"), "us",
             peer="one loop", ratio=report.ratio_of(results[two], results[one],
                                                    "cpu_us_per_request"),
             peer_value=median_of(results[one], "cpu_us_per_request"), threads=2,
             strategy="prefixaware", body_kb=2)
        share = median_of(results[two], "busiest_thread_share")
        emit("loops", "busiest_loop_share", share, "share", peer="even", ratio=share / 0.5,
             threads=2, strategy="prefixaware")


def bench_scan(options):
    """Runs the program that compares the body scan's bytes per second with jansson's."""
    program = os.path.join(options.build, "bench/micro/scan_bench")
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    core = cores()[0]
    done = subprocess.run(["taskset", "-c", str(core), program], check=False)
    if done.returncode != 0:
        raise BenchError(f"scan_bench ended with status {done.returncode}")
    say()
