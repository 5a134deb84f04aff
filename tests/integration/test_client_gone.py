"""A client that goes away takes its request with it, and leaves nothing behind: clients that do not read, and
many at once. One at a time is tests/requests/gone."""

import random
import threading

from rig.client import CHAT, Client, chat_body
from rig.wait import until
from rig.wire import Closed

TICK = threading.Event()  # never set: its wait() is a pause


def test_client_gone_while_its_answer_is_paused(pair):
    """Reading is stopped by backpressure: the close must be noticed all the same."""
    ended = threading.Event()

    def script(ex):
        try:
            ex.start_stream()
            while True:
                ex.chunk(b"z" * 65536)
        except Closed:
            ex.keep = False
            ended.set()

    worker, router = pair(script)
    client = Client(router.port, receive_buffer=65536)
    client.send_request("POST", CHAT, body=chat_body(stream=True))
    client.read_head()
    worker.wait_requests(1)
    TICK.wait(0.5)
    client.close()
    assert ended.wait(3)
    router.wait_idle()


def test_200_clients_leaving_at_random_moments(workers, kvway):
    """Nothing in flight, no descriptor and no upstream connection in use is left behind."""
    rng = random.Random(200)

    def script(ex):
        pace = random.Random(ex.headers.get("x-seed"))
        TICK.wait(pace.random() * 0.02)
        if ex.json().get("stream"):
            ex.start_stream()
            for i in range(40):
                ex.event({"i": i})
                TICK.wait(pace.random() * 0.01)
            ex.end_stream()
        else:
            TICK.wait(pace.random() * 0.2)
            ex.respond(body=b"z" * 50_000)

    fleet = workers(2, script=script)
    router = kvway(fleet, {"timeouts.upstream_idle": "500ms"})
    for _ in range(8):
        router.ask("POST", CHAT, body=chat_body())
    router.wait_idle()
    until(lambda: not sum(router.sockets_to(w.port) for w in fleet), 10, "idle links closed")
    before = router.fds()

    def visit(seed):
        pace = random.Random(seed)
        client = Client(router.port)
        body = chat_body("hello " * pace.randrange(2000), stream=pace.random() < 0.6)
        raw_moment = pace.random()
        try:
            if raw_moment < 0.1:
                client.send(b"POST /v1/chat/completions HT")
            elif raw_moment < 0.3:
                client.send_head("POST", CHAT, [("Content-Length", "90000")])
                client.send(b'{"model":"tiny",' + b" " * pace.randrange(60_000))
            else:
                client.send_request("POST", CHAT, [("X-Seed", str(seed))], body)
                if raw_moment > 0.5:
                    client.sock.settimeout(pace.random() * 0.3)
                    client.reader.exactly(pace.randrange(1, 3000))
        except (TimeoutError, Closed, OSError):
            pass
        TICK.wait(pace.random() * 0.1)
        client.reset() if pace.random() < 0.3 else client.close()

    threads = [threading.Thread(target=visit, args=(rng.random(),)) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    router.wait_idle(10)
    until(lambda: not sum(router.sockets_to(w.port) for w in fleet), 10, "idle links closed")
    until(lambda: router.fds() <= before, 10, f"descriptors back at {before} (are {router.fds()})")
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_thousands_of_short_connections_leak_no_descriptor(pair):
    _, router = pair()
    router.ask("GET", "/x")
    before = router.fds()
    for i in range(1500):
        client = Client(router.port)
        if i % 3 == 0:
            client.send(b"GET /hea")
        elif i % 3 == 1:
            client.send(b"bad\r\n\r\n")
        client.reset() if i % 2 else client.close()
    until(lambda: router.fds() <= before + 2, 10, f"descriptors back at {before}")
    router.wait_idle()
