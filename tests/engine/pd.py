#!/usr/bin/env python3
"""pd.py - greedy answers of two real vLLM engines, of which one prefills and the other decodes, against those of one.

    export KVW_BUILD=build-release KVW_ENGINE_VENV=~/vllm KVW_ENGINE_MODEL=~/tiny
    tests/engine/pd.py                                  # all scenes by NixlConnector
    tests/engine/pd.py --requests 1000 plain
    tests/engine/pd.py --transfer nixl-push plain leave

    control    at the engines, without kvway: the decoder gets the blocks of another prompt; answers must differ
    plain      each request once
    seconds    as plain, while kvway compares predicted seconds in place of splitting all (`pd.threshold`)
    leave      half of the clients leave at a random moment
    queue      more clients with long answers than the decoder takes at once: they wait for longer than a lease
    kill-p     SIGKILL of all of the prefiller's processes; it starts again, with another engine id
    restart-p  the same by SIGTERM
    kill-d     SIGKILL of all of the decoder's processes; it starts again
    hold-d     SIGSTOP of the decoder's engine for longer than a lease, while its API server goes on
    stop-d     SIGSTOP of all of the decoder's processes for longer than a lease
    hold-p     SIGSTOP of the prefiller's engine for longer than a lease

kvway splits each request that can be split. Chat, completions of text and of token ids, responses, messages, tools,
two choices, logprobs and salts, streamed or not, some clients at once. What each answer has to be says one engine
without connector, asked one at a time; `split`: an answer that differs from it, and is what that engine says when it
has the prompt in its own cache. `cut`: a stream that broke, of which what came is right. The prefiller has little
room, so that blocks that were given back are soon another prompt's.

For each scene a line of what became of the requests, and one of what kvway has counted (kvway_pd_*). The exit status
is 1 when an answer differs, a request failed, or a case was not counted by its name.
"""

import argparse
import collections
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

from mixed import CHAT, COMPLETIONS, east, prose, tool  # noqa: E402
from pair import START_SECONDS, Started  # noqa: E402
from rig.client import ask  # noqa: E402
from rig.router import Router, parse_metrics  # noqa: E402
from rig.wait import until, unused_port  # noqa: E402
from server import MODEL, VENV, Engine  # noqa: E402
from transfers import WAYS  # noqa: E402

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
CLIENTS = 6
LEASE = 6  # seconds
HOLD = 4 * LEASE  # a stopped engine is found after 15 s, an idle one after 30 s (upstream.stall)
BLOCKS = {"reference": 1024, "prefill": 256, "decode": 512}  # of 32 tokens
MAXLEN = 4096
PATIENCE = 240  # seconds for an answer


# --- requests and answers ---


@dataclass
class Request:
    number: int
    kind: str
    path: str
    body: dict


def make(number, rng, earlier):
    kind = rng.choice(KINDS)
    if kind == "again" and earlier:
        old = rng.choice(earlier)
        return Request(number, kind, old.path, {**old.body, "stream": rng.random() < 0.5})
    size = rng.choice((20, 80, 400, 1500, 3000))
    text = prose(rng, size) if rng.random() < 0.7 else east(rng, size // 2)
    limit = rng.choice((1, 2, 8, 24, 60))
    body = {"model": "tiny", "temperature": 0, "stream": rng.random() < 0.5}
    path = {"responses": RESPONSES, "messages": MESSAGES}.get(kind, CHAT if "chat" in kind else COMPLETIONS)
    if path == RESPONSES:
        return Request(number, kind, path, {**body, "input": text, "max_output_tokens": limit})
    if path == MESSAGES:
        body |= {"messages": [{"role": "user", "content": text}], "max_tokens": limit}
        return Request(number, kind, path, body)
    body |= {"max_tokens": limit, "ignore_eos": True}
    if path == CHAT:
        body["messages"] = [{"role": "system", "content": prose(rng, 100)}, {"role": "user", "content": text}]
    else:
        body["prompt"] = [rng.randrange(10, 600) for _ in range(size // 2)] if kind == "tokens" else text
    if kind == "chat tools":
        body |= {"tools": [tool(rng) for _ in range(2)], "tool_choice": "none"}
    if kind.endswith("n"):
        body |= {"n": 2, "temperature": 1, "top_k": 1}  # vLLM refuses several greedy choices
    if kind == "logprobs":
        body["logprobs"] = 2
    if kind == "salt":
        body["cache_salt"] = rng.choice(("a", "b"))
    return Request(number, kind, path, body)


KINDS = ("chat", "chat", "chat tools", "chat n", "text", "text", "text n", "tokens", "responses", "messages", "logprobs",
         "salt", "again")  # fmt: skip


def requests(count, seed):
    rng, made = random.Random(seed), []
    for number in range(count):
        made.append(make(number, rng, made))
    return made


@dataclass
class Answer:
    texts: dict = field(default_factory=dict)  # by choice
    ends: dict = field(default_factory=dict)  # why each ended
    tokens: tuple = ()  # of prompt and answer
    whole: bool = False
    error: str = ""

    def said(self):
        return [sorted(self.texts.items()), sorted(self.ends.items()), list(self.tokens)]

    def begins(self, right):
        texts = dict((int(i), text) for i, text in right[0])
        return all(texts.get(i, "").startswith(text) for i, text in self.texts.items())

    def add(self, index, text):
        self.texts[index] = self.texts.get(index, "") + (text or "")

    def count(self, usage):
        if usage:
            first = usage.get("prompt_tokens", usage.get("input_tokens"))
            last = usage.get("completion_tokens", usage.get("output_tokens"))
            before = self.tokens or (None, None)
            self.tokens = (before[0] if first is None else first, before[1] if last is None else last)


def take_choices(answer, got):
    for choice in got.get("choices", []):
        part = choice.get("delta") or choice.get("message") or {}
        answer.add(choice["index"], choice.get("text", part.get("content")))
        if choice.get("finish_reason"):
            answer.ends[choice["index"]] = choice["finish_reason"]
    answer.count(got.get("usage"))


def take_responses(answer, got):
    kind = got.get("type")
    if kind == "response.output_text.delta":
        answer.add(0, got["delta"])
    done = got if kind is None else got.get("response", {}) if kind in ("response.completed", "response.incomplete") else {}
    if kind is None:
        for item in done.get("output", []):
            for part in item.get("content") or []:
                answer.add(0, part.get("text"))
    if done:
        answer.texts.setdefault(0, "")
        answer.ends[0] = done["status"]
    answer.count(done.get("usage"))


def take_messages(answer, got):
    kind = got.get("type")
    if kind == "message":
        for part in got["content"]:
            answer.add(0, part.get("text"))
        answer.ends[0] = got["stop_reason"]
    elif kind == "content_block_delta":
        answer.add(0, got["delta"].get("text"))
    elif kind == "message_delta":
        answer.ends[0] = got["delta"].get("stop_reason")
    answer.texts.setdefault(0, "")
    usage = got.get("usage") or got.get("message", {}).get("usage") or {}
    answer.count({"output_tokens": usage.get("output_tokens")})  # input_tokens are those that were not cached


def send(port, request, leave=None):
    """The answer as far as it came. leave: the client goes away after so many seconds."""
    take = {RESPONSES: take_responses, MESSAGES: take_messages}.get(request.path, take_choices)
    body, answer = dict(request.body), Answer()
    if body["stream"] and take is take_choices:
        body["stream_options"] = {"include_usage": True}
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=leave or PATIENCE)
    until_s = time.monotonic() + (leave or PATIENCE)
    try:
        link.request("POST", request.path, json.dumps(body), {"content-type": "application/json"})
        got = link.getresponse()
        if got.status != 200:
            answer.error = f"{got.status} {got.read()[:200]!r}"
        elif not body["stream"]:
            take(answer, json.loads(got.read()))
            answer.whole = True
        else:
            stream(got, take, answer, until_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer.error = repr(error)
    finally:
        link.close()
    return answer


def stream(got, take, answer, until_s):
    for line in got:
        if time.monotonic() > until_s:
            raise TimeoutError
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            break
        event = json.loads(line[6:])
        if "error" in event or event.get("type") == "error":
            answer.error = str(event)[:200]
            return
        take(answer, event)
    answer.whole = bool(answer.ends)
    if not answer.whole:
        answer.error = "its end is missing"


# --- what is right ---


class Right:
    """By request: the answers of one engine, first without any cache and then with its own."""

    def __init__(self, asked, directory):
        self.asked = asked
        digest = hashlib.sha256(json.dumps([vars(r) for r in asked]).encode())
        digest.update((pathlib.Path(MODEL) / "model.safetensors").read_bytes() + f"{VENV} {os.environ.get('DTYPE')}".encode())
        self.path = directory / f"right-{digest.hexdigest()[:12]}.json"

    def find(self, directory):
        if not self.path.exists():
            engine = Plain(directory, 9)
            try:
                until(engine.healthy, START_SECONDS, "the engine that says what is right")
                found = [[self._of(engine, request) for _ in range(2)] for request in self.asked]
            finally:
                engine.kill()
            self.path.write_text(json.dumps(found))
        self.found = json.loads(self.path.read_text())
        return self

    @staticmethod
    def _of(engine, request):
        answer = send(engine.port, request)
        assert answer.whole, f"{request}: {answer}"
        return answer.said()


# --- engines ---


class Plain(Engine):
    name = "reference"
    blocks = BLOCKS["reference"]

    def environment(self):
        return {"EVENTS": "0", "CORE": "nobind", "MAXLEN": str(MAXLEN)}


class Side(Started):
    """The engine of one role. way: how KV goes to the other one."""

    def __init__(self, directory, number, role, way):
        self.role, self.way, self.name, self.blocks = role, way, role, BLOCKS[role]
        self.side_port = unused_port()
        super().__init__(directory, number, None)

    def environment(self):
        return {**Plain.environment(self), "OMP_WAIT_POLICY": "passive", **self.way.environment(self.side_port)}

    def options(self):
        return ["--kv-transfer-config", json.dumps(self.way.connector(self.role, LEASE))]


# --- the scenes ---


@dataclass
class Tally:
    """What became of the requests of a scene."""

    asked: int = 0
    split: int = 0
    cut: int = 0
    left: int = 0
    differ: list = field(default_factory=list)
    failed: list = field(default_factory=list)

    def judge(self, request, answer, right, leaves):
        self.asked += 1
        if answer.whole and json.loads(json.dumps(answer.said())) not in right:
            self.differ.append((request, answer, right))
        elif answer.whole:
            self.split += json.loads(json.dumps(answer.said())) != right[0]
        elif not any(answer.begins(one) for one in right):
            self.differ.append((request, answer, right))
        elif leaves:
            self.left += 1
        elif answer.texts:
            self.cut += 1
        else:
            self.failed.append((request, answer, right))


class Load:
    """Clients that ask one request after the other, each on a connection of its own, until the block ends."""

    def __init__(self, lab, tally, clients=CLIENTS, which=None, leaving=0.0):
        self.lab, self.tally, self.leaving = lab, tally, leaving
        self.which = which or lab.asked
        self.over, self.lock = threading.Event(), threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _run(self, number):
        rng = random.Random(f"{self.lab.options.seed} {number}")
        while not self.over.is_set():
            request = rng.choice(self.which)
            leave = rng.random() ** 2 * 2 + 0.005 if rng.random() < self.leaving else None
            answer = send(self.lab.router.port, request, leave)
            with self.lock:
                self.tally.judge(request, answer, self.lab.right[request.number], leave is not None)
            if answer.error and leave is None:
                time.sleep(0.2)


class Lab:
    """Both engines, and kvway in front of them."""

    def __init__(self, options, way, directory):
        self.options, self.way, self.directory = options, way, directory
        self.asked = requests(options.requests, options.seed)
        self.right = Right(self.asked, pathlib.Path(options.dir)).find(directory).found
        self.router = self.p = self.d = None

    def __enter__(self):
        try:
            self.way.start(self.directory)
            self.p = Side(self.directory, 0, "prefill", self.way)
            self.d = Side(self.directory, 1, "decode", self.way)
            for engine in (self.p, self.d):
                until(engine.healthy, START_SECONDS, f"{engine.name} up")
            self.route()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for one in (self.router, self.p, self.d, self.way):
            if one is not None:
                one.kill()

    def route(self, **more):
        """Starts kvway."""
        if self.router is not None:
            self.router.stop()
        workers = [{"url": e.url, "role": e.role, "kv_port": e.side_port} for e in (self.p, self.d)]
        keys = {"pd.threshold": 0, "pd.transfer": self.way.transfer, "pd.lease": f"{LEASE}s", "workers": workers}
        self.router = Router(self.directory, [], {**keys, **more})
        self.router.wait_up([self.p, self.d])
        until(lambda: self.usable(self.p) and self.usable(self.d), 60, "both workers")

    def usable(self, engine):
        return self.router.metric("kvway_worker_usable", worker=engine.url) == 1

    def counts(self):
        """{"decodes transferred": n} of all that kvway counts by name."""
        found = collections.Counter()
        for (name, labels), value in self.router.metrics("kvway_pd_").items():
            which = dict(labels).get("plan") or dict(labels).get("result")
            if which and value:
                found[f"{name.removeprefix('kvway_pd_').removesuffix('_total')} {which}"] = int(value)
        return found

    def pulled(self):
        """Prompt tokens that the decoder's engine says it got from elsewhere since it started."""
        page = ask(self.d.port, "GET", "/metrics", timeout=60).body.decode()
        return int(sum(parse_metrics(page, "vllm:external_prefix_cache_hits_total").values()))

    def transferred(self):
        return self.counts()["decodes transferred"]

    def in_use(self, seconds=180):
        """Until the decoder gets what the prefiller has computed."""
        before = self.transferred()
        until(lambda: self.transferred() > before + CLIENTS, seconds, "transfers")

    # --- one function each ---

    def control(self, tally):
        """A leg of each of two prompts; the decoder gets the first prompt with the blocks of the second."""
        rng, differ = random.Random(self.options.seed), 0
        for number in range(8):
            prompts = [[rng.randrange(10, 600) for _ in range(320)] for _ in range(2)]
            body = {"model": "tiny", "max_tokens": 8, "temperature": 0, "ignore_eos": True, "stream": False}
            right = send(self.p.port, Request(0, "", COMPLETIONS, {**body, "prompt": prompts[0]})).said()
            asked = {"do_remote_decode": True, "do_remote_prefill": False}
            leg = {**body, "prompt": prompts[1], "max_tokens": 1, "kv_transfer_params": asked}
            params = ask(self.p.port, "POST", COMPLETIONS, (), leg, timeout=60).json()["kv_transfer_params"]
            wrong = {**body, "prompt": prompts[0], "kv_transfer_params": params}
            answer = send(self.d.port, Request(0, "", COMPLETIONS, wrong))
            tally.asked += 1
            differ += answer.said() != right
            if not answer.whole:
                tally.failed.append((Request(number, "control", COMPLETIONS, {}), answer, None))
        print(f"    {differ} of 8 answers differ with the blocks of another prompt")
        assert differ >= 7, "answers do not show whose blocks they come from"

    def plain(self, tally):
        left, lock = list(reversed(self.asked)), threading.Lock()

        def work():
            while True:
                with lock:
                    if not left:
                        return
                    request = left.pop()
                answer = send(self.router.port, request)
                with lock:
                    tally.judge(request, answer, self.right[request.number], False)

        threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def seconds(self, tally):
        self.route(**{"pd.threshold": -1})
        self.plain(tally)

    def leave(self, tally):
        with Load(self, tally, leaving=0.5):
            time.sleep(60)

    def queue(self, tally):
        long = [r for r in self.asked if r.body.get("max_tokens", r.body.get("max_output_tokens")) == 60]
        with Load(self, tally, clients=64, which=long):
            time.sleep(HOLD + 30)

    def kill_p(self, tally):
        self._outage(tally, self.p, self.p.kill, self.p.start)

    def restart_p(self, tally):
        def end():
            self.p.popen.send_signal(signal.SIGTERM)
            with contextlib.suppress(Exception):
                self.p.popen.wait(20)
            self.p.kill()

        self._outage(tally, self.p, end, self.p.start)

    def kill_d(self, tally):
        self._outage(tally, self.d, self.d.kill, self.d.start)

    def hold_d(self, tally):
        self._hold(tally, self.d, self.d.core())

    def stop_d(self, tally):
        self._hold(tally, self.d, list(self.d.family()))

    def hold_p(self, tally):
        self._hold(tally, self.p, self.p.core())

    def _hold(self, tally, engine, pids):
        self._outage(tally, engine, lambda: engine.signal_to(pids, signal.SIGSTOP),
                     lambda: engine.signal_to(pids, signal.SIGCONT))  # fmt: skip

    def _outage(self, tally, engine, begin, end):
        with Load(self, tally):
            self.in_use()
            begin()
            try:
                time.sleep(HOLD)
            finally:
                end()
            until(engine.healthy, START_SECONDS, "the engine again")
            self.in_use()
            time.sleep(5)


WANTED = {  # counts that a scene must bring; HELD: that of a decoder which stands still, as the way has it
    "plain": ("decodes transferred", "plans whole"),
    "seconds": ("plans here",),
    "leave": ("prefills cancelled", "decodes left"),
    "queue": ("decodes transferred",),
    "kill-p": ("prefills lost", "decodes fallback"),
    "restart-p": ("decodes transferred",),
    "kill-d": ("decodes repeated",),
    "hold-d": ("decodes HELD",),
    "stop-d": ("decodes HELD",),
    "hold-p": ("prefills ok",),
}
SCENES = ("control", *WANTED)


def run(lab, name):
    """True: all went well."""
    tally, before, began, had, starts = Tally(), lab.counts(), time.monotonic(), lab.pulled(), lab.d.starts
    restarts = name == "seconds"
    getattr(lab, name.replace("-", "_"))(tally)
    with contextlib.suppress(AssertionError):
        lab.router.wait_idle(60)
    counts = lab.counts()
    if not restarts:
        counts.subtract(before)
    counts = {key: value for key, value in sorted(counts.items()) if value}
    pulled = lab.pulled() - (had if lab.d.starts == starts else 0)
    wanted = [key.replace("HELD", lab.way.held) for key in WANTED.get(name, ())]
    missing = [key for key in wanted if not counts.get(key)]
    missing += ["tokens from elsewhere"] if name == "plain" and not pulled else []
    print(f"{lab.way.name} {name}: {tally.asked} asked, {len(tally.differ)} differ, {tally.split} split, "
          f"{len(tally.failed)} failed, {tally.cut} cut, {tally.left} left, {time.monotonic() - began:.0f} s")  # fmt: skip
    print("    " + ", ".join(f"{key} {value}" for key, value in counts.items()), f"; the decoder got {pulled} tokens", sep="")
    for request, answer, right in (tally.differ + tally.failed)[:6]:
        print(f"    {request.number} {request.kind} stream {request.body.get('stream')}: {answer}\n      right: {right}")
    idle = lab.router.inflight()
    if missing or idle:
        print(f"    not counted: {missing}; still in flight: {idle}")
    if restarts:
        lab.route()
    sys.stdout.flush()
    return not (tally.differ or tally.failed or missing or idle)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)} (default: all)")
    parser.add_argument("--transfer", default="nixl", choices=sorted(WAYS), help="how KV gets from one to the other")
    parser.add_argument("--requests", type=int, default=300, metavar="N", help="to choose from (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", default="pd-logs", help="for answers and logs (default pd-logs)")
    options = parser.parse_args()
    if not VENV or not MODEL:
        parser.error("set KVW_ENGINE_VENV and KVW_ENGINE_MODEL")
    way = WAYS[options.transfer]()
    scenes = options.scenes or [name for name in SCENES if name not in way.without]
    if unknown := set(scenes) - set(SCENES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; scenes are {', '.join(SCENES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or engines would go on
    directory = pathlib.Path(options.dir).resolve() / f"{options.transfer}-{time.strftime('%H%M%S')}"
    directory.mkdir(parents=True)
    good = True
    with Lab(options, way, directory) as lab:
        for name in scenes:
            good = run(lab, name) and good
    print(f"logs in {directory}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
