"""/broadcast on the admin address: one request to all workers, with each one's answer."""

import threading

from rig.client import CHAT, Client, ask, chat_body
from rig.wait import until, unused_port


def cast(router, path, body=None, method="POST", headers=()):
    return ask(router.admin_port, method, f"/broadcast/{path}", headers, body, timeout=30.0)


def id_of(worker):
    return worker.url.removeprefix("http://")


def by_id(answer):
    return {w["id"]: w for w in answer.json()["workers"]}


def state(router, worker):
    return ask(router.admin_port, "GET", f"/workers/{id_of(worker)}").json()["state"]


def test_sleep_and_wake(kvsim, kvway):
    sims = kvsim(3)
    router = kvway(sims)
    answer = cast(router, "sleep?level=2&workers=" + id_of(sims[0]))
    assert answer.status == 200 and answer.json()["path"] == "/sleep" and answer.json()["failed"] == 0
    assert by_id(answer) == {
        id_of(sims[0]): {"id": id_of(sims[0]), "status": 200, "answer": {"status": "sleeping", "level": 2}}}
    assert state(router, sims[0]) == "asleep"
    answer = cast(router, "is_sleeping", method="GET")
    assert {i: w["answer"]["is_sleeping"] for i, w in by_id(answer).items()} == {
        id_of(s): s is sims[0] for s in sims}
    assert cast(router, "wake_up").status == 200
    until(lambda: state(router, sims[0]) == "up")


def test_a_reset_empties_the_view(kvsim, kvway):
    sims = kvsim(2)
    router = kvway(sims)

    def purges():
        text = ask(router.admin_port, "GET", "/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith("kvway_worker_cache_losses_total"))

    before = purges()
    assert cast(router, "reset_prefix_cache").status == 200
    until(lambda: purges() == before + 2)


def test_query_body_and_key_reach_the_workers(workers, kvway):
    both = workers(2)
    for worker in both:
        worker.script = lambda ex: ex.respond(200, body=b"Success: done")
    router = kvway(both, worker_keys={"api_key": "k1"})
    body = {"lora_name": "a", "lora_path": "/a"}
    answer = cast(router, f"load_lora_adapter?a=1&workers={id_of(both[0])},{id_of(both[1])}&b=%20", body)
    assert answer.status == 200
    assert {w["answer"] for w in by_id(answer).values()} == {"Success: done"}
    for worker in both:
        (ex,) = worker.requests
        assert ex.method == "POST" and ex.target == "/v1/load_lora_adapter?a=1&b=%20"
        assert ex.headers.get("authorization") == "Bearer k1"
        assert ex.headers.get("content-type") == "application/json"
        assert b'"lora_name"' in ex.body


def test_a_new_adapter_is_known_at_once(workers, kvway):
    (worker,) = workers(1)

    def script(ex):
        worker.models.append("adapter")
        ex.respond(200, body=b"ok")

    worker.script = script
    router = kvway([worker], {"health.models_interval": "1h"})
    assert cast(router, "load_lora_adapter", {"lora_name": "adapter", "lora_path": "/a"}).status == 200
    until(lambda: "adapter" in ask(router.admin_port, "GET", f"/workers/{id_of(worker)}").json()["models"])


def test_what_fails_is_told_for_each_worker(workers, kvway):
    good, bad, big = workers(3)
    good.script = lambda ex: ex.respond(200, body={"ok": True})
    bad.script = lambda ex: ex.respond(404, body=b"no such path")
    big.script = lambda ex: ex.respond(200, body=b"x" * 100000)
    router = kvway([good, bad, big])
    gone = f"http://127.0.0.1:{unused_port()}"
    assert ask(router.admin_port, "POST", "/workers", body={"url": gone}).status == 201
    answer = cast(router, "sleep")
    assert answer.status == 207 and answer.json()["failed"] == 2
    got = by_id(answer)
    assert got[id_of(good)]["answer"] == {"ok": True}
    assert got[id_of(bad)]["status"] == 404 and got[id_of(bad)]["answer"] == "no such path"
    assert got[id_of(big)]["truncated"] and len(got[id_of(big)]["answer"]) == 65536
    assert "connect" in got[gone.removeprefix("http://")]["error"].lower()
    assert state(router, bad) == "up"


def test_a_client_that_leaves_stops_nothing(workers, kvway):
    go = threading.Event()
    (worker,) = workers(1)

    def script(ex):
        go.wait(30)
        ex.respond(200, body=b"{}")

    worker.script = script
    router = kvway([worker])
    try:
        ask(router.admin_port, "POST", "/broadcast/sleep", timeout=0.3)
        raise AssertionError("it was answered")
    except OSError:
        pass
    worker.script = lambda ex: ex.respond(200, body=b"{}")
    go.set()
    until(lambda: state(router, worker) == "asleep")
    assert cast(router, "wake_up").status == 200
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 200)  # a probe may have seen it asleep


def test_what_is_refused(pair):
    worker, router = pair()
    answer = cast(router, "collective_rpc")
    assert answer.status == 404 and "expected /broadcast/ with sleep" in answer.json()["error"]["message"]
    assert cast(router, "sleep", method="GET").status == 405
    assert cast(router, "is_sleeping").status == 405
    answer = cast(router, "sleep?workers=x:1")
    assert answer.status == 404 and "no worker `x:1`" in answer.json()["error"]["message"]
    assert cast(router, "sleep?workers=").status == 404
    assert not worker.requests


def test_a_misspelt_name_of_workers_asks_none(workers, kvway):
    both = workers(2)
    router = kvway(both)
    one = id_of(both[0])
    for query in (f"worker={one}", f"Workers={one}", f"work%65r={one}", f"level=1&wokers={one}",
                  f"workers={one}&workers={id_of(both[1])}"):
        answer = cast(router, f"sleep?{query}")
        assert answer.status == 400, query
        assert "expected `workers=ID,ID` once" in answer.json()["error"]["message"]
    assert not both[0].requests and not both[1].requests


def test_there_are_only_so_many_at_a_time(workers, kvway):
    """Those whose clients have left count."""
    go = threading.Event()
    (worker,) = workers(1)

    def script(ex):
        go.wait(30)
        ex.respond(200, body=b"{}")

    worker.script = script
    router = kvway([worker])
    clients = [Client(router.admin_port) for _ in range(16)]
    for client in clients:
        client.send_request("POST", "/broadcast/reset_prefix_cache")
    until(lambda: router.metric("kvway_broadcasts") == 16)
    for client in clients[:8]:
        client.close()
    answer = cast(router, "reset_prefix_cache")
    assert answer.status == 503 and "16 broadcasts are under way" in answer.json()["error"]["message"]
    assert answer.headers.get("retry-after") == "10"
    go.set()
    assert [client.read("POST").status for client in clients[8:]] == [200] * 8
    until(lambda: router.metric("kvway_broadcasts") == 0)
    ended = {r: router.metric("kvway_broadcasts_total", result=r) for r in ("answered", "deserted", "refused")}
    assert ended == {"answered": 8, "deserted": 8, "refused": 1}
    for client in clients[8:]:
        client.close()


def test_a_router_that_ends_while_it_casts(workers, kvway):
    go = threading.Event()
    (worker,) = workers(1)

    def script(ex):
        go.wait(30)
        ex.respond(200, body=b"{}")

    worker.script = script
    router = kvway([worker])
    thread = threading.Thread(target=lambda: _ignore(lambda: cast(router, "sleep")))
    thread.start()
    until(lambda: worker.requests)
    router.stop()
    go.set()
    thread.join()


def _ignore(call):
    try:
        call()
    except Exception:
        pass
