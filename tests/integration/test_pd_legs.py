"""Legs of a request that one worker prefills and another decodes, where connections, times or answers are odd."""

import json
import socket
import threading
import time

from rig.client import CHAT, Client, ask
from rig.pd import ALWAYS, LONG, body_for, decodes, engines, known, nixl, parted, prefills  # noqa: F401
from rig.wait import until
from rig.worker import answer

PARAMS = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h", "remote_port": 1}


class DeafPort:
    """A port whose accept queue is full: connections wait until `hear`, which passes them on to a worker."""

    def __enter__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self.fillers.append(filler)
        return self

    def hear(self, worker):
        """Serves what connects from now on as the scripted worker does."""
        for filler in self.fillers:
            filler.close()

        def accept():
            while True:
                try:
                    sock, _ = self.listener.accept()
                except OSError:
                    return
                threading.Thread(target=worker._serve, args=(sock,), daemon=True).start()

        self.listener.listen(64)
        threading.Thread(target=accept, daemon=True).start()

    def __exit__(self, *_):
        for filler in self.fillers:
            filler.close()
        self.listener.close()


def prefill(ex):
    ex.respond(200, (), {"kv_transfer_params": PARAMS})


def started(workers, kvway, entries, config=None, strategy="roundrobin"):
    """A router; these entries name their models, and workers are only asked once."""
    quiet = {"health.interval": "60s", "health.metrics_interval": "60s", "health.timeout": "30s"}
    config = {"pd.threshold": 0, "routing.strategy": strategy, **quiet, "workers": entries, **(config or {})}
    router = kvway(workers, config, up=False)
    router.wait_up()
    until(lambda: ask(router.admin_port, "GET", "/ready").status == 200, 15, "ready")
    return router


def entry(url, role, **more):
    return {"url": url, "role": role, "models": ["tiny"], **more}


def test_a_prefiller_that_cannot_be_connected_to_in_time(workers, kvway):
    (d,) = workers(1)
    with DeafPort() as port:
        p = entry(f"http://127.0.0.1:{port.port}", "prefill")
        router = started([d], kvway, [p, entry(d.url, "decode")], {"timeouts.connect": "300ms"})
        begun = time.monotonic()
        assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
        assert time.monotonic() - begun >= 0.3
    assert prefills(router, "lost") == decodes(router, "fallback") == 1
    assert router.metric("kvway_timeouts_total", kind="connect") == 1


def test_half_of_the_lease_passes_while_the_decoder_is_connected_to(workers, kvway):
    """What was prefilled is not sent then, and the prompt is prefilled again."""
    p, d = workers(2)
    p.script = prefill
    bodies = []

    def decode(ex):
        bodies.append(json.loads(ex.read_body()))
        answer(ex)

    d.script = decode
    with DeafPort() as port:
        entries = [entry(p.url, "prefill"), entry(f"http://127.0.0.1:{port.port}", "decode")]
        router = started([p], kvway, entries, {"pd.lease": "1s", "timeouts.connect": "20s"})
        with Client(router.port, timeout=30) as client:
            client.send_request("POST", CHAT, body=body_for(CHAT))
            until(lambda: prefills(router, "ok") == 1, what="it is prefilled")
            time.sleep(0.6)
            port.hear(d)
            assert client.read().status == 200
        assert decodes(router, "expired") == 1 and prefills(router, "ok") == 2
        assert [b["kv_transfer_params"] for b in bodies] == [PARAMS]
        assert decodes(router, "transferred") == 1


def test_a_decoder_that_is_left_is_not_asked_again(workers, kvway):
    """Its kept connection broke no rule: a second try there would read what was freed meanwhile."""
    p, *ds = workers(3)
    p.script = prefill
    hangs = threading.Event()
    held = []

    def decode(ex):
        if ex.read_body() and not hangs.is_set():
            answer(ex)
            return
        held.append(ex)
        time.sleep(4)

    ds[0].script = decode
    entries = [entry(p.url, "prefill"), *(entry(d.url, "decode") for d in ds)]
    router = started([p, *ds], kvway, entries, {"pd.lease": "3s", "loops": 1})
    for _ in range(2):  # each has a kept connection
        assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    hangs.set()
    while not held:
        assert router.ask("POST", CHAT, body=body_for(CHAT), timeout=30).status == 200
    assert len(held) == 1
    assert decodes(router, "expired") == 1
    assert router.metric("kvway_stale_connection_retries_total") == 0


def test_a_failed_prefill_taught_nothing(engines, parted):  # noqa: F811
    """The prefix tree does not believe that the prefiller has a prompt that it did not compute."""
    router, (p,), (d,) = parted()
    question = body_for(CHAT, LONG)

    def hit():
        shown = ask(router.admin_port, "POST", "/explain", body=question).json()
        return {w["worker"]: w["hit_tokens"] for w in shown["workers"]}[p.worker.url]

    p.worker.fail("status=500", 1)
    assert router.ask("POST", CHAT, body=question).status == 200
    assert prefills(router, "error") == 1 and hit() == 0
    assert router.ask("POST", CHAT, body=body_for(CHAT, f"other {LONG}")).status == 200
    question = body_for(CHAT, f"other {LONG}")
    assert hit() > 100


def test_the_body_for_the_decoder_is_freed_at_its_first_token(workers, kvway):
    p, d = workers(2)
    p.script = prefill
    goes_on = threading.Event()

    def decode(ex):
        ex.read_body()
        ex.start_stream()
        ex.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
        goes_on.wait(20)
        ex.end_stream()

    d.script = decode
    router = started([p, d], kvway, [entry(p.url, "prefill"), entry(d.url, "decode")])
    with Client(router.port, timeout=30) as client:
        client.send_request("POST", CHAT, body=body_for(CHAT, "w " * 200000, stream=True))
        assert client.read_head().status == 200
        until(lambda: router.metric("kvway_body_bytes") < 100000, what="neither body is kept")
        goes_on.set()
    router.wait_idle()


def test_an_answer_that_is_too_long_has_no_parameters(workers, kvway):
    p, d = workers(2)
    p.script = lambda ex: ex.respond(200, (), {"x": "y" * (5 << 20), "kv_transfer_params": PARAMS})
    bodies = []

    def decode(ex):
        bodies.append(json.loads(ex.read_body()))
        answer(ex)

    d.script = decode
    router = started([p, d], kvway, [entry(p.url, "prefill"), entry(d.url, "decode")])
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    assert prefills(router, "no_params") == decodes(router, "fallback") == 1
    assert "kv_transfer_params" not in bodies[0]


def test_what_was_prefilled_for_one_group_is_not_used_by_another(workers, kvway):
    """The group's only decoder goes between the legs: the other group's worker gets the request whole."""
    p, d, other = workers(3)
    asked = threading.Event()

    def slow(ex):
        asked.set()
        d.stop()
        time.sleep(1)
        prefill(ex)

    p.script = slow
    bodies = []

    def whole(ex):
        bodies.append(json.loads(ex.read_body()))
        answer(ex)

    other.script = whole
    groups = [
        {"model": "tiny", "group": "one", "weight": 1, "workers": ["one"]},
        {"model": "tiny", "group": "two", "weight": 0, "workers": ["two"]},
    ]
    entries = [entry(p.url, "prefill", group="one"), entry(d.url, "decode", group="one")]
    entries.append(entry(other.url, "both", group="two"))
    router = started([p, d, other], kvway, entries, {"model_groups": groups})
    assert router.ask("POST", CHAT, body=body_for(CHAT), timeout=30).status == 200
    assert asked.is_set()
    assert all("kv_transfer_params" not in b for b in bodies)


def test_a_decoder_that_is_never_connected_to_leaves_its_id_unused(workers, kvway):
    """What was prefilled meanwhile may be gone by then: another decoder gets a prefill of its own."""
    p, d = workers(2)
    names = []

    def prefill_or_say_where(ex):
        if ex.path == "/query":
            ex.respond(200, (), {"0": {"engine_id": "e", "worker_addr": {}}})
            return
        names.append(json.loads(ex.read_body())["kv_transfer_params"]["transfer_id"])
        ex.respond(200, (), {"kv_transfer_params": None})

    bodies = []

    def decode(ex):
        bodies.append(json.loads(ex.read_body()))
        answer(ex)

    p.script, d.script = prefill_or_say_where, decode
    with DeafPort() as port:
        deaf = f"http://127.0.0.1:{port.port}"
        entries = [entry(p.url, "prefill", kv_port=p.port), entry(deaf, "decode"), entry(d.url, "decode")]
        config = {"pd.transfer": "mooncake", "timeouts.connect": "500ms", "loops": 1}
        router = started([p, d], kvway, entries, config)
        until(lambda: any(w.get("kv_source") for w in ask(router.admin_port, "GET", "/workers").json()), what="id known")
        while router.metric("kvway_timeouts_total", kind="connect") == 0:
            bodies.clear()
            assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    # The two legs run at once: the decoder may have answered before the prefiller has read its request.
    until(lambda: [b["kv_transfer_params"]["transfer_id"] for b in bodies] == names[-1:], what="prefilled under one id")
    until(lambda: len(names) == prefills(router, "ok"), what="each prefill counted")
    assert decodes(router, "repeated") == 1
