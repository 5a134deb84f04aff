"""`kvbench engine` asks what the stock `lmcache bench engine` asks: for each workload both are run
against a server that writes down every request, and what they sent is compared message by message,
in the order in which it came.

The model is a folder with a tokenizer of nine thousand words, so that the workload that draws its
words from the model's tokenizer has some to draw.
"""

import http.server
import itertools
import json
import pathlib
import subprocess
import threading

import pytest

import lmc
from rig.router import BUILD

LMCACHE = pathlib.Path(lmc.PYTHON).parent / "lmcache"
KVBENCH = BUILD / "bench" / "load" / "kvbench"

WORKLOADS = {
    "long-doc-qa": ["--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 5000, "--ldqa-document-length", 700,
                    "--ldqa-query-per-document", 5, "--ldqa-num-inflight-requests", 1, "--ldqa-max-output-length", 9],
    "multi-round-chat": ["--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 1000, "--mrc-shared-prompt-length", 100,
                         "--mrc-chat-history-length", 200, "--mrc-qps", 5, "--mrc-duration", 3, "--ignore-eos"],
    "long-doc-permutator": ["--ldp-num-contexts", 6, "--ldp-context-length", 40, "--ldp-system-prompt-length", 11,
                            "--seed", 7],
    "random-prefill": ["--rp-num-requests", 12, "--rp-request-length", 60],
}

pytestmark = [
    pytest.mark.skipif(not lmc.PYTHON or not LMCACHE.exists(),
                       reason="set KVW_LMCACHE_PYTHON, or run tests/engine/lmcache.sh"),
    pytest.mark.skipif(not KVBENCH.exists(), reason="kvbench is not built"),
]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        said = f"answer to {len(body['messages'])} \"messages\""
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        events = [{"choices": [{"index": 0, "delta": {"content": said}}]}, {"choices": [], "usage": usage}]
        text = "".join(f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm', **e})}"
                       "\n\n" for e in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class Scribe(http.server.ThreadingHTTPServer):
    """Answers every chat and keeps the bodies."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tokenizer whose words are a token each."""
    folder = tmp_path_factory.mktemp("model")
    letters = "bcdfghjklmnpqrstvwxz"
    words = ["".join(w) for w in itertools.product(letters, "aeiou", letters, "aeiou")][:9000]
    vocabulary = {"<unk>": 0, "x": 1, **{"\u0120" + word: i + 2 for i, word in enumerate(words)}}
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": pieces, "post_processor": None, "decoder": pieces,
                 "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def sent(program, name, options, model, folder):
    """What one program sent."""
    folder.mkdir()
    server = Scribe()
    start = [LMCACHE, "bench", "engine", "--no-interactive"] if program == "stock" else [KVBENCH, "engine"]
    if "--tokens-per-gb-kvcache" not in options:
        options = [*options, "--tokens-per-gb-kvcache", 1]
    words = [*start, "--engine-url", f"http://127.0.0.1:{server.server_port}", "--model", model, "--workload", name,
             *options, "-q", "--output-dir", folder]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    return server.bodies


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_send_the_same(tmp_path, model, name):
    stock, ours = (sent(program, name, WORKLOADS[name], model, tmp_path / program) for program in ("stock", "kvbench"))
    if name == "random-prefill":  # all at once, in no order
        stock, ours = (sorted(bodies, key=lambda b: b["messages"][0]["content"]) for bodies in (stock, ours))
    assert len(stock) == len(ours) > 10
    for i, (a, b) in enumerate(zip(stock, ours)):
        assert a == b, f"request {i}: {str(a)[:300]}\n{str(b)[:300]}"


def test_both_size_the_tuner_alike(tmp_path, model):
    """Its texts differ: there they are decoded from random token ids."""
    options = ["--psf-thrash", 1, "--tokens-per-gb-kvcache", 2000, "--psf-context-length", 700]
    stock, ours = (sent(program, "prefix-suffix-tuner", options, model, tmp_path / program)
                   for program in ("stock", "kvbench"))
    assert len(stock) == len(ours) == 1 + 2 * 3
    for a, b in zip(stock, ours):
        (asked,), (also,) = a["messages"], b["messages"]
        assert asked["content"].split()[0] == also["content"].split()[0]  # PREFIX_number
        assert a["max_tokens"] == b["max_tokens"] == 1
