"""Everything at once, for a while: what sanitizers watch, and what must add up in the end."""

import json
import random
import threading
import time

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client, chat_body
from rig.wait import until
from rig.wire import Closed

TICK = threading.Event()  # never set: its wait() is a pause


def moody(ex):
    """Answers most requests, in many ways, and fails some before or after their first token."""
    mood = random.Random(ex.headers.get("x-mood", "0"))
    roll = mood.random()
    if roll < 0.05:
        ex.reset()
    elif roll < 0.08:
        ex.start_stream()
        ex.close()
    elif roll < 0.10:
        ex.start_stream()
        ex.event("only this")
        ex.reset()
    elif roll < 0.12:
        ex.respond(500, body=b'{"error": {"message": "engine died"}}')
    elif roll < 0.55:
        ex.start_stream()
        for i in range(mood.randrange(1, 30)):
            ex.event({"choices": [{"index": 0, "delta": {"content": "x" * mood.randrange(200)}}]})
            if mood.random() < 0.2:
                TICK.wait(0.002)
        ex.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
        ex.event("[DONE]")
        ex.end_stream()
    elif roll < 0.75:
        ex.respond_chunked([b"y" * mood.randrange(5000) for _ in range(mood.randrange(1, 9))])
    else:
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        ex.respond(body={"choices": [], "usage": usage, "pad": "z" * mood.randrange(60_000)})


def request(rng):
    """(method, path, headers, body) of one of many kinds."""
    kind = rng.random()
    mood = [("X-Mood", str(rng.random()))]
    if kind < 0.45:
        turns = [{"role": "user", "content": f"shared start {rng.randrange(6)} " * rng.randrange(400)}
                 for _ in range(rng.randrange(1, 5))]  # fmt: skip
        return "POST", CHAT, mood, {"model": "tiny", "messages": turns, "stream": rng.random() < 0.5}
    if kind < 0.6:
        return "POST", COMPLETIONS, mood, {"model": "tiny", "prompt": list(range(rng.randrange(900)))}
    if kind < 0.7:
        return "POST", MESSAGES, mood, {**chat_body("anthropic"), "max_tokens": 3}
    if kind < 0.75:
        return "POST", CHAT, mood, {"model": "unknown", "messages": []}
    if kind < 0.8:
        return "POST", "/sleep", mood, {}
    if kind < 0.9:
        return "PUT", f"/opaque/{rng.randrange(9)}", mood, b"\xff" * rng.randrange(100_000)
    return "GET", rng.choice(["/health", "/ready", "/metrics", "/v1/models", "/version"]), mood, None


def well_behaved(router, rng, tally):
    """A user on kept connections: each answer must be whole, or the connection cut."""
    client = None
    for _ in range(25):
        method, path, headers, body = request(rng)
        try:
            client = client or Client(router.port, timeout=20)
            got = client.ask(method, path, headers, body)
            tally[got.status] = tally.get(got.status, 0) + 1
            if got.headers.get("connection", "").lower() == "close":
                client.close()
                client = None
        except (Closed, OSError) as error:
            assert not isinstance(error, TimeoutError), f"no answer to {method} {path}"
            tally["cut"] = tally.get("cut", 0) + 1
            if client is None:
                raise
            client.close()
            client = None
    if client:
        client.close()


def rude(router, rng):
    """A client that leaves in the middle, sends nonsense, or pipelines."""
    for _ in range(12):
        client = Client(router.port, timeout=20)
        try:
            roll = rng.random()
            if roll < 0.3:
                method, path, headers, body = request(rng)
                client.send_request(method, path, headers, body)
                TICK.wait(rng.random() * 0.02)
            elif roll < 0.5:
                client.send(rng.randbytes(200) + b"\r\n\r\n")
                client.reader.fill()
            elif roll < 0.7:
                client.send_head("POST", CHAT, [("Transfer-Encoding", "chunked")])
                client.send(b"5\r\n{\"mod\r\nzz\r\n")
                client.reader.fill()
            else:
                get = b"GET /x HTTP/1.1\r\nHost: t\r\nX-Mood: 0.9\r\n\r\n"
                client.send(get * 20)
                for _ in range(rng.randrange(20)):
                    client.read()
        except (Closed, OSError):
            pass
        client.reset() if rng.random() < 0.5 else client.close()


def test_everything_at_once(workers, kvway):
    fleet = workers(3, script=moody)
    router = kvway(
        fleet,
        {
            "loops": 4,
            "health.passive_failures": 5,
            "health.interval": "200ms",
            "log.access": "/dev/null",
            "routing.prefixaware.tree_bytes": "1MiB",
            "routing.scan_limit": "64KiB",
        },
    )
    tally = {}
    faults = []

    def guarded(body, *args):
        try:
            body(*args)
        except BaseException as error:
            faults.append(repr(error))
            raise

    threads = [
        threading.Thread(target=guarded, args=(well_behaved, router, random.Random(n), tally))
        for n in range(16)
    ]
    threads += [
        threading.Thread(target=guarded, args=(rude, router, random.Random(1000 + n)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for worker in fleet[:2]:  # one after the other goes away and comes back
        time.sleep(0.4)
        worker.stop()
        time.sleep(0.3)
        worker.start()
    for thread in threads:
        thread.join(120)
    assert router.alive(), router.log()[-4000:]
    assert not faults, faults[0]
    assert tally.get(200, 0) > 150, tally
    assert tally.get(404, 0) > 0 and tally.get(403, 0) > 0, tally
    router.wait_idle(10)
    until(lambda: router.ask("GET", "/ready").status == 200, 5, "ready in the end")
    for worker in fleet:
        worker.script = lambda ex: ex.respond(body=b"fine")
    assert router.ask("POST", CHAT, body=chat_body()).body == b"fine"


def test_simulated_workers_under_load(kvsim, kvway):
    """kvway and kvsim together: every answer whole, every counter back at zero."""
    fleet = kvsim(3)
    router = kvway(fleet, {"loops": 2})
    good = []

    def user(number):
        with Client(router.port, timeout=30) as client:
            history = []
            for turn in range(8):
                history.append({"role": "user", "content": f"user {number} turn {turn} " * 40})
                body = {"model": "tiny", "messages": history, "max_tokens": 10, "stream": turn % 2 == 0}
                got = client.ask("POST", CHAT, body=body)
                assert got.status == 200, got
                if body["stream"]:
                    assert got.events()[-1] == "[DONE]"
                else:
                    assert json.loads(got.body)["usage"]["completion_tokens"] == 10
                history.append({"role": "assistant", "content": f"answer {turn}"})
                good.append(1)

    threads = [threading.Thread(target=user, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(good) == 24 * 8
    router.wait_idle()
