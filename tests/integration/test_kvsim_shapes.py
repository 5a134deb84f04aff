"""kvsim's answers have the shape of recorded ones of a real vLLM 0.32: status, header names and
their order, JSON keys, their order and types, framing of streams."""

import json
import re
import socket
from pathlib import Path

import pytest

from rig.sim import Sim
from rig.wire import parse_head

DATA = Path(__file__).parent / "data" / "vllm"
OPTIONS = ["--block-size", "32", "--kv-tokens", "32768", "--max-model-len", "16384"]

# Header values and JSON strings that are part of the shape, not of the occasion.
FIXED_HEADERS = {"server", "content-type", "vary", "connection", "allow", "transfer-encoding"}
FIXED_STRINGS = {"object", "role", "type", "finish_reason", "stop_reason", "status", "owned_by",
                 "truncation", "service_tier", "tool_choice", "param", "model", "detail", "version"}
# Those that change what the server does come in this order, in a test of their own.
STATES = ["sleep", "is_sleeping_yes", "wake_up", "is_sleeping", "pause", "is_paused_yes", "resume",
          "is_paused"]
SERVED = sorted(p.stem for p in DATA.glob("*.req") if not p.stem.startswith("error_engine"))


@pytest.fixture(scope="module")
def sims(tmp_path_factory):
    """Two kvsims: with and without --request-id-headers."""
    folder = tmp_path_factory.mktemp("sims")
    made = {True: Sim(folder, 1, "--request-id-headers", *OPTIONS, name="with_id"),
            False: Sim(folder, 1, *OPTIONS, name="without_id")}
    yield {flag: sim.workers[0].port for flag, sim in made.items()}
    for sim in made.values():
        sim.signal(15)
        assert sim.wait() == 0, sim.log()


def exchange(port, request):
    """All bytes that come back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(request)
        got = b""
        while data := sock.recv(65536):
            got += data
    return got


def split_chunks(body):
    """The pieces of a chunked body; fails if it is not whole."""
    pieces = []
    while True:
        size, body = body.split(b"\r\n", 1)
        size = int(size, 16)
        piece, end, body = body[:size], body[size:size + 2], body[size + 2:]
        assert end == b"\r\n"
        if size == 0:
            assert body == b"", f"after the last chunk: {body!r}"
            return pieces
        pieces.append(piece)


class Answer:
    def __init__(self, raw):
        head, self.body = raw.split(b"\r\n\r\n", 1)
        self.first, self.headers = parse_head(head + b"\r\n\r\n")
        self.chunks = None
        if self.headers.get("transfer-encoding") == "chunked":
            self.chunks = split_chunks(self.body)


def pairs(text):
    """JSON with objects as lists of pairs, so that order and duplicates show."""
    return json.loads(text, object_pairs_hook=lambda p: ("object", p))


def shape(value, key=None):
    """Keys, order and types of a JSON value, and the strings that do not depend on the occasion."""
    if isinstance(value, tuple):
        return {"object": [(name, shape(item, name)) for name, item in value[1]]}
    if isinstance(value, list):
        shapes = [shape(item, key) for item in value]
        return {"list": shapes if any(isinstance(s, dict) for s in shapes) else sorted(set(shapes))}
    if isinstance(value, str) and key in FIXED_STRINGS:
        return f"str {digits(value)}"
    return type(value).__name__


def digits(text):
    """Positions and counts of an error differ from server to server."""
    return re.sub(r"\d+", "0", text)


def event_shape(chunk):
    """An event's lines, its data by shape."""
    text = chunk.decode()
    assert text.endswith("\n\n") and text.count("\n\n") == 1, f"not one event: {text!r}"
    lines = []
    for line in text[:-2].split("\n"):
        name, value = line.split(": ", 1)
        is_json = name == "data" and value != "[DONE]"
        lines.append((name, shape(pairs(value)) if is_json else value))
    return lines


def compare(ours, theirs):
    assert ours.first == theirs.first
    assert [n for n, _ in ours.headers] == [n for n, _ in theirs.headers]
    for name, value in theirs.headers:
        if name in FIXED_HEADERS:
            assert ours.headers.get(name) == value, name
    if theirs.chunks is not None:
        assert [event_shape(c) for c in ours.chunks] == [event_shape(c) for c in theirs.chunks]
    elif theirs.headers.get("content-type") == "application/json" and theirs.body:
        assert int(ours.headers.get("content-length")) == len(ours.body)
        assert shape(pairs(ours.body)) == shape(pairs(theirs.body))
    elif theirs.headers.get("content-type", "").startswith("text/plain; charset"):
        assert ours.body == theirs.body


def read(name):
    return (DATA / f"{name}.req").read_bytes(), Answer((DATA / f"{name}.resp").read_bytes())


@pytest.mark.parametrize("name", [n for n in SERVED if n not in STATES + ["error_vocabulary"]])
def test_answer_has_the_recorded_shape(sims, name):
    request, theirs = read(name)
    ours = Answer(exchange(sims["x-request-id" in theirs.headers], request))
    compare(ours, theirs)


def test_sleeping_and_pausing(sims):
    for name in STATES:
        request, theirs = read(name)
        ours = Answer(exchange(sims[True], request))
        compare(ours, theirs)
        assert ours.body == theirs.body, name


@pytest.mark.parametrize("name", ["error_bad_value", "error_content_type", "error_dp_rank",
                                  "error_max_tokens", "error_missing_field", "error_model_chat",
                                  "error_model_messages", "error_model_responses", "error_render",
                                  "error_tokenize_model"])
def test_error_says_what_the_recorded_one_says(sims, name):
    request, theirs = read(name)
    assert Answer(exchange(sims[True], request)).body == theirs.body


@pytest.mark.parametrize("name", ["error_engine", "error_engine_stream", "error_engine_chat_stream"])
def test_an_engine_that_gives_up(sims, name):
    request, theirs = read(name)
    request = request.replace(b"\r\n", b"\r\nx-sim-fail: error-after-tokens=0\r\n", 1)
    compare(Answer(exchange(sims[False], request)), theirs)


def post(port, path, body, headers=b""):
    body = json.dumps(body).encode()
    return Answer(exchange(port, b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\nConnection: close\r\n%s\r\n%s"
                           % (path, len(body), headers, body)))


def test_a_prompt_that_is_too_long(sims):
    theirs = Answer((DATA / "error_too_long_completions.resp").read_bytes())
    ours = post(sims[True], b"/v1/completions", {"model": "tiny", "prompt": [100] * 20000,
                                                 "max_tokens": 5})
    assert ours.body == theirs.body
    compare(ours, theirs)


def test_a_token_outside_the_vocabulary(sims):
    theirs = Answer((DATA / "error_vocabulary.resp").read_bytes())
    ours = post(sims[True], b"/v1/completions", {"model": "tiny", "prompt": [4000000000]})
    assert digits(ours.body.decode()) == digits(theirs.body.decode())


def test_request_id_only_where_the_flag_is_set(sims):
    theirs = Answer((DATA / "no_request_id_flag.resp").read_bytes())
    ours = post(sims[False], b"/v1/completions", {"model": "tiny", "prompt": "Once", "max_tokens": 2},
                b"X-Request-Id: abc\r\n")
    assert "x-request-id" not in ours.headers
    assert json.loads(ours.body)["id"] == json.loads(theirs.body)["id"] == "cmpl-abc"
    ours = post(sims[True], b"/v1/completions", {"model": "tiny", "prompt": "Once"},
                b"X-Request-Id: abc\r\n")
    assert ours.headers.get("x-request-id") == "abc"


SAMPLE = re.compile(r"^([a-zA-Z0-9_:]+)(?:\{(.*)\})? (\S+)$")


def families(page):
    """{name: type} and {series: label names in order} of a metrics page."""
    types, labels = {}, {}
    for line in page.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif not line.startswith("#"):
            name, inner, value = SAMPLE.match(line).groups()
            float(value)
            labels[name] = re.findall(r'([a-zA-Z_]+)="', inner or "")
    return types, labels


READ_BY_ROUTERS = [
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total", "vllm:time_to_first_token_seconds", "process_start_time_seconds",
    "vllm:engine_sleep_state", "vllm:e2e_request_latency_seconds", "vllm:prompt_tokens_total"]


def test_metrics_are_named_typed_and_labelled_as_recorded(sims):
    theirs = Answer((DATA / "metrics.resp").read_bytes())
    ours = Answer(exchange(sims[True], b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    assert ours.headers.get("content-type") == theirs.headers.get("content-type")
    their_types, their_labels = families(theirs.body)
    our_types, our_labels = families(ours.body)
    for name in READ_BY_ROUTERS:
        assert name in our_types
    for name, kind in our_types.items():
        assert their_types[name] == kind, name
    for name, labels in our_labels.items():
        if name == "vllm:cache_config_info":
            assert [x for x in their_labels[name] if x in labels] == labels
        else:
            assert their_labels[name] == labels, name


def test_histogram_buckets_are_the_recorded_ones(sims):
    page = exchange(sims[True], b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    recorded = (DATA / "metrics.resp").read_bytes()

    def bounds(text):
        found = re.findall(rb'^(\S+)_bucket\{engine="0",le="([^"]+)"', text, re.M)
        return {(name, le) for name, le in found}

    assert bounds(page)
    names = {name for name, _ in bounds(page)}
    assert bounds(page) == {(n, le) for n, le in bounds(recorded) if n in names}


def test_scale_out_renders_what_a_request_becomes(tmp_path):
    """/render gives the ids that the same request reports as its prompt's."""
    sim = Sim(tmp_path, 1, "--enable-scale-out", *OPTIONS, name="scale_out")
    port = sim.workers[0].port
    for path, prompt in ((b"/v1/completions", {"prompt": "once upon a time"}),
                         (b"/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})):
        request = {"model": "tiny", "max_tokens": 3, "return_token_ids": True, **prompt}
        rendered = json.loads(post(port, path + b"/render", request).body)
        whole = json.loads(post(port, path, request).body)
        if "prompt" in prompt:
            (rendered,), whole = rendered, whole["choices"][0]
        assert rendered["token_ids"] and rendered["token_ids"] == whole["prompt_token_ids"]
        assert rendered["sampling_params"]["max_tokens"] == 3
        assert (rendered["model"], rendered["stream"]) == ("tiny", False)
    assert "400" in post(port, b"/v1/completions/render", {"model": "tiny"}).first
    sim.signal(15)
    assert sim.wait() == 0, sim.log()
