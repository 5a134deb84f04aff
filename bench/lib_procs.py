"""Processes of a benchmark: where they run, how they start, how they end.

Every process is pinned: the proxy under test to one core, load and backends to the other. All are
ended by their own handle when the benchmark ends, however it ends.
"""

import json
import os
import random
import resource
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request


class BenchError(Exception):
    """The measurement cannot be made; the message says why."""


def wanted(options, part):
    """Returns whether this part of a benchmark is to run (`--only`)."""
    return options.only is None or part in options.only


def raise_descriptor_limit():
    """Raises the limit of open files as high as it goes; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 65536:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
            return 65536
        except (ValueError, PermissionError):
            pass
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def cores():
    """Returns (core of the proxy, core of the load): the first two that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise BenchError("two cores are needed: one for the proxy, one for the load")
    return usable[0], usable[1]


def pinned(args, core):
    """Returns the command that runs `args` on `core` (a number, a list, or None: anywhere)."""
    if core is None:
        return args
    return ["taskset", "--cpu-list", ",".join(map(str, core if isinstance(core, list) else [core])), *args]


def keep_ports(count):
    """Sockets that keep a row of ports, outside the range of outgoing connections, for the servers of one benchmark.

    Each is bound here and does not listen. It was bound without SO_REUSEADDR, which the kernel refuses where another
    socket is bound, so no two programs keep one port; it has the option from then on, so that a server that sets
    it, as servers do, may bind the port and listen.
    """
    bases = list(range(18000, 32000 - count, 64))
    random.shuffle(bases)
    for base in bases:
        sockets = []
        try:
            for port in range(base, base + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
        except OSError:
            for sock in sockets:
                sock.close()
            continue
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return sockets
    raise BenchError("no free ports on 127.0.0.1 between 18000 and 32000")


def wait_ready(url, process, seconds=15):
    """Waits until url answers 200; raises BenchError if the process ends before, or the time is over."""
    deadline = time.monotonic() + seconds
    context = ssl._create_unverified_context() if url.startswith("https:") else None
    last = "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(f"{process.args[-1]}: ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=1, context=context) as answer:
                if answer.status == 200:
                    return
                last = f"status {answer.status}"
        except OSError as error:
            last = str(error)
        time.sleep(0.05)
    raise BenchError(f"{url}: not ready after {seconds} s ({last})")


class Workshop:
    """A temporary folder, kept ports and the processes that use them; a context manager that ends them all.

    A process also gets SIGTERM from the kernel when the thread that started it has ended, so it does not outlive a
    benchmark that was killed.
    """

    open_now = set()  # workshops whose `with` has not ended
    ending = False    # True: this program is to end, so no further workshop is opened

    def __init__(self):
        if self.ending:
            raise BenchError("this program was asked to end")
        self.folder = tempfile.mkdtemp(prefix="kvway-bench-")
        self.processes = []
        self.kept = []
        self.open_now.add(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for sock in self.kept:
            sock.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.open_now.discard(self)

    def terminate(self):
        """Sends SIGTERM to all processes, and does not wait for their end."""
        for process in reversed(self.processes):
            process.terminate()

    def ports(self, count):
        """Ports in one row on 127.0.0.1, which no other program gets until this ends."""
        sockets = keep_ports(count)
        self.kept += sockets
        return [sock.getsockname()[1] for sock in sockets]

    def path(self, name):
        """Returns the path of a file in the workshop's folder."""
        return os.path.join(self.folder, name)

    def start(self, args, core=None, log=None, **more):
        """Starts a program pinned to `core` (a number, a list, or None); output goes to log."""
        out = open(self.path(log), "ab") if log else subprocess.DEVNULL
        try:
            process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "--", *pinned(args, core)], stderr=out,
                                       **{"stdout": out, "stdin": subprocess.DEVNULL, **more})
        finally:
            if log:
                out.close()
        self.processes.append(process)
        return process

    def stop(self, process):
        """Ends one process early."""
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.processes.remove(process)

    def log_tail(self, log):
        """Returns the last lines of a log, for messages."""
        try:
            with open(self.path(log), encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-5:]).strip()
        except OSError:
            return ""


class Load:
    """kvb-load: backends on four ports, and jobs one after the other."""

    def __init__(self, shop, program, core, first_port, backends=4, blocks=65536, more=()):
        self.ports = list(range(first_port, first_port + backends))
        self.process = shop.start(
            [program, "--serve", f"127.0.0.1:{first_port}", "--backends", str(backends),
             "--blocks", str(blocks), *more],
            core=core, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        wait_ready(f"http://127.0.0.1:{first_port}/health", self.process)

    def attempt(self, kind, **keys):
        """Runs one job and returns its result, which counts what failed."""
        words = " ".join(f"{key}={value}" for key, value in keys.items())
        self.process.stdin.write(f"{kind} {words}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise BenchError("kvb-load ended")
        return json.loads(line)

    def job(self, kind, **keys):
        """Runs one job as attempt() does; raises BenchError if any request failed."""
        result = self.attempt(kind, **keys)
        if result["errors"]:
            words = " ".join(f"{key}={value}" for key, value in keys.items())
            raise BenchError(f"{kind} {words}: {result['errors']} errors, the first: "
                             f"{result['first_error']}")
        return result
