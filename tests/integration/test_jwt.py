"""Tokens of clients: an issuer with a key set on loopback, its keys rotated under load, away and back; attacks."""

import base64
import hashlib
import hmac
import http.server
import json
import re
import shutil
import subprocess
import threading
import time

import pytest
from rig.client import CHAT, ask, chat_body
from rig.router import PROGRAM
from rig.tls import Authority, server_context
from rig.wait import until
from test_keys import ENTRIES, KEY, MESSAGES

ISSUER = "https://issuer.example"
CANARY = "canary-of-a-claim"


def encoded(data):
    data = json.dumps(data).encode() if isinstance(data, dict) else data
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*words, data=None):
    run = subprocess.run(["openssl", *map(str, words)], input=data, capture_output=True, check=True)
    return run.stdout


class SigningKey:
    """An RSA key of the issuer."""

    def __init__(self, directory, kid):
        self.kid, self.path = kid, directory / f"{kid}.pem"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.path)
        modulus = openssl("rsa", "-in", self.path, "-noout", "-modulus").decode().split("=")[1]
        self.jwk = {"kty": "RSA", "kid": kid, "n": encoded(bytes.fromhex(modulus)), "e": "AQAB", "use": "sig"}

    def token(self, header=None, **claims):
        header = {"alg": "RS256", "typ": "JWT", "kid": self.kid, **(header or {})}
        claims = {"iss": ISSUER, "aud": "kvway", "sub": "alice", "exp": int(time.time()) + 600, **claims}
        text = f"{encoded(header)}.{encoded({k: v for k, v in claims.items() if v is not None})}"
        return f"{text}.{encoded(openssl('dgst', '-sha256', '-sign', self.path, data=text.encode()))}"


class Server(http.server.ThreadingHTTPServer):
    """A client that leaves is no error."""

    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass


class Issuer:
    """A server of the key set. `body` is what it answers with `status`."""

    def __init__(self, authority, first, second):
        self.authority, self.first, self.second = authority, first, second
        self.pair = authority.issue("issuer", "IP:127.0.0.1")
        self.status, self.asked, self.port, self.server = 200, 0, 0, None
        self.show(self.first)
        self.start()

    def show(self, *keys):
        self.body = json.dumps({"keys": [key.jwk for key in keys]}).encode()

    def start(self):
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked += 1
                self.send_response(issuer.status)
                self.send_header("content-length", str(len(issuer.body)))
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *what):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        self.server.socket = server_context(self.pair).wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
        self.server = None

    def config(self, **more):
        return {
            "auth.jwt.jwks_url": f"https://127.0.0.1:{self.port}/jwks.json",
            "auth.jwt.jwks_ca_file": str(self.authority.cert),
            "auth.jwt.issuer": ISSUER,
            "auth.jwt.audience": ["kvway"],
            "auth.jwt.refresh_pause": "100ms",
            **{f"auth.jwt.{name}": value for name, value in more.items()},
        }


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    directory = tmp_path_factory.mktemp("issuer")
    return Authority(directory, "issuer-authority"), SigningKey(directory, "first"), SigningKey(directory, "second")


@pytest.fixture
def issuer(made_once, monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Issuer(*made_once)
    yield made
    made.stop()


def bearer(token):
    return [("Authorization", f"Bearer {token}")]


def send(router, token, target=CHAT, body=None):
    return router.ask("POST", target, bearer(token), chat_body() if body is None else body)


def refused(router, reason):
    return router.metric("kvway_jwt_refused_total", reason=reason)


def age(router):
    return ask(router.admin_port, "GET", "/health").json()["token_keys_age_s"]


def test_tokens_are_keys(issuer, pair, tmp_path):
    """With a keys file as well: claims rule as an entry's keys do, attacks get nowhere, nothing of a token stays."""
    keys, access = tmp_path / "keys.yaml", tmp_path / "access.log"
    keys.write_text(json.dumps({"keys": ENTRIES}))
    config = issuer.config(refresh="1h")
    worker, router = pair(config={**config, "auth.keys_file": str(keys), "log.access": str(access),
                                  "log.level": "debug"})  # fmt: skip
    until(lambda: router.metric("kvway_jwt_keys") == 1)
    first = issuer.first
    good = first.token(tenant="lab", other=CANARY)
    assert [send(router, good).status for _ in range(3)] == [200] * 3
    assert router.ask("POST", CHAT, [("x-api-key", good)], chat_body()).status == 200
    assert {len(json.loads(ex.body)["cache_salt"]) for ex in worker.requests} == {43}  # of the token's tenant
    assert router.metric("kvway_jwt_verified_total", by="signature") == 1
    assert router.metric("kvway_jwt_verified_total", by="memory") == 3
    assert send(router, KEY).status == 200
    narrow = first.token(sub="bob", models=["tiny"], paths=[CHAT, MESSAGES])
    assert send(router, narrow).status == 200
    assert send(router, narrow, body=chat_body(model="secret")).status == 403
    assert send(router, narrow, "/v1/embeddings").status == 403
    answered = len(worker.requests)

    head, claims, signature = good.split(".")
    forged = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{claims}"
    mac = hmac.new(openssl("pkey", "-in", first.path, "-pubout"), forged.encode(), hashlib.sha256).digest()
    attacks = [
        ("algorithm", f"{encoded({'alg': 'none'})}.{claims}."),
        ("algorithm", f"{forged}.{encoded(mac)}"),
        ("signature", f"{head}.{encoded({'sub': 'root'})}.{signature}"),
        ("malformed", f"{good}="),
        ("malformed", f"{good}{'A' * 20000}"),
        ("malformed", first.token({"crit": ["exp"]})),
        ("issuer", first.token(iss="https://other")),
        ("audience", first.token(aud="other")),
        ("expired", first.token(exp=int(time.time()) - 60)),
        ("expired", first.token(exp=None)),
        ("not_yet_valid", first.token(nbf=int(time.time()) + 3600)),
        ("claims", first.token(models=[])),
        ("claims", first.token(sub=None)),
    ]
    answers = []
    for reason, token in attacks:
        before = refused(router, reason)
        answers.append(send(router, token))
        assert answers[-1].status == 401, (reason, answers[-1])
        assert answers[-1].headers.get("www-authenticate").startswith('Bearer error="invalid_token", error_description="')
        assert answers[-1].json()["error"]["code"] == ("expired_token" if reason == "expired" else "invalid_token")
        assert refused(router, reason) == before + 1, reason
    answers.append(send(router, attacks[0][1], MESSAGES))
    assert answers[-1].json()["error"]["type"] == "authentication_error"
    answers.append(router.ask("POST", f"{CHAT}?access_token={good}", [], chat_body()))
    assert answers[-1].status == 400
    assert send(router, "a.b").status == 401 and refused(router, "key") == 0  # two parts: a key, and unknown
    assert len(worker.requests) == answered

    parts = {part for token in [good, narrow, *(t for _, t in attacks)] for part in token.split(".")[1:] if len(part) > 20}
    parts |= {CANARY}
    for ex in worker.requests:
        assert "authorization" not in ex.headers and not any(part.encode() in ex.raw_head for part in parts)
    answers += [ask(router.admin_port, "GET", page) for page in ("/metrics", "/workers", "/health")]
    assert not any(part in answer.body.decode() for answer in answers for part in parts)
    router.stop()
    lines = [json.loads(line) for line in access.read_text().splitlines()]
    assert ("jwt:alice", "lab") in {(line.get("key"), line.get("tenant")) for line in lines}
    for path in (access, router.log_path):
        text = path.read_text()
        assert not any(part in text for part in parts), path
    assert router.log_path.read_text().count("auth.tenant_secret_file is not set") == 1


def test_limits_of_tokens(issuer, pair):
    """Of all tokens of one name together; a token's own hold instead."""
    config = issuer.config(refresh="1h", requests_per_minute=2, burst="1m", max_body="1KiB", limits_claim="limits")
    _, router = pair(config=config)
    until(lambda: router.metric("kvway_jwt_keys") == 1)
    token = issuer.first.token
    answers = [send(router, token(jti=str(i))) for i in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert "this API key on requests per minute (RPM): limit 2" in answers[-1].json()["error"]["message"]
    assert send(router, token(sub="bob")).headers.get("x-ratelimit-remaining-requests") == "1"
    large = chat_body("x" * 2000)
    assert send(router, token(sub="bob"), body=large).status == 413
    own = token(sub="carol", limits={"requests_per_minute": 4, "max_body": "4KiB", "burst": "1m"})
    assert [send(router, own, body=large).status for _ in range(5)] == [200] * 4 + [429]
    assert send(router, token(sub="dave", limits={})).status == 200
    for wrong in ([], 7, {"requests_per_minute": -1}, {"requests_per_minute": 1.5}, {"tokens": 1}, {"max_body": None},
                  {"requests_per_minute": 10**18}, {"burst": "soon"}):  # fmt: skip
        assert send(router, token(sub="eve", limits=wrong)).status == 401, wrong
    assert refused(router, "claims") == 8


def test_limits_of_tenants_and_models_hold_for_tokens(issuer, pair):
    limits = [{"tenant": "lab", "requests_per_minute": 2, "burst": "1m"}, {"model": "tiny", "requests_per_minute": 30}]
    _, router = pair(config={**issuer.config(refresh="1h"), "rate_limits": limits})
    until(lambda: router.metric("kvway_jwt_keys") == 1)
    lab = [issuer.first.token(sub=name, tenant="lab") for name in ("alice", "bob")]
    answers = [send(router, lab[i % 2]) for i in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert "this tenant" in answers[-1].json()["error"]["message"]
    free = issuer.first.token(sub="carol")  # of no tenant; 10 s of the model's are saved up as with keys: 5, 2 used
    answers = [send(router, free) for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert answers[0].headers.get("x-ratelimit-limit-requests") == "30"
    assert int(answers[0].headers.get("x-ratelimit-remaining-requests")) >= 2


def test_keys_are_rotated_under_load(issuer, pair):
    _, router = pair(config=issuer.config(refresh="1h"))
    until(lambda: router.metric("kvway_jwt_keys") == 1)
    tokens, stop, failures, later = [issuer.first.token()], threading.Event(), [], []
    asking = [None] * 4  # the token of each client's latest request

    def client(number):
        while not stop.is_set():
            token = asking[number] = tokens[-1]
            answer = send(router, token)
            if answer.status == 503 and answer.headers.get("retry-after") == "1":
                later.append(token)
                time.sleep(0.01)
            elif answer.status != 200:
                failures.append(answer)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.15)  # the pause after the fetch before
        issuer.show(issuer.first, issuer.second)
        tokens.append(issuer.second.token())
        until(lambda: router.metric("kvway_jwt_keys") == 2)
        until(lambda: set(asking) == {tokens[1]}, what="no request with the first token under way")
        issuer.show(issuer.second)
        assert ask(router.admin_port, "POST", "/reload").status == 200
        until(lambda: router.metric("kvway_jwt_keys") == 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert set(later) <= {tokens[1]}
    assert send(router, tokens[1]).status == 200
    # The first key is gone, and a token of it with it; asking for it over and over fetches no more than allowed.
    until(lambda: send(router, tokens[0]).status == 401)
    begin, before = time.monotonic(), issuer.asked
    while time.monotonic() - begin < 0.5:
        assert send(router, tokens[0]).status in (401, 503)
    assert issuer.asked - before <= (time.monotonic() - begin) / 0.1 + 1


def test_an_issuer_that_is_away(issuer, pair):
    issuer.status = 500
    _, router = pair(config=issuer.config(refresh="1s", keep="2s", remember=0))
    token = issuer.first.token()
    answer = send(router, token)
    assert answer.status == 503 and answer.headers.get("retry-after") == "1"
    assert answer.json()["error"]["code"] == "token_keys_unavailable"
    assert age(router) is None
    issuer.status = 200
    until(lambda: send(router, token).status == 200)
    assert age(router) < 5
    issuer.stop()
    until(lambda: router.metric("kvway_jwt_refreshes_total", result="failed") > 3)
    # The keys of before hold for a while, not for ever.
    until(lambda: router.metric("kvway_jwt_keys") == 0)
    assert age(router) >= 2
    assert send(router, token).status == 503
    issuer.body += b" " * (300 << 10)
    issuer.start()
    until(lambda: re.search(r"jwks.json: found more than 262144 bytes", router.log()) or None)
    assert router.metric("kvway_jwt_keys") == 0
    issuer.show(issuer.first)
    until(lambda: send(router, token).status == 200)


def test_only_the_named_authority_counts(issuer, pair, tmp_path, monkeypatch):
    """With `jwks_ca_file` an authority that the system trusts signs no certificate of the issuer."""
    folder, unshare = tmp_path / "certs", shutil.which("unshare")
    folder.mkdir()
    other = Authority(tmp_path, "other-authority")
    name = openssl("x509", "-in", issuer.authority.cert, "-noout", "-subject_hash").decode().strip()
    shutil.copy(issuer.authority.cert, folder / f"{name}.0")
    shutil.copy(other.cert, folder / "ca-certificates.crt")
    mount = f"mount --bind {folder} /etc/ssl/certs"
    inside = [unshare, "-Urm", "--", "sh", "-c"]
    if unshare is None or subprocess.run([*inside, mount], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace of one's own here")
    program = tmp_path / "kvway"
    program.write_text(f"#!/bin/sh\nexec {unshare} -Urm -- sh -c '{mount} && exec {PROGRAM} \"$@\"' sh \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr("rig.router.PROGRAM", program)
    _, router = pair(config={**issuer.config(), "auth.jwt.jwks_ca_file": ""})
    until(lambda: sum(router.metric("kvway_jwt_refreshes_total", result=result) for result in ("ok", "failed")) > 0)
    if router.metric("kvway_jwt_keys") == 0:
        pytest.skip("libcurl has no folder of authorities there")
    _, router = pair(config={**issuer.config(), "auth.jwt.jwks_ca_file": str(other.cert)})
    until(lambda: router.metric("kvway_jwt_refreshes_total", result="failed") > 0)
    assert router.metric("kvway_jwt_keys") == 0
    assert send(router, issuer.first.token()).status == 503


def test_mistakes_are_named(tmp_path, issuer):
    jwks = tmp_path / "jwks.json"
    jwks.write_text('{"keys": [{"kty": "oct"}]}')
    base = {"listen": "127.0.0.1:0", "workers": [{"url": "http://127.0.0.1:1"}]}
    good = {"jwks_file": str(jwks), "issuer": ISSUER, "audience": ["kvway"]}
    table = [
        ({"jwks_file": str(jwks)}, "auth.jwt.jwks_file: found no `auth.jwt.issuer`, expected it to be set too"),
        ({**good, "audience": []}, "auth.jwt.jwks_file: found no `auth.jwt.audience`"),
        ({**good, "jwks_url": "https://a/b"}, "auth.jwt.jwks_file: found together with `auth.jwt.jwks_url`"),
        ({**good, "jwks_file": "", "jwks_url": "http://a/b"}, "auth.jwt.jwks_url: found `http://a/b`, expected a URL"),
        ({**good, "jwks_ca_file": str(issuer.authority.cert)}, "auth.jwt.jwks_ca_file: found no `auth.jwt.jwks_url`"),
        ({"issuer": ISSUER}, "auth.jwt.issuer: found no `auth.jwt.jwks_url`"),
        (good, "jwks.json: found no key of use among 1"),
    ]
    config = tmp_path / "kvway.yaml"
    for section, expected in table:
        config.write_text(json.dumps({**base, "auth": {"jwt": section}}))
        got = subprocess.run([PROGRAM, "check", "-c", config], capture_output=True, text=True, timeout=30)
        assert got.returncode == 1 and expected in got.stderr, (section, got.stderr)
    jwks.write_text(json.dumps({"keys": [issuer.first.jwk]}))
    got = subprocess.run([PROGRAM, "check", "-c", config], capture_output=True, text=True, timeout=30)
    assert got.returncode == 0 and "jwks.json: ok, 1 key of tokens" in got.stdout
