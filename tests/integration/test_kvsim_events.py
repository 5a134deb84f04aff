"""What kvsim reports of its caches: vLLM's KV events with their replay, LMCache's worker protocol.
Read here
by an implementation of its own, so that kvway's cannot hide a fault that both have."""

import collections
import itertools
import json
import random
import struct
import subprocess
import time

import pytest

from rig import msgpack, zmtp
from rig.client import CHAT, COMPLETIONS
from rig.router import BUILD, with_parent
from rig.sim import Sim
from rig.wait import until, unused_row

BLOCK = 16
END = b"\xff" * 8


def events_config(**more):
    return json.dumps(
        {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": "tcp://*:0",
            "replay_endpoint": "tcp://*:0",
            "topic": "kv@tiny",
            **more,
        }
    )


@pytest.fixture
def sim(tmp_path):
    """sim(*options): the first worker of a kvsim that must end with 0."""
    made = []

    def make(*options, count=1, **keys):
        made.append(Sim(tmp_path, count, *options, name=f"kvsim{len(made)}", **keys))
        made[-1].workers[0].process = made[-1]
        return made[-1].workers[0] if count == 1 else made[-1].workers

    yield make
    for one in made:
        if one.alive():
            one.signal(15)
        assert one.wait() == 0, one.log()
        assert "Sanitizer" not in one.log() and "runtime error" not in one.log(), one.log()


def publishing(sim, *options, config=None, **keys):
    return sim("--kv-events-config", events_config(**(config or {})), *options, **keys)


def sources(worker):
    return worker.ask("GET", "/kv_event_sources").json()["0"]


def port_of(endpoint):
    assert endpoint.startswith("tcp://*:"), endpoint
    return int(endpoint.rsplit(":", 1)[1])


def subscribe(worker):
    return zmtp.subscribe(port_of(sources(worker)["endpoint"]), b"kv@")


def complete(worker, prompt, tokens=1, **more):
    """cached_tokens of a completion."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, **more}
    answer = worker.ask("POST", COMPLETIONS, body=body)
    assert answer.status == 200, answer.body
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def named(event):
    """An event as a map, whichever way it was encoded."""
    if isinstance(event, dict):
        return event
    members = {
        "BlockStored": ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size"]
        + ["lora_id", "medium", "lora_name", "extra_keys"],
        "BlockRemoved": ["type", "block_hashes", "medium"],
        "AllBlocksCleared": ["type"],
    }
    return dict(zip(members[event[0]], event))


def number(block_hash):
    """The integer that a hash is, also if it came as a digest."""
    return block_hash if isinstance(block_hash, int) else int.from_bytes(block_hash[-8:], "big")


class Mirror:
    """What a listener knows of the device's cache: copies of each block, and the prompt that leads to it."""

    def __init__(self, peer, topic=b"kv@tiny"):
        self.peer = peer
        self.topic = topic
        self.copies = collections.Counter()
        self.prompt = {}  # hash -> all tokens up to the block's end, and its salt
        self.next = 0
        self.seen = collections.Counter()

    def apply(self, frames):
        topic, sequence, payload = frames
        assert topic == self.topic
        assert struct.unpack(">Q", sequence)[0] == self.next
        self.next += 1
        batch = msgpack.unpack(payload)
        assert abs(batch[0] - time.time()) < 60
        for event in batch[1]:
            self.event(named(event))
        return batch

    def event(self, event):
        self.seen[event["type"]] += 1
        if event["type"] == "AllBlocksCleared":
            self.copies.clear()
        elif event["type"] == "BlockRemoved":
            assert len(event["block_hashes"]) == 1
            name = number(event["block_hashes"][0])
            assert self.copies[name] > 0
            self.copies[name] -= 1
        else:
            self.stored(event)

    def stored(self, event):
        tokens, size = event["token_ids"], event["block_size"]
        names = [number(h) for h in event["block_hashes"]]
        assert len(tokens) == size * len(names) and event["medium"] == "GPU"
        extra = event.get("extra_keys") or [None] * len(names)
        if event["parent_block_hash"] is None:
            before = (tuple(extra[0] or ()), ())
        else:
            before = self.prompt[number(event["parent_block_hash"])]
        for i, name in enumerate(names):
            before = (before[0], before[1] + tuple(tokens[i * size : (i + 1) * size]))
            assert self.prompt.setdefault(name, before) == before, "one hash, two prompts"
            self.copies[name] += 1

    def read_until(self, count):
        while self.next < count:
            self.apply(self.peer.receive())

    def predict(self, tokens, extra=()):
        """Cached tokens of a prompt that is sent now."""
        held = {self.prompt[name] for name, copies in self.copies.items() if copies > 0}
        hits = 0
        while (hits + 1) * BLOCK < len(tokens) and (
            tuple(extra),
            tuple(tokens[: (hits + 1) * BLOCK]),
        ) in held:
            hits += 1
        return hits * BLOCK


# KV events


def test_sources_are_listed_as_by_the_engine(sim):
    worker = publishing(sim, config={"buffer_steps": 77})
    told = sources(worker)
    assert port_of(told["endpoint"]) and port_of(told["replay_endpoint"])
    assert told | {"endpoint": 0, "replay_endpoint": 0} == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": 0,
        "replay_endpoint": 0,
        "buffer_steps": 77,
        "hwm": 100000,
        "max_queue_size": 100000,
        "topic": "kv@tiny",
    }
    silent = sim()
    assert silent.ask("GET", "/kv_event_sources").json() == {}


def test_workers_of_one_process_have_their_own_sockets(sim):
    workers = publishing(sim, config={"topic": "kv@127.0.0.1:{port}@tiny"}, count=3)
    told = [sources(worker) for worker in workers]
    assert len({t["endpoint"] for t in told} | {t["replay_endpoint"] for t in told}) == 6
    assert [t["topic"] for t in told] == [f"kv@127.0.0.1:{w.port}@tiny" for w in workers]


@pytest.mark.parametrize("encoding", ["maps", "arrays"])
@pytest.mark.parametrize("hashes", ["int", "bytes"])
def test_a_listener_predicts_every_hit(sim, encoding, hashes):
    worker = publishing(
        sim, "--kv-events-encoding", encoding, "--kv-events-hash", hashes, "--kv-tokens", 16 * 40
    )
    mirror = Mirror(subscribe(worker))
    rng = random.Random(5)
    themes = [[rng.randrange(1 << 20) for _ in range(300)] for _ in range(5)]
    hits = 0
    for turn in range(150):
        salt = rng.choice([None, None, "one", "two"])
        prompt = rng.choice(themes)[: rng.randrange(1, 300)]
        predicted = mirror.predict(prompt, (salt,) if salt else ())
        more = {"cache_salt": salt} if salt else {}
        assert complete(worker, prompt, rng.randrange(1, 40), **more) == predicted, turn
        hits += predicted > 0
        mirror.read_until(worker.stats()["kv_batches"])
    assert hits > 20 and mirror.seen["BlockRemoved"] > 100


def test_an_adapters_blocks_carry_its_name(sim):
    worker = publishing(sim, "--lora", "tuned")
    mirror = Mirror(subscribe(worker))
    prompt = list(range(40))
    assert complete(worker, prompt) == 0
    assert complete(worker, prompt, model="tuned") == 0
    assert complete(worker, prompt, model="tuned") == 32
    mirror.read_until(2)
    assert mirror.predict(prompt + [1]) == 32
    assert mirror.predict(prompt + [1], ("tuned",)) == 32
    assert mirror.predict(prompt + [1], ("other",)) == 0


def test_chat_and_tokenize_have_the_same_tokens(sim):
    worker = publishing(sim)
    mirror = Mirror(subscribe(worker))
    chat = {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be short. " * 20},
            {"role": "user", "content": "What is the weather in Köln?"},
            {"role": "user", "content": [{"type": "text", "text": "And there?"}], "name": "Ann"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
    }
    tokens = worker.ask("POST", "/tokenize", body=chat).json()["tokens"]
    for cached in (0, len(tokens) // BLOCK * BLOCK):
        body = {**chat, "max_tokens": 4, "return_token_ids": True}
        answer = worker.ask("POST", CHAT, body=body).json()
        assert answer["prompt_token_ids"] == tokens
        assert answer["usage"]["prompt_tokens"] == len(tokens)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        mirror.read_until(worker.stats()["kv_batches"])
        assert mirror.predict(tokens) == len(tokens) // BLOCK * BLOCK
    text = worker.ask("POST", "/tokenize", body={"model": "tiny", "prompt": "Once upon"}).json()
    body = {"model": "tiny", "prompt": "Once upon", "max_tokens": 1, "return_token_ids": True}
    choice = worker.ask("POST", COMPLETIONS, body=body).json()["choices"][0]
    assert text["tokens"] == choice["prompt_token_ids"] and text["count"] == len(text["tokens"])


def test_a_reset_is_published_with_the_next_request(sim):
    worker = publishing(sim)
    mirror = Mirror(subscribe(worker))
    complete(worker, list(range(64)))
    assert worker.ask("POST", "/reset_prefix_cache").json() == {"success": True}
    mirror.read_until(1)
    assert worker.stats()["kv_batches"] == 1
    assert complete(worker, list(range(64))) == 0
    batch = mirror.apply(mirror.peer.receive())
    assert [named(e)["type"] for e in batch[1]] == ["AllBlocksCleared", "BlockStored"]


def ask_replay(worker, start, *frames):
    peer = zmtp.connect(port_of(sources(worker)["replay_endpoint"]), "DEALER")
    peer.send(*(frames or (b"", struct.pack(">Q", start))))
    replies = []
    while not replies or END not in replies[-1]:
        replies.append(peer.receive())
    peer.close()
    return replies


@pytest.mark.parametrize("layout", ["new", "old"])
def test_replay_sends_what_was_missed(sim, layout):
    worker = publishing(sim, "--kv-events-replay", layout)
    live = subscribe(worker)
    for i in range(5):
        complete(worker, list(range(1000 * i, 1000 * i + 40)))
    heard = [live.receive() for _ in range(5)]
    first = [b""] if layout == "old" else [b"", b"kv@tiny"]
    replies = ask_replay(worker, 2)
    assert replies[:-1] == [first + frames[1:] for frames in heard[2:]]
    assert replies[-1] == ([b"", END, b""] if layout == "old" else [b"", b"", END, b""])
    assert len(ask_replay(worker, 5)) == 1  # nothing that late yet
    assert worker.stats()["kv_replays"] == 2


def test_replay_keeps_so_many_batches_only(sim):
    worker = publishing(sim, config={"buffer_steps": 3})
    for i in range(8):
        complete(worker, list(range(1000 * i, 1000 * i + 40)))
    numbers = [struct.unpack(">Q", frames[2])[0] for frames in ask_replay(worker, 0)[:-1]]
    assert numbers == [5, 6, 7]


def test_a_replay_request_of_another_form_is_not_answered(sim):
    worker = publishing(sim)
    complete(worker, list(range(40)))
    peer = zmtp.connect(port_of(sources(worker)["replay_endpoint"]), "DEALER")
    for frames in ([bytes(8)], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b"more"]):
        peer.send(*frames)
    with pytest.raises(TimeoutError):
        peer.receive(0.3)
    assert len(ask_replay(worker, 0)) == 2  # and nothing is broken


def test_a_restart_counts_from_zero(sim):
    worker = publishing(sim)
    live = subscribe(worker)
    complete(worker, list(range(40)))
    complete(worker, list(range(100, 140)))
    worker.ask("GET", "/sim/restart")
    assert complete(worker, list(range(40))) == 0
    numbers = [struct.unpack(">Q", live.receive()[1])[0] for _ in range(3)]
    assert numbers == [0, 1, 0]
    assert len(ask_replay(worker, 0)) == 2


def test_an_engine_may_connect_instead(sim):
    heard = []
    listener = zmtp.Listener("SUB", lambda peer, frames: heard.append(frames))
    worker = publishing(
        sim, config={"endpoint": f"tcp://127.0.0.1:{listener.port}", "replay_endpoint": None}
    )
    until(lambda: listener.peers, 10, "the engine to connect")
    listener.peers[0].send(b"\x01")
    prompts = itertools.count(0, 1000)

    def told():
        """What came before the engine had read the subscription went nowhere."""
        start = next(prompts)
        complete(worker, list(range(start, start + 40)))
        return heard

    until(told, 10, "a batch")
    assert sources(worker)["replay_endpoint"] is None
    listener.close()


def test_a_listener_that_does_not_read_stalls_nothing(sim):
    worker = publishing(sim, config={"hwm": 1})
    subscribe(worker)  # and never read
    for i in range(200):
        complete(worker, list(range(3000 * i, 3000 * i + 2048)))
    assert worker.stats()["kv_batches"] == 200


@pytest.mark.parametrize(
    "options, message",
    [
        (["--kv-events-config", "{"], "not JSON"),
        (["--kv-events-config", "[]"], "not a JSON object"),
        (["--kv-events-config", '{"enpoint":"tcp://*:1"}'], '"enpoint" is unknown'),
        (["--kv-events-config", '{"hwm":-1}'], '"hwm" is unknown or its value'),
        (["--kv-events-encoding", "list"], "expected maps or arrays"),
        (["--lmcache-controller", "pull"], "expected pull=HOST:PORT"),
        (["--lmcache-controller", "pull=127.0.0.1:1"], "reply=HOST:PORT is missing"),
        (["--lmcache-version", "0.6"], "expected 0.3, 0.4 or 0.5"),
    ],
)
def test_a_wrong_option_is_reported(sim, tmp_path, options, message):
    with pytest.raises(AssertionError, match="kvsim ended with 2") as error:
        Sim(tmp_path, 1, *options, name="wrong")
    assert message in str(error.value)


def test_the_generator_of_the_benchmark_publishes_no_nonsense(sim):
    """bench/load/kvb_events.c: every removal and every parent is known, and requests are answered."""
    worker = sim(model="bench")
    first = unused_row(4)
    argv = [BUILD / "bench" / "load" / "kvb-events", "--engines", "2", "--port", first]
    argv += ["--rate", "50", "--held", "4", "--url", f"127.0.0.1:{worker.port}", "--requests", "100"]
    program = subprocess.Popen(
        with_parent(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert json.loads(program.stdout.readline()) == {"ready": True}
    peers = [zmtp.subscribe(first + i) for i in range(2)]
    result, _ = program.communicate("events 2\nquiet 0.5\n")
    busy, quiet = [json.loads(line) for line in result.splitlines()]
    assert program.returncode == 0
    assert busy["requests"] > 0 and busy["errors"] == quiet["errors"] == 0
    assert quiet["blocks"] == 0 and quiet["requests"] > 0
    blocks = batches = 0
    for peer in peers:
        mirror = Mirror(peer, b"kv@bench")
        with pytest.raises((EOFError, ConnectionResetError)):
            while True:
                for event in mirror.apply(peer.receive())[1]:
                    blocks += len(event["block_hashes"])
                batches += 1
        assert sum(mirror.copies.values()) == 4 * 50  # so many chains of fifty blocks
    assert (busy["blocks"], busy["batches"]) == (blocks, batches)


# LMCache


class Controller:
    """A controller that believes everything and gives the answers that a test sets."""

    def __init__(self, heartbeats=True):
        self.heard = []  # (socket, message)
        self.held = collections.Counter()
        self.numbers = []
        self.commands = []  # for the next heartbeat's answer
        self.missing = []  # for the next status
        self.stuck = False  # the same for each one after that
        self.accepts = True
        self.silent = False
        self.pull = zmtp.Listener("PULL", self.on_events)
        self.reply = zmtp.Listener("ROUTER", self.on_request)
        self.beat = zmtp.Listener("ROUTER", self.on_heartbeat)
        self.url = {"heartbeat_url": f"127.0.0.1:{self.beat.port}"} if heartbeats else {}

    def options(self):
        return ["--lmcache-controller", f"pull=127.0.0.1:{self.pull.port},reply=127.0.0.1:{self.reply.port}"]

    def on_events(self, peer, frames):
        for payload in frames:
            message = msgpack.unpack(payload)
            assert next(iter(message)) == "type"
            for op in message.get("operations", []):
                self.held[op["key"]] += 1 if op["op_type"] == "admit" else -1
                self.numbers.append(op["seq_num"])
            self.heard.append(("pull", message))

    def answer(self, peer, socket, frames, make):
        assert len(frames) == 2 and frames[0] == b""
        message = msgpack.unpack(frames[1])
        self.heard.append((socket, message))
        if not self.silent:
            peer.send(b"", msgpack.pack(make(message)))

    def on_heartbeat(self, peer, frames):
        commands, self.commands = self.commands, []
        self.answer(peer, "beat", frames, lambda m: {"type": "HeartbeatRetMsg", "commands": commands})

    def on_request(self, peer, frames):
        self.answer(peer, "reply", frames, self.reply_to)

    def reply_to(self, message):
        if message["type"] == "RegisterMsg":
            return {"type": "RegisterRetMsg", "extra_config": self.url}
        if message["type"] == "FullSyncStartMsg":
            return {
                "type": "FullSyncStartRetMsg",
                "sync_id": message["sync_id"],
                "accepted": self.accepts,
                "error_msg": None,
            }
        missing = self.missing
        if not self.stuck:
            self.missing = []
        return {
            "type": "FullSyncStatusRetMsg",
            "sync_id": message["sync_id"],
            "is_complete": not missing,
            "global_progress": 1.0,
            "can_exit_freeze": not missing,
            "missing_batches": missing,
        }

    def types(self, socket):
        return [m["type"] for s, m in self.heard if s == socket]

    def messages(self, kind):
        return [m for _, m in self.heard if m["type"] == kind]

    def wait(self, kind, count=1):
        until(lambda: len(self.messages(kind)) >= count, 10, f"{count} of {kind}")
        return self.messages(kind)[count - 1]

    def keys(self):
        return {key for key, copies in self.held.items() if copies > 0}

    def close(self):
        for listener in (self.pull, self.reply, self.beat):
            listener.close()


@pytest.fixture
def controller():
    made = []

    def make(**keys):
        made.append(Controller(**keys))
        return made[-1]

    yield make
    for one in made:
        one.close()


def lmcache(sim, control, *options, **keys):
    worker = sim(*control.options(), "--lmcache-chunk-size", 32, "--lmcache-heartbeat-s", 0.1, *options, **keys)
    control.wait("RegisterMsg")
    until(lambda: worker.stats()["lmcache"]["registered"], 10, "an answer to the registration")
    return worker


def test_a_worker_registers_reports_and_leaves(sim, controller):
    control = controller()
    worker = lmcache(sim, control, "--lmcache-instance", "i0")
    port = worker.stats()["lmcache"]["port"]
    who = {"instance_id": "i0", "worker_id": 0, "ip": "127.0.0.1", "port": port}
    assert control.heard[0] == ("reply", {"type": "RegisterMsg", **who, "peer_init_url": None})
    assert control.wait("HeartbeatMsg", 2) == {"type": "HeartbeatMsg", **who, "peer_init_url": None}
    complete(worker, list(range(1000, 1100)))
    batch = control.wait("BatchedKVOperationMsg")
    assert [(op["op_type"], op["seq_num"]) for op in batch["operations"]] == [("admit", i) for i in range(3)]
    assert batch["location"] == "LocalCPUBackend" and batch["instance_id"] == "i0"
    worker.process.signal(15)
    assert control.wait("DeRegisterMsg") == {"type": "DeRegisterMsg", **who}
    assert worker.process.wait() == 0


@pytest.mark.parametrize(
    "options, first",
    [
        # recorded from LMCache 0.5.6: tokens 1000..1599, PYTHONHASHSEED=0
        (["--lmcache-hash", "builtin"], -5291550163413402495),
        (["--lmcache-hash", "builtin", "--lmcache-seed", "123"], 4446532143507722017),
        (["--lmcache-hash", "sha256_cbor"], 0x33D6862800FFF40C),
        (["--lmcache-hash", "no_such_thing"], -5291550163413402495),
    ],
)
def test_keys_are_lmcaches(sim, controller, options, first):
    control = controller()
    worker = lmcache(sim, control, *options, "--lmcache-chunk-size", 256)
    complete(worker, list(range(1000, 1600)))
    assert control.wait("BatchedKVOperationMsg")["operations"][0]["key"] == first


def test_the_cpu_tier_gives_what_the_device_lost(sim, controller):
    control = controller()
    worker = lmcache(sim, control)
    prompt = list(range(200))
    assert complete(worker, prompt) == 0
    worker.ask("POST", "/reset_prefix_cache")
    assert complete(worker, prompt) == 192  # six chunks of 32
    assert worker.stats()["loaded_tokens"] == 192
    worker.ask("POST", "/reset_prefix_cache")
    assert complete(worker, prompt[:64]) == 63  # all of it is there, but its last token is computed
    assert complete(worker, prompt, cache_salt="other") == 0


def test_a_full_tier_evicts_before_it_admits(sim, controller):
    control = controller()
    worker = lmcache(sim, control, "--lmcache-cpu-tokens", 32 * 10)
    rng = random.Random(3)
    for i in range(30):
        start = rng.randrange(8) * 1000
        complete(worker, list(range(start, start + rng.randrange(32, 300))))
    until(lambda: len(control.numbers) == worker.stats()["lmcache"]["operations"], 10, "all operations")
    assert control.numbers == list(range(len(control.numbers)))
    assert set(control.held.values()) == {0, 1}
    assert len(control.keys()) == worker.stats()["lmcache"]["chunks"] <= 10
    for message in control.messages("BatchedKVOperationMsg"):
        kinds = [op["op_type"] for op in message["operations"]]
        assert kinds == sorted(kinds, reverse=True)  # evicts first


def test_a_full_sync_reports_everything(sim, controller):
    control = controller()
    worker = lmcache(sim, control, "--lmcache-sync-batch", 4)
    complete(worker, list(range(32 * 10)))
    until(lambda: len(control.keys()) == 10, 10, "ten chunks")
    control.missing = [1]
    control.commands = [{"command_type": "full_sync", "reason": "controller_restart", "args": None}]
    start = control.wait("FullSyncStartMsg")
    assert (start["total_keys"], start["batch_count"]) == (10, 3)
    control.wait("FullSyncEndMsg", 2)  # one for all batches, one for the batch that was missing
    batches = control.messages("FullSyncBatchMsg")
    assert [b["batch_id"] for b in batches] == [0, 1, 2, 1]
    assert {key for b in batches for key in b["keys"]} == control.keys()
    assert {b["sync_id"] for b in batches} == {start["sync_id"]}
    until(lambda: not worker.stats()["lmcache"]["frozen"], 10, "the worker to go on")
    complete(worker, list(range(5000, 5032)))
    until(lambda: len(control.keys()) == 11, 10, "one more chunk")
    assert control.numbers == list(range(11))  # a sync does not change the count


def test_nothing_is_stored_during_a_sync(sim, controller):
    control = controller()
    worker = lmcache(sim, control)
    control.missing, control.stuck = [0], True  # there is no such batch: the worker asks again and again
    control.commands = [{"command_type": "full_sync"}]
    control.wait("FullSyncStartMsg")
    until(lambda: worker.stats()["lmcache"]["frozen"], 10, "a sync")
    complete(worker, list(range(100)))
    assert worker.stats()["lmcache"]["chunks"] == 0


def test_an_unanswered_registration_ends_it_all(sim, controller):
    control = controller()
    control.silent = True
    worker = sim(*control.options(), "--lmcache-chunk-size", 32, "--lmcache-timeout-s", 0.2)
    control.wait("RegisterMsg")
    time.sleep(0.5)
    control.silent = False
    complete(worker, list(range(100)))
    time.sleep(0.3)
    assert control.types("pull") == [] and control.types("beat") == []
    assert len(control.messages("RegisterMsg")) == 1


def test_operations_wait_for_the_registration(sim, controller):
    control = controller()
    control.silent = True
    worker = sim(*control.options(), "--lmcache-chunk-size", 32)
    control.wait("RegisterMsg")
    complete(worker, list(range(100)))
    time.sleep(0.2)
    assert control.types("pull") == []
    control.reply.peers[0].send(b"", msgpack.pack({"type": "RegisterRetMsg", "extra_config": {}}))
    control.wait("BatchedKVOperationMsg")


def test_without_an_address_there_are_no_heartbeats(sim, controller):
    control = controller(heartbeats=False)
    lmcache(sim, control)
    time.sleep(0.4)
    assert control.types("beat") == []


def test_version_03_speaks_on_one_socket(sim, controller):
    control = controller()
    worker = lmcache(sim, control, "--lmcache-version", "0.3", "--lmcache-hash", "sha256_cbor")
    control.wait("HeartbeatMsg", 2)
    complete(worker, list(range(100)))
    control.wait("BatchedKVOperationMsg")
    assert control.types("reply") == [] and control.types("beat") == []
    assert control.types("pull")[0] == "RegisterMsg"


def command(worker, message):
    peer = zmtp.connect(worker.stats()["lmcache"]["port"], "REQ")
    peer.send(b"", message if isinstance(message, bytes) else msgpack.pack(message))
    empty, payload = peer.receive()
    peer.close()
    assert empty == b""
    return msgpack.unpack(payload)


def test_commands_are_answered(sim, controller):
    control = controller()
    worker = lmcache(sim, control)
    complete(worker, list(range(200)))
    until(lambda: len(control.keys()) == 6, 10, "six chunks")
    health = command(worker, {"type": "HealthWorkerMsg", "worker_event_id": "e1"})
    assert health == {"type": "HealthWorkerRetMsg", "error_code": 0}
    pin = {"type": "PinWorkerMsg", "worker_event_id": "e2", "location": "LocalCPUBackend"}
    assert command(worker, {**pin, "tokens": list(range(70))}) == {"type": "PinWorkerRetMsg", "num_tokens": 64}
    clear = {"type": "ClearWorkerMsg", "worker_event_id": "e3", "location": "LocalDiskBackend"}
    assert command(worker, clear) == {"type": "ClearWorkerRetMsg", "num_tokens": 0}
    cleared = command(worker, {**clear, "location": "LocalCPUBackend"})
    assert cleared == {"type": "ClearWorkerRetMsg", "num_tokens": 128}  # but not what is pinned
    until(lambda: len(control.keys()) == 2, 10, "the evictions")
    finish = {"type": "CheckFinishWorkerMsg", "worker_event_id": "e4"}
    unknown = "Unknown message: CheckFinishWorkerMsg(worker_event_id='e4')"
    assert command(worker, finish) == {"type": "ErrorMsg", "error": unknown}
    wrong = "Worker error: Invalid value 'ZZZ' - at `$.type`"
    assert command(worker, {"type": "ZZZ"}) == {"type": "ErrorMsg", "error": wrong}
    assert command(worker, b"\xc1rubbish")["type"] == "ErrorMsg"


def test_a_restarted_worker_begins_again(sim, controller):
    control = controller()
    worker = lmcache(sim, control)
    complete(worker, list(range(100)))
    control.wait("BatchedKVOperationMsg")
    worker.ask("GET", "/sim/restart")
    control.wait("RegisterMsg", 2)
    assert worker.stats()["lmcache"]["chunks"] == 0
    assert complete(worker, list(range(100))) == 0
    again = control.wait("BatchedKVOperationMsg", 2)
    assert [op["seq_num"] for op in again["operations"]] == [0, 1, 2]


def test_an_answer_that_never_comes_costs_one_socket(sim, controller):
    control = controller()
    worker = lmcache(sim, control)
    control.wait("HeartbeatMsg")
    control.silent = True
    before = len(control.messages("HeartbeatMsg"))
    until(lambda: len(control.messages("HeartbeatMsg")) > before, 10, "one without an answer")
    control.silent = False
    count = len(control.messages("HeartbeatMsg"))
    control.wait("HeartbeatMsg", count + 3)
    assert worker.stats()["lmcache"]["registered"]
