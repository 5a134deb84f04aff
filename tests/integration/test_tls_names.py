"""Several certificates by the name that a client asks for, ciphers, and certificates of clients."""

import json
import shutil
import ssl
import subprocess

import pytest

from rig import tls
from rig.client import ask
from rig.router import PROGRAM, write_config
from rig.tls import TlsClient
from rig.wait import until
from rig.wire import Closed


@pytest.fixture(scope="module")
def more(authority, tmp_path_factory):
    """Of one.example in one file, of two.example and *.two.example in a folder as a Secret has it."""
    folder = tmp_path_factory.mktemp("more")
    one = authority.issue("one", "DNS:one.example")
    both = folder / "one.pem"
    both.write_text(one[0].read_text() + one[1].read_text())
    secret = folder / "two"
    secret.mkdir()
    for path, name in zip(authority.issue("two", "DNS:two.example,DNS:*.two.example"), ("tls.crt", "tls.key")):
        shutil.copy(path, secret / name)
    return [both, secret]


@pytest.fixture
def front(kvway, workers, local):
    def make(config=None):
        keys = {"tls.certificate": str(local[0]), "tls.key": str(local[1]), **(config or {})}
        served = workers(1)
        return tls.wait_up(kvway(served, keys, up=False), served)

    return make


def shown(router, trust, name):
    with TlsClient(router.port, trust, name=name) as client:
        assert client.ask("GET", "/health").status == 200
        return dict(part[0] for part in client.sock.getpeercert()["subject"])["commonName"]


def test_the_name_chooses_the_certificate(front, trust, more):
    router = front({"tls.certificates": [str(path) for path in more]})
    for name, wanted in {
        "localhost": "local",
        "one.example": "one",
        "ONE.example": "one",
        "two.example": "two",
        "a.two.example": "two",
    }.items():
        assert shown(router, trust, name) == wanted
    before = router.metric("kvway_tls_handshake_failures_total")
    for name in ("three.example", "a.one.example"):  # the first one is shown, which bears another name
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(router, trust, name)
    until(lambda: router.metric("kvway_tls_handshake_failures_total") == before + 2, 5)


def test_each_of_them_is_renewed(front, trust, more, authority):
    router = front({"tls.certificates": [str(path) for path in more]})
    for path, name in zip(authority.issue("new", "DNS:two.example"), ("tls.crt", "tls.key")):
        shutil.copy(path, more[1] / name)
    assert ask(router.admin_port, "POST", "/reload").status == 200
    assert shown(router, trust, "two.example") == "new"
    assert shown(router, trust, "one.example") == "one"
    files = {str(more[0]), str(more[1] / "tls.crt")}
    for file in files:
        assert router.metric("kvway_tls_certificate_not_after_seconds", use="listen", file=file) > 0


def test_sessions_of_each_name_are_resumed_on_any_loop(front, authority, trust, more):
    router = front({"tls.certificates": [str(path) for path in more], "loops": 4})
    for name in ("localhost", "one.example"):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = tls.client_context(authority)
            context.minimum_version = context.maximum_version = version
            with TlsClient(router.port, context, name=name) as client:
                assert client.ask("GET", "/health").status == 200
                session = client.sock.session
            for _ in range(8):
                with TlsClient(router.port, context, name=name, session=session) as client:
                    assert client.sock.session_reused, (name, version)
                    assert client.ask("GET", "/health").status == 200
                    if version == ssl.TLSVersion.TLSv1_3:
                        session = client.sock.session
    until(lambda: router.metric("kvway_tls_resumptions_total") == 32, 5)
    assert router.metric("kvway_tls_handshakes_total") == 4


def test_ciphers(front, authority):
    old = tls.client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    router = front()
    for refused in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"):  # not authenticated encryption
        old.set_ciphers(refused)
        with pytest.raises(ssl.SSLError):
            TlsClient(router.port, old)
    old.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with TlsClient(router.port, old) as client:
        assert client.sock.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    keys = {"tls.ciphers": "ECDHE-ECDSA-CHACHA20-POLY1305", "tls.ciphersuites": "TLS_AES_128_GCM_SHA256"}
    router = front(keys)
    with pytest.raises(ssl.SSLError):
        TlsClient(router.port, old)
    with TlsClient(router.port, tls.client_context(authority)) as client:
        assert client.sock.cipher()[0] == "TLS_AES_128_GCM_SHA256"


def test_a_client_certificate_that_is_asked_for(front, authority, trust, tmp_path):
    router = front({"tls.client_ca": str(authority.cert), "tls.client_certificate": "asked"})
    with TlsClient(router.port, trust) as client:
        assert client.ask("GET", "/health").status == 200
    known, stranger = tls.client_context(authority), tls.client_context(authority)
    known.load_cert_chain(*map(str, authority.issue("client", "DNS:client")))
    with TlsClient(router.port, known) as client:
        assert client.ask("GET", "/health").status == 200
    stranger.load_cert_chain(*map(str, tls.Authority(tmp_path, "other").issue("s", "DNS:client")))
    with pytest.raises((OSError, Closed)):
        TlsClient(router.port, stranger).ask("GET", "/health")


def test_the_subject_is_in_the_access_log(front, authority, trust, tmp_path):
    log = tmp_path / "access.log"
    config = {"tls.client_ca": str(authority.cert), "tls.client_certificate": "asked", "log.access": str(log)}
    router = front(config)
    known = tls.client_context(authority)
    known.load_cert_chain(*map(str, authority.issue("batch job", "DNS:client")))
    for context, target in ((known, "/shown"), (trust, "/none")):
        with TlsClient(router.port, context) as client:
            assert client.ask("GET", target).status == 200
            assert client.ask("GET", target).status == 200
    lines = until(lambda: log.exists() and len(log.read_text().splitlines()) == 4 and log.read_text(), 10)
    lines = [json.loads(line) for line in lines.splitlines()]  # each loop writes its own, so in any order
    subjects = sorted((line["path"], line.get("client_certificate")) for line in lines)
    assert subjects == [("/none", None)] * 2 + [("/shown", "CN=batch job")] * 2


def test_handshakes_are_counted(front, trust):
    """Silent connections cannot take all: further ones are closed, and those that are ready do not count."""
    router = front({"limits.handshakes": 3, "timeouts.head": "60s"})
    with TlsClient(router.port, trust) as ready:
        assert ready.ask("GET", "/health").status == 200  # by now the other side is ready, too
        until(lambda: router.metric("kvway_client_connections") == 1, 5)  # those that looked whether it is up
        silent = [tls.raw(router.port) for _ in range(3)]
        until(lambda: router.metric("kvway_client_connections") == 4, 5)
        refused = router.metric("kvway_connections_refused_total")
        with tls.raw(router.port) as sock:
            assert sock.recv(1) == b""
        assert router.metric("kvway_connections_refused_total") == refused + 1
        assert ready.ask("GET", "/health").status == 200
        for sock in silent:
            sock.close()
        until(lambda: router.metric("kvway_client_connections") == 1, 5)
        with TlsClient(router.port, trust) as client:
            assert client.ask("GET", "/health").status == 200


def test_check_finds_what_is_wrong(tmp_path, local, more, authority):
    path = tmp_path / "kvway.yaml"
    (tmp_path / "empty").mkdir()
    expired = tmp_path / "expired.pem"
    old = authority.issue_expired("old", "DNS:old.example")
    expired.write_text(old[0].read_text() + old[1].read_text())
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(local[0].read_text() + old[1].read_text())

    def check(**keys):
        files = {"tls.certificate": str(local[0]), "tls.key": str(local[1])}
        keys = {key.replace("__", "."): value for key, value in keys.items()}
        write_config(path, {"workers": [{"url": "http://localhost:1"}], **files, **keys})
        command = [PROGRAM, "check", "-c", path]
        return subprocess.run(command, capture_output=True, text=True, timeout=20)

    good = check(tls__certificates=[str(entry) for entry in more])
    assert good.returncode == 0, good.stderr
    for entry, why in {
        tmp_path / "empty": "tls.crt` (No such file or directory)",
        tmp_path / "absent": "absent` (No such file or directory)",
        expired: "expired 2020-01-31",
        local[0]: "a private key in PEM form",
        mixed: "key values mismatch",
    }.items():
        run = check(tls__certificates=[str(more[0]), str(entry)])
        assert run.returncode == 1
        assert " tls.certificates: " in run.stderr
        assert why in run.stderr, run.stderr
    for key, value in {"tls__ciphers": "NONE-SUCH", "tls__ciphersuites": "TLS_NONE"}.items():
        run = check(**{key: value})
        assert run.returncode == 1
        assert f" {key.replace('__', '.')}: found `{value}`" in run.stderr, run.stderr


def test_authorities_of_workers_that_left_are_let_go(front, authority, tmp_path):
    """Each worker that comes and goes brings authorities of its own: they do not add up."""
    router = front()

    def held():
        text = ask(router.admin_port, "GET", "/metrics").body.decode()
        return text.count('kvway_tls_certificate_not_after_seconds{use="upstream"')

    for turn in range(3):
        ids = []
        for i in range(20):
            path = tmp_path / f"ca-{turn}-{i}.crt"
            shutil.copy(authority.cert, path)
            worker = {"url": f"https://127.0.0.1:{i + 1}", "tls_ca_file": str(path), "models": ["m"]}
            assert ask(router.admin_port, "POST", "/workers", body=json.dumps(worker).encode()).status == 201
            ids.append(f"127.0.0.1:{i + 1}")
        assert held() == 20
        for each in ids:
            assert ask(router.admin_port, "DELETE", f"/workers/{each}?now=true").status == 200
        until(lambda: held() == 0, 20, "no worker's authorities are held")
