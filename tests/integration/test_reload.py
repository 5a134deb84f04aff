"""The file is read again while requests run: none fails by it, and nothing of what was is left behind."""

import json
import random
import threading
import time

from rig.client import CHAT, Client, Closed, ask, chat_body
from rig.router import SANITIZED, write_config
from rig.wait import until

WISH = [("X-Kvway-Explain", "1")]
CLIENTS = 8
RELOADS = 30
EARLY, LATE = 5, 29  # reloads after which memory is compared: the strategy is the same there
RSS_GROWTH = 16 << 20


class File:
    """The configuration of a router, as a file that changes."""

    def __init__(self, router):
        self.router = router
        self.flat = {}
        node = json.loads(router.config_path.read_text())
        self._flatten("", node)

    def _flatten(self, path, node):
        for key, value in node.items():
            if isinstance(value, dict):
                self._flatten(f"{path}{key}.", value)
            else:
                self.flat[path + key] = value

    def reload(self, changes=None, workers=None):
        """Writes it and has it read. The answer."""
        self.flat.update(changes or {})
        if workers is not None:
            self.flat["workers"] = [w if isinstance(w, dict) else {"url": w} for w in workers]
        write_config(self.router.config_path, self.flat)
        return ask(self.router.admin_port, "POST", "/reload")

    def take(self, changes=None, workers=None):
        answer = self.reload(changes, workers)
        assert answer.status == 200, answer.body
        return answer.json()

    def refuse(self, changes):
        """A mistake changes nothing."""
        kept = dict(self.flat)
        answer = self.reload(changes)
        assert answer.status == 422, answer.body
        assert answer.json()["mistakes"]
        self.flat = kept


def named(worker):
    """The same worker by a name, which has an address more than the worker listens on."""
    return worker.url.replace("127.0.0.1", "localhost")


class Crowd:
    """Clients that stream answers, one after the other, until they are asked to stop."""

    def __init__(self, router, count, model):
        self.router, self.model = router, model
        self.stopped = threading.Event()
        self.answers, self.failures = [0] * count, []
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def _one(self, client, rng, number):
        text = f"conversation {number % 4} " + "word " * 200 + str(rng.randrange(1000))
        body = chat_body(text, self.model, stream=True, max_tokens=rng.randrange(4, 40))
        body["stream_options"] = {"include_usage": True}
        answer = client.ask("POST", CHAT, [("X-Session-Id", f"s{number}")], body)
        assert answer.status == 200, (answer.status, answer.body)
        assert answer.body.rstrip().endswith(b"data: [DONE]"), answer.body[-200:]

    def _run(self, number):
        rng = random.Random(number)
        client = None
        while not self.stopped.is_set():
            try:
                client = client or Client(self.router.port, timeout=20)
                self._one(client, rng, number)
                self.answers[number] += 1
            except (AssertionError, Closed, OSError) as error:
                self.failures.append(f"{time.monotonic():.3f} {error!r}")
                client = None

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def changes_of(step):
    """Some keys, back and forth."""
    return {
        "routing.strategy": ("prefixaware", "prefixaware", "session", "roundrobin")[step // 3 % 4],
        "timeouts.connect": ("1s", "2s")[step % 2],
        "limits.headers": (128, 64, 200)[step % 3],
        "routing.session.body_fields": (["session_id"], ["user", "session_id"])[step % 2],
        "health.path": ("/health", "/v1/models")[step % 2],
        "health.interval": ("100ms", "300ms")[step % 2],
        "upstream.idle_connections": (1, 16, 256)[step % 3],
        "ejection.window": ("5s", "10s")[step % 2],
        "log.level": ("info", "debug")[step % 2],
    }


def listed(step, fleet):
    """Workers of this step: of four, one is missing, one has another name or key."""
    urls = [{"url": w.url} for w in fleet]
    urls[step % 4] = {"url": named(fleet[step % 4])}
    if step % 5 == 2:
        urls[(step + 1) % 4] = {"url": fleet[(step + 1) % 4].url, "api_key": f"key-{step}"}
    if step % 3 == 1:
        del urls[(step + 2) % 4]
    return urls


def leaving(router):
    return ask(router.admin_port, "GET", "/metrics").body.decode().count("kvway_worker_inflight{")


def no_series_twice(router):
    lines = ask(router.admin_port, "GET", "/metrics").body.decode().splitlines()
    names = [line.rsplit(" ", 1)[0] for line in lines if line and not line.startswith("#")]
    assert len(names) == len(set(names)), [n for n in names if names.count(n) > 1][:4]


def test_requests_run_while_everything_changes(kvsim, kvway):
    fleet = kvsim(4, "--speed", "20", profile="reference")
    router = kvway(fleet, {"drain.worker": "20s", "retry.budget": 1})
    file = File(router)
    crowd = Crowd(router, CLIENTS, fleet[0].models[0])
    resident = []
    try:
        for step in range(RELOADS):
            file.take(changes_of(step), listed(step, fleet))
            no_series_twice(router)
            if step % 4 == 3:
                file.refuse({"timeouts.connect": "soon"})
                file.refuse({"workers": [{"url": "no url"}]})
            before = sum(crowd.answers)
            until(lambda: sum(crowd.answers) > before + 2 or crowd.failures, 10, "answers after a reload")
            time.sleep(0.05 * (step % 4))
            assert not crowd.failures, crowd.failures[:5]
            resident.append(router.rss())
    finally:
        crowd.stop()
    assert not crowd.failures, crowd.failures[:5]
    assert all(crowd.answers), crowd.answers
    file.take({"log.level": "info"}, [w.url for w in fleet])
    router.wait_idle()
    # Those that left are gone: as many workers are shown as are listed.
    until(lambda: leaving(router) == 4, 10, "four workers are left")
    if not SANITIZED:
        assert resident[LATE] - resident[EARLY] < RSS_GROWTH, resident


def test_all_workers_change_at_once(workers, kvway):
    """Those before get no new requests, and what their successors serve is not known yet."""
    fleet = workers(2)
    router = kvway(fleet)
    file = File(router)
    lates = []

    def served():
        """A request waits a second for the models of new workers; a busy machine may need longer to read them."""
        begun = time.monotonic()
        answer = router.ask("POST", CHAT, body=chat_body())
        waited = time.monotonic() - begun >= 1
        late = waited and answer.status == 503 and b"not known yet" in answer.body
        assert answer.status == 200 or late, answer
        lates.extend([answer] * late)
        return not late

    for step in range(20):
        file.take(workers=[{"url": w.url, "api_key": f"key-{step}"} for w in fleet])
        until(served, 10, "an answer of a new worker")
    for step in range(20):
        file.take(workers=[(named(w) if step % 2 else w.url) for w in fleet])
        until(served, 10, "an answer of a new worker")
    assert SANITIZED or len(lates) < 20, len(lates)  # of the 40 changes


def test_what_is_known_of_prefixes_survives(kvsim, kvway):
    fleet = kvsim(2)
    router = kvway(fleet, {"routing.strategy": "prefixaware", "http.decision_headers": "on_request"})
    file = File(router)
    bodies = [chat_body(f"prompt {i} " + "sea king ship " * 300, fleet[0].models[0]) for i in range(8)]

    def predicted():
        told = []
        for body in bodies:
            answer = router.ask("POST", CHAT, WISH, body)
            assert answer.status == 200, answer
            told.append((answer.headers.get("x-kvway-worker"), int(answer.headers.get("x-kvway-predicted-cached-tokens"))))
        return told

    predicted()
    before = predicted()
    assert all(cached > 200 for _, cached in before), before
    file.take({"routing.omega": 0.05, "timeouts.head": "9s"})
    assert predicted() == before
    # Of a worker with another name nothing is known; of the other one all still is.
    file.take(workers=[fleet[0].url, named(fleet[1])])
    after = dict(zip(range(8), predicted()))
    for i, (worker, cached) in enumerate(before):
        if worker == fleet[0].url:
            assert after[i] == (worker, cached)


def test_a_body_that_arrives_during_a_reload(workers, kvway):
    """Its scan was made for the session fields before; later requests are read by those in force."""
    router = kvway(
        workers(2),
        {
            "loops": 1,
            "routing.strategy": "session",
            "routing.session.body_fields": ["alpha"],
            "http.decision_headers": "on_request",
        },
    )
    file = File(router)
    router.wait_idle()  # the exchange below is the client's, not one of the start
    body = json.dumps(chat_body(alpha="a")).encode()
    with Client(router.port) as client:
        head = [("Content-Length", str(len(body))), ("Content-Type", "application/json"), *WISH]
        client.send_head("POST", CHAT, head)
        client.send(body[:10])
        until(lambda: router.metric("kvway_exchanges") == 1, 5, "a request that is being read")
        file.take({"routing.session.body_fields": ["beta"]})
        client.send(body[10:])
        answer = client.read()
        assert answer.headers.get("x-kvway-reason") == "session_new", "it ends by the fields it began with"
    for reason in ("session_new", "session"):
        answer = router.ask("POST", CHAT, WISH, chat_body(beta="b"))
        assert answer.headers.get("x-kvway-reason") == reason
    answer = router.ask("POST", CHAT, WISH, chat_body(alpha="a"))
    assert answer.headers.get("x-kvway-reason") == "no_session"


def test_a_worker_listed_again_while_it_leaves_is_shown_once(workers, kvway):
    gate = threading.Event()

    def slow(ex):
        ex.start_stream()
        gate.wait(20)
        ex.end_stream()

    worker, other = workers(2, script=slow)
    router = kvway([worker])
    file = File(router)
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        worker.wait_requests(1)
        file.take(workers=[other.url])
        file.take(workers=[other.url, {"url": worker.url, "api_key": "another"}])
        no_series_twice(router)
        gate.set()
    router.wait_idle()


def test_a_request_with_more_fields_than_are_allowed_since(workers, kvway):
    """It began when they were allowed; another request is parsed before its body has come."""
    router = kvway(workers(1), {"loops": 1, "limits.headers": 100})
    file = File(router)
    router.wait_idle()  # the exchange below is the client's, not one of the start
    body = json.dumps(chat_body()).encode()
    many = [(f"X-Field-{i}", "v") for i in range(80)]
    head = [("Content-Length", str(len(body))), ("Content-Type", "application/json")]
    with Client(router.port) as client:
        client.send_head("POST", CHAT, head + many)
        client.send(body[:10])
        until(lambda: router.metric("kvway_exchanges") == 1, 5, "a request that is being read")
        file.take({"limits.headers": 40})
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
        assert router.ask("POST", CHAT, many, body=chat_body()).status == 431
        client.send(body[10:])
        assert client.read().status == 200


def test_drain_settle_in_force_is_the_reloaded_one(workers, kvway):
    router = kvway(workers(1), {"drain.settle": "60s", "drain.timeout": "60s"})
    File(router).take({"drain.settle": "0s", "drain.timeout": "1s"})
    time.sleep(0.1)
    router.stop()  # in time, or it fails
    assert "settle_ms=0 limit_ms=1000" in router.log()


def test_what_still_runs_when_drain_worker_has_passed(workers, kvway):
    """An answer is cut; a request that waits goes elsewhere; another worker's does not notice."""
    gate = threading.Event()

    def stream(ex):
        ex.start_stream()
        ex.event("one")
        gate.wait(20)

    def mute(ex):
        gate.wait(20)

    leaver, stayer = workers(2)
    leaver.script = lambda ex: (mute if b"wait" in ex.body else stream)(ex)
    router = kvway([leaver, stayer], {"drain.worker": "200ms", "routing.strategy": "roundrobin"})
    file = File(router)
    file.take(workers=[leaver.url])
    until(lambda: leaving(router) == 1, 5, "one worker")
    with Client(router.port) as cut, Client(router.port) as moved:
        cut.send_request("POST", CHAT, body=chat_body("flow", stream=True))
        cut.read_head()
        moved.send_request("POST", CHAT, body=chat_body("wait"))
        until(lambda: len([p for p in leaver.paths() if p == CHAT]) == 2, 5, "both run")
        file.take(workers=[stayer.url])
        assert moved.read().status == 200
        assert cut.closed_by_peer() or cut.reader.buffer
    gate.set()
    router.wait_idle()
    until(lambda: leaving(router) == 1, 5, "one worker")


def test_a_worker_in_the_slot_of_one_that_was_tried(workers, kvway):
    """A request failed on the first worker, waits on the second, and is moved to the third."""
    gate = threading.Event()
    first, second, third = workers(3)
    first.script = lambda ex: ex.respond(503, body=b"later")
    second.script = lambda ex: gate.wait(20)
    router = kvway([first, second], {"drain.worker": "100ms", "routing.strategy": "roundrobin", "retry.budget": 1})
    file = File(router)
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        second.wait_requests(1)
        if not first.paths().count(CHAT):  # it began with the second: once more
            client.close()
            client = Client(router.port)
            client.send_request("POST", CHAT, body=chat_body())
            second.wait_requests(2)
        file.take(workers=[second.url])
        until(lambda: leaving(router) == 1, 5, "one worker")
        until(lambda: f"worker has left url={first.url}" in router.log(), 5, "a free slot")
        file.take(workers=[second.url, third.url])
        file.take(workers=[third.url])
        assert client.read().status == 200
        client.close()
    gate.set()
    router.wait_idle()


def test_what_the_admin_address_takes_follows(workers, kvway):
    router = kvway(workers(1), {"limits.body": "64KiB"})
    file = File(router)
    body = chat_body("long " * 800000)

    def explain():
        return ask(router.admin_port, "POST", "/explain", body=body).status

    assert explain() == 413
    file.take({"limits.body": "16MiB"})
    assert explain() == 200
    file.take({"limits.body": "64KiB"})
    assert explain() == 413


def test_explain_has_room_for_the_fields_that_a_reload_allows(pair):
    _, router = pair(config={"limits.headers": 8})
    File(router).take({"limits.headers": 128})
    fields = [(f"x-field-{i}", "1") for i in range(40)]
    assert ask(router.admin_port, "POST", "/explain", fields, chat_body()).status == 200
