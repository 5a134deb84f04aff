"""What `openssl s_client` gets from the listener: versions, ciphers, renegotiation, resumption, chains."""

import subprocess

import pytest

from rig import tls
from rig.client import CHAT, chat_body
from rig.router import BUILD
from rig.tls import TlsClient
from rig.wait import until

AEAD = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"]
WEAK = ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "AES128-GCM-SHA256", "AES128-SHA", "NULL", "aNULL"]
SUITES = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]


@pytest.fixture
def front(kvway, workers, local):
    def make(pair=local, config=None):
        keys = {"tls.certificate": str(pair[0]), "tls.key": str(pair[1]), **(config or {})}
        served = workers(1)
        return tls.wait_up(kvway(served, keys, up=False), served)

    return make


@pytest.fixture
def s_client(authority):
    """s_client(router, *options, say=bytes) -> (exit status, all that it printed)."""

    def run(router, *options, say=b"", ca=authority.cert):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{router.port}", "-CAfile", ca]
        command += ["-verify_return_error", "-servername", "localhost", *options]
        done = subprocess.run([str(part) for part in command], input=say, capture_output=True, timeout=30)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    return run


def test_versions_and_ciphers(front, s_client):
    router = front()
    weakest = "DEFAULT:@SECLEVEL=0"
    for version in ("-tls1", "-tls1_1"):
        status, output = s_client(router, version, "-cipher", weakest)
        assert status != 0, (version, output)
    for cipher in AEAD:
        status, output = s_client(router, "-tls1_2", "-cipher", cipher)
        assert status == 0, output
        assert f"Cipher    : {cipher}" in output
    for cipher in WEAK:
        status, output = s_client(router, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
        assert status != 0, (cipher, output)
    for suite in SUITES:
        status, output = s_client(router, "-tls1_3", "-ciphersuites", suite)
        assert status == 0, output
        assert f"Cipher is {suite}" in output
        assert "Verification: OK" in output
    assert "ALPN protocol: http/1.1" in s_client(router, "-alpn", "h2,http/1.1")[1]
    assert "Compression: NONE" in s_client(router, "-tls1_2")[1]


def test_only_1_3(front, s_client):
    router = front(config={"tls.min_version": "1.3"})
    assert s_client(router, "-tls1_2")[0] != 0
    assert s_client(router, "-tls1_3")[0] == 0


def test_renegotiation_is_refused(front, s_client):
    """By the client's own wish: the connection ends, and no handshake costs us anything."""
    router = front()
    before = router.metric("kvway_tls_handshakes_total")
    status, output = s_client(router, "-tls1_2", say=b"R\n")
    assert "no renegotiation" in output, output
    assert status != 0
    assert router.metric("kvway_tls_handshakes_total") == before + 1
    assert "Secure Renegotiation IS supported" in output  # which is about the attack on its old form


@pytest.mark.parametrize("kind", ["renegotiation", "keys"])
def test_floods_of_handshakes_are_ended(front, authority, kind):
    """Four clients ask for renegotiation (TLS 1.2) or for new keys (1.3) as fast as they can: each is ended soon, and
    a fifth is served meanwhile. A few hundred are read in one piece before the end is noticed."""
    router = front()
    command = [BUILD / "tests/integration/tls-flood", str(router.port), kind, "100000"]
    with TlsClient(router.port, tls.client_context(authority)) as other:
        floods = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        while any(flood.poll() is None for flood in floods):
            assert other.ask("POST", CHAT, body=chat_body()).status == 200
    for flood in floods:
        ended, sent, back = flood.communicate()[0].split()
        assert ended == "ended", (sent, back)
        assert int(back) < 64 << 10, "the router went on answering"
    assert router.metric("kvway_tls_floods_total") == len(floods)
    until(lambda: router.metric("kvway_client_connections") == 0, 5)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_resumption(front, s_client, tmp_path, version):
    router = front()
    kept = tmp_path / "session"
    ask = b"GET /health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    status, output = s_client(router, version, "-sess_out", kept, "-ign_eof", say=ask)
    assert status == 0, output
    assert "New, " in output
    status, output = s_client(router, version, "-sess_in", kept, "-ign_eof", say=ask)
    assert status == 0, output
    assert "Reused, " in output


def test_certificates_that_are_not_believed(front, s_client, authority, tmp_path):
    router = front()
    other = tls.Authority(tmp_path, "other")
    status, output = s_client(router, ca=other.cert)
    assert status != 0
    assert "self-signed certificate" in output or "unable to get local issuer certificate" in output
    status, output = s_client(router, "-verify_hostname", "elsewhere.example")
    assert status != 0
    assert "hostname mismatch" in output
    status, output = s_client(router, "-verify_hostname", "localhost", "-attime", "4102444800")
    assert status != 0
    assert "certificate has expired" in output


def test_a_chain_is_sent_whole(front, s_client, authority, tmp_path):
    """The server's own certificate first, then the one between it and the root."""
    middle = authority.issue_authority("middle")
    leaf, key = middle.issue("leaf", "DNS:localhost,IP:127.0.0.1")
    chain = tmp_path / "chain.pem"
    chain.write_text(leaf.read_text() + middle.cert.read_text())
    router = front(pair=(chain, key))
    status, output = s_client(router, "-showcerts")
    assert status == 0, output
    assert output.count("BEGIN CERTIFICATE") >= 2
    with TlsClient(router.port, tls.client_context(authority)) as client:
        assert client.ask("GET", "/health").status == 200
    alone = front(pair=(leaf, key))
    assert s_client(alone)[0] != 0, "without the chain its issuer is unknown"
