"""TLS and client certificates of the admin address."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time

import pytest
from rig import tls
from rig.client import Client, chat_body
from rig.router import PROGRAM
from rig.tls import TlsClient
from rig.wait import until, unused_port
from rig.wire import Closed
from test_admin_keys import address_of_this_host, bearer, check, entry, put
from test_keys import is_sanitized, writable_memory

KEY = "sk-canary-admin-0123456789"


@pytest.fixture(scope="module")
def operator(authority):
    return authority.issue("operator", "DNS:operator.example")


@pytest.fixture(scope="module")
def shown(authority, operator):
    """As a client that shows the operator's certificate."""
    context = tls.client_context(authority)
    context.load_cert_chain(*map(str, operator))
    return context


@pytest.fixture
def admin(workers, kvway, local):
    """admin({key: value}, context): a router whose admin address speaks TLS."""

    def make(config=None, context=None):
        keys = {"admin.tls.certificate": str(local[0]), "admin.tls.key": str(local[1]), **(config or {})}
        router = kvway(workers(1), keys, up=False)
        until(lambda: answers(router, context), 15, "kvway up")
        return router

    return make


def answers(router, context):
    assert router.alive(), router.log()
    try:
        return ask(router, "/ready", context) == 200
    except OSError:
        return False


def ask(router, target, context, method="GET", headers=(), body=None):
    with TlsClient(router.admin_port, context) as client:
        return client.ask(method, target, list(headers), body).status


def metric(router, context, start):
    with TlsClient(router.admin_port, context) as client:
        text = client.ask("GET", "/metrics").body.decode()
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(start))


def test_it_speaks_tls_alone(admin, trust):
    router = admin(context=trust)
    with TlsClient(router.admin_port, trust) as client:  # bodies, long answers and kept connections as without
        for _ in range(3):
            assert client.ask("GET", "/metrics").body.count(b"\n") > 100
            assert client.ask("GET", "/openapi.json").json()["openapi"].startswith("3.1")
            assert client.ask("POST", "/explain", body=chat_body(prompt="x" * 3_000_000)).status == 200
        assert client.ask("POST", "/reload").status == 200
    with tls.raw(router.admin_port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") as plain:
        assert b"HTTP/1.1 2" not in plain.recv(100)
    for i in range(20):  # cut in the midst of a handshake
        with tls.raw(router.admin_port, b"\x16\x03\x01\x02\x00\x01" * i):
            pass
    assert ask(router, "/health", trust) == 200


def test_table(admin, trust, authority):
    """As of the clients' address: versions, ciphers, renegotiation, whose certificate."""
    router = admin(context=trust)

    def s_client(*options, say=b"", ca=authority.cert):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{router.admin_port}", "-CAfile", ca]
        command += ["-verify_return_error", "-servername", "localhost", *options]
        done = subprocess.run([str(part) for part in command], input=say, capture_output=True, timeout=30)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    for version in ("-tls1", "-tls1_1"):
        assert s_client(version, "-cipher", "DEFAULT:@SECLEVEL=0")[0] != 0
    for version in ("-tls1_2", "-tls1_3"):
        status, output = s_client(version)
        assert status == 0 and "Verification: OK" in output, output
    assert s_client("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")[0] != 0
    assert "no renegotiation" in s_client("-tls1_2", say=b"R\n")[1]
    assert s_client("-verify_hostname", "elsewhere.example")[0] != 0


def test_slow_handshakes_hold_nothing_up(admin, trust):
    router = admin(context=trust)
    waiting = [tls.raw(router.admin_port, b"\x16\x03\x01") for _ in range(50)]
    begun = time.monotonic()
    for _ in range(10):
        assert ask(router, "/health", trust) == 200
    assert time.monotonic() - begun < 20
    for sock in waiting:
        sock.close()


def test_certificates_are_renewed(admin, trust, authority, local, tmp_path):
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    for source, path in zip(local, paths):
        shutil.copy(source, path)
    router = admin({"admin.tls.certificate": str(paths[0]), "admin.tls.key": str(paths[1])}, trust)
    other = authority.issue("other", "IP:127.0.0.1")
    for source, path in zip(other, paths):
        shutil.copy(source, path.with_suffix(".new"))
        os.rename(path.with_suffix(".new"), path)

    def name_shown():
        with TlsClient(router.admin_port, trust) as client:
            return dict(part[0] for part in client.sock.getpeercert()["subject"])["commonName"]

    until(lambda: name_shown() == "other", 15, "the new certificate")
    assert "certificates renewed use=admin" in router.log()
    assert metric(router, trust, 'kvway_tls_certificate_not_after_seconds{use="admin"') > time.time()


@pytest.mark.parametrize("by_tls", [False, True], ids=["plain", "tls"])
def test_no_key_stays_in_memory(workers, kvway, tmp_path, local, trust, by_tls):
    """Of the admin address: nor of heads that cannot be read, are too large or never came whole, nor in TLS's buffers."""
    put(tmp_path / "admin.yaml", [entry("ops", KEY)])
    config = {"admin.keys_file": str(tmp_path / "admin.yaml")}
    if by_tls:
        config.update({"admin.tls.certificate": str(local[0]), "admin.tls.key": str(local[1])})
    router = kvway(workers(1), config, up=False)

    def connect():
        return TlsClient(router.admin_port, trust) if by_tls else Client(router.admin_port)

    def up():
        assert router.alive(), router.log()
        try:
            with connect() as client:
                return client.ask("GET", "/ready").status == 200
        except OSError:
            return False

    until(up, 15, "kvway up")
    if is_sanitized(router.pid):
        pytest.skip("a sanitizer's memory")
    marks = [f"sk-mark-{i}-0123456789" for i in range(5)]
    head = "GET /workers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
    with connect() as client:
        assert client.ask("GET", "/workers", bearer(KEY)).status == 200
        assert client.ask("GET", "/workers", bearer(marks[0])).status == 401
    for mark, more in ((marks[1], "bad field\r\n\r\n"), (marks[2], "X-Long: " + "x" * 20_000)):
        with connect() as client:
            client.send(f"{head}{mark}\r\n{more}".encode())
            assert client.read("GET").status in (400, 431)
    for mark in marks[3:]:  # never whole
        with connect() as client:
            client.send(f"{head}{mark}\r\n".encode())
            time.sleep(0.3)
    time.sleep(0.3)
    found = [mark for _, memory in writable_memory(router.pid) for mark in [*marks, KEY] if mark.encode() in memory]
    assert not found


# --- client certificates ---


def refused(router, context):
    """TLS 1.3 refuses after the client is through: the first read says so."""
    try:
        ask(router, "/health", context)
    except (OSError, Closed):
        return True
    return False


def test_certificates_of_clients_are_required(admin, trust, shown, authority, tmp_path):
    router = admin({"admin.tls.client_ca": str(authority.cert)}, shown)
    assert ask(router, "/workers", shown) == 200
    assert refused(router, trust), "without a certificate"
    stranger = tls.Authority(tmp_path, "stranger").issue("x", "DNS:x.example")
    context = tls.client_context(authority)
    context.load_cert_chain(*map(str, stranger))
    assert refused(router, context), "of an authority that is not believed"
    assert ask(router, "/reload", shown, "POST") == 200
    assert 'a change is asked for method=POST path="/reload" key="" certificate="CN=operator"' in router.log()


def test_a_certificate_is_no_key(admin, shown, authority, tmp_path):
    """It stands for a host; with keys the request still needs one, whose name is logged, too."""
    put(tmp_path / "admin.yaml", [entry("ops", KEY)])
    keys = {"admin.tls.client_ca": str(authority.cert), "admin.keys_file": str(tmp_path / "admin.yaml")}
    router = admin(keys, shown)
    assert ask(router, "/workers", shown) == 401
    assert ask(router, "/workers", shown, headers=bearer(KEY)) == 200
    assert ask(router, "/reload", shown, "POST", bearer(KEY)) == 200
    assert 'key="ops" certificate="CN=operator"' in router.log()
    assert KEY not in router.log()


def test_other_hosts_by_certificate(workers, kvway, local, trust, shown, authority):
    outside, port = address_of_this_host(), unused_port()
    if outside is None:
        pytest.skip("this host has no address but loopback")
    keys = {"admin.listen": f"0.0.0.0:{port}", "admin.tls.certificate": str(local[0]), "admin.tls.key": str(local[1]),
            "admin.tls.client_ca": str(authority.cert), "admin.tls.client_certificate": "asked",
            "admin.open": ["/v1/models"]}  # fmt: skip
    router = kvway(workers(1), keys, up=False)
    router.admin_port = port
    until(lambda: answers(router, trust), 15, "kvway up")

    def from_outside(target, context):
        plain = socket.create_connection(("127.0.0.1", port), 20, source_address=(outside, 0))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            return answer.status

    for target, status in (("/workers", 403), ("/metrics", 403), ("/health", 200), ("/v1/models", 200)):
        assert from_outside(target, trust) == status, target
        assert from_outside(target, shown) == 200, target


def test_checks(tmp_path, local, operator, authority):
    pair = f"  tls:\n    certificate: {local[0]}\n    key: {local[1]}\n"
    status, error, _ = check(tmp_path, "0.0.0.0:9090", pair)
    assert status == 1 and "admin.listen: found `0.0.0.0:9090`" in error and "`admin.tls.client_ca`" in error
    assert check(tmp_path, "0.0.0.0:9090", f"{pair}    client_ca: {authority.cert}\n")[0] == 0
    status, error, path = check(tmp_path, "0.0.0.0:9090", f"  tls:\n    client_ca: {authority.cert}\n")
    assert status == 1 and f"{path}:6:16: admin.tls.client_ca: found no `admin.tls.certificate`" in error
    status, error, path = check(
        tmp_path, "127.0.0.1:9090", f"  tls:\n    certificate: {local[0]}\n    key: {operator[1]}\n"
    )
    assert status == 1 and f"{path}:7:10: admin.tls.key: found" in error
    assert "the key of the certificate in `admin.tls.certificate`" in error
    assert check(tmp_path, "127.0.0.1:9090", f"{pair}    min_version: '1.1'\n")[0] == 1
    status, error, _ = check(tmp_path, "127.0.0.1:9090", f"{pair}    ciphers: no-such\n")
    assert status == 1 and "admin.tls.ciphers: found `no-such`" in error


# --- commands ---


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], input=json.dumps(chat_body()), text=True, capture_output=True,
                          timeout=60)  # fmt: skip


@pytest.mark.parametrize("command", ["workers", "explain"])
def test_commands(admin, trust, shown, authority, operator, command, workers, kvway):
    router = admin(context=trust)
    here = f"127.0.0.1:{router.admin_port}"
    for words in (("--admin", f"https://{here}", "--ca", authority.cert), ("--admin", here, "--ca", authority.cert),
                  ("-c", router.config_path),
                  ("--admin", here, "--ca", authority.cert, "--server-name", "localhost")):  # fmt: skip
        done = run(command, *words)
        assert done.returncode == 0, (words, done.stderr)
    for words, expected in (
        (("--admin", here), "--admin https://ADDR"),
        (("--admin", f"https://{here}"), "certificate"),
        (("--admin", here, "--ca", authority.cert, "--server-name", "elsewhere.example"), "elsewhere.example"),
        (("--admin", here, "--ca", authority.key), "error setting certificate"),
    ):
        done = run(command, *words)
        assert done.returncode == 3 and expected in done.stderr, (words, done.stderr)
    done = run(command, "--key", operator[1])
    assert done.returncode == 2 and "found no --cert FILE" in done.stderr
    done = run(command, "--admin", "ftp://x:1")
    assert done.returncode == 2 and "expected HOST:PORT or https://HOST:PORT" in done.stderr
    router = admin({"admin.tls.client_ca": str(authority.cert)}, shown)
    assert run(command, "-c", router.config_path).returncode == 3
    done = run(command, "-c", router.config_path, "--cert", operator[0], "--key", operator[1])
    assert done.returncode == 0, done.stderr


def test_a_name_that_the_address_is_not(admin, trust, tmp_path, workers, kvway):
    """A certificate of its own signing, without the address it is asked at: -c FILE and --server-name are enough."""
    own = tls.Authority(tmp_path, "own")
    cert, key = tmp_path / "self.crt", tmp_path / "self.key"
    own._openssl(key, cert, "/CN=router", ["-addext", "subjectAltName=DNS:router.example"])
    context = ssl.create_default_context(cafile=str(cert))
    context.check_hostname = False
    router = admin({"admin.tls.certificate": str(cert), "admin.tls.key": str(key)}, context)
    assert run("workers", "-c", router.config_path).returncode == 3
    done = run("workers", "-c", router.config_path, "--server-name", "router.example")
    assert done.returncode == 0, done.stderr
