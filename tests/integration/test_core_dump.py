"""What a core dump of kvway would hold: no private key, no key or token of a client, no prompt, no answer.

The kernel leaves out what is marked `dd` (MADV_DONTDUMP). No core is made: a machine's pattern may send it anywhere. What
would be in it is read from the process, while requests are open and after them.
"""

import json
import subprocess
import threading

import pytest
from rig import tls
from rig.client import CHAT, Client, chat_body
from rig.router import SANITIZED
from rig.tls import TlsClient, TlsWorker
from rig.wait import until
from rig.worker import answer
from test_jwt import ISSUER, SigningKey
from test_keys import ENTRIES, KEY

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory")

PROMPT = "canary of a prompt"
ANSWER = "canary of an answer"
CLAIM = "canary-of-a-claim-that-no-rule-names@nowhere"


def dumped(pid):
    """(address, bytes) of all writable memory of the process's own that a core dump has."""
    spans = []
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                begin, end = (int(part, 16) for part in words[0].split("-"))
                mode = words[1]
            elif words[0] == "VmFlags:" and mode.startswith("rw") and "dd" not in words:
                spans.append((begin, end))
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end in spans:
            memory.seek(begin)
            yield begin, memory.read(end - begin)


def found(router, secrets):
    """Names of the secrets that a core dump would have, with where."""
    return [(name, hex(begin + memory.index(secret))) for begin, memory in dumped(router.pid)
            for name, secret in secrets.items() if secret in memory]  # fmt: skip


def secrets_of_key(name, path):
    """A private key as its file has it, and the number itself."""
    lines = [line for line in path.read_text().splitlines() if "--" not in line]
    text = subprocess.run(["openssl", "pkey", "-in", path, "-noout", "-text"], capture_output=True, text=True).stdout
    number = bytes.fromhex(text.split("priv:")[1].split("pub:")[0].replace(":", "").replace("\n", "").replace(" ", ""))
    return {f"{name}, PEM": lines[0][20:60].encode(), f"{name}, number": number[-32:], f"{name}, reversed": number[-32:][::-1]}


class Slow:
    """A worker's script that answers when it is let."""

    def __init__(self):
        self.lets = threading.Event()
        self.waiting = 0

    def __call__(self, ex):
        if PROMPT.encode() in ex.body:
            self.waiting += 1
            self.lets.wait(20)
            return answer_with(ex)
        return answer(ex)


def answer_with(ex):
    ex.respond(body=json.dumps({"choices": [{"message": {"content": ANSWER}}], "filler": ANSWER * 4000}).encode())


@pytest.mark.parametrize("upstream", ["plain", "tls"])
def test_a_core_dump_holds_no_secret(kvway, workers, tmp_path, upstream):
    authority = tls.Authority(tmp_path)
    local, mutual = authority.issue("local", "IP:127.0.0.1,DNS:localhost"), authority.issue("mutual", "DNS:kvway")
    signing = SigningKey(tmp_path, "one")
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [signing.jwk]}))
    (tmp_path / "keys.yaml").write_text(json.dumps({"keys": ENTRIES}))
    script = Slow()
    worker = workers(1, script=script)[0] if upstream == "plain" else TlsWorker(local, script, name="secure")
    config = {"loops": 1, "tls.certificate": str(local[0]), "tls.key": str(local[1]), "auth.keys_file": str(tmp_path / "keys.yaml"),
              "auth.jwt.jwks_file": str(tmp_path / "jwks.json"), "auth.jwt.issuer": ISSUER, "auth.jwt.audience": ["kvway"],
              "upstream.tls.ca_file": str(authority.cert), "upstream.tls.certificate": str(mutual[0]),
              "upstream.tls.key": str(mutual[1])}  # fmt: skip
    try:
        router = tls.wait_up(kvway([worker], config, up=False), [worker])
        token = signing.token(email="a-claim-that-no-rule-asks-for-" + CLAIM)
        stranger = "sk-of-a-stranger-0123456789"
        secrets = {"prompt": PROMPT.encode(), "answer": ANSWER.encode(), "key": KEY.encode(), "token": token.encode(),
                   "signature": token.split(".")[2].encode(), "stranger": stranger.encode(), "claim": CLAIM.encode(),
                   **secrets_of_key("listener's key", local[1]), **secrets_of_key("upstream's key", mutual[1])}  # fmt: skip
        trust = tls.client_context(authority)

        statuses = []

        def ask(credential, size):
            with TlsClient(router.port, trust, timeout=30) as client:
                body = chat_body(PROMPT + " " * size)
                statuses.append(client.ask("POST", CHAT, [("Authorization", f"Bearer {credential}")], body).status)

        # The large ones are more than the loop's slab.
        asked = [(KEY, 100), (token, 100)] + [(KEY, 300_000)] * 20
        threads = [tls.in_background(ask, *each) for each in asked]
        until(lambda: router.metric("kvway_body_bytes") > 20 * 300_000 and script.waiting > 2, 20, "all wait")
        ask(stranger, 100)
        assert statuses == [401]
        assert not found(router, secrets), "while requests are open"
        script.lets.set()
        for thread in threads:
            thread.join(30)
        router.wait_idle()
        assert statuses == [401] + [200] * len(asked)
        assert not found(router, secrets), "after them"
    finally:
        script.lets.set()
        if upstream == "tls":
            worker.stop()
