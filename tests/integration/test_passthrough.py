"""What goes through unchanged, and what a proxy must add or take away."""

import re

import pytest

from rig.client import CHAT, Client, chat_body

METHODS = ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "POST"]
PATHS = [
    "/v1/something/new",
    "/pooling",
    "/invocations",
    "/v2/rerank",
    "/a%20b/c%2Fd?x=1&y=%00&z=%C3%A9",
    "/tokenizer_info?verbose",
    "/",
]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reaches_a_worker(pair, method):
    worker, router = pair()
    body = None if method in ("GET", "OPTIONS") else b"payload"
    answer = router.ask(method, "/some/path", body=body)
    assert answer.status == 200
    assert worker.requests[-1].method == method
    assert worker.requests[-1].body == (body or b"")


def test_unusual_methods_that_the_parser_knows(pair):
    worker, router = pair()
    for method in ("PROPFIND", "REPORT", "SEARCH", "PURGE", "LOCK"):
        assert router.ask(method, "/x").status == 200
        assert worker.requests[-1].method == method


@pytest.mark.parametrize("path", PATHS)
def test_unknown_paths_arrive_as_they_were_sent(pair, path):
    worker, router = pair()
    assert router.ask("GET", path).status == 200
    assert worker.requests[-1].target == path


def test_url_prefix_of_a_worker_is_put_before_the_path(workers, kvway):
    (worker,) = workers(1)
    router = kvway([f"{worker.url}/engine"], up=False, worker_keys={"models": ["tiny"]})
    router.wait_up()
    router.ask("POST", f"{CHAT}?a=b", body=chat_body())
    asked = [r.target for r in worker.requests if r.method == "POST"]  # probes have the prefix too
    assert asked == [f"/engine{CHAT}?a=b"]


def test_status_reason_and_headers_come_back(pair):
    def script(ex):
        headers = [
            ("X-One", "1"),
            ("Set-Cookie", "a=1; Path=/"),
            ("Set-Cookie", "b=2"),
            ("X-Odd", 'quoted "text", with = signs; and\tblanks'),
            ("x-empty", ""),
        ]
        ex.respond(418, headers, b"short and stout", reason="I'm a teapot, really")

    worker, router = pair(script)
    answer = router.ask("POST", CHAT, body=chat_body())
    assert (answer.status, answer.reason) == (418, "I'm a teapot, really")
    assert answer.headers.all("set-cookie") == ["a=1; Path=/", "b=2"]
    assert answer.headers.get("x-one") == "1"
    assert answer.headers.get("x-odd") == 'quoted "text", with = signs; and\tblanks'
    assert answer.headers.get("x-empty") == ""
    assert answer.body == b"short and stout"


def test_end_to_end_request_headers_arrive_once_and_in_order(pair):
    worker, router = pair()
    headers = [
        ("Authorization", "Bearer sk-secret"),
        ("X-A", "1"),
        ("X-B", "2"),
        ("X-A", "3"),
        ("Accept", "text/event-stream"),
        ("User-Agent", "OpenAI/Python 1.0"),
        ("Cookie", "session=abc"),
    ]
    router.ask("POST", CHAT, headers, body=chat_body())
    got = worker.requests[-1].headers
    names = {k.lower() for k, _ in headers}
    sent = [(k.lower(), v) for k, v in headers]
    assert [(k.lower(), v) for k, v in got if k.lower() in names] == sent
    for name in ("content-length", "host", "content-type", "x-request-id"):
        assert len(got.all(name)) == 1, name


def test_hop_by_hop_request_headers_stop_here(pair):
    worker, router = pair()
    headers = [
        ("Connection", "keep-alive, X-Private"),
        ("X-Private", "for the router only"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers, deflate"),
        ("Proxy-Authorization", "Basic abc"),
        ("X-Public", "for the worker"),
    ]
    assert router.ask("GET", "/x", headers).status == 200
    got = worker.requests[-1].headers
    assert got.get("x-public") == "for the worker"
    for name in ("x-private", "keep-alive", "proxy-connection"):
        assert name not in got, name
    assert got.get("te", "trailers").lower() == "trailers"
    assert "x-private" not in got.get("connection", "").lower()


def test_hop_by_hop_response_headers_stop_here(pair):
    def script(ex):
        ex.respond(
            200,
            [
                ("Connection", "keep-alive, X-Internal"),
                ("Keep-Alive", "timeout=5"),
                ("X-Internal", "1"),
                ("X-External", "2"),
            ],
            b"ok",
        )

    _, router = pair(script)
    with Client(router.port) as client:
        for _ in range(2):  # the client's connection is kept, whatever the worker's does
            answer = client.ask("GET", "/x")
            assert answer.headers.get("x-external") == "2"
            assert "x-internal" not in answer.headers
            assert "keep-alive" not in answer.headers


def test_request_id_is_kept(pair):
    worker, router = pair()
    router.ask("POST", CHAT, [("X-Request-Id", "mine-1")], body=chat_body())
    assert worker.requests[-1].headers.all("x-request-id") == ["mine-1"]


def test_request_id_is_made_and_differs(pair):
    worker, router = pair()
    for _ in range(20):
        router.ask("POST", CHAT, body=chat_body())
    ids = [ex.headers.get("x-request-id") for ex in worker.requests]
    assert all(re.fullmatch(r"[0-9A-Za-z._-]{16,64}", i) for i in ids), ids
    assert len(set(ids)) == 20


def test_client_is_named_in_forwarded_headers(pair):
    worker, router = pair()
    router.ask("GET", "/x", [("Host", "api.example:80")])
    got = worker.requests[-1].headers
    assert got.get("x-forwarded-for") == "127.0.0.1"
    assert got.get("x-forwarded-proto") == "http"
    forwarded = got.get("forwarded")
    assert re.search(r"for=\"?127\.0\.0\.1", forwarded), forwarded
    assert "proto=http" in forwarded


def test_forwarded_headers_of_proxies_before_are_extended(pair):
    worker, router = pair()
    headers = [("X-Forwarded-For", "10.1.2.3"), ("Forwarded", "for=10.1.2.3")]
    router.ask("GET", "/x", headers)
    got = worker.requests[-1].headers
    chain = [a.strip() for a in ",".join(got.all("x-forwarded-for")).split(",")]
    assert chain == ["10.1.2.3", "127.0.0.1"]
    forwarded = ",".join(got.all("forwarded"))
    assert forwarded.startswith("for=10.1.2.3") and "127.0.0.1" in forwarded.split(",", 1)[1]


@pytest.mark.parametrize(
    "setting, has_x, has_standard",
    [
        ("both", True, True),
        ("forwarded", False, True),
        ("x-forwarded-for", True, False),
        ("off", False, False),
    ],
)
def test_forwarded_headers_by_configuration(pair, setting, has_x, has_standard):
    worker, router = pair(config={"http.forwarded": setting})
    router.ask("GET", "/x")
    got = worker.requests[-1].headers
    assert ("x-forwarded-for" in got) == has_x
    assert ("forwarded" in got) == has_standard


def test_absolute_form_target(pair):
    worker, router = pair()
    with Client(router.port) as client:
        answer = client.ask("GET", "http://test/abs/path?q=1", [("Host", "test")])
        assert answer.status == 200
    assert worker.requests[-1].path.endswith("/abs/path")


def test_keep_alive_connection_serves_many_requests(pair):
    worker, router = pair()
    with Client(router.port) as client:
        for i in range(50):
            assert client.ask("POST", CHAT, body=chat_body(f"turn {i}")).status == 200
    assert len(worker.requests) == 50
    assert worker.accepted < 20, "upstream connections are not reused"


def test_connection_close_is_honoured(pair):
    _, router = pair()
    with Client(router.port) as client:
        answer = client.ask("GET", "/x", [("Connection", "close")])
        assert answer.status == 200
        assert answer.headers.get("connection", "").lower() == "close"
        assert client.closed_by_peer()
