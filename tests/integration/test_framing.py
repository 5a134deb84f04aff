"""HTTP/1.1's corners: HEAD, 1xx, 204, 304, trailers, 1.0, pipelining, Expect, early answers."""

import threading

import pytest

from rig.client import CHAT, COMPLETIONS, Client, chat_body
from rig.wait import until
from rig.wire import Closed, encode_chunks, encode_head


def test_head_with_chunked_framing_announced(pair):
    _, router = pair(
        lambda ex: ex.head(200, [("transfer-encoding", "chunked")])
        if ex.method == "HEAD"
        else ex.respond(body=b"next")
    )
    with Client(router.port) as client:
        assert client.ask("HEAD", "/thing").status == 200
        assert client.ask("GET", "/thing").body == b"next"


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(pair, status):
    worker, router = pair(lambda ex: ex.head(status, [("x-n", str(len(worker.requests)))]))
    with Client(router.port) as client:
        for i in range(3):
            answer = client.ask("GET", "/thing")
            assert (answer.status, answer.headers.get("x-n")) == (status, str(i + 1))
            assert "transfer-encoding" not in answer.headers


def test_not_modified_keeps_its_length(pair):
    _, router = pair(lambda ex: ex.head(304, [("content-length", "99"), ("etag", '"x"')]))
    with Client(router.port) as client:
        for _ in range(2):
            answer = client.ask("GET", "/thing", [("If-None-Match", '"x"')])
            assert (answer.status, answer.headers.get("etag")) == (304, '"x"')


def test_interim_answers_come_through(pair):
    def script(ex):
        ex.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n")
        ex.respond(body=b"final")

    _, router = pair(script)
    with Client(router.port) as client:
        for _ in range(2):
            answer = client.ask("GET", "/thing")
            assert (answer.status, answer.body) == (200, b"final")
            assert [s for s, _ in answer.interim] == [103]
            assert answer.interim[0][1].get("link") == "</a>; rel=preload"


def test_expect_continue_is_answered_here(pair):
    worker, router = pair()
    body = b'{"model":"tiny","prompt":"x"}'
    with Client(router.port) as client:
        client.send_head(
            "POST", COMPLETIONS, [("Expect", "100-continue"), ("Content-Length", str(len(body)))]
        )
        assert client.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.send(body)
        answer = client.read()
        assert (answer.status, answer.interim) == (200, [])
    assert worker.requests[-1].body == body
    assert "expect" not in worker.requests[-1].headers


def test_expect_continue_with_a_body_that_does_not_wait(pair):
    worker, router = pair()
    with Client(router.port) as client:
        answer = client.ask("POST", COMPLETIONS, [("Expect", "100-continue")], {"model": "tiny"})
        assert answer.status == 200
    assert len(worker.requests) == 1


def test_expect_continue_on_an_opaque_path(pair):
    worker, router = pair()
    with Client(router.port) as client:
        client.send_head("PUT", "/opaque", [("Expect", "100-continue"), ("Content-Length", "3")])
        assert client.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.send(b"abc")
        assert client.read().status == 200
    assert worker.requests[-1].body == b"abc"


def test_unknown_expectation_is_refused(pair):
    _, router = pair()
    assert router.ask("POST", CHAT, [("Expect", "miracles")], chat_body()).status == 417


def test_request_trailers_reach_the_worker_or_are_dropped_whole(pair):
    """Trailers may be discarded (RFC 9110 6.5), but the body must be intact."""
    worker, router = pair()
    with Client(router.port) as client:
        client.send_head("POST", "/opaque", [("Transfer-Encoding", "chunked"), ("Trailer", "X-Sum")])
        client.send(encode_chunks([b"abc", b"def"], [("X-Sum", "42")]))
        assert client.read().status == 200
        assert client.ask("GET", "/after").status == 200
    assert worker.requests[0].body == b"abcdef"
    assert worker.requests[0].trailers.get("x-sum", "42") == "42"


def test_response_trailers_come_through(pair):
    _, router = pair(
        lambda ex: ex.respond_chunked([b"abc"], [("trailer", "x-sum")], [("x-sum", "42")])
    )
    with Client(router.port) as client:
        for _ in range(2):
            answer = client.ask("GET", "/thing", [("TE", "trailers")])
            assert answer.body == b"abc"
            assert [(k.lower(), v) for k, v in answer.trailers] == [("x-sum", "42")]


def test_chunk_extensions_are_accepted(pair):
    worker, router = pair()
    with Client(router.port) as client:
        client.send_head("POST", "/opaque", [("Transfer-Encoding", "chunked")])
        client.send(b'3;name=value\r\nabc\r\n003;a="b;c"\r\ndef\r\n0;last\r\n\r\n')
        assert client.read().status == 200
    assert worker.requests[-1].body == b"abcdef"


def test_http_1_0_client_gets_no_chunks(pair):
    _, router = pair(lambda ex: ex.respond_chunked([b"abc", b"def"]))
    with Client(router.port) as client:
        answer = client.ask("GET", "/thing", version="HTTP/1.0")
        assert answer.framing in ("close", "length")
        assert "transfer-encoding" not in answer.headers
        assert answer.body == b"abcdef"
        assert client.closed_by_peer()


def test_http_1_0_client_gets_a_stream_until_close(pair):
    _, router = pair()
    with Client(router.port) as client:
        body = chat_body(stream=True)
        answer = client.ask("POST", CHAT, body=body, version="HTTP/1.0")
        assert answer.framing == "close"
        assert answer.events()[-1] == "[DONE]"


def test_http_1_0_keep_alive(pair):
    _, router = pair(lambda ex: ex.respond(body=b"abc"))
    with Client(router.port) as client:
        for _ in range(2):
            answer = client.ask("GET", "/thing", [("Connection", "keep-alive")], version="HTTP/1.0")
            assert (answer.status, answer.body) == (200, b"abc")
            if answer.headers.get("connection", "").lower() != "keep-alive":
                assert client.closed_by_peer()
                break


def test_http_1_0_without_host_is_accepted(pair):
    _, router = pair()
    with Client(router.port) as client:
        client.send(b"GET /thing HTTP/1.0\r\n\r\n")
        assert client.read().status == 200


def test_answer_that_ends_by_close(pair):
    def script(ex):
        ex.head(200, [("connection", "close")])
        ex.send(b"x" * 100_000)
        ex.close()

    _, router = pair(script)
    answer = router.ask("GET", "/thing")
    assert answer.status == 200
    assert answer.body == b"x" * 100_000


def test_answer_of_an_http_1_0_worker(pair):
    def script(ex):
        ex.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nold style")
        ex.close()

    _, router = pair(script)
    for _ in range(3):
        answer = router.ask("POST", CHAT, body=chat_body())
        assert (answer.status, answer.body) == (200, b"old style")


def test_pipelined_requests_are_answered_in_order(pair):
    worker, router = pair(lambda ex: ex.respond(body=ex.target.encode()))
    count = 100
    with Client(router.port) as client:
        raw = b""
        for i in range(count):
            body = b"z" * (i * 37 % 500)
            head = encode_head(f"POST /n/{i} HTTP/1.1", [("Host", "t"), ("Content-Length", str(len(body)))])
            raw += head + body
        client.send(raw)
        for i in range(count):
            assert client.read().body == f"/n/{i}".encode()
    assert [ex.path for ex in worker.requests] == [f"/n/{i}" for i in range(count)]


@pytest.mark.parametrize("pad", [0, 100, 900, 5000, 20000])
def test_pipelined_heads_at_every_edge_of_a_buffer(pair, pad):
    """Sent without a pause: heads begin and end anywhere in the router's buffers."""
    _, router = pair(lambda ex: ex.respond(body=ex.target.encode()))
    count = max(200, min(3000, 3_000_000 // (pad + 60)))
    with Client(router.port, timeout=20) as client:

        def push():
            for i in range(count):
                client.send(b"GET /n/%d HTTP/1.1\r\nHost: t\r\nX-Pad: %b\r\n\r\n" % (i, b"p" * pad))

        thread = threading.Thread(target=push)
        thread.start()
        for i in range(count):
            answer = client.read()
            assert (answer.status, answer.body) == (200, b"/n/%d" % i), answer
        thread.join(20)


def test_pipelined_local_and_forwarded_answers_keep_their_order(pair):
    _, router = pair(lambda ex: ex.respond(body=b"from the worker"))
    with Client(router.port) as client:
        get = b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n"
        client.send(get % b"/x" + get % b"/health" + get % b"/x" + get % b"/v1/models")
        assert client.read().body == b"from the worker"
        assert client.read().status == 200
        assert client.read().body == b"from the worker"
        assert "tiny" in [m["id"] for m in client.read().json()["data"]]


def test_blank_lines_before_a_request_are_skipped(pair):
    _, router = pair()
    with Client(router.port) as client:
        client.send(b"\r\n\r\nGET /x HTTP/1.1\r\nHost: t\r\n\r\n")
        assert client.read().status == 200
        client.send(b"\r\nGET /x HTTP/1.1\r\nHost: t\r\n\r\n")
        assert client.read().status == 200


def test_early_answer_while_the_request_is_still_being_sent(pair):
    """A worker refuses a large upload before its end: the client sees that answer, not an error."""
    sent = threading.Event()

    def script(ex):
        ex.reader.some()
        ex.respond(413, [("connection", "close")], b"too much for me", reason="Too Large")
        sent.set()
        ex.gone(10)
        ex.keep = False

    _, router = pair(script, read_body=False)
    with Client(router.port) as client:
        client.send_head("PUT", "/opaque", [("Content-Length", str(10_000_000))])
        client.send(b"x" * 1000)
        assert sent.wait(10)
        answer = client.read()
        assert (answer.status, answer.body) == (413, b"too much for me")


def test_early_stream_during_an_upload(pair):
    """Full duplex: answer and request flow at the same time."""

    def script(ex):
        ex.head(200, [("transfer-encoding", "chunked")])
        while True:
            data = ex.reader.chunk()
            if not data:
                break
            ex.chunk(data.upper())
        ex.reader.trailers()
        ex.body = b""
        ex.end_stream()

    _, router = pair(script, read_body=False)
    with Client(router.port) as client:
        client.send_head("POST", "/opaque", [("Transfer-Encoding", "chunked")])
        client.send(b"3\r\nabc\r\n")
        answer = client.read_head()
        assert client.reader.chunk() == b"ABC"
        for word in (b"def", b"ghi"):
            client.send(b"3\r\n" + word + b"\r\n")
            assert client.reader.chunk() == word.upper()
        client.send(b"0\r\n\r\n")
        assert client.reader.chunk() == b""
        assert answer.status == 200


def test_half_closed_client_is_gone_by_default(pair):
    gone = []

    def script(ex):
        gone.append(ex.gone(5))

    worker, router = pair(script)
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        worker.wait_requests(1)
        client.finish_sending()
        until(lambda: gone, 5, "upstream closed")
    assert gone == [True]
    router.wait_idle()


def test_half_closed_client_is_served_when_configured(pair):
    go = threading.Event()

    def script(ex):
        assert go.wait(10)
        ex.respond(body=b"still here")

    worker, router = pair(script, {"http.half_close": "serve"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        worker.wait_requests(1)
        client.finish_sending()
        go.set()
        answer = client.read()
        assert (answer.status, answer.body) == (200, b"still here")


def test_truncated_answers_are_not_passed_off_as_whole(pair):
    """A worker dies in the middle: the client must be able to notice."""

    def with_length(ex):
        ex.head(200, [("content-length", "1000")])
        ex.send(b"x" * 500)
        ex.close()

    def with_chunks(ex):
        ex.head(200, [("transfer-encoding", "chunked")])
        ex.chunk(b"y" * 500)
        ex.close()

    worker, router = pair()
    for script in (with_length, with_chunks):
        worker.script = script
        with pytest.raises(Closed):
            router.ask("POST", CHAT, body=chat_body())


def test_truncated_answer_ends_an_http_1_0_connection_with_reset(pair):
    """Close-delimited for the client, so only RST distinguishes a cut answer from a whole one."""

    def script(ex):
        ex.head(200, [("transfer-encoding", "chunked")])
        ex.chunk(b"y" * 500)
        ex.reset()

    _, router = pair(script)
    with Client(router.port) as client:
        with pytest.raises((Closed, ConnectionResetError)):
            client.ask("GET", "/thing", version="HTTP/1.0")


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\x00b\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_malformed_answer_is_a_502(pair, raw):
    def script(ex):
        ex.send(raw)
        ex.gone(5)
        ex.keep = False

    _, router = pair(script)
    answer = router.ask("GET", "/thing")
    assert answer.status == 502
    assert answer.json()["error"]["message"]
