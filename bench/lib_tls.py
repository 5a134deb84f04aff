"""TLS: handshakes, full and resumed, and requests over kept-alive connections, against HAProxy and nginx.

All have the same certificate (P-256), and the clients offer one version, cipher and group, so that all do
the same work: TLS 1.3, TLS_AES_128_GCM_SHA256, X25519. Everything else of TLS is as each program has it by
default: kvway sends one session ticket and none at a resumption, its peers two and one. A client's handshake costs
as much as a server's, so clients on one core do not fill the proxy's: what is given is CPU per handshake, and how
many of them make a second of it.
"""

import subprocess

from lib_peers import start_haproxy, start_kvway, start_nginx
from lib_procs import BenchError
from lib_proxy import Stage, cpu_rows, interleave, split
from lib_report import emit_ratios, median_of, table

STRATEGY = "prefixaware"


def make_certificate(shop):
    """Makes a PEM file with a certificate for 127.0.0.1 and its key."""
    path, key = shop.path("bench.pem"), shop.path("bench.key")
    done = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", path],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"openssl: {done.stderr.strip()[-300:]}")
    with open(key, encoding="utf-8") as file:
        text = file.read()
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)
    return path


def handshakes(stage, proxies, resume):
    """Measures one kind of handshake and prints its table and JSON lines."""
    options = stage.options

    def job(proxy):
        result = stage.load.job("handshakes", port=proxy.port, pid=proxy.pid, connections=32, resume=int(resume),
                                warmup_ms=300, duration_ms=int(options.seconds * 1000))
        if not result["handshakes"]:
            raise BenchError(f"{proxy.name}: no handshake ended")
        result["per_core_second"] = 1e6 / result["cpu_us_per_handshake"]
        return result

    results = interleave(stage, proxies, job)
    kind = "resumed" if resume else "full"
    rows = cpu_rows(results, "cpu_us_per_handshake")
    for row, rounds in zip(rows, results.values()):
        row += [median_of(rounds, "per_core_second"), median_of(rounds, "latency_us_p99")]
    table(f"TLS 1.3 handshakes, {kind}, 32 at once, {options.rounds} rounds of {options.seconds:g} s",
          ["", "CPU us/handshake", "spread", "of its core", "a second of its core", "p99 us"], rows)
    ours, peers = split(results)
    for rounds in ours.values():
        emit_ratios("tls", "cpu_us_per_handshake", "cpu_us_per_handshake", "us", rounds, peers, kind=kind, threads=1)
        emit_ratios("tls", "handshakes_per_core_second", "per_core_second", "1/s", rounds, peers,
                    smaller_is_better=False, kind=kind, threads=1)


def kept_alive(stage, proxies, body_kb):
    """Measures one body size over kept-alive connections and prints its table and JSON lines."""
    options = stage.options
    connections = 16 if body_kb >= 256 else 32

    def job(proxy):
        return stage.load.job("requests", port=proxy.port, pid=proxy.pid, body=body_kb * 1024, tls=1,
                              connections=connections, warmup_ms=300, duration_ms=int(options.seconds * 1000))

    results = interleave(stage, proxies, job)
    rows = cpu_rows(results, "cpu_us_per_request")
    for row, rounds in zip(rows, results.values()):
        row += [median_of(rounds, "requests_per_second"), median_of(rounds, "latency_us_p99")]
    table(f"TLS 1.3, {body_kb} KB bodies, {connections} kept-alive connections, "
          f"{options.rounds} rounds of {options.seconds:g} s",
          ["", "CPU us/request", "spread", "of its core", "requests/s", "p99 us"], rows)
    ours, peers = split(results)
    for rounds in ours.values():
        emit_ratios("tls", "cpu_us_per_request", "cpu_us_per_request", "us", rounds, peers, strategy=STRATEGY,
                    body_kb=body_kb, threads=1)


def to_workers(stage, proxies, body_kb):
    """Measures one body size on its way to a worker without TLS and with it, and prints its table and JSON lines."""
    options = stage.options

    def job(proxy):
        return stage.load.job("requests", port=proxy.port, pid=proxy.pid, body=body_kb * 1024,
                              connections=16 if body_kb >= 256 else 32, warmup_ms=300,
                              duration_ms=int(options.seconds * 1000))

    results = interleave(stage, proxies, job)
    table(f"to workers by TLS 1.3, {body_kb} KB bodies, {options.rounds} rounds of {options.seconds:g} s",
          ["", "CPU us/request", "spread", "of its core"], cpu_rows(results, "cpu_us_per_request"))
    clear, secure = proxies
    emit_ratios("tls", "cpu_us_per_request", "cpu_us_per_request", "us", results[clear],
                {secure.strategy: results[secure]}, strategy=clear.strategy, body_kb=body_kb, threads=1, upstream=True)


def bench_to_workers(options):
    """What TLS to workers costs. The worker is kvway, too, which takes TLS off in front of the backends; only the one in
    front of it counts."""
    with Stage(options) as stage:
        pem = make_certificate(stage.shop)
        secure = stage.kvway(STRATEGY, core=stage.load_core, tls=pem)
        plain = stage.kvway(STRATEGY, core=stage.load_core)
        proxies = []
        kinds = [("clear", plain, ""), ("TLS", secure, f"upstream: {{tls: {{ca_file: {pem}}}}}\n")]
        for name, worker, extra in kinds:
            proxy = start_kvway(stage.shop, stage.proxy_core, stage.take_ports(2), [worker.port], STRATEGY,
                                options.build, extra=extra, scheme="https" if extra else "http")
            proxy.strategy = f"to workers, {name}"
            proxies.append(proxy)
        for body_kb in options.body_kb:
            to_workers(stage, proxies, body_kb)


def bench_tls(options):
    """Measures handshakes a second and their CPU, and CPU per request at 2, 32 and 256 KB."""
    if options.to_workers:
        bench_to_workers(options)
        return
    with Stage(options) as stage:
        pem = make_certificate(stage.shop)
        proxies = [
            start_kvway(stage.shop, stage.proxy_core, stage.take_ports(2), stage.load.ports, STRATEGY, options.build,
                        tls=pem),
            start_haproxy(stage.shop, stage.proxy_core, stage.take_ports(1)[0], stage.load.ports, stage.limit, tls=pem),
            start_nginx(stage.shop, stage.proxy_core, stage.take_ports(1)[0], stage.load.ports, stage.limit, tls=pem),
        ]
        if options.peers_only:
            proxies = proxies[1:]
        for resume in (False, True):
            handshakes(stage, proxies, resume)
        for body_kb in options.body_kb:
            kept_alive(stage, proxies, body_kb)
