"""/workers on the admin address: looking, adding, changing, draining and removing."""

import threading
from urllib.parse import quote

import pytest

from rig.client import CHAT, ask, chat_body
from rig.tls import Authority
from rig.wait import until, unused_port


def call(router, method, path, body=None, headers=()):
    return ask(router.admin_port, method, path, headers, body, timeout=30.0)


def listed(router):
    answer = call(router, "GET", "/workers")
    assert answer.status == 200
    return answer.json()


def id_of(worker):
    return worker.url.removeprefix("http://")


def shown(router, worker):
    answer = call(router, "GET", f"/workers/{id_of(worker)}")
    assert answer.status == 200, answer
    return answer.json()


def message(answer, status):
    assert answer.status == status, answer
    error = answer.json()["error"]
    assert error["code"] == status
    return error["message"]


def test_the_list_and_one_worker(workers, kvway):
    both = workers(2)
    router = kvway(both)
    until(lambda: all(w["state"] == "up" and w["health"] == "up" for w in listed(router)))
    got = {w["url"]: w for w in listed(router)}
    assert set(got) == {w.url for w in both}
    one = got[both[0].url]
    assert one["id"] == id_of(both[0])
    assert one["sources"] == ["config"] and one["addresses"] == ["127.0.0.1"]
    assert "tiny" in one["models"]
    assert one["usable"] and not one["rests"] and not one["leaves"] and not one["ejected"]
    assert one["leaves_in_ms"] is None and one["inflight"] == 0 and one["queue_seconds"] == 0
    assert shown(router, both[0])["url"] == both[0].url
    coded = call(router, "GET", "/workers/" + quote(both[1].url, safe=""))
    assert coded.json()["url"] == both[1].url
    assert "no worker `x:1`" in message(call(router, "GET", "/workers/x:1"), 404)


def test_a_worker_is_added_serves_and_is_removed(workers, kvway):
    first, second = workers(2)
    router = kvway([first])
    answer = call(router, "POST", "/workers", {"url": second.url})
    assert answer.status == 201
    assert answer.json()["id"] == id_of(second) and answer.json()["sources"] == ["admin"]
    until(lambda: shown(router, second)["models"])
    call(router, "POST", f"/workers/{id_of(first)}/drain")
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert second.requests[-1].path == CHAT
    assert "is a worker already" in message(call(router, "POST", "/workers", {"url": second.url}), 409)
    call(router, "POST", f"/workers/{id_of(first)}/undrain")
    assert call(router, "DELETE", f"/workers/{id_of(second)}").status == 200
    until(lambda: [w["url"] for w in listed(router)] == [first.url])
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_several_are_added_or_none(workers, kvway):
    first, second, third = workers(3)
    router = kvway([first])
    mixed = [{"url": second.url}, {"url": "nonsense"}, {"url": third.url, "modles": []}]
    told = message(call(router, "POST", "/workers", mixed), 400)
    assert "[1].url: found `nonsense`" in told and "[2].modles: found an unknown key" in told
    assert "[1].url" in message(call(router, "POST", "/workers", [{"url": second.url}, {"url": second.url}]), 400)
    assert "already" in message(call(router, "POST", "/workers", [{"url": second.url}, {"url": first.url}]), 409)
    assert len(listed(router)) == 1
    answer = call(router, "POST", "/workers", [{"url": second.url}, {"url": third.url}])
    assert answer.status == 201
    assert [w["url"] for w in answer.json()] == [second.url, third.url]


@pytest.mark.parametrize(
    "body, part",
    [
        (b"", "no body"),
        (b"{", "not JSON"),
        (b"[]", "an empty list"),
        (b"7", "another kind"),
        (b"{}", "url"),
        ({"url": "ftp://x:1"}, "url: found `ftp://x:1`"),
        ({"url": "http://x:1", "models": "m"}, "models: found"),
        ({"url": "http://x:1", "models": [""]}, "models"),
        ({"url": 'http://x:1/"\n'}, "url: found"),
        ({"url": "http://x:1", "model": ["m"]}, "did you mean `models`?"),
        (b'{"url": "http://x:1", "url": "http://x:2"}', "duplicate"),
    ],
)
def test_bodies_that_are_wrong(pair, body, part):
    _, router = pair()
    assert part in message(call(router, "POST", "/workers", body), 400)
    assert len(listed(router)) == 1


def test_a_change_keeps_what_is_not_given(pair):
    worker, router = pair()
    path = f"/workers/{id_of(worker)}"
    answer = call(router, "PATCH", path, {"models": ["a", "b"]})
    assert answer.status == 200 and answer.json()["models"] == ["a", "b"]
    assert call(router, "PATCH", path, {"weight": 0.5}).json()["weight"] == 0.5
    assert call(router, "PATCH", path, {"api_key": "secret"}).status == 200
    assert shown(router, worker)["weight"] == 0.5
    assert shown(router, worker)["models"] == ["a", "b"]
    assert "secret" not in call(router, "GET", "/workers").body.decode()
    assert call(router, "PATCH", path, {"models": None}).status == 200
    until(lambda: "tiny" in shown(router, worker)["models"])
    assert "url: found another one" in message(call(router, "PATCH", path, {"url": "http://x:1"}), 400)
    assert "models: found" in message(call(router, "PATCH", path, {"models": "a"}), 400)
    assert "no key" in message(call(router, "PATCH", path, {}), 400)


def test_methods_paths_and_parameters_are_strict(pair):
    worker, router = pair()
    path = f"/workers/{id_of(worker)}"
    answer = call(router, "DELETE", "/workers")
    assert "found DELETE, expected GET, HEAD, POST" in message(answer, 405)
    assert dict(answer.headers)["Allow"] == "GET, HEAD, POST"
    message(call(router, "POST", path, {}), 405)
    message(call(router, "GET", path + "/drain"), 405)
    message(call(router, "GET", path + "%00"), 404)
    message(call(router, "GET", path + "%zz"), 404)
    message(call(router, "POST", path + "/eject"), 404)
    assert "found the parameter `nwo`" in message(call(router, "DELETE", path + "?nwo=true"), 400)
    assert "now: found `1`" in message(call(router, "DELETE", path + "?now=1"), 400)
    assert "wait: found `soon`" in message(call(router, "POST", path + "/drain?wait=soon"), 400)
    assert "remove" in message(call(router, "POST", path + "/drain", {"remove": 1}), 400)
    assert shown(router, worker)["state"] == "up"


def held(workers, kvway):
    """A worker that has one request until `go` is set."""
    go = threading.Event()
    slow, other = workers(2)
    router = kvway([slow, other], {"drain.worker": "30s"})
    call(router, "POST", f"/workers/{id_of(other)}/drain")

    def script(ex):
        go.wait(30)
        ex.respond(200, body=b"{}")

    slow.script = script
    got = []
    thread = threading.Thread(target=lambda: got.append(router.ask("POST", CHAT, body=chat_body()).status))
    thread.start()
    until(lambda: shown(router, slow)["inflight"] == 1)
    call(router, "POST", f"/workers/{id_of(other)}/undrain")
    return router, slow, other, go, thread, got


def test_a_drain_waits_for_the_last_request(workers, kvway):
    router, slow, _, go, thread, got = held(workers, kvway)
    path = f"/workers/{id_of(slow)}"
    answer = call(router, "POST", path + "/drain?wait=200ms").json()
    assert not answer["drained"] and answer["waited_ms"] >= 200 and answer["state"] == "draining"
    threading.Timer(0.3, go.set).start()
    answer = call(router, "POST", path + "/drain?wait=20s").json()
    assert answer["drained"] and answer["inflight"] == 0 and answer["rests"]
    thread.join()
    assert got == [200]
    assert call(router, "POST", path + "/undrain").json()["state"] == "up"


def test_one_without_requests_is_drained_at_once(pair):
    worker, router = pair()
    for query in ("", "?wait=10ms", "?wait=20s"):
        answer = call(router, "POST", f"/workers/{id_of(worker)}/drain{query}").json()
        assert answer["drained"] and answer["rests"] and answer["state"] == "draining"


def test_a_client_that_gives_up_waiting_leaves_the_drain(workers, kvway):
    router, slow, _, go, thread, _ = held(workers, kvway)
    with pytest.raises(Exception):
        ask(router.admin_port, "POST", f"/workers/{id_of(slow)}/drain?wait=20s", timeout=0.3)
    assert shown(router, slow)["state"] == "draining"
    go.set()
    thread.join()


def test_drained_and_removed(workers, kvway):
    router, slow, other, go, thread, got = held(workers, kvway)
    path = f"/workers/{id_of(slow)}"
    answer = call(router, "POST", path + "/drain?remove=true").json()
    assert not answer["drained"] and answer["leaves"] and 0 < answer["leaves_in_ms"] <= 30000
    assert "leaves" in message(call(router, "DELETE", path), 409)
    go.set()
    thread.join()
    assert got == [200]
    until(lambda: shown(router, slow)["state"] == "removed")
    assert shown(router, slow)["sources"] == ["config"]
    message(call(router, "PATCH", path, {"models": ["m"]}), 409)
    assert call(router, "POST", "/workers", {"url": slow.url}).status == 201
    until(lambda: shown(router, slow)["state"] == "up")


def test_removed_at_once(workers, kvway):
    router, slow, other, go, thread, got = held(workers, kvway)
    assert call(router, "DELETE", f"/workers/{id_of(slow)}?now=true").status == 200
    thread.join()  # it was moved to the other one, which answers at once
    go.set()
    assert got == [200]


def test_one_that_a_file_lists_is_added_again_with_new_settings(pair):
    """What it was before its removal does not count."""
    worker, router = pair()
    assert call(router, "DELETE", f"/workers/{id_of(worker)}?now=true").status == 200
    until(lambda: shown(router, worker)["state"] == "removed")
    answer = call(router, "POST", "/workers", {"url": worker.url, "weight": 0.25, "models": ["other"]})
    assert answer.status == 201
    assert (answer.json()["weight"], answer.json()["models"]) == (0.25, ["other"])
    assert answer.json()["sources"] == ["config", "admin"]


def test_one_for_which_the_fleet_has_no_room(workers, kvway, tmp_path):
    """It is listed and has not joined: it can be given up, and not be drained."""
    (first,) = workers(1)
    listing = tmp_path / "workers.yaml"
    urls = [f"http://127.0.0.1:{port}" for port in range(1, 1025)]
    listing.write_text("workers:\n" + "".join(f"  - url: {url}\n" for url in urls))
    router = kvway([first], {"discovery.file": str(listing), "health.interval": "60s"})
    until(lambda: len(listed(router)) == 1025)
    (late,) = [w for w in listed(router) if w["state"] == "removed"]
    path = f"/workers/{late['id']}"
    for query in ("", "?remove=true"):
        told = message(call(router, "POST", f"{path}/drain{query}"), 409)
        assert "the fleet has no room for it" in told
    answer = call(router, "DELETE", path)
    assert (answer.status, answer.json()["state"]) == (200, "removed")


def test_the_same_host_and_port_twice(workers, kvway):
    port = unused_port()
    (first,) = workers(1)
    router = kvway([first])
    for prefix in ("/a", "/b"):
        assert call(router, "POST", "/workers", {"url": f"http://127.0.0.1:{port}{prefix}"}).status == 201
    assert {w["id"] for w in listed(router)} == {
        id_of(first), f"http://127.0.0.1:{port}/a", f"http://127.0.0.1:{port}/b"}
    assert "several workers" in message(call(router, "GET", f"/workers/127.0.0.1:{port}"), 409)
    coded = quote(f"http://127.0.0.1:{port}/a", safe="")
    assert call(router, "DELETE", f"/workers/{coded}").status == 200


def test_tls_that_cannot_be_had_is_a_conflict(workers, kvway, tmp_path):
    """Not a full fleet: its authorities do not go with certificates that nothing verifies."""
    (first,) = workers(1)
    router = kvway([first], {"upstream.tls.insecure": True})
    settings = {"url": f"https://127.0.0.1:{unused_port()}", "tls_ca_file": str(Authority(tmp_path).cert)}
    assert "insecure" in message(call(router, "POST", "/workers", settings), 409)
    plain = {"url": settings["url"]}
    assert call(router, "POST", "/workers", plain).status == 201
    settings = {"tls_ca_file": settings["tls_ca_file"]}
    assert "insecure" in message(call(router, "PATCH", f"/workers/{quote(plain['url'], safe='')}", settings), 409)
    assert len(listed(router)) == 2
