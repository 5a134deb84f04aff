"""http.pin: requests that name their worker by x-kvway-pin."""

from rig.client import CHAT, ask, chat_body
from rig.wait import until

ON = {"http.pin": True, "http.decision_headers": "always", "routing.strategy": "roundrobin"}


def id_of(worker):
    return worker.url.removeprefix("http://")


def pinned(router, name):
    return router.ask("POST", CHAT, [("X-Kvway-Pin", name)], body=chat_body())


def served(worker):
    return [ex for ex in worker.requests if ex.path == CHAT]


def test_off_it_does_nothing_and_ends_here(workers, kvway):
    both = workers(2)
    router = kvway(both, {"routing.strategy": "roundrobin"})
    for _ in range(4):
        assert pinned(router, id_of(both[0])).status == 200
    assert len(served(both[0])) == len(served(both[1])) == 2
    assert all("x-kvway-pin" not in ex.headers for worker in both for ex in worker.requests)


def test_a_request_goes_where_it_says(workers, kvway):
    three = workers(3)
    router = kvway(three, ON)
    for worker in three:
        for name in (id_of(worker), worker.url):
            for _ in range(3):
                answer = pinned(router, name)
                assert answer.status == 200
                headers = {n.lower(): v for n, v in answer.headers}
                assert headers["x-kvway-worker"] == worker.url
                assert headers["x-kvway-reason"] == "pinned"
        assert len(served(worker)) == 6
        assert all("x-kvway-pin" not in ex.headers for ex in worker.requests)
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_one_that_rests_is_reached_and_no_other(workers, kvway):
    both = workers(2)
    router = kvway(both, ON)
    ask(router.admin_port, "POST", f"/workers/{id_of(both[0])}/drain")
    assert pinned(router, id_of(both[0])).status == 200
    answer = pinned(router, "x:1")
    assert answer.status == 503
    assert "x-kvway-pin: no worker `x:1`" in answer.json()["error"]["message"]


def test_one_that_is_down_is_named_with_its_state(workers, kvway):
    both = workers(2)
    router = kvway(both, ON)
    both[0].stop()
    until(lambda: ask(router.admin_port, "GET", f"/workers/{id_of(both[0])}").json()["state"] == "down")
    answer = pinned(router, id_of(both[0]))
    assert answer.status == 503 and "is down" in answer.json()["error"]["message"]
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_a_model_that_it_does_not_serve(workers, kvway):
    one, two = (workers(1, models=["tiny"])[0], workers(1, models=["other"])[0])
    router = kvway([one, two], ON)
    answer = pinned(router, id_of(two))
    assert answer.status == 503 and "without this model" in answer.json()["error"]["message"]


def test_it_is_not_moved_to_another_worker(workers, kvway):
    both = workers(2)
    both[0].script = lambda ex: ex.respond(500, body=b"broken")
    router = kvway(both, ON)
    assert pinned(router, id_of(both[0])).status == 500
    assert not served(both[1])
    both[0].script = lambda ex: ex.sock.close()
    assert pinned(router, id_of(both[0])).status == 502
    assert not served(both[1])


def explained(router, name):
    return ask(router.admin_port, "POST", "/explain", [("X-Kvway-Pin", name)], chat_body())


def test_an_explanation_obeys_it(workers, kvway):
    both = workers(2)
    router = kvway(both, {**ON, "routing.strategy": "prefixaware"})
    for worker in both:
        answer = explained(router, id_of(worker)).json()
        assert (answer["worker"], answer["reason"]) == (worker.url, "pinned")
        assert [w["verdict"] for w in answer["workers"] if w["worker"] == worker.url] == ["chosen"]
    answer = explained(router, "x:1")
    assert answer.status == 503
    assert "x-kvway-pin: no worker `x:1`" in answer.json()["error"]["message"]
    for worker in both:
        ask(router.admin_port, "POST", f"/workers/{id_of(worker)}/drain")
    answer = explained(router, id_of(both[0])).json()
    assert (answer["worker"], answer["reason"]) == (both[0].url, "pinned")


def test_off_an_explanation_does_not_see_it(workers, kvway):
    router = kvway(workers(2))
    assert explained(router, "x:1").json()["reason"] != "pinned"
