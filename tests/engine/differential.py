#!/usr/bin/env python3
"""differential.py - greedy answers of real vLLM engines with kvtier inside, against those of one without any cache.

    export KVW_BUILD=build-release KVW_ENGINE_VENV=~/vllm KVW_ENGINE_MODEL=~/tiny PYTHONPATH=tests/integration
    tests/engine/differential.py                        # 200 requests of mixed kinds, one engine
    tests/engine/differential.py --requests 2000 one
    tests/engine/differential.py one chunked async ngram tp pp dp redis kvtierd node hybrid images

Each mode is an engine (redis, kvtierd, node: two that share a tier, or a node's one store) with little room of its
own, so that requests are preempted and most prompts come from kvtier. Under the requests it is killed, restarted,
reset, paused and put to sleep, its weights change in place and behind the name of its folder, an adapter's files
change (mixture.py), and kvtierd is killed.

What each answer has to be says an engine of the same options without connector and without prefix caching, asked one
at a time. An answer that differs from it is asked once more of an engine without connector whose own prefix cache
holds just what kvtier's engine had: if that says the same, the split of the computation rounds so, and the line counts
it as `split`. Any other is a difference, and the exit status is 1. --zeroed is the control: every chunk that is loaded
is zeros, and differences must be found.
"""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

import pictures  # noqa: E402
from connected import BLOCK, CHUNK, ConnectedEngine, of_size, through  # noqa: E402
from mixture import ADAPTERS, EVENTS, Mixture  # noqa: E402
from rig.client import ask  # noqa: E402
from rig.kvtierd import Kvtierd  # noqa: E402
from rig.redis import RedisServer  # noqa: E402
from rig.wait import until  # noqa: E402
from server import HERE, MODEL, VENV  # noqa: E402

HITS = "vllm:prompt_tokens_cached_by_source_total"
MOST = 1500  # tokens of a prompt and its answer
BLOCKS = 128  # of 32 tokens: two or three requests of the eight at once
THREADS = 8
WHILE = ("kill -9", "pause", "reset running", "daemon")  # events that come while requests run
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
WINDOWS = ("--window", "100", "--layers", "6", "--full-every", "3")  # four blocks, which are two chunks
STEPS = ("--max-num-batched-tokens", "192")  # of windows, all blocks of a step have to fit
IMAGES = ("--enable-scale-out", "--limit-mm-per-prompt", '{"image": 4}')  # tokens and images in, tokens out
SOME = ("forget", "kill -9", "forget", "reset running")  # for engines of several processes, which start slowly
REPLICAS = ("--data-parallel-size", "2", "--api-server-count", "1")
NODE = (  # after a reset an engine shares nothing until it starts again
    "forget", "forget", "daemon", "forget", "kill -9", "forget", "adapter", "restart", "swap", "forget", "adapter", "forget",
    "pause", "reset running", "sleep", "reload",
)  # fmt: skip
SHARED = tuple(event for event in NODE if event != "daemon")


class Mode:
    """options: of `vllm serve`; same: those that the reference needs, too. shared: name of what engines share, of which
    there are two, or `replicas` of one server that have a store of their own each, unless they share one.
    plugin: module of this folder, of which vLLM calls install(). model: options of the model that is made."""

    images = property(lambda self: "--images" in self.model)
    engines = property(lambda self: 2 if self.shared and self.replicas == 1 else 1)
    stores = property(lambda self: self.replicas if self.shared is None else 1)

    def __init__(
        self, options=(), same=False, adapters=True, shared=None, events=EVENTS, plugin=None, model=(), replicas=1
    ):
        self.options, self.adapters, self.shared, self.model = list(options), adapters, shared, model
        self.events, self.plugin, self.replicas = events, plugin, replicas
        self.reference = self.options if same else []


MODES = {
    "one": Mode(),
    "chunked": Mode(["--max-num-batched-tokens", "192"]),
    "async": Mode(plugin="async_on_cpu"),
    "ngram": Mode(["--speculative-config", json.dumps(NGRAM)], same=True, events=SOME),
    "tp": Mode(["--tensor-parallel-size", "2"], same=True, events=(*SOME, "reload")),
    "pp": Mode(["--pipeline-parallel-size", "2"], same=True, events=SOME, plugin="pipeline_on_cpu"),
    "dp": Mode(REPLICAS, events=SOME, replicas=2),
    "dp-node": Mode(REPLICAS, events=(*SOME, "daemon"), shared="node", replicas=2),
    "hybrid": Mode(STEPS, same=True, adapters=False, model=WINDOWS),
    "hybrid-async": Mode(STEPS, same=True, adapters=False, plugin="async_on_cpu", model=WINDOWS),
    "hybrid-tp": Mode([*STEPS, "--tensor-parallel-size", "2"], True, False, events=SOME, model=WINDOWS),
    "images": Mode(IMAGES, same=True, model=("--images",)),
    "hybrid-redis": Mode(STEPS, True, False, "redis", SHARED, model=WINDOWS),
    "hybrid-kvtierd": Mode(STEPS, True, False, "kvtierd", SHARED, model=WINDOWS),
    "redis": Mode(shared="redis"),
    "kvtierd": Mode(shared="kvtierd"),
    "node": Mode(shared="node", events=NODE),
}


class Files:
    """Two versions of a model and of each adapter, and the folders in which one of them is the current one. options: of
    the model."""

    def __init__(self, folder, options=()):
        self.folder = folder / hashlib.sha256(json.dumps(options).encode()).hexdigest()[:8] if options else folder
        self.folder.mkdir(exist_ok=True)
        folder = self.folder
        self.at = {}
        python = f"{VENV}/bin/python"
        for version in (0, 1):
            model = folder / f"model.{version}"
            self._make([python, HERE / "mk_tiny_model.py", model, "--seed", str(version), *options])
            for number, name in enumerate(ADAPTERS):
                self._make([
                    python, HERE / "mk_tiny_adapter.py", folder / "model.0", folder / f"{name}.{version}",
                    "--seed", str(10 * number + version),
                ])  # fmt: skip

    @staticmethod
    def _make(argv):
        if not pathlib.Path(argv[2] if "model.py" in str(argv[1]) else argv[3]).exists():
            subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL)

    def open(self, folder):
        """The current folders lie in this one from now on."""
        self.at = {name: folder / f"current-{name}" for name in ("model", *ADAPTERS)}
        for name in self.at:
            shutil.copytree(self.version(name, 0), self.at[name])

    def version(self, name, number):
        return self.folder / f"{name}.{number}"

    def put(self, name, number):
        """A version's files take the place of those in the folder, each at once."""
        for file in self.version(name, number).iterdir():
            if file.suffix == ".safetensors":
                part = self.at[name] / "part"
                shutil.copyfile(file, part)
                os.replace(part, self.at[name] / file.name)


def install(plugin, folder):
    """A folder on PYTHONPATH in which vLLM finds that this module is a plugin."""
    if plugin is not None:
        about = folder / "plugin-0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 0\n")
        (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\nplugin = {plugin}:install\n")


def called(image):
    """The uuid that the client gives every fourth image."""
    return f"picture {image}" if image % 4 == 0 else None


class Broken(Exception):
    """A request that was not answered."""


class Lab(ConnectedEngine):
    """An engine of this run. model: its folder; loras: {name: folder}; more: options."""

    name = "lab"

    def __init__(self, directory, number, cache, model, more=(), loras=None, **settings):
        self.model, self.more, self.loras = model, list(more), loras or {}
        self.seen = {}  # counts of its former lives
        super().__init__(directory, number, cache, **settings)

    def environment(self):
        base = super().environment()
        return {
            **base, "PYTHONPATH": f"{base['PYTHONPATH']}:{self.directory}", "MODEL": str(self.model), "CORE": "nobind",
            "MAXLEN": "2048", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            # A killed compiler leaves half a file, on which every later engine would fail.
            "TORCHINDUCTOR_CACHE_DIR": f"{self.directory}/inductor",
        }  # fmt: skip

    def options(self):
        found = [*super().options(), *self.more]
        if self.loras:
            found += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", "8", "--lora-modules"]
            found += [f"{name}={folder}" for name, folder in self.loras.items()]
        return found

    def keep_counts(self):
        """Before it ends."""
        with contextlib.suppress(OSError):
            for name, value in self.counts().items():
                self.seen[name] = self.seen.get(name, 0) + value

    def ask(self, prompt, tokens, model="tiny", salt=None, stream=False, leave=None, peek=False, images=()):
        """(token ids, cached tokens); Broken: an error, or an answer that ended early."""
        path = "/inference/v1/generate" if images else "/v1/completions"
        if images:
            body = pictures.body(prompt, images, tokens, called, **({"prompt_logprobs": 0} if peek else {}))
        else:
            body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
            if peek:
                body["prompt_logprobs"] = 0
        body |= {"model": model, "return_token_ids": True, "stream": stream}
        if salt is not None:
            body["cache_salt"] = salt
        if stream:
            body["stream_options"] = {"include_usage": True}
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=leave or 200)
        try:
            link.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = link.getresponse()
            if answer.status != 200:
                raise Broken(f"{answer.status} {answer.read()[:300]!r}")
            if leave is not None:
                time.sleep(leave)
                return None, 0
            pieces = self._streamed(answer) if stream else [json.loads(answer.read())]
        except TimeoutError:
            if leave is not None:
                return None, 0
            raise Broken("no answer") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Broken(repr(error)) from None
        finally:
            link.close()
        return self._read(pieces, tokens)

    @staticmethod
    def _streamed(answer):
        return [
            json.loads(line[6:]) for line in answer.read().decode().splitlines()
            if line.startswith("data: ") and line != "data: [DONE]"
        ]  # fmt: skip

    @staticmethod
    def _read(pieces, tokens):
        found, cached = [], 0
        for piece in pieces:
            if "error" in piece:
                raise Broken(str(piece["error"]))
            for choice in piece["choices"]:
                found += choice["token_ids"] or []
            details = (piece.get("usage") or {}).get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens") or cached
        if len(found) != tokens:
            raise Broken(f"an answer that ended early: {found}")
        return found, cached

    def idle(self):
        counts = self.counts()
        return counts["vllm:num_requests_running"] + counts["vllm:num_requests_waiting"] == 0

    def reset(self, query=""):
        """Until its own cache is empty: blocks that are being copied are in use."""
        until(lambda: self.post("/reset_prefix_cache" + query).get("success"), 30, "its cache is empty")


class Reference:
    """What answers have to be. Kept in a file, since they change with the model and the options alone."""

    def __init__(self, files, mode, folder):
        self.files, self.mode, self.options = files, mode, mode.reference
        self.path = folder / f"answers-{hashlib.sha256(json.dumps(self.options).encode()).hexdigest()[:8]}.json"
        self.known = json.loads(self.path.read_text()) if self.path.exists() else {}
        weights = [
            hashlib.sha256((files.version(name, version) / file).read_bytes()).hexdigest() for version in (0, 1)
            for name, file in (("model", "model.safetensors"), *((a, "adapter_model.safetensors") for a in ADAPTERS))
        ]  # fmt: skip
        self.about = json.dumps([VENV, os.environ.get("DTYPE", ""), self.options, weights])

    def key(self, a):
        about = json.dumps([self.about, a.weights, a.adapter, a.adapter_version, a.prompt, a.tokens, *a.images])
        return hashlib.sha256(about.encode()).hexdigest()

    def of(self, a):
        return self.known[self.key(a)]

    def find(self, requests):
        """Asks for all that is not known; talks get their beginnings."""
        missing = 0
        for version in (0, 1):
            with contextlib.ExitStack() as ends:
                engine = None
                for a in (a for a in requests if a.weights == version):
                    if a.base is not None:
                        answer = [min(token, pictures.TOKEN - 1) for token in self.of(a.base)]
                        a.prompt, a.base = a.base.prompt + answer + a.prompt, None
                    if a.leave is not None or self.key(a) in self.known:
                        continue
                    if engine is None:
                        adapters = any(a.adapter for a in requests)
                        more = [*self.options, "--no-enable-prefix-caching"]
                        plugin = self.mode.plugin if self.options else None
                        engine = ends.enter_context(self.start(version, more, adapters, plugin))
                    self.known[self.key(a)] = ask_of(engine, a)
                    missing += 1
            self.path.write_text(json.dumps(self.known))
        return missing

    @contextlib.contextmanager
    def start(self, version, more, adapters, plugin):
        """An engine without connector, which ends with the block."""
        loras = {f"{n}.{v}": self.files.version(n, v) for n in ADAPTERS for v in (0, 1)} if adapters else {}
        folder = self.files.version("model", version)
        logs = pathlib.Path(tempfile.mkdtemp(prefix="reference-", dir=self.path.parent))
        install(plugin, logs)
        engine = Lab(logs, version, None, folder, more, loras)
        try:
            yield engine.ready()
        finally:
            engine.kill()

    def by_own_cache(self, wrong):
        """Of answers that differ, those that the engine's own prefix cache gives with the same split."""
        same = []
        for version in (0, 1):
            some = [(a, got, cached) for a, got, cached in wrong if a.weights == version]
            if not some:
                continue
            adapters = any(a.adapter for a, _, _ in some)
            with self.start(version, self.mode.options, adapters, self.mode.plugin) as engine:
                for a, got, cached in some:
                    engine.reset()
                    if cached:
                        ask_of(engine, a, cached)
                    if ask_of(engine, a) == got:
                        same.append(a)
        return same


def served(a):
    return "tiny" if a.adapter is None else f"{a.adapter}.{a.adapter_version}"


def ask_of(engine, a, end=None):
    """The answer of an engine of fixed adapters to a request, or to the first tokens of its prompt."""
    prompt, images = pictures.collapse(a.prompt, a.images, end)
    return engine.ask(prompt, a.tokens if end is None else 1, served(a), images=images)[0]


class Run:
    """One mode: its engines, its requests, and what was found."""

    def __init__(self, name, mode, mixture, reference, files, options, directory):
        self.name, self.mode, self.mixture, self.reference = name, mode, mixture, reference
        self.files, self.directory = files, directory
        self.rng = random.Random(options.seed)
        self.salts = {a.salt for a in mixture.requests if a.kind != "new salt"}  # a talk goes on under its own
        self.wrong, self.failed, self.salted, self.asked = [], [], [], 0
        self.cached = self.tokens = self.again = self.across = 0
        self.resent = 0  # after a pause vLLM's server knows images that its engine has forgotten: "retryable"
        self.begun = set()  # (engine, beginning of a prompt) that this engine was asked for
        self.lock = threading.Lock()
        self.interrupted = False  # an engine was killed in this round
        self.server = None  # of what two engines share
        files.open(directory)
        install(mode.plugin, directory)
        module = "zeroed" if options.zeroed else "kvtier.vllm"
        self.engines = [self._engine(number, module) for number in range(mode.engines)]

    def _engine(self, number, module):
        if self.mode.shared == "redis":
            self.server = self.server or RedisServer(self.directory)
            cache = of_size(4, l2={"url": self.server.url})
        elif self.mode.shared == "kvtierd":
            if self.server is None:
                self.server = Kvtierd(self.directory, {"segment.size": "512MiB"})
                self.server.wait_up()
            cache = of_size(4, l2={**through(self.server), "lease_time": "2s"})
        elif self.mode.shared == "node":
            if self.server is None:
                store = {"cache.nvme.path": str(self.directory / "store"), "cache.nvme.capacity": "1GiB"}
                quick = {"lease.ttl_max": "2s", "cache.nvme.sync_time": "50ms"}
                self.server = Kvtierd(self.directory, {"segment.size": "16MiB", **store, **quick})
                self.server.wait_up()
            node = {"share": "auto", "url": self.server.url, "segment": self.server.segment_name}
            control = {"breaker_open": "200ms", "breaker_open_max": "1s"}  # a round takes few seconds
            cache = of_size(4, l2={"lease_time": "2s"}, node=node, control=control)
        else:
            store = self.directory / f"store{number}"
            cache = of_size(4, nvme={"path": str(store), "capacity": "2GiB", "sync_time": "50ms"})
        loras = {n: self.files.at[n] for n in ADAPTERS} if self.mode.adapters else {}
        return Lab(
            self.directory, number, cache, self.files.at["model"], self.mode.options, loras,
            blocks=BLOCKS, module=module, keys={"chunk_size": CHUNK},
        )  # fmt: skip

    # --- requests ---

    def go(self):
        try:
            for engine in self.engines:
                engine.ready()
            for number, one in enumerate(self.mixture.rounds):
                self._round(one)
                print(f"  {self.name}: round {number + 1} of {len(self.mixture.rounds)}, {one.event}: {self.asked} "
                      f"asked, {len(self.wrong)} differ, {len(self.failed)} failed", flush=True)  # fmt: skip
            for engine in self.engines:
                engine.keep_counts()
        finally:
            for engine in self.engines:
                engine.kill()
            if self.server is not None:
                self.server.kill()
                getattr(self.server, "remove", lambda: None)()
        return self._report()

    def _round(self, one):
        """vLLM's CPU kernels answer requests without an adapter as if they had one when both are in one batch, so
        they take turns."""
        own, others = [a for a in one.requests if a.adapter is None], [a for a in one.requests if a.adapter]
        meanwhile = one.event in WHILE
        self._batch(own, one if meanwhile else None)
        self._batch(others, one if meanwhile and one.event not in ("kill -9", "daemon") else None)
        if not meanwhile:
            self._event(one)

    def _batch(self, requests, during):
        """Asks for all of them, some at once; during: a round whose event comes when half of them are asked."""
        self.interrupted, left, broken = False, list(reversed(requests)), []

        def work():
            while True:
                with self.lock:
                    if not left:
                        return
                    a = left.pop()
                    engine = self.rng.choice(self.engines)
                try:
                    self._ask(engine, a)
                except Broken as error:
                    with self.lock:
                        broken.append((a, str(error)))

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        if during is not None:
            until(lambda: len(left) <= len(requests) // 2, 300, "half of the requests")
            self._event(during)
        for thread in threads:
            thread.join()
        for a, error in broken:
            if not self.interrupted:
                self.failed.append((a, error))
            elif a.leave is None:
                self.again += 1
                self._ask(self.engines[0], a)
        until(lambda: all(engine.idle() for engine in self.engines), 60, "no request in the engines")

    def _ask(self, engine, a):
        beginning = (engine.number, a.weights, a.adapter, a.adapter_version, a.salt, *a.prompt[:BLOCK])
        with self.lock:
            self.asked += 1
            new = beginning not in self.begun
            self.begun.add(beginning)
        prompt, images = pictures.collapse(a.prompt, a.images)
        call = (prompt, a.tokens, a.adapter or "tiny", a.salt, a.stream, a.leave, a.kind == "peeked", images)
        try:
            got, cached = engine.ask(*call)
        except Broken as error:
            if not images or "500" not in str(error) or self.interrupted:
                raise
            with self.lock:
                self.resent += 1
            got, cached = engine.ask(*call)
        if got is None:
            return
        with self.lock:
            self.cached, self.tokens = self.cached + cached, self.tokens + len(a.prompt)
            if new:  # so another engine has stored it
                self.across += cached
            if got != self.reference.of(a):
                self.wrong.append((a, got, cached))
            if a.kind == "new salt" and a.salt not in self.salts and cached and not self.interrupted:
                self.salted.append(a)

    # --- events ---

    def _event(self, one):
        {
            "forget": self._forget, "kill -9": self._kill, "pause": self._pause, "adapter": lambda files: self._adapter(files, one.probes),
            "daemon": self._daemon, "restart": self._restart, "reset running": self._reset_running,
            "sleep": self._sleep, "reload": self._reload, "swap": self._swap,
        }[one.event](one.files)  # fmt: skip

    def _forget(self, _):
        for engine in self.engines:
            engine.reset()

    def _kill(self, _):
        self.interrupted = True
        engine = self.rng.choice(self.engines)
        engine.keep_counts()
        engine.restart()

    def _restart(self, _):
        engine = self.rng.choice(self.engines)
        self._end(engine)
        engine.start()
        engine.ready()

    def _daemon(self, _):
        """What engines share is killed and comes back."""
        self.server.restart(kill=True)

    @staticmethod
    def _end(engine):
        engine.keep_counts()
        engine.popen.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.popen.wait(30)
        engine.kill()

    def _pause(self, _):
        for engine in self.engines:
            engine.post("/pause?mode=keep")
            time.sleep(0.2)
            engine.post("/resume")

    def _reset_running(self, _):
        """vLLM answers 500 while a request waits for a load, and is asked again."""
        for engine in self.engines:
            query = "/reset_prefix_cache?reset_running_requests=true&reset_external=true"
            until(lambda e=engine: ask(e.port, "POST", query, timeout=60).status == 200, 60, "a reset")

    def _sleep(self, _):
        for engine in self.engines:
            engine.post("/sleep?level=1")
            engine.post("/wake_up")

    def _reload(self, versions):
        """Other weights in the same folder, read by an engine that goes on."""
        self.files.put("model", versions["model"])
        for engine in self.engines:
            engine.post("/collective_rpc", {"method": "reload_weights"})
            if self.mode.images:  # its workers have dropped what they made of images, and its scheduler counts on that
                engine.post("/reset_encoder_cache")
            engine.reset()

    def _swap(self, versions):
        """Other weights in the same folder, read by an engine that starts."""
        for engine in self.engines:
            self._end(engine)
        self.files.put("model", versions["model"])
        for engine in self.engines:
            engine.start()
        for engine in self.engines:
            engine.ready()

    def _adapter(self, versions, probes):
        """Other files behind an adapter's name. Mostly nothing empties the engine's own prefix cache then: what it has of
        the old files has to go with them. Half of the loads are in place, half are of one that was unloaded. The same is
        asked just before it, after it, and every other time once more when only kvtier has it."""
        for before, _ in probes:
            self._ask(self.engines[0], before)
        for name in ADAPTERS[:1]:
            self.files.put(name, versions[name])
            unload, reset = self.rng.random() < 0.5, self.rng.random() < 0.2
            for engine in self.engines:
                load = {"lora_name": name, "lora_path": str(self.files.at[name]), "load_inplace": not unload}
                for what, body in (("unload", {"lora_name": name}), ("load", load)) if unload else (("load", load),):
                    answer = ask(engine.port, "POST", f"/v1/{what}_lora_adapter", body=body, timeout=60)
                    assert answer.status == 200, answer.body
                if reset:
                    engine.reset()
        for engine in self.engines:
            for _, after in probes:
                self._ask(engine, after)
        if versions[ADAPTERS[0]] == 1:  # else the next requests come without a reset
            self._forget(versions)
            for _, after in probes:
                self._ask(self.engines[-1], after)

    # --- what was found ---

    def _report(self):
        same = self.reference.by_own_cache(self.wrong)
        different = [(a, got, c) for a, got, c in self.wrong if a not in same]
        counts = {}
        for engine in self.engines:
            for name, value in engine.seen.items():
                counts[name] = counts.get(name, 0) + value
        by_tier = {n.rpartition(":")[2]: int(v) for n, v in counts.items() if n.startswith(HITS + ":")}
        from_kvtier = sum(n for tier, n in by_tier.items() if tier in ("host", "disk", "external_unspecified"))
        print(
            f"{self.name}: {self.asked} requests ({self.again} again after a kill, {self.resent} resent), "
            f"{len(different)} differ, "
            f"{len(same)} split, {len(self.failed)} failed, {len(self.salted)} under a new salt found something\n"
            f"    {self.cached} of {self.tokens} prompt tokens cached, {self.across} of them from another engine; "
            f"by source {by_tier}\n"
            "    " + ", ".join(f"{name} {counts.get(name, 0):g}" for name in (
                "vllm:num_preemptions_total", "kvtier:loads_total", "kvtier:loaded_chunks_total",
                "kvtier:failed_blocks_total", "kvtier:stored_chunks_total", "kvtier:resets_total",
                "vllm:spec_decode_num_accepted_tokens_total")), flush=True)  # fmt: skip
        for a, got, cached in different[:8]:
            print(f"    {a.kind} {a.number}: {len(a.prompt)} tokens, {cached} cached, adapter {a.adapter}, "
                  f"salt {a.salt}, weights {a.weights}: {got} and not {self.reference.of(a)}")  # fmt: skip
        for a, error in self.failed[:8]:
            print(f"    {a.kind} {a.number} failed: {error}")
        self._report_images()
        if self.mixture.probes:
            others = sum(self.reference.of(a) != self.reference.of(b) for a, b in self.mixture.probes)
            print(f"    {others} of {len(self.mixture.probes)} prompts have another answer with an adapter's other files")
        used = from_kvtier > 0.05 / self.mode.stores * self.tokens  # what is asked again may go to the other one
        if not used:
            print("    kvtier was hardly used")
        if len(self.engines) > 1 and not self.across:
            print("    no engine found what the other had stored")
            used = False
        return used and not (different or self.failed or self.salted)


    def _report_images(self):
        """Whether answers hang on images at all."""
        pairs = [(a, a.like) for a in self.mixture.requests if a.like is not None and a.like.leave is None]
        if pairs:
            others = sum(self.reference.of(a) != self.reference.of(like) for a, like in pairs)
            print(f"    {others} of {len(pairs)} prompts of the same tokens and other images have another answer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ", ".join(MODES)
    parser.add_argument("modes", nargs="*", default=["one"], metavar="MODE", help=f"of {known} (default one)")
    parser.add_argument("--requests", type=int, default=200, metavar="N", help="of each mode (default 200)")
    parser.add_argument("--cycles", type=int, default=1, help="how often all events come (default 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=pathlib.Path, default="differential", help="for models, answers and logs")
    parser.add_argument("--zeroed", action="store_true", help="the control: loaded chunks are zeros")
    parser.add_argument("--reference", action="store_true", help="only finds what answers have to be")
    options = parser.parse_args()
    if not VENV or not MODEL:
        parser.error("set KVW_ENGINE_VENV and KVW_ENGINE_MODEL")
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; modes are {known}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or engines would go on
    options.dir.mkdir(parents=True, exist_ok=True)
    options.dir = options.dir.resolve()
    good = True
    for name in options.modes:
        mode = MODES[name]
        mixture = Mixture(options.requests, options.seed, MOST, options.cycles, mode.adapters, mode.events, mode.images)
        files = Files(options.dir, mode.model)
        reference = Reference(files, mode, options.dir)
        began = time.monotonic()
        missing = reference.find(mixture.requests)
        print(f"{name}: {missing} answers without a cache, {time.monotonic() - began:.0f} s", flush=True)
        if options.reference:
            continue
        logs = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=options.dir))
        began = time.monotonic()
        good = Run(name, mode, mixture, reference, files, options, logs).go() and good
        print(f"    {time.monotonic() - began:.0f} s; logs in {logs}", flush=True)
    return 0 if good != options.zeroed else 1


if __name__ == "__main__":
    sys.exit(main())
