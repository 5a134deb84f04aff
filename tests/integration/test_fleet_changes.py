"""The fleet changes by reloads and by the admin address while clients stream: they notice nothing of it."""

import json
import os
import random
import threading
import time

from rig.client import CHAT, Client, ask, chat_body
from rig.router import SANITIZED
from rig.wait import PATIENCE, until
from rig.wire import Closed

SEED = int(os.environ.get("KVW_SEED", "1"))
USERS = 16
RELOADS = 40
CHANGES = 200  # by the admin address
DRAIN_S = 1.0
PAUSE_S = 0.25  # between two reloads
GROWTH = (512 if SANITIZED else 64) << 20


class Ended(Exception):
    """An answer that was cut; its text is the worker."""


def read_stream(client, body):
    """The worker of a whole stream."""
    client.send_request("POST", CHAT, body=body)
    head = client.read_head()
    assert head.status == 200, client.read_body(head)
    try:
        whole = client.read_body(head)
    except (Closed, ConnectionError) as error:
        raise Ended(head.headers.get("x-kvway-worker")) from error
    assert whole.events()[-1] == "[DONE]", whole
    return head.headers.get("x-kvway-worker")


class Crowd:
    """Clients that stream until `over` is set."""

    def __init__(self, router):
        self.router, self.over = router, threading.Event()
        self.good, self.cut, self.faults = [0] * USERS, [], []
        self.now_removed = []  # (id, when): removed at once by the admin address
        self.threads = [threading.Thread(target=self.guarded, args=(n,)) for n in range(USERS)]
        for thread in self.threads:
            thread.start()

    def guarded(self, number):
        try:
            self.user(number)
        except BaseException as error:
            self.faults.append(repr(error))
            raise

    def user(self, number):
        rng = random.Random(f"{SEED} user {number}")
        client = None
        while not self.over.is_set():
            text = f"shared start {rng.randrange(8)} " * 60 + str(rng.random())
            tokens = rng.choice([5, 10, 20, 40, 400])  # the last takes longer than a drain
            client = client or Client(self.router.port, timeout=30)
            started = time.monotonic()
            try:
                read_stream(client, chat_body(text, stream=True, max_tokens=tokens))
                self.good[number] += 1
            except Ended as error:
                self.cut.append((str(error), started, time.monotonic()))
                client.close()
                client = None
        if client:
            client.close()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60 * PATIENCE)
        assert not self.faults, self.faults[0]
        for worker, started, ended in self.cut:
            at_once = any(
                id_ in worker and started <= when + 1 and when - 1 <= ended for id_, when in self.now_removed
            )
            assert at_once or ended - started >= DRAIN_S, (worker, ended - started, self.now_removed)


class Changer:
    """Writes configurations at random, and has them read; changes workers by the admin address."""

    def __init__(self, router, fleet, crowd):
        self.router, self.crowd = router, crowd
        self.stays, self.ports = fleet[0].url, [worker.port for worker in fleet[1:]]
        self.base = json.loads(router.config_path.read_text())
        self.answers = {}

    def reload(self, rng=None):
        """rng None: only the worker that stays."""
        entries = [{"url": self.stays}]
        for port in self.ports:
            if rng is None or rng.random() < 0.35:
                continue
            entry = {"url": f"http://{rng.choice(['127.0.0.1', 'localhost'])}:{port}"}
            if rng.random() < 0.4:
                entry["models"] = rng.choice([["tiny"], ["tiny", "other"], ["other"]])
            if rng.random() < 0.3:
                entry["api_key"] = rng.choice(["one", "two"])
            entries.append(entry)
        config = {**self.base, "workers": entries}
        if rng is not None:
            rng.shuffle(entries)
            config["limits"] = {"high_water": rng.choice(["128KiB", "256KiB"])}
            config["routing"] = {"slow_start": rng.choice(["0s", "2s"])}
            config["log"] = {"level": rng.choice(["info", "debug"])}
        self.router.config_path.write_text(json.dumps(config))
        got = self.call("POST", "/reload")
        assert got.status == 200, got
        assert not got.json()["needs_restart"], got

    def call(self, method, path, body=None):
        return ask(self.router.admin_port, method, path, body=body, timeout=30.0)

    def change(self, rng):
        """One by the admin address. It may be refused: the worker may be there already, or not."""
        id_ = f"{rng.choice(['127.0.0.1', 'localhost'])}:{rng.choice(self.ports)}"
        what = rng.choice(["add", "remove", "now", "models", "key", "drain", "undrain"])
        if what == "add":
            got = self.call("POST", "/workers", {"url": f"http://{id_}"})
        elif what == "remove":
            got = self.call("DELETE", f"/workers/{id_}")
        elif what == "now":
            self.crowd.now_removed.append((id_, time.monotonic()))
            got = self.call("DELETE", f"/workers/{id_}?now=true")
        elif what == "models":
            got = self.call("PATCH", f"/workers/{id_}", {"models": rng.choice([None, ["tiny"], ["tiny", "x"]])})
        elif what == "key":
            got = self.call("PATCH", f"/workers/{id_}", {"api_key": rng.choice([None, "three"])})
        else:
            got = self.call("POST", f"/workers/{id_}/{what}")
        assert got.status in (200, 201, 404, 409), (what, got)
        self.answers[what, got.status] = self.answers.get((what, got.status), 0) + 1

    def added(self):
        """IDs of workers that the admin address has added."""
        return [worker["id"] for worker in self.call("GET", "/workers").json() if worker["sources"] == ["admin"]]

    def run(self):
        """All reloads, with the other changes between them; resident bytes after some."""
        rng = random.Random(f"{SEED} changes")
        rss = 0
        for i in range(RELOADS):
            self.reload(rng)
            for _ in range(CHANGES // RELOADS):
                self.change(rng)
                time.sleep(PAUSE_S * RELOADS / CHANGES)
            if i == RELOADS // 4:
                rss = self.router.rss()
        return rss


def predicted(router, text):
    got = router.ask("POST", CHAT, body=chat_body(text, max_tokens=1))
    assert got.status == 200, got
    return got.headers.get("x-kvway-worker"), int(got.headers.get("x-kvway-predicted-cached-tokens"))


def count_workers(router):
    return sum(v for (name, _), v in router.metrics().items() if name == "kvway_workers")


def test_clients_do_not_notice(kvsim, kvway):
    fleet = kvsim(6, "--speed", "2", profile="llama-8b-h100")
    router = kvway(fleet[:1], {"drain.worker": f"{DRAIN_S:g}s", "http.decision_headers": "always"})
    known = [f"known beginning {n} " * 300 for n in range(4)]
    for text in known:
        predicted(router, text)
    crowd = Crowd(router)
    changer = Changer(router, fleet, crowd)
    try:
        rss = changer.run()
    finally:
        crowd.over.set()
    assert router.rss() - rss < GROWTH, (rss, router.rss())
    crowd.stop()
    assert min(crowd.good) > 0 and sum(crowd.good) > USERS * 5, crowd.good
    changer.reload()
    for worker in changer.added():
        changer.call("DELETE", f"/workers/{worker}?now=true")
    until(lambda: count_workers(router) == 1, 10, "one worker is left")
    router.wait_idle()
    assert router.metric("kvway_workers", state="leaving") == 0
    assert router.metric("kvway_workers", state="usable") == 1
    for text in known:
        worker, tokens = predicted(router, text)
        assert worker == fleet[0].url and tokens > 500, (worker, tokens)
