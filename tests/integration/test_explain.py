"""What kvway tells of its decisions: answer headers, /explain on the admin address, `kvway explain`."""

from rig.client import CHAT, chat_body

WISH = [("X-Kvway-Explain", "1")]


def told(answer):
    """The x-kvway-* headers of an answer."""
    return {name.lower(): value for name, value in answer.headers if name.lower().startswith("x-kvway")}


# --- headers ------------------------------------------------------------------------------------


def test_headers_are_off_by_default_and_the_wish_passes_through(pair):
    worker, router = pair()
    assert not told(router.ask("POST", CHAT, body=chat_body()))
    assert not told(router.ask("POST", CHAT, WISH, body=chat_body()))
    assert worker.requests[-1].headers.get("x-kvway-explain") == "1"


def test_headers_for_those_who_ask(pair):
    worker, router = pair(config={"http.decision_headers": "on_request"})
    for headers in ([], [("X-Kvway-Explain", "0")], [("X-Kvway-Explain", "")]):
        assert not told(router.ask("POST", CHAT, headers, body=chat_body()))
        assert "x-kvway-explain" not in worker.requests[-1].headers
    headers = told(router.ask("POST", CHAT, WISH, body=chat_body()))
    assert set(headers) == {"x-kvway-worker", "x-kvway-reason", "x-kvway-predicted-cached-tokens"}
    assert headers["x-kvway-worker"] == worker.url
    assert headers["x-kvway-reason"] == "only"
    assert headers["x-kvway-predicted-cached-tokens"].isdigit()
    assert "x-kvway-explain" not in worker.requests[-1].headers
    assert not told(router.ask("POST", CHAT, body=chat_body()))


def test_headers_for_all(pair):
    worker, router = pair(config={"http.decision_headers": "always"})
    assert told(router.ask("POST", CHAT, body=chat_body()))["x-kvway-worker"] == worker.url
    assert told(router.ask("POST", CHAT, WISH, body=chat_body()))
    assert "x-kvway-explain" not in worker.requests[-1].headers


def test_headers_name_the_worker_that_answered_after_a_retry(workers, kvway):
    bad, good = workers(2)
    bad.script = lambda ex: ex.respond(503, body=b"later")
    router = kvway([bad, good], {"http.decision_headers": "on_request", "routing.strategy": "roundrobin"})
    for _ in range(4):
        headers = told(router.ask("POST", CHAT, WISH, body=chat_body()))
        assert headers["x-kvway-worker"] == good.url
        assert "x-kvway-explain" not in good.requests[-1].headers
