"""The proxies that are measured: kvway and its peers, each started with a written configuration."""

import glob
import os
import subprocess
import time

from lib_procs import BenchError, wait_ready

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")


class Proxy:
    """A running proxy: name, port, and the process whose CPU and memory count."""

    def __init__(self, name, port, process, pid, strategy=None):
        self.name = name
        self.port = port
        self.process = process
        self.pid = pid
        self.strategy = strategy  # kvway's strategy; None: a peer

    def label(self):
        """Returns its name as tables show it."""
        return f"kvway {self.strategy}" if self.strategy else self.name


def fill(template, values):
    """Returns a template of bench/peers with its @NAMES@ replaced."""
    with open(os.path.join(PEERS, template), encoding="utf-8") as file:
        text = file.read()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def worker_names(ports):
    """Returns {WORKER1: a worker's address, ...} for templates."""
    return {f"WORKER{i + 1}": port for i, port in enumerate(ports)}


def write(shop, name, text):
    """Writes a configuration into the workshop; returns its path."""
    path = shop.path(name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def wait_listening(proxy_name, port, process, log_tail, scheme="http"):
    """Waits until the proxy passes a request on."""
    try:
        wait_ready(f"{scheme}://127.0.0.1:{port}/health", process)
    except BenchError as error:
        raise BenchError(f"{proxy_name}: {error}\n{log_tail()}") from error


def haproxy_tracer():
    """Returns the path of the tracer that the distribution has for HAProxy's spans; None: it is not installed."""
    return next(iter(glob.glob("/usr/lib/*/libdd_opentracing_plugin.so")), None)


def haproxy_spans(shop, collector, ratio):
    """Writes what HAProxy needs for spans of this share of its requests; returns its line that turns them on."""
    tracer = write(shop, "haproxy-tracer.json", fill("haproxy-tracer.json.in", {"COLLECTOR": collector}))
    path = write(shop, "haproxy-spans.cfg", fill("haproxy-spans.cfg.in", {
        "TRACER": tracer, "PLUGIN": haproxy_tracer(), "PERCENT": ratio * 100}))
    return f"filter opentracing id spans config {path}"


def start_haproxy(shop, core, port, workers, limit, logs=False, more="", tls=None, spans=""):
    """HAProxy with one thread. Its access log goes to standard output, which is a file. tls: a PEM
    file with certificate and key; spans: what haproxy_spans() returned."""
    name = f"haproxy{'-log' if logs else ''}{'-32k' if more else ''}{'-with-spans' if spans else ''}"
    text = fill("haproxy.cfg.in", {
        "PORT": port,
        "MAXCONN": min(20000, (limit - 200) // 2),  # HAProxy needs two descriptors for each connection
        "LOG_TARGET": ("log stdout format raw local0 info" if logs else "") + more,
        "LOG": "log global\n\toption httplog" if logs else "",
        "TLS": f"ssl crt {tls} alpn http/1.1" if tls else "",
        "SPANS": spans,
        **worker_names(workers)})
    path = write(shop, f"{name}.cfg", text)
    log = f"{name}.out"
    # The filter of spans takes every path as below the folder in which HAProxy runs.
    process = shop.start(["haproxy", "-db", "-f", path], core=core, log=log, cwd="/")
    wait_listening(name, port, process, lambda: shop.log_tail(log), "https" if tls else "http")
    return Proxy(name, port, process, process.pid)


def start_nginx(shop, core, port, workers, limit, logs=False, tls=None):
    """nginx with one worker process; the worker's CPU counts, the master sleeps."""
    name = f"nginx{'-log' if logs else ''}"
    folder = shop.path(name)
    os.makedirs(folder)
    text = fill("nginx.conf.in", {
        "PORT": port,
        "DIR": folder,
        "CONNECTIONS": limit - 100,
        "LOG": f"{folder}/access.log combined buffer=64k flush=1s" if logs else "off",
        "REQUEST_BUFFERING": "on",
        "SSL": " ssl" if tls else "",
        "TLS": f"ssl_certificate {tls}; ssl_certificate_key {tls}; ssl_protocols TLSv1.2 TLSv1.3;" if tls else "",
        **worker_names(workers)})
    path = write(shop, f"{name}.conf", text)
    log = f"{name}.out"
    process = shop.start(["nginx", "-e", f"{folder}/nginx-error.log", "-c", path], core=core, log=log)
    wait_listening(name, port, process, lambda: shop.log_tail(log), "https" if tls else "http")
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True,
                              check=True).stdout.split()
    return Proxy(name, port, process, int(children[0]))


def start_kvway(shop, core, ports, workers, strategy, build, loops=1, logs=False, extra="",
                routing="", tls=None, scheme="http", roles=""):
    """kvway; ports are its own two: for clients and for administration. `extra` is more YAML,
    `routing` more of the section routing, `roles` entries of workers."""
    name = f"kvway-{strategy}{'-log' if logs else ''}-{ports[0]}"
    urls = "".join(f"  - url: {scheme}://127.0.0.1:{port}\n" for port in workers)
    access = shop.path(f"{name}.access") if logs else "off"
    path = write(shop, f"{name}.yaml", f"""listen: 127.0.0.1:{ports[0]}
loops: {loops}
admin:
  listen: 127.0.0.1:{ports[1]}
drain:
  settle: 0s
workers:
{urls}{roles}routing:
  strategy: {strategy}
{routing}log:
  level: warn
  access: {access}
{f"tls: {{certificate: {tls}, key: {tls}}}" if tls else ""}
{extra}""")
    log = f"{name}.out"
    process = shop.start([os.path.join(build, "src", "router", "kvway"), "-c", path], core=core, log=log)
    try:
        wait_ready(f"{'https' if tls else 'http'}://127.0.0.1:{ports[0]}/ready", process)
    except BenchError as error:
        raise BenchError(f"{name}: {error}\n{shop.log_tail(log)}") from error
    time.sleep(0.5)  # time for the first probes of all workers
    return Proxy("kvway", ports[0], process, process.pid, strategy)
