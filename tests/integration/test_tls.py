"""TLS from clients and to workers: the same bytes as without, and no end that looks like another."""

import hashlib
import random
import socket
import ssl
import subprocess
import threading
import time

import pytest

from rig import tls
from rig.client import CHAT, Client, ask, chat_body
from rig.router import PROGRAM, SANITIZED, write_config
from rig.tls import TlsClient, TlsWorker
from rig.wait import PATIENCE, until
from rig.wire import Closed
from rig.worker import answer

MIB = 1 << 20


@pytest.fixture
def front(kvway, local):
    """front(workers, {key: value}): kvway that speaks TLS to clients."""

    def make(workers, config=None):
        keys = {"tls.certificate": str(local[0]), "tls.key": str(local[1]), **(config or {})}
        return tls.wait_up(kvway(workers, keys, up=False), workers)

    return make


@pytest.fixture
def secure_worker(local):
    """secure_worker(script, pair=, **options): a worker behind TLS."""
    made = []

    def make(script=answer, pair=None, **options):
        made.append(TlsWorker(pair or local, script, name=f"s{len(made)}", **options))
        return made[-1]

    yield make
    for worker in made:
        worker.stop()
    failures = [f for worker in made for f in worker.failures]
    assert not failures, f"a worker's script failed: {failures!r}"


@pytest.fixture(params=["in", "out", "both"])
def path(request, workers, front, kvway, secure_worker, authority, trust):
    """path(script, config) -> (worker, router, connect): TLS on one side or on both."""

    def make(script=answer, config=None):
        config = dict(config or {})
        if request.param == "in":
            (worker,) = workers(1)
            worker.script = script
        else:
            worker = secure_worker(script)
            config["upstream.tls.ca_file"] = str(authority.cert)
        if request.param == "out":
            router = kvway([worker], config)
            return worker, router, lambda **options: Client(router.port, **options)
        router = front([worker], config)
        return worker, router, lambda **options: TlsClient(router.port, trust, **options)

    return make


# --- the same bytes -------------------------------------------------------------------------------


def test_plain_answer_and_stream(path):
    worker, router, connect = path()
    with connect() as client:
        whole = client.ask("POST", CHAT, body=chat_body())
        assert whole.status == 200
        assert whole.json()["choices"][0]["message"]["content"] == worker.name
        stream = client.ask("POST", CHAT, body=chat_body(stream=True))
        assert [e for e in stream.events()][-1] == "[DONE]"
        assert len(stream.chunks) == 4
    assert len(worker.requests) == 2
    router.wait_idle()


def test_bodies_under_random_chunking(path):
    rng = random.Random(7)
    sent = {}

    def script(ex):
        data = sent[ex.headers.get("x-n")]
        assert ex.body == data
        pieces, at = [], 0
        while at < len(data):
            n = rng.choice([1, 7, 100, 16383, 16384, 16385, 40000])
            pieces.append(data[at : at + n])
            at += n
        ex.respond_chunked(pieces)

    worker, router, connect = path(script)
    with connect() as client:
        for number in range(12):
            data = rng.randbytes(rng.choice([0, 1, 5000, 16384, 100000, 400000]))
            sent[str(number)] = data
            headers = [("x-n", str(number)), ("content-length", str(len(data)))]
            client.send_head("POST", "/opaque", headers)
            at = 0
            while at < len(data):
                n = rng.choice([1, 500, 16000, 70000])
                client.send(data[at : at + n])
                at += n
            assert client.read("POST").body == data
    router.wait_idle()


def test_one_connection_serves_many(path):
    worker, router, connect = path()
    with connect() as client:
        client.ask("POST", CHAT, body=chat_body())
        before = router.metric("kvway_upstream_connects_total")
        for number in range(20):
            reply = client.ask("POST", CHAT, body=chat_body(str(number), stream=number % 2 == 0))
            assert reply.status == 200
        assert router.metric("kvway_upstream_connects_total") == before, "not kept alive"
    assert router.metric("kvway_stale_retries_total") == 0


def test_pipelined_requests_in_one_record(path):
    worker, router, connect = path()
    with connect() as client:
        client.send(b"GET /a HTTP/1.1\r\nHost: t\r\n\r\nGET /b HTTP/1.1\r\nHost: t\r\n\r\n")
        assert client.read().status == 200
        assert client.read().status == 200
    assert worker.paths() == ["/a", "/b"]


def test_large_bodies_both_ways_with_slow_readers(path):
    up, down = random.Random(1).randbytes(5 * MIB), random.Random(2).randbytes(5 * MIB)
    seen = []

    def script(ex):
        digest = hashlib.sha256()
        left = len(up)
        while left:
            piece = ex.reader.some(20000)
            assert piece
            digest.update(piece)
            left -= len(piece)
            time.sleep(0.0005)
        ex.body = b""
        seen.append(digest.hexdigest())
        ex.respond(body=down)

    worker, router, connect = path(script)
    worker.read_body = False
    with connect(receive_buffer=32768, timeout=60) as client:
        client.send_head("POST", "/opaque", [("Content-Length", str(len(up)))])
        client.send(up)
        reply = client.read_head()
        time.sleep(0.3)
        body = bytearray()
        while len(body) < len(down):
            piece = client.reader.some(10000)
            assert piece
            body += piece
            time.sleep(0.0002)
        assert bytes(body) == down
        assert reply.status == 200
    assert seen == [hashlib.sha256(up).hexdigest()]
    router.wait_idle()


def test_slow_client_does_not_fill_memory(path):
    sent = [0]

    def script(ex):
        try:
            ex.start_stream()
            while True:
                ex.chunk(b"z" * 65536)
                sent[0] += 65536
        except (Closed, OSError):
            ex.keep = False

    worker, router, connect = path(script)
    client = connect(receive_buffer=65536)
    client.send_request("POST", CHAT, body=chat_body(stream=True))
    client.read_head()
    before = -1
    while before != sent[0]:
        before = sent[0]
        time.sleep(0.5)
    assert sent[0] < 24 * MIB, "the router took what the client did not"
    client.close()
    router.wait_idle()


def test_early_answer_while_the_body_is_sent(path):
    def script(ex):
        ex.body = b""
        ex.keep = False
        ex.respond(413, reason="Too Large", headers=[("connection", "close")], body=b"no")

    worker, router, connect = path(script)
    worker.read_body = False
    with connect() as client:
        client.send_head("POST", "/opaque", [("Content-Length", "3000000")])
        try:
            client.send(b"x" * 3000000)
        except OSError:
            pass
        assert client.read("POST").status == 413
    router.wait_idle()


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close_notify", "fin", "reset"])
def test_client_gone(path, how):
    gone = threading.Semaphore(0)

    def script(ex):
        ex.start_stream()
        ex.event("first")
        assert ex.gone(10)
        ex.keep = False
        gone.release()

    worker, router, connect = path(script)
    client = connect()
    client.send_request("POST", CHAT, body=chat_body(stream=True))
    client.read_head()
    client.reader.chunk()
    if how == "reset":
        client.reset()
    elif how == "close_notify" and isinstance(client.sock, ssl.SSLSocket):
        client.sock.settimeout(0.5)
        try:
            client.sock.unwrap()
        except OSError:
            pass
    else:
        client.close()
    assert gone.acquire(timeout=3 * PATIENCE), "the worker kept the request"
    client.close()
    router.wait_idle()


def test_close_notify_alone_means_gone(front, workers, trust):
    """Without a FIN behind it: the socket itself is still open."""
    gone = threading.Semaphore(0)

    def script(ex):
        ex.start_stream()
        assert ex.gone(10)
        ex.keep = False
        gone.release()

    (worker,) = workers(1)
    worker.script = script
    router = front([worker])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", router.port), timeout=10) as sock:
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        body = b'{"model": "tiny", "messages": [], "stream": true}'
        head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
        session.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sock.sendall(outgoing.read())
        worker.wait_requests(1)
        try:
            session.unwrap()
        except ssl.SSLWantReadError:
            pass
        sock.sendall(outgoing.read())
        assert gone.acquire(timeout=3 * PATIENCE)
    router.wait_idle()


def close_delimited(ending):
    def script(ex):
        ex.head(200, [("content-type", "text/plain")])
        ex.send(b"y" * 50000)
        ending(ex)

    return script


def just_close(ex):
    ex.keep = False
    ex.sock.shutdown(socket.SHUT_WR)
    ex.sock.close()


def test_a_cut_answer_from_a_worker_looks_cut(kvway, secure_worker, authority):
    """Without close_notify an answer without a length may be a part."""
    worker = secure_worker(close_delimited(just_close))
    router = kvway([worker], {"upstream.tls.ca_file": str(authority.cert)})
    with Client(router.port) as client, pytest.raises(Closed):
        client.ask("GET", "/x")
    with Client(router.port) as client, pytest.raises(Closed):
        client.ask("GET", "/x", version="HTTP/1.0")
    worker.script = close_delimited(tls.end_cleanly)
    assert router.ask("GET", "/x").body == b"y" * 50000


def test_a_cut_answer_to_a_client_looks_cut(front, workers, trust):
    (worker,) = workers(1)
    router = front([worker])

    def reset(ex):
        ex.head(200, [("content-length", "100000")])
        ex.send(b"y" * 50000)
        time.sleep(0.2)
        ex.reset()

    worker.script = reset
    for version in ("HTTP/1.1", "HTTP/1.0"):
        with TlsClient(router.port, trust) as client:
            client.send_request("GET", "/x", version=version)
            with pytest.raises((Closed, OSError)):
                client.read()
    worker.script = close_delimited(just_close)
    with TlsClient(router.port, trust) as client:
        reply = client.ask("GET", "/x", version="HTTP/1.0")
        assert reply.framing == "close"
        assert reply.body == b"y" * 50000


def test_a_connection_that_became_stale_is_replaced(kvway, secure_worker, authority):
    worker = secure_worker()
    router = kvway([worker], {"upstream.tls.ca_file": str(authority.cert)})
    with Client(router.port) as client:
        for _ in range(5):
            assert client.ask("POST", CHAT, body=chat_body()).status == 200
            worker.cut()
    router.wait_idle()


def test_random_disconnects_leave_nothing(path):
    rng = random.Random(3)
    count = 30 if SANITIZED else 80

    def script(ex):
        ex.start_stream()
        for _ in range(20):
            ex.event("word" * rng.choice([1, 1000]))
            time.sleep(0.002)
        ex.end_stream()

    worker, router, connect = path(script)
    with connect() as client:
        client.ask("POST", CHAT, body=chat_body(stream=True))
    router.wait_idle()
    until(lambda: router.metric("kvway_client_connections") == 0, 5)
    before = router.fds()

    def one(seed):
        mine = random.Random(seed)
        client = connect()
        try:
            client.send_request("POST", CHAT, body=chat_body("x" * 20000, stream=True))
            time.sleep(mine.random() * 0.08)
            if mine.random() < 0.5:
                client.reader.some()
        except (Closed, OSError):
            pass
        client.reset() if mine.random() < 0.5 else client.close()

    threads = [tls.in_background(one, seed) for seed in range(count)]
    for thread in threads:
        thread.join(30 * PATIENCE)
        assert not thread.is_alive()
    router.wait_idle()
    idle = router.metric("kvway_upstream_idle_connections")
    until(lambda: router.fds() <= before + max(0, idle) + 4, 10, "descriptors given back")


# --- handshakes -----------------------------------------------------------------------------------


def test_plain_http_on_the_tls_port(front, workers, trust):
    router = front(workers(1))
    with Client(router.port) as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
        data = client.sock.recv(1000)  # an alert or nothing, never a reset
        assert not data.startswith(b"HTTP"), data
        assert data == b"" or client.sock.recv(1000) == b""
    with TlsClient(router.port, trust) as client:
        assert client.ask("GET", "/health").status == 200


def test_noise_on_the_tls_port(front, workers, trust):
    router = front(workers(1))
    rng = random.Random(9)
    for _ in range(50):
        noise = rng.randbytes(rng.randrange(1, 600))
        if rng.random() < 0.5:  # what looks like a record of a handshake
            noise = b"\x16\x03\x01" + len(noise).to_bytes(2, "big") + noise
        with tls.raw(router.port, noise) as sock:
            sock.shutdown(socket.SHUT_WR)
            try:
                while sock.recv(1000):
                    pass
            except ConnectionResetError:
                pass
    with TlsClient(router.port, trust) as client:
        assert client.ask("GET", "/health").status == 200
        until(lambda: router.metric("kvway_client_connections") == 1, 5)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_handshake_that_never_ends(front, workers, sent):
    router = front(workers(1), {"timeouts.head": "400ms"})
    begin = time.monotonic()
    with tls.raw(router.port, sent) as sock:
        assert sock.recv(100) == b""
        assert 0.3 < time.monotonic() - begin < 5 * PATIENCE
    assert router.metric("kvway_timeouts_total", kind="head") == 1
    until(lambda: router.metric("kvway_client_connections") == 0, 5)


def test_the_head_timer_ends_with_the_handshake(front, workers, trust):
    router = front(workers(1), {"timeouts.head": f"{300 * PATIENCE:.0f}ms"})
    with TlsClient(router.port, trust) as client:
        time.sleep(0.8 * PATIENCE)
        assert client.ask("GET", "/health").status == 200
        client.send(b"GET / HTTP/1.1\r\n")
        assert client.read().status == 408


def test_workers_learn_of_https(front, workers, trust):
    (worker,) = workers(1)
    router = front([worker])
    with TlsClient(router.port, trust) as client:
        client.ask("GET", "/x")
    headers = worker.requests[0].headers
    assert headers.get("x-forwarded-proto") == "https"
    assert "proto=https" in headers.get("forwarded").split(";")


def test_versions_protocols_and_sessions(front, workers, authority, trust):
    router = front(workers(1), {"tls.min_version": "1.3"})
    with TlsClient(router.port, trust, name="localhost") as client:
        assert client.sock.version() == "TLSv1.3"
        assert client.sock.selected_alpn_protocol() == "http/1.1"
        assert client.ask("GET", "/health").status == 200
        session = client.sock.session
    with TlsClient(router.port, trust, name="localhost", session=session) as client:
        assert client.sock.session_reused
        assert client.ask("GET", "/health").status == 200
    old = tls.client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        TlsClient(router.port, old)
    newer = tls.client_context(authority)
    newer.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError):
        TlsClient(router.port, newer)


def test_tls_1_2_with_resumption(front, workers, authority):
    router = front(workers(1))
    old = tls.client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with TlsClient(router.port, old) as client:
        assert client.sock.version() == "TLSv1.2"
        assert client.ask("POST", CHAT, body=chat_body("x" * 100000)).status == 200
        session = client.sock.session
    with TlsClient(router.port, old, session=session) as client:
        assert client.sock.session_reused
        assert client.ask("POST", CHAT, body=chat_body(stream=True)).status == 200


def test_clients_show_a_certificate(front, workers, authority, trust):
    router = front(workers(1), {"tls.client_ca": str(authority.cert)})
    with pytest.raises((OSError, Closed)):  # TLS 1.3 refuses after the client's handshake
        TlsClient(router.port, trust).ask("GET", "/health")
    known = tls.client_context(authority)
    known.load_cert_chain(*map(str, authority.issue("client", "DNS:client")))
    with TlsClient(router.port, known) as client:
        assert client.ask("GET", "/health").status == 200


# --- workers' certificates ------------------------------------------------------------------------

UNPROBED = {"health.interval": "1h", "health.models_interval": "1h", "health.fall": 100}


def refusal(kvway, worker, config):
    """The answer of a router that cannot trust its worker."""
    router = kvway([worker], {**UNPROBED, **config}, up=False, worker_keys={"models": ["tiny"]})
    router.wait_up()
    reply = router.ask("POST", CHAT, body=chat_body())
    assert reply.status == 502, reply
    assert not worker.requests
    return reply.json()["error"]["message"]


def test_a_worker_signed_by_another_authority(kvway, secure_worker, tmp_path):
    other = tls.Authority(tmp_path, "other")
    message = refusal(kvway, secure_worker(), {"upstream.tls.ca_file": str(other.cert)})
    assert "certificate verify failed" in message


def test_a_worker_unknown_to_the_system(kvway, secure_worker):
    assert "certificate verify failed" in refusal(kvway, secure_worker(), {})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_worker_of_another_name(kvway, secure_worker, authority, host):
    pair = authority.issue("elsewhere", "DNS:elsewhere.example,IP:127.0.0.2")
    worker = secure_worker(pair=pair, host=host)
    message = refusal(kvway, worker, {"upstream.tls.ca_file": str(authority.cert)})
    assert "certificate verify failed" in message
    assert "mismatch" in message


def test_a_worker_that_speaks_plain_http(kvway, authority):
    def serve(listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                sock.recv(65536)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        tls.in_background(serve, listener)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        config = {**UNPROBED, "upstream.tls.ca_file": str(authority.cert)}
        router = kvway([url], config, up=False, worker_keys={"models": ["tiny"]})
        router.wait_up()
        reply = router.ask("POST", CHAT, body=chat_body())
        assert reply.status == 502
        assert "TLS: wrong version number" in reply.json()["error"]["message"]


def test_a_worker_that_does_not_listen(kvway, secure_worker, authority):
    worker = secure_worker()
    worker.stop()
    message = refusal(kvway, worker, {"upstream.tls.ca_file": str(authority.cert)})
    assert "Connection refused" in message


def test_a_worker_that_never_ends_its_handshake(kvway, authority):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        config = {**UNPROBED, "upstream.tls.ca_file": str(authority.cert)}
        config["timeouts.connect"] = "300ms"
        router = kvway([url], config, up=False, worker_keys={"models": ["tiny"]})
        router.wait_up()
        reply = router.ask("POST", CHAT, body=chat_body())
        assert reply.status == 502
        assert "timeouts.connect" in reply.json()["error"]["message"]


def test_insecure_believes_any(kvway, secure_worker, authority):
    worker = secure_worker(pair=authority.issue("nowhere", "DNS:nowhere.example"))
    router = kvway([worker], {"upstream.tls.insecure": True})
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    believed = {"url": "https://127.0.0.1:1", "tls_ca_file": str(authority.cert)}
    refused = ask(router.admin_port, "POST", "/workers", body=believed)
    assert "nothing would be verified" in refused.json()["error"]["message"]


def test_name_of_the_worker_is_asked_for(kvway, secure_worker, authority):
    """SNI is the URL's host; probes verify by the same rules."""
    worker = secure_worker(host="localhost")
    names = []
    worker.context.sni_callback = lambda sock, name, context: names.append(name)
    router = kvway([worker], {"upstream.tls.ca_file": str(authority.cert)})
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert set(names) == {"localhost"}
    assert worker.requests[0].headers.get("host") == f"localhost:{worker.port}"


def test_a_worker_that_asks_for_a_certificate(kvway, secure_worker, authority):
    """Requests and probes show upstream.tls.certificate; without it neither is let in."""
    worker = secure_worker()
    worker.context.verify_mode = ssl.CERT_REQUIRED
    worker.context.load_verify_locations(str(authority.cert))
    shown = authority.issue("kvway", "DNS:kvway")
    keys = {"upstream.tls.ca_file": str(authority.cert)}
    mine = {"upstream.tls.certificate": str(shown[0]), "upstream.tls.key": str(shown[1])}
    router = kvway([worker], {**keys, **mine})
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    router = kvway([worker], {**keys, "health.fall": 1}, up=False)
    router.wait_up()
    until(lambda: router.metric("kvway_worker_usable") == 0, 10, "the probe refused")
    assert router.ask("POST", CHAT, body=chat_body()).status in (502, 503)


def test_workers_of_several_authorities_and_names(kvway, secure_worker, authority, tmp_path):
    """Each is believed by its own authority and name, by requests and by probes."""
    other = tls.Authority(tmp_path, "other")
    first = secure_worker()
    second = secure_worker(pair=other.issue("elsewhere", "DNS:elsewhere.example"))
    names = []
    second.context.sni_callback = lambda sock, name, context: names.append(name)
    named = {"url": second.url, "tls_ca_file": str(other.cert), "tls_server_name": "elsewhere.example"}
    router = kvway([first], {"upstream.tls.ca_file": str(authority.cert)})
    added = ask(router.admin_port, "POST", "/workers", body=named)
    assert added.status == 201, added
    until(lambda: router.metric("kvway_worker_usable", worker=second.url) == 1, 10, "both up")
    for number in range(8):
        body = chat_body(f"different {number} " * 50)
        assert router.ask("POST", CHAT, body=body).status == 200
    assert set(names) == {"elsewhere.example"}
    del named["tls_server_name"]
    router = kvway([first], {**UNPROBED, "upstream.tls.ca_file": str(authority.cert)})
    ask(router.admin_port, "POST", "/workers", body={**named, "models": ["only"]})
    reply = router.ask("POST", CHAT, body=chat_body(model="only"))
    assert reply.status == 502
    assert "(IP address mismatch: 127.0.0.1 expected)" in reply.json()["error"]["message"]


def test_an_address_as_the_name(kvway, secure_worker, authority):
    worker = secure_worker(pair=authority.issue("six", "IP:::1"))
    router = kvway([worker], {"upstream.tls.ca_file": str(authority.cert)}, worker_keys={"tls_server_name": "::1"})
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_probes_take_out_a_worker_they_cannot_trust(kvway, secure_worker, tmp_path, authority):
    stranger = tls.Authority(tmp_path).issue("b", "IP:127.0.0.1")
    good, bad = secure_worker(), secure_worker(pair=stranger)
    config = {"upstream.tls.ca_file": str(authority.cert), "health.fall": 1}
    router = kvway([good, bad], config, up=False)
    tls.wait_up(router, [good])
    until(lambda: router.metric("kvway_worker_usable") == 1, 10, "one worker out")
    assert "certificate" in router.log()
    for _ in range(4):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert not bad.requests


# --- configuration --------------------------------------------------------------------------------


def test_check_names_file_line_and_key(tmp_path, authority, local):
    other = authority.issue("other", "DNS:x")
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", local[1]]
    command += ["-out", locked]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    path = tmp_path / "kvway.yaml"
    keys = {"workers": [{"url": "https://localhost:1"}], "tls.certificate": str(local[0])}

    def check(**more):
        write_config(path, {**keys, **{k.replace("__", "."): v for k, v in more.items()}})
        command = [PROGRAM, "check", "-c", path]
        return subprocess.run(command, capture_output=True, text=True, timeout=20)

    good = check(tls__key=str(local[1]), upstream__tls__ca_file=str(authority.cert))
    assert good.returncode == 0, good.stderr
    wrong = {other[1]: "key values mismatch", locked: "without a passphrase", local[0]: "a private key"}
    for key, told in wrong.items():
        run = check(tls__key=str(key))
        assert run.returncode == 1
        line = next(n for n, text in enumerate(path.read_text().split("\n"), 1) if '"key"' in text)
        assert run.stderr.startswith(f"{path}:{line}:"), run.stderr
        assert " tls.key: " in run.stderr
        assert told in run.stderr, run.stderr
    old = authority.issue_expired("old", "DNS:x")
    run = check(tls__certificate=str(old[0]), tls__key=str(old[1]))
    assert run.returncode == 1
    assert " tls.certificate: " in run.stderr
    assert "(expired 2020-01-31 00:00:00 UTC)" in run.stderr, run.stderr
    more = {"upstream__tls__ca_file": str(authority.cert), "upstream__tls__insecure": True}
    assert " upstream.tls.insecure: " in check(tls__key=str(local[1]), **more).stderr
    keys["workers"][0]["tls_ca_file"] = str(authority.cert)
    run = check(tls__key=str(local[1]), upstream__tls__insecure=True)
    assert " upstream.tls.insecure: found `true` together with `workers[0].tls_ca_file`" in run.stderr
    del keys["workers"][0]["tls_ca_file"]
    for name, fits in {"a.example": True, "10.0.0.1": True, "::1": True, "[::1]": False, "a/b": False, "a:1": False}.items():
        keys["workers"][0]["tls_server_name"] = name
        run = check(tls__key=str(local[1]))
        assert fits or f" workers[0].tls_server_name: found `{name}`" in run.stderr, run.stderr
        assert (run.returncode == 0) == fits, run.stderr
