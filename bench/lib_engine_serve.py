"""A real vLLM engine for `engine`: its model, its process, requests to it, its processor time.

The environment with vLLM is the user's (KVW_ENGINE_VENV); nothing is installed here. The model has random
weights and is made once, into a folder that the user names. It is larger than the one of the tests: 4,000
tokens of prefill take a few seconds on one core, and a token's keys and values are 6 KiB. That is much for
so little computation: a model of eight billion parameters has some twenty times as many operations
for each byte that a cache moves, so what a cache costs shows here more than it would there.

Each engine computes with one thread. float32, since bfloat16 attention needs instructions that not every
virtual machine really has.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time

import lib_report as report
from lib_engine_switch import GOT, HAVE, UNKNOWN, WANTED, open_switch
from lib_procs import BenchError, wait_ready

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTS = os.path.join(ROOT, "tests", "engine")
SIZES = {"layers": 6, "hidden": 512, "intermediate": 1536, "heads": 8, "kv-heads": 2, "head-dim": 64}
NAME = "bench"
BLOCKS = 640  # blocks of 32 tokens in the engine's own cache: room for two prompts of 8,000 tokens
MOST_TOKENS = 8704  # longest prompt and answer together
LEAST_TOKEN, END_TOKEN = 10, 600  # prompts' token ids lie in this range; the model has 630
START_SECONDS = 400
TICKS = os.sysconf("SC_CLK_TCK")


def find_vllm():
    """Returns the path of the environment with vLLM; BenchError says what to do where there is none."""
    folder = os.environ.get("KVW_ENGINE_VENV", "")
    if not folder:
        raise BenchError("KVW_ENGINE_VENV names no Python environment with vLLM; "
                         "tests/engine/install_vllm_cpu.sh DIR makes one (7 GB)")
    if not os.access(os.path.join(folder, "bin", "vllm"), os.X_OK):
        raise BenchError(f"KVW_ENGINE_VENV: no bin/vllm in {folder}; "
                         "tests/engine/install_vllm_cpu.sh DIR makes such an environment (7 GB)")
    return folder


def find_model(venv, folder):
    """Returns the model's folder below `folder`, and makes it if it does not exist yet."""
    sizes = "-".join(str(size) for size in SIZES.values())
    path = os.path.join(folder, f"engine-model-{sizes}")
    if os.path.exists(os.path.join(path, "config.json")):
        return path
    report.say(f"making a model of random weights in {path}")
    options = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))]
    done = subprocess.run([os.path.join(venv, "bin", "python"), os.path.join(TESTS, "mk_tiny_model.py"),
                           path + ".part", *options], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"mk_tiny_model.py: {(done.stderr or 'failed').strip().splitlines()[-1]}")
    os.rename(path + ".part", path)
    return path


def children_of(pid):
    """Returns a process and all its descendants: {pid: (name, seconds of processor time)}."""
    stats, below = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            words = rest.split()
            stats[int(entry)] = (name, (int(words[11]) + int(words[12])) / TICKS)
            below.setdefault(int(words[1]), []).append(int(entry))
    found, waiting = {}, [pid]
    while waiting:
        one = waiting.pop()
        if one in stats:
            found[one] = stats[one]
            waiting += below.get(one, [])
    return found


def threads_of(pid):
    """Seconds of processor time of a process' threads by name; "main" is the one that computes."""
    found = {}
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError):
                with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8", errors="replace") as file:
                    name = "main" if task == str(pid) else file.read().strip()
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as file:
                    found[name] = found.get(name, 0.0) + int(file.read().split()[0]) / 1e9
    return found


def machine_cpu():
    """Returns the seconds for which the processors have worked since the machine started, summed over them."""
    with open("/proc/stat", encoding="utf-8") as file:
        words = file.readline().split()[1:]
    return sum(int(words[i]) for i in (0, 1, 2, 5, 6)) / TICKS


def plugin_folder(shop):
    """A folder that, on PYTHONPATH, makes lib_engine_nospin and lib_engine_switch plugins of vLLM."""
    about = shop.path("kvway_bench-0.dist-info")
    os.makedirs(about, exist_ok=True)
    for name, words in (("METADATA", "Metadata-Version: 2.1\nName: kvway-bench\nVersion: 0\n"),
                        ("entry_points.txt",
                         "[vllm.general_plugins]\nkvway_bench_nospin = lib_engine_nospin:install\n"
                         "kvway_bench_switch = lib_engine_switch:install\n")):
        with open(os.path.join(about, name), "w", encoding="utf-8") as file:
            file.write(words)
    return shop.folder


class Engine:
    """One `vllm serve`. cache: libkvtier's configuration; None: without the connector.

    switch: the connector can be taken away and given back (lib_engine_switch.py). core: where it runs; None:
    anywhere.
    """

    def __init__(self, shop, label, setup, cache=None, switch=False, core=None):
        """setup: (environment with vLLM, model, build directory)."""
        venv, model, build = setup
        self.shop, self.label = shop, label
        self.port = self.shop.ports(1)[0]
        self.log = f"{label}.log"
        self.switch = None
        command = [os.path.join(TESTS, "serve_vllm.sh")]
        if cache is not None:
            command += ["--kv-transfer-config", json.dumps({
                "kv_connector": "KVTierConnector", "kv_connector_module_path": "kvtier.vllm",
                "kv_role": "kv_both", "kv_connector_extra_config": {"cache": cache}})]
        settings = {
            "VENV": venv, "MODEL": model, "NAME": NAME, "PORT": str(self.port), "EVENTS": "0",
            "BLOCKS": str(BLOCKS), "MAXLEN": str(MOST_TOKENS), "DTYPE": os.environ.get("DTYPE", "float32"),
            "CORE": "nobind", "PYTHONPATH": ":".join([
                os.path.join(ROOT, "cache", "python"), os.path.join(ROOT, "bench"), plugin_folder(shop)]),
            "KVTIER_LIBRARY": os.path.join(os.path.abspath(build), "cache/core/libkvtier.so.1")}
        if switch:
            settings["KVWAY_BENCH_SWITCH"] = shop.path(f"{label}.switch")
            with open(settings["KVWAY_BENCH_SWITCH"], "wb") as file:
                file.write(HAVE + UNKNOWN)
            self.switch = open_switch(settings["KVWAY_BENCH_SWITCH"])
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
        self.process = shop.start(command, core=core, log=self.log, env={**environment, **settings},
                                  start_new_session=True)

    def wait_ready(self):
        """Waits until the engine answers; raises BenchError with the log's end if it does not, or runs without its cache."""
        try:
            wait_ready(f"http://127.0.0.1:{self.port}/health", self.process, START_SECONDS)
        except BenchError as error:
            raise BenchError(f"engine {self.label}: {error}\n{self.shop.log_tail(self.log)}") from error
        with open(self.shop.path(self.log), encoding="utf-8", errors="replace") as file:
            said = [line for line in file if "degraded mode (recompute)" in line]
        if said:
            raise BenchError(f"engine {self.label}: {said[0].strip()}")

    def stop(self):
        """Ends the engine and its workers."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.shop.processes.remove(self.process)

    def cpu(self):
        """Returns seconds of processor time so far: (of all its processes, of the worker's process alone)."""
        tree = children_of(self.process.pid).values()
        return sum(used for _, used in tree), sum(used for name, used in tree if "Worker" in name)

    def threads(self):
        """Seconds of processor time of the worker's threads so far, by name."""
        workers = [pid for pid, (name, _) in children_of(self.process.pid).items() if "Worker" in name]
        return threads_of(workers[0]) if workers else {}

    def want(self, wanted):
        """Chooses whether requests meet the connector (HAVE) or not (NONE), from the next one on that comes alone."""
        self.switch[WANTED:WANTED + 1], self.switch[GOT:GOT + 1] = wanted, UNKNOWN

    def check_got(self, wanted):
        """Raises BenchError unless the last request met the connector, or not, as want() had chosen."""
        if self.switch[GOT:GOT + 1] != wanted:
            raise BenchError(f"engine {self.label}: was to answer with connector {wanted}, did with "
                             f"{self.switch[GOT:GOT + 1]} (lib_engine_switch.py)")

    def signal(self, number):
        """Sends a signal to all processes of the engine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def page(self, path):
        """Returns the text of a page of the engine's server."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(link):
            link.request("GET", path)
            return link.getresponse().read().decode()

    def forget(self):
        """Empties the engine's own prefix cache, so that only the connector can answer."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(link):
            link.request("POST", "/reset_prefix_cache")
            answer = link.getresponse()
            answer.read()
        if answer.status != 200:
            raise BenchError(f"engine {self.label}: /reset_prefix_cache answers {answer.status}")

    def cached(self):
        """Prompt tokens so far that were not computed, by where they came from."""
        found = {}
        for line in self.page("/metrics").splitlines():
            if line.startswith("vllm:prompt_tokens_cached_by_source_total{"):
                source = line.split('source="')[1].split('"')[0]
                found[source] = found.get(source, 0) + float(line.rpartition(" ")[2])
        return found

    def count(self, metric):
        """Returns a counter, summed over its labels."""
        return sum(float(line.rpartition(" ")[2]) for line in self.page("/metrics").splitlines()
                   if line.split("{")[0] == metric)

    def ask(self, prompt, tokens):
        """Has the engine stream `tokens` tokens, without sampling; returns (seconds to the first one, seconds to the last one)."""
        body = json.dumps({"model": NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True})
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        with contextlib.closing(link):
            began, first = time.monotonic(), None
            link.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            answer = link.getresponse()
            if answer.status != 200:
                raise BenchError(f"engine {self.label}: {answer.status} {answer.read(300).decode()}")
            for line in answer:
                if first is None and line.startswith(b"data: {"):
                    first = time.monotonic() - began
        if first is None:
            raise BenchError(f"engine {self.label}: an answer without a token")
        return first, time.monotonic() - began


def new_prompt(rng, length):
    """Returns random token ids as a new prompt."""
    return [rng.randrange(LEAST_TOKEN, END_TOKEN) for _ in range(length)]


class Others:
    """The processor time that other programs take while something is measured."""

    def __init__(self):
        self.began, self.at = time.monotonic(), self._now()

    def _now(self):
        """Returns processor time: (of the whole machine, of this process and all that it has started)."""
        own = sum(used for _, used in children_of(os.getpid()).values())
        return machine_cpu(), own

    def cores(self):
        """Returns how many cores the other programs used on average."""
        busy, own = self._now()
        elapsed = max(1e-3, time.monotonic() - self.began)
        return max(0.0, (busy - self.at[0]) - (own - self.at[1])) / elapsed
