"""Usage by key, tenant and model adds up to the engines' own counts."""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import threading

import pytest

from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.router import PROGRAM, Router
from rig.takeover import Line
from rig.wait import until

REQUESTS = int(os.environ.get("KVW_USAGE_REQUESTS", "3000"))  # 100000: the long form
KEYS = int(os.environ.get("KVW_USAGE_KEYS", "200"))  # 2000: the long form
TENANTS = 7
CLIENTS = 12
SUMS = ("requests", "refused", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
ESTIMATES = ("estimated_prompt_tokens", "estimated_completion_tokens")


def secret(name):
    return f"sk-{name}"


def bearer(name):
    return [("Authorization", f"Bearer {secret(name)}")]


def tenant_of(number):
    return f"tenant{number % TENANTS}"


@pytest.fixture
def keys_file(tmp_path):
    """keys_file(n): keys key0, key1, ... of some tenants."""

    def make(count):
        path = tmp_path / "keys.yaml"
        entries = [
            {
                "name": f"key{i}",
                "tenant": tenant_of(i),
                "sha256": hashlib.sha256(secret(f"key{i}").encode()).hexdigest(),
            }
            for i in range(count)
        ]
        path.write_text(json.dumps({"keys": entries}))
        return str(path)

    return make


def usage(router, query=""):
    answer = ask(getattr(router, "admin_port", router), "GET", f"/usage{query}", timeout=30)
    assert answer.status == 200, answer
    return answer.json()


def total(page):
    """Sums over all entries and `other`."""
    rows = [*page["entries"], page["other"]]
    return {name: sum(row[name] for row in rows) for name in (*SUMS, *ESTIMATES, "seconds")}


def of_key(page, name):
    rows = [row for row in page["entries"] if row["key"] == name]
    return {count: sum(row[count] for row in rows) for count in (*SUMS, *ESTIMATES)}


def has(router, requests, seconds=20):
    """Waits until so many requests are counted, which is within a second of their end; returns the page."""
    until(lambda: total(usage(router))["requests"] >= requests, seconds, f"{requests} requests to be counted")
    return usage(router)


# --- one router ---


def test_usage_by_key_tenant_and_model(kvsim, kvway, keys_file):
    fleet = kvsim(2)
    router = kvway(fleet, {"auth.keys_file": keys_file(3)})
    for name in ("key0", "key0", "key1"):
        assert router.ask("POST", CHAT, bearer(name), chat_body("whose tokens?", max_tokens=5)).status == 200
    page = has(router, 3)
    answered = [w.stats()["answered"] for w in fleet]
    entries = {row["key"]: row for row in page["entries"]}
    assert set(entries) == {"key0", "key1"} and entries["key0"]["requests"] == 2
    assert entries["key0"]["tenant"] == "tenant0" and entries["key1"]["model"] == "tiny"
    assert entries["key1"]["completion_tokens"] == 5 and entries["key0"]["completion_tokens"] == 10
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
        assert total(page)[name] == sum(one[name] for one in answered)
    assert total(page)["estimated_prompt_tokens"] == 0 and 0 < total(page)["seconds"] < 60
    assert page["other"]["requests"] == page["other"]["entries"] == 0


def test_refused_and_failed_requests(kvsim, kvway, keys_file):
    router = kvway(kvsim(1), {"auth.keys_file": keys_file(1)})
    assert router.ask("POST", CHAT, bearer("unknown"), chat_body()).status == 401
    assert router.ask("POST", CHAT, bearer("key0"), chat_body(model="unknown")).status == 404
    assert router.ask("POST", CHAT, [*bearer("key0"), ("x-sim-fail", "status=418")], chat_body()).status == 418
    assert router.ask("GET", "/v1/models", bearer("key0")).status == 200  # kvway's own: no use of a model
    page = has(router, 3)
    rows = {(row["key"], row["model"]): row for row in page["entries"]}
    assert set(rows) == {(None, None), ("key0", None), ("key0", "tiny")}, rows
    assert [rows[None, None][name] for name in SUMS] == [1, 1, 0, 0, 0, 0]
    assert [rows["key0", None][name] for name in SUMS] == [1, 1, 0, 0, 0, 0]
    assert [rows["key0", "tiny"][name] for name in SUMS] == [1, 0, 1, 0, 0, 0]


def test_a_timeout_before_a_worker_is_asked_is_a_refusal(kvsim, kvway):
    router = kvway(kvsim(1), {"timeouts.request": "200ms"})
    with Client(router.port) as client:
        client.sock.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert client.read().status == 504
    (row,) = has(router, 1)["entries"]
    assert [row[name] for name in SUMS] == [1, 1, 0, 0, 0, 0]


def test_a_key_sees_its_own_alone(kvsim, kvway, keys_file):
    router = kvway(kvsim(1), {"auth.keys_file": keys_file(2)})
    for name in ("key0", "key1", "key1"):
        assert router.ask("POST", CHAT, bearer(name), chat_body()).status == 200
    has(router, 3)
    page = router.ask("GET", "/v1/usage?since=1h", bearer("key1")).json()
    assert [row["key"] for row in page["entries"]] == ["key1"] and page["entries"][0]["requests"] == 2
    assert router.ask("GET", "/v1/usage").status == 401
    wrong = router.ask("GET", "/v1/usage?since=yesterday", bearer("key1"))
    assert wrong.status == 400 and "2026-11-30" in wrong.json()["error"]["message"]
    assert router.ask("POST", "/v1/usage", bearer("key1"), b"{}").status == 405
    assert total(usage(router))["requests"] == 3  # looking is no use


def test_without_keys_there_is_none_of_a_key(kvsim, kvway):
    router = kvway(kvsim(1), {"usage.entries": 0})
    assert router.ask("GET", "/v1/usage").status == 404
    assert ask(router.admin_port, "GET", "/usage").status == 404


def test_csv_top_and_command(kvsim, kvway, keys_file):
    router = kvway(kvsim(1), {"auth.keys_file": keys_file(5)})
    for number in range(5):
        for _ in range(number + 1):
            assert router.ask("POST", CHAT, bearer(f"key{number}"), chat_body(max_tokens=4)).status == 200
    has(router, 15)
    answer = ask(router.admin_port, "GET", "/usage?format=csv&top=2")
    assert answer.headers.get("content-type").startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [row["key"] for row in rows] == ["key4", "key3", ""] and rows[2]["what"] == "other"
    assert [int(row["requests"]) for row in rows] == [5, 4, 6]
    page = usage(router, "?top=2")
    assert page["other"]["entries"] == 3 and page["other"]["requests"] == 6
    assert usage(router, "?key=key2")["entries"][0]["requests"] == 3
    for query in ("?since=soon", "?top=0", "?format=xml", "?sinse=1h"):
        assert ask(router.admin_port, "GET", f"/usage{query}").status == 400
    assert usage(router, "?since=2000-01-01")["entries"] and not usage(router, "?since=2100-01-01")["entries"]
    argv = [PROGRAM, "usage", "--admin", f"127.0.0.1:{router.admin_port}"]
    table = subprocess.run([*argv, "--top", "2"], capture_output=True, text=True, check=True).stdout
    assert "key4" in table and "other (3)" in table and "key0" not in table
    assert subprocess.run([*argv, "--csv", "--top", "2"], capture_output=True, check=True).stdout.startswith(b"what,key")
    wrong = subprocess.run([*argv, "--since", "soon"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "2026-11-30" in wrong.stderr


def test_metrics_name_the_busiest(kvsim, kvway, keys_file):
    router = kvway(kvsim(1), {"auth.keys_file": keys_file(4), "usage.metrics": 2})
    for count, number in enumerate((0, 1, 2, 3, 3), 1):
        assert router.ask("POST", CHAT, bearer(f"key{number}"), chat_body(max_tokens=3)).status == 200
        has(router, count)  # the first choice of the busiest is made now, the next in a minute
    samples = router.metrics("kvway_usage_requests_total")
    keys = {dict(labels)["key"] for _, labels in samples}
    assert len(keys) == 3 and "other" in keys
    assert sum(samples.values()) == 5
    assert router.metric("kvway_usage_tokens_total", kind="completion") == 15
    assert router.metric("kvway_usage_users") == 4 and router.metric("kvway_usage_users_unnamed") == 2


def test_a_full_table_counts_the_rest_as_other(kvsim, kvway, keys_file):
    router = kvway(kvsim(1), {"auth.keys_file": keys_file(20), "usage.entries": 8})
    for number in range(20):
        assert router.ask("POST", CHAT, bearer(f"key{number}"), chat_body(max_tokens=2)).status == 200
    page = has(router, 20)
    assert len(page["entries"]) == 8 and page["other"]["requests"] == 12
    assert total(page)["completion_tokens"] == 40
    assert router.metric("kvway_usage_overflow_total") == 12


def compressing(ex):
    """A sidecar that compresses what may be compressed."""
    body = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 3}, "choices": []}).encode()
    ex.read_body()
    head = [("content-type", "application/json")]
    if "gzip" in ex.headers.get("accept-encoding", "") or ex.path == CHAT:
        ex.respond(200, [*head, ("content-encoding", "gzip")], gzip.compress(body))
    else:
        ex.respond(200, head, body)


def test_compressed_answers(pair):
    """Workers are asked for plain answers; what is compressed all the same is estimated, and marked."""
    _, router = pair(compressing)
    accepts = [("Accept-Encoding", "gzip")]
    assert router.ask("POST", COMPLETIONS, accepts, {"model": "tiny", "prompt": "hello"}).status == 200
    sums = total(has(router, 1))
    assert [sums[n] for n in ("prompt_tokens", "completion_tokens", *ESTIMATES)] == [7, 3, 0, 0]
    assert router.ask("POST", CHAT, accepts, chat_body()).status == 200
    sums = total(has(router, 2))
    assert sums["estimated_prompt_tokens"] == sums["prompt_tokens"] - 7 > 0


# --- over restarts ---


def test_killed_and_started_it_has_lost_an_interval_at_most(kvsim, tmp_path):
    fleet = kvsim(1)
    config = {"state.file": str(tmp_path / "state"), "state.interval": "1s"}
    router = Router(tmp_path, fleet, config, name="first")
    try:
        router.wait_up(fleet)
        for _ in range(20):
            assert router.ask("POST", CHAT, (), chat_body(max_tokens=3)).status == 200
        before = has(router, 20)
        count = router.metric("kvway_state_snapshots_total", result="ok")
        until(lambda: router.metric("kvway_state_snapshots_total", result="ok") >= count + 2, 20, "a snapshot")
        assert router.ask("POST", CHAT, (), chat_body()).status == 200  # may be lost
    finally:
        router.kill()
    router = Router(tmp_path, fleet, config, name="second")
    try:
        router.wait_up(fleet)
        after = usage(router)
        assert total(after)["requests"] in (20, 21)
        assert total(after)["completion_tokens"] >= total(before)["completion_tokens"] == 60
        assert router.ask("POST", CHAT, (), chat_body(max_tokens=3)).status == 200
        page = has(router, total(after)["requests"] + 1)
        router.stop()
        shown = subprocess.run([PROGRAM, "state", tmp_path / "state"], capture_output=True, text=True, check=True)
        assert "usage of keys, tenants, models" in shown.stdout
    finally:
        router.kill()
    router = Router(tmp_path, fleet, config, name="third")
    try:
        router.wait_up(fleet)
        assert total(usage(router)) == total(page)  # an ordinary end loses nothing
    finally:
        router.kill()


@contextlib.contextmanager
def upgraded(line):
    try:
        yield line
    finally:
        line.stop()


def test_an_upgrade_loses_nothing(kvsim, tmp_path):
    """Also not what the process before counts until its last stream has ended."""
    fleet = kvsim(1, "--speed", "1", profile="reference")
    with upgraded(Line(tmp_path, fleet, {"state.file": str(tmp_path / "state")})) as line:
        line.first()
        for _ in range(5):
            assert line.ask("POST", CHAT, (), chat_body(max_tokens=3)).status == 200
        body = chat_body(max_tokens=150, stream=True, stream_options={"include_usage": True})
        with Client(line.port, timeout=60) as client:
            client.send_request("POST", CHAT, (), body)
            answer = client.read_head()
            until(lambda: total(usage(line.admin_port))["requests"] == 5, 20, "five requests to be counted")
            before = line.upgrade()
            assert line.ask("POST", CHAT, (), chat_body(max_tokens=3)).status == 200
            client.read_body(answer)
        assert before.wait(30) == 0
        until(lambda: total(usage(line.admin_port))["requests"] == 7, 20, "those of the process before")
        sums, answered = total(usage(line.admin_port)), fleet[0].stats()["answered"]
        assert {name: sums[name] for name in answered} == answered
        assert not list(tmp_path.glob("state.rest-*"))


# --- everything at once ---


class Expected:
    """What clients know of their requests, and what of it engines have counted but not reported."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests, self.refused, self.failed = {}, {}, {}
        self.unreported = {"prompt_tokens": 0, "completion_tokens": 0}
        self.problems = []

    def note(self, key, refused=0, failed=0):
        with self.lock:
            self.requests[key] = self.requests.get(key, 0) + 1
            self.refused[key] = self.refused.get(key, 0) + refused
            self.failed[key] = self.failed.get(key, 0) + failed

    def note_unreported(self, prompt, completion):
        with self.lock:
            self.unreported["prompt_tokens"] += prompt
            self.unreported["completion_tokens"] += completion


class Crowd:
    """Clients that send random requests to random replicas."""

    def __init__(self, routers, sim, counter, expected, seed):
        self.routers, self.sim, self.counter, self.expected = routers, sim, counter, expected
        self.rng = random.Random(seed)
        self.connections = {}

    def client(self, router):
        if router not in self.connections:
            self.connections[router] = Client(router.port, timeout=60)
        return self.connections[router]

    def drop(self, router):
        self.connections.pop(router).close()

    def ask(self, router, path, headers, body, status=200):
        try:
            answer = self.client(router).ask("POST", path, headers, body)
        except (OSError, ConnectionError):
            self.drop(router)
            raise
        if answer.headers.get("connection", "") == "close":
            self.drop(router)
        assert answer.status == status, answer
        return answer

    def text(self, words):
        return " ".join(f"w{self.rng.getrandbits(40):x}" for _ in range(words))

    def shared_text(self):
        """Prompts whose beginning others share, so that part of it is cached."""
        return f"system prompt number {self.rng.randrange(20)} " * 20 + self.text(3)

    def whole(self, router, headers):
        body = chat_body(self.shared_text(), max_tokens=self.rng.randrange(1, 9))
        accepts = [("Accept-Encoding", "gzip, deflate")] if self.rng.random() < 0.5 else []
        self.ask(router, CHAT, [*headers, *accepts], body)
        return 0, 0

    def stream(self, router, headers):
        options = {"include_usage": True, "continuous_usage_stats": self.rng.random() < 0.5}
        body = chat_body(self.shared_text(), max_tokens=self.rng.randrange(1, 30), stream=True, stream_options=options)
        self.ask(router, CHAT, headers, body)
        return 0, 0

    def silent_stream(self, router, headers):
        """Its answer reports no usage."""
        prompt, tokens = self.text(30), self.rng.randrange(1, 20)
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "stream": True}
        length = self.counter.ask("POST", "/tokenize", (), {"model": "tiny", "prompt": prompt}).json()["count"]
        self.ask(router, COMPLETIONS, headers, body)
        self.expected.note_unreported(length, tokens)
        return 0, 0

    def cancel(self, router, headers):
        """The client leaves amid a long stream."""
        body = {"model": "tiny", "prompt": self.text(30), "max_tokens": 30000, "stream": True}
        with Client(router.port, timeout=60) as client:
            client.send_request("POST", COMPLETIONS, headers, body)
            assert client.read_head().status == 200
            client.sock.shutdown(socket.SHUT_RDWR)
        return 0, 0

    def breaks(self, router, headers):
        """The worker breaks off amid a long stream."""
        body = {"model": "tiny", "prompt": self.text(30), "max_tokens": 30000, "stream": True}
        with Client(router.port, timeout=60) as client:
            client.send_request("POST", COMPLETIONS, [*headers, ("x-sim-fail", "close-after-tokens=3")], body)
            assert client.read_head().status == 200
            with contextlib.suppress(ConnectionResetError):
                while client.sock.recv(65536):
                    pass
        return 0, 1

    def repeats(self, router, headers):
        """A worker answers 500, or not at all, and another one is asked; one alone fails, so that the other answers."""
        self.sim[0].fail(self.rng.choice(["status%3D500", "close-before-head"]), 1)
        return self.whole(router, headers)

    def worker_refuses(self, router, headers):
        self.ask(router, CHAT, [*headers, ("x-sim-fail", "status=422")], chat_body(), 422)
        return 0, 1

    def kvway_refuses(self, router, headers):
        self.ask(router, CHAT, headers, chat_body(model="unknown"), 404)
        return 1, 0

    def run(self, count):
        kinds = [self.whole] * 8 + [self.stream] * 8 + [self.silent_stream, self.cancel, self.breaks, self.repeats]
        kinds += [self.worker_refuses, self.kvway_refuses]
        try:
            for _ in range(count):
                key = f"key{int(KEYS * self.rng.random() ** 2)}"  # some much more than others
                refused, failed = self.rng.choice(kinds)(self.rng.choice(self.routers), bearer(key))
                self.expected.note(key, refused, failed)
        except Exception as problem:  # raised by the test's thread
            self.expected.problems.append(problem)
        finally:
            for client in self.connections.values():
                client.close()


def answered(sim):
    pages = [worker.stats()["answered"] for worker in sim]
    return {name: sum(page[name] for page in pages) for name in pages[0]}


def check(page, expected, sim):
    sums = total(page)
    assert sums["requests"] == sum(expected.requests.values())
    for name, counts in (("requests", expected.requests), ("refused", expected.refused), ("failed", expected.failed)):
        assert {key: of_key(page, key)[name] for key in counts} == counts, name
    engines = answered(sim)
    for name, unreported in expected.unreported.items():
        reported = sums[name] - sums[f"estimated_{name}"]
        assert reported == engines[name] - unreported, (name, sums, engines, expected.unreported)
    assert sums["cached_tokens"] == engines["cached_tokens"] > 0
    assert sums["estimated_prompt_tokens"] > 0 and sums["estimated_completion_tokens"] > 0


@pytest.mark.parametrize("shared", [True, False])
def test_random_requests_add_up_to_the_engines_counts(kvsim, kvway, keys_file, request, shared):
    """Of 3 replicas: together in Redis, or each for itself. What answers report is exact, to the token."""
    sim = kvsim(3, "--speed", "20", "--max-seqs", "64", "--max-model-len", "40000", profile="reference")
    config = {
        "auth.keys_file": keys_file(KEYS),
        "health.passive_failures": 10000,
        "ejection.max_share": 0,
        "retry.budget": 1,
        "retry.attempts": 5,
    }
    if shared:
        config["rate_sharing.redis"] = request.getfixturevalue("redis").url
    routers = [kvway(sim, config) for _ in range(3)]
    expected = Expected()
    (counter,) = kvsim(1)
    crowds = [Crowd(routers, sim, counter, expected, seed) for seed in range(CLIENTS)]
    threads = [threading.Thread(target=crowd.run, args=(REQUESTS // CLIENTS,)) for crowd in crowds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not expected.problems, expected.problems[:3]
    count = CLIENTS * (REQUESTS // CLIENTS)
    for router in routers:
        router.wait_idle(30)
    assert sum(router.metric("kvway_retries_total") for router in routers) > 0
    if shared:
        for router in routers:  # each knows all
            has(router, count, 60)
            check(usage(router), expected, sim)
        return
    pages = [usage(router) for router in routers]

    def all_counted():
        pages[:] = [usage(router) for router in routers]
        return sum(total(page)["requests"] for page in pages) == count

    until(all_counted, 20, "all requests to be counted")
    entries = [row for page in pages for row in page["entries"]]
    check({"entries": entries, "other": pages[0]["other"]}, expected, sim)


def test_replicas_keep_their_counts_while_redis_is_away(kvsim, kvway, keys_file, redis):
    config = {"auth.keys_file": keys_file(2), "rate_sharing.redis": redis.url}
    sim = kvsim(1)
    routers = [kvway(sim, config) for _ in range(2)]
    for router in routers:
        assert router.ask("POST", CHAT, bearer("key0"), chat_body()).status == 200
    for router in routers:
        has(router, 2)
    redis.signal(signal.SIGSTOP)
    for router in routers:
        assert router.ask("POST", CHAT, bearer("key1"), chat_body()).status == 200
    for router in routers:
        has(router, 3)  # its own
    redis.signal(signal.SIGCONT)
    for router in routers:
        page = has(router, 4, 30)
        assert total(page)["requests"] == 4 and of_key(page, "key1")["requests"] == 2
    routers[0].restart()
    routers[0].wait_up(sim)
    until(lambda: total(usage(routers[0]))["requests"] == 4, 20, "what Redis has")
