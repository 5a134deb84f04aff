"""What `openssl s_client` gets from the listener: versions, ciphers, renegotiation, resumption, chains."""

import re
import shutil
import subprocess
import time

import pytest

from rig import tls
from rig.client import CHAT, ask, chat_body
from rig.router import BUILD, PROGRAM, write_config
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


# --- OCSP stapling ---


@pytest.fixture
def stapled(s_client):
    """stapled(router, name): what s_client says of the response that it was shown."""

    def shown(router, name="localhost"):
        status, output = s_client(router, "-status", "-servername", name)
        assert status == 0, output
        if "OCSP response: no response sent" in output:
            return None
        assert "OCSP Response Status: successful" in output, output
        return re.search(r"Serial Number: (\w+)", output).group(1)

    return shown


def serial_of(cert):
    done = subprocess.run(["openssl", "x509", "-in", cert, "-noout", "-serial"], capture_output=True, text=True)
    return done.stdout.strip().split("=")[1]


def test_responses_are_stapled_to_their_certificates(front, stapled, authority, local, tmp_path):
    """Two certificates, their responses in another order; without one nothing is shown."""
    other = authority.issue("other", "DNS:other.example")
    both = tmp_path / "both.pem"
    both.write_text(other[0].read_text() + other[1].read_text())
    files = [authority.respond(tmp_path / "other.der", other[0]), authority.respond(tmp_path / "local.der", local[0])]
    config = {"tls.certificates": [str(both)], "tls.ocsp_files": [str(path) for path in files]}
    router = front(config=config)
    assert stapled(router) == serial_of(local[0])
    assert stapled(router, "other.example") == serial_of(other[0])
    for path in files:
        assert router.metric("kvway_tls_ocsp_next_update_seconds", use="listen", file=str(path)) > time.time()
    assert stapled(front()) is None


def test_responses_are_renewed_with_their_certificate(front, stapled, authority, local, tmp_path):
    """One that is for another certificate, or says that it is revoked, is not shown; a new one takes the place of it."""
    pair, response = (tmp_path / "tls.crt", tmp_path / "tls.key"), tmp_path / "ocsp.der"
    fresh = authority.issue("fresh", "IP:127.0.0.1,DNS:localhost")
    for path, source in zip(pair, local):
        shutil.copy(source, path)
    authority.respond(response, fresh[0])
    router = front(pair, {"tls.ocsp_files": [str(response)]})

    def until_s():
        return router.metric("kvway_tls_ocsp_next_update_seconds")

    def reload():
        assert ask(router.admin_port, "POST", "/reload").status == 200

    assert stapled(router) is None
    assert until_s() == 0
    assert f"OCSP response {response}: it is for none of the certificates" in router.log()
    authority.respond(response, local[0])
    reload()
    assert until_s() > time.time()
    assert stapled(router) == serial_of(local[0])
    for path, source in zip(pair, fresh):
        shutil.copy(source, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)
    reload()
    assert until_s() == 0
    assert stapled(router) is None
    authority.respond(response, fresh[0], "R")
    reload()
    assert "it says that the certificate is revoked" in router.log()
    assert stapled(router) is None
    authority.respond(response, fresh[0])
    reload()
    assert until_s() > time.time()
    assert stapled(router) == serial_of(fresh[0])
    response.write_bytes(response.read_bytes()[:100])  # the one before goes on being shown
    until(lambda: "it is none in DER form" in router.log(), 10, "half a response refused")
    assert stapled(router) == serial_of(fresh[0])


def test_check_says_what_clients_get(authority, local, tmp_path):
    config, response = tmp_path / "kvway.yaml", tmp_path / "ocsp.der"
    write_config(config, {"workers": [{"url": "http://127.0.0.1:1"}], "tls.certificate": str(local[0]),
                          "tls.key": str(local[1]), "tls.ocsp_files": [str(response)]})  # fmt: skip

    def check():
        done = subprocess.run([PROGRAM, "check", "-c", config], capture_output=True, text=True, timeout=20)
        return done.returncode, done.stdout + done.stderr

    status, said = check()
    assert status == 1 and " tls.ocsp_files: found `" in said and "No such file" in said
    response.write_bytes(b"no response")
    status, said = check()
    assert status == 1 and "expected an OCSP response in DER form" in said
    authority.respond(response, authority.issue("else", "DNS:x")[0])
    status, said = check()
    assert status == 0 and f"clients would not get it: OCSP response {response}: it is for none of the certificates" in said
    authority.respond(response, local[0])
    status, said = check()
    assert status == 0 and f"{response}: ok, an OCSP response until 20" in said and "warning" not in said
