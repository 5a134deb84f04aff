"""Spans of requests at an OpenTelemetry Collector: what they say, how they continue a client's trace, and that no collector,
however bad, is noticed by requests."""

import json
import re
import subprocess
import threading
import time
import urllib.request

import pytest

from rig.client import CHAT, Client, chat_body
from rig.collector import Collector
from rig.router import PROGRAM
from rig.wait import stays, until, unused_port

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
NEW = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-(0[01])")


@pytest.fixture
def collector():
    """collector(answer): collectors that stop with the test."""
    made = []

    def make(*args):
        made.append(Collector(*args))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def config(collector, **more):
    """Every request is exported, soon."""
    return {"tracing.endpoint": collector.url, "tracing.ratio": 1, "tracing.interval": "100ms", "loops": 1, **more}


def ask(router, name, headers=(), **body):
    return router.ask("POST", CHAT, [("x-request-id", name), *headers], chat_body(**body))


def dropped(router, reason):
    return router.metric("kvway_traces_dropped_total", reason=reason)


def exported(router):
    return router.metric("kvway_traces_exported_total")


# --- what spans say ---


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_request_and_its_attempt(workers, kvway, collector, protocol, compression):
    (worker,) = workers(1)
    at = collector()
    more = {"tracing.protocol": protocol, "tracing.compression": compression, "tracing.headers": "x-key=a%20b,x-other=c"}
    router = kvway([worker], config(at, **more))
    assert ask(router, "one").status == 200
    server, (attempt,) = at.tree("one")
    assert (server.kind, server.name, server.parent, server.failed) == ("server", "chat tiny", None, False)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "http.request.method": "POST",
        "url.path": CHAT,
        "url.scheme": "http",
        "http.response.status_code": 200,
        "kvway.request_id": "one",
        "kvway.route": "chat",
        "kvway.strategy": "prefixaware",
        "kvway.end": "complete",
        "kvway.exported": "sampled",
    }
    assert expected.items() <= server.attributes.items()
    assert (attempt.kind, attempt.name, attempt.parent) == ("client", "chat tiny", server.id)
    port = int(worker.url.rsplit(":", 1)[1])
    assert (attempt["server.address"], attempt["server.port"]) == ("127.0.0.1", port)
    assert (attempt["kvway.worker"], attempt["kvway.decision.reason"]) == (worker.url, "only")
    assert attempt["kvway.predicted_cached_tokens"] == 0
    assert attempt.happened("first_token") and server.begin <= attempt.begin <= attempt.end <= server.end
    assert server.resource["service.name"] == "kvway" and server.resource["service.instance.id"]
    path, headers, _ = at.messages[0]
    assert path == "/v1/traces" and (headers["x-key"], headers["x-other"]) == ("a b", "c")
    assert abs(server.begin / 1e9 - time.time()) < 600


def test_a_stream(pair, collector):
    at = collector()
    worker, router = pair(config=config(at))
    assert ask(router, "s", stream=True).status == 200
    server, _ = at.tree("s")
    assert server["gen_ai.request.stream"] is True
    assert 0 < server["gen_ai.response.time_to_first_chunk"] < (server.end - server.begin) / 1e9


def test_a_retry_is_two_attempts(workers, kvway, collector):
    at = collector()

    def fails_first(ex):
        if len(seen) == 0:
            seen.append(ex.headers.get("traceparent"))
            ex.reset()
            return
        seen.append(ex.headers.get("traceparent"))
        ex.read_body()
        ex.respond(body={"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}]})

    seen = []
    fleet = workers(2, script=fails_first)
    router = kvway(fleet, config(at))
    assert ask(router, "again").status == 200
    server, attempts = at.tree("again")
    assert [a.failed for a in attempts] == [True, False] and not server.failed
    assert attempts[0]["kvway.worker"] != attempts[1]["kvway.worker"]
    assert attempts[1]["http.request.resend_count"] == 1 and attempts[0]["error.type"]
    assert attempts[0].happened("failed")[0]["kvway.why"]
    # each worker got the span of its own attempt
    assert [NEW.fullmatch(parent).group(2) for parent in seen] == [a.id for a in attempts]
    assert {NEW.fullmatch(parent).group(1) for parent in seen} == {server.trace}


def test_a_wait_is_a_span_with_its_reason(workers, kvway, collector):
    at = collector()
    answer = threading.Event()

    def holds(ex):
        ex.read_body()
        answer.wait(30)
        ex.respond(body={"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}]})

    (worker,) = workers(1, script=holds)
    queues = {"admission.enabled": True, "routing.prefill_tokens_per_second": 2, "admission.worker_queue": "0s",
              "admission.max_wait": "60s"}  # fmt: skip
    router = kvway([worker], config(at, **queues))
    long = "word " * 800
    threads = [threading.Thread(target=ask, args=(router, name), kwargs={"text": long}) for name in ("a", "b")]
    threads[0].start()
    until(lambda: worker.requests, what="the first request at the worker")
    threads[1].start()
    until(lambda: router.metric("kvway_exchanges") == 2, what="both requests in kvway")
    answer.set()
    for thread in threads:
        thread.join()
    server, (wait, attempt) = at.tree("b")
    assert (wait.kind, wait.name, wait["kvway.wait.for"]) == ("internal", "wait room", "room")
    assert server.begin <= wait.begin < wait.end <= attempt.begin


def test_kvways_own_refusal(pair, collector):
    at = collector()
    _, router = pair(config=config(at))
    assert ask(router, "no", model="absent").status == 404
    server, children = at.tree("no")
    assert (server["http.response.status_code"], server["kvway.end"], server.failed) == (404, "local", False)
    assert children == [] or {c.kind for c in children} == {"internal"}
    assert server.happened("answer")[0]["kvway.message"]


def test_hostile_names_are_readable(pair, collector):
    """Bytes that are not UTF-8 must not make a whole message unreadable."""
    at = collector()
    _, router = pair(config=config(at))
    with Client(router.port) as client:
        got = client.ask("GET", "/v1/other\"<script>", [("x-request-id", 'a"b\\c')])
    assert got.status
    with Client(router.port) as client:
        client.send(b"GET /x HTTP/1.1\r\nHost: t\r\nx-request-id: \xff\xfe\xc3(\r\n\r\n")
        client.read()
    servers = at.requests(2)
    assert {s["kvway.request_id"] for s in servers} == {'a"b\\c', "???("}


def test_health_and_metrics_make_no_spans(pair, collector):
    at = collector()
    _, router = pair(config=config(at))
    for path in ("/health", "/ready", "/metrics", "/v1/models"):
        assert router.ask("GET", path).status == 200
    ask(router, "last")
    at.tree("last")
    assert len(at.requests()) == 1


# --- the client's trace ---


def parents(worker):
    return [ex.headers.get("traceparent") for ex in worker.requests]


def test_the_clients_trace_is_continued(pair, collector):
    at = collector()
    worker, router = pair(config=config(at, **{"tracing.ratio": 0}))
    state = [("tracestate", "a=1"), ("tracestate", "b=2")]
    assert ask(router, "joined", [("traceparent", SAMPLED), *state]).status == 200
    server, (attempt,) = at.tree("joined")
    assert (server.trace, server.parent) == (TRACE, PARENT)
    assert server.flags & 0x301 == 0x301  # sampled, and the parent is remote
    assert parents(worker) == [f"00-{TRACE}-{attempt.id}-01"]
    assert worker.requests[0].headers.all("tracestate") == ["a=1", "b=2"]


@pytest.mark.parametrize(
    "bad",
    [
        [f"00-{TRACE.upper()}-{PARENT}-01"],
        [f"00-{'0' * 32}-{PARENT}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"ff-{TRACE}-{PARENT}-01"],
        [f"{SAMPLED}-00"],
        [SAMPLED[:-1]],
        ["x" * 55],
        [""],
        [SAMPLED, SAMPLED],
    ],
)
def test_a_bad_traceparent_begins_a_new_trace(pair, collector, bad):
    at = collector()
    worker, router = pair(config=config(at))
    headers = [("traceparent", value) for value in bad] + [("tracestate", "a=1")]
    assert ask(router, "new", headers).status == 200
    server, (attempt,) = at.tree("new")
    assert server.parent is None and server.trace != TRACE
    assert parents(worker) == [f"00-{server.trace}-{attempt.id}-01"]
    headers = worker.requests[0].headers
    assert len(headers.all("traceparent")) == 1 and headers.get("tracestate") is None


def test_a_later_version_is_read_like_the_first(pair, collector):
    at = collector()
    worker, router = pair(config=config(at))
    assert ask(router, "v", [("traceparent", f"cc-{TRACE}-{PARENT}-01-more")]).status == 200
    assert at.tree("v")[0].trace == TRACE
    assert parents(worker)[0].startswith(f"00-{TRACE}-")


def test_the_parents_flag_decides(pair, collector):
    at = collector()
    worker, router = pair(config=config(at))
    assert ask(router, "unsampled", [("traceparent", UNSAMPLED)]).status == 200
    assert ask(router, "sampled", [("traceparent", SAMPLED)]).status == 200
    at.tree("sampled")
    assert [s["kvway.request_id"] for s in at.requests()] == ["sampled"]
    assert [parent[-2:] for parent in parents(worker)] == ["00", "01"]


def test_or_does_not(pair, collector):
    at = collector()
    _, router = pair(config=config(at, **{"tracing.follow_parent": False}))
    assert ask(router, "unsampled", [("traceparent", UNSAMPLED)]).status == 200
    assert at.tree("unsampled")[0].trace == TRACE


def test_the_ratio_chooses_by_the_traces_id(pair, collector):
    """The same trace is chosen by kvway and by SDKs with the same ratio: by the last 64 bits of its id."""
    at = collector()
    _, router = pair(config=config(at, **{"tracing.ratio": 0.5, "tracing.follow_parent": False}))
    for name, first in (("in", "7"), ("out", "9")):
        trace = f"{'a' * 16}{first}{'f' * 15}"
        assert ask(router, name, [("traceparent", f"00-{trace}-{PARENT}-01")]).status == 200
    assert ask(router, "last", [("traceparent", f"00-{'a' * 16}{'0' * 16}-{PARENT}-01")]).status == 200
    at.tree("last")
    assert [s["kvway.request_id"] for s in at.requests()] == ["in", "last"]


def test_without_an_endpoint_the_clients_fields_pass_as_they_came(pair):
    worker, router = pair()
    assert ask(router, "x", [("traceparent", "whatever"), ("tracestate", "a=1")]).status == 200
    headers = worker.requests[0].headers
    assert (headers.get("traceparent"), headers.get("tracestate")) == ("whatever", "a=1")
    assert ask(router, "y").status == 200 and worker.requests[1].headers.get("traceparent") is None


# --- requests that are kept by their end ---


def test_failed_and_refused_requests_are_kept(workers, kvway, collector):
    at = collector()
    (worker,) = workers(1, script=lambda ex: ex.respond(int(ex.headers.get("x-answer"))))
    router = kvway([worker], config(at, **{"tracing.ratio": 0}))
    for status in (200, 400, 500):
        ask(router, str(status), [("x-answer", str(status))])
    server, _ = at.tree("500")
    assert (server["kvway.exported"], server.failed) == ("failed", True)
    assert server.flags & 1 == 0 and parents(worker)[-1].endswith("-00")
    assert len(at.requests()) == 1


def test_slow_requests_are_kept(workers, kvway, collector):
    at = collector()
    (worker,) = workers(1)
    router = kvway([worker], config(at, **{"tracing.ratio": 0, "tracing.slow": "1ms"}))

    def slow(ex):
        ex.read_body()
        time.sleep(0.01)
        ex.respond(200)

    worker.script = slow
    assert ask(router, "slow").status == 200
    assert at.tree("slow")[0]["kvway.exported"] == "slow"


def test_no_more_than_the_limit_are_kept_by_their_end(workers, kvway, collector):
    at = collector()
    router = kvway(workers(1, script=lambda ex: ex.respond(429)), config(at, **{"tracing.ratio": 0, "tracing.tail_per_second": 0}))
    assert ask(router, "refused").status == 429
    until(lambda: dropped(router, "limit") == 1, what="a dropped trace")
    assert at.messages == []


# --- bad collectors ---


def busy(router, count=40):
    """Requests that all must go well."""
    for i in range(count):
        assert ask(router, f"r{i}").status == 200


def test_the_exporter_looks_more_often_while_many_requests_end(workers, kvway, collector):
    """32 records may wait for their export, and up to 75 end between two looks that do not follow the load."""
    at = collector()
    router = kvway(workers(2), config(at, **{"trace.requests": 64}))

    def ask_often():
        with Client(router.port) as client:
            for _ in range(400):
                assert client.ask("POST", CHAT, [], chat_body()).status == 200
                time.sleep(0.004)  # the exporter's thread needs the processor, too

    threads = [threading.Thread(target=ask_often) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: exported(router) + dropped(router, "queue") == 2400, what="each request exported or dropped")
    assert dropped(router, "queue") < 300


def test_a_dead_collector(workers, kvway, collector):
    at = collector()
    at.stop()
    router = kvway(workers(2), {**config(at), "tracing.endpoint": f"{at.url}/v1/traces?token=hushed"})
    busy(router)
    until(lambda: "does not take spans" in router.log(), what="a warning")
    assert f"endpoint={at.url}/v1/traces " in router.log() and "hushed" not in router.log()
    until(lambda: router.metric("kvway_traces_waiting_bytes") > 0, what="spans that wait")
    at.start()
    until(lambda: len(at.requests()) >= 40, seconds=60, what="all spans once the collector is back")
    until(lambda: exported(router) == 40, what="counted")


def test_a_collector_that_never_answers(workers, kvway, collector):
    never = threading.Event()
    at = collector(lambda number: (never.wait(600), (200, (), b""))[1])
    router = kvway(workers(2), config(at, **{"tracing.buffer": "256KiB", "tracing.timeout": "100ms"}))
    until(lambda: (busy(router, 20), dropped(router, "buffer") > 0)[1], seconds=60, what="a full buffer")
    assert router.metric("kvway_traces_waiting_bytes") < 512 * 1024
    assert exported(router) == 0
    never.set()


@pytest.mark.parametrize("status, headers", [(429, [("retry-after", "0")]), (502, []), (503, [("retry-after", "1")]), (504, [])])
def test_a_busy_collector_gets_the_same_spans_again(workers, kvway, collector, status, headers):
    at = collector(lambda number: (status, headers, b"busy") if number < 2 else (200, (), b""))
    router = kvway(workers(1), config(at))
    assert ask(router, "one").status == 200
    until(lambda: len(at.messages) == 2, seconds=30, what="a second try")
    assert at.messages[0][2] == at.messages[1][2]
    until(lambda: exported(router) == 1, what="counted once")
    assert [router.metric("kvway_traces_messages_total", **{"try": t}) for t in ("first", "repeated")] == [1, 1]


@pytest.mark.parametrize("status", [400, 401, 404, 500, 302])
def test_a_collector_that_refuses(workers, kvway, collector, status):
    at = collector((status, [("location", "http://127.0.0.1:1/")], b"\x00\xff garbage"))
    router = kvway(workers(1), config(at))
    assert ask(router, "one").status == 200
    until(lambda: dropped(router, "refused") == 1, what="a dropped trace")
    assert f"status {status}" in router.log()
    busy(router)


GARBAGE = [b"\xff" * 4096, b"{" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"<html>", b"\x0a\x02\x08", b"x" * (2 << 20)]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_a_garbled_answer_counts_as_taken(workers, kvway, collector, body, protocol):
    at = collector((200, (), body))
    router = kvway(workers(1), config(at, **{"tracing.protocol": protocol}))
    busy(router, 3)
    until(lambda: exported(router) == 3, what="exported traces")


@pytest.mark.parametrize(
    "protocol, body",
    [
        ("http/protobuf", b"\x0a\x05\x08\x01\x12\x01x"),
        ("http/json", json.dumps({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "x"}}).encode()),
    ],
)
def test_partial_success_is_counted(workers, kvway, collector, protocol, body):
    at = collector((200, (), body))
    router = kvway(workers(1), config(at, **{"tracing.protocol": protocol}))
    assert ask(router, "one").status == 200
    until(lambda: router.metric("kvway_spans_rejected_total") == 1, what="a rejected span")
    assert exported(router) == 1


def test_what_waits_is_sent_when_kvway_ends(workers, kvway, collector):
    at = collector()
    router = kvway(workers(1), config(at, **{"tracing.interval": "1m"}))
    assert ask(router, "last").status == 200
    stays(lambda: not at.messages, 1.5, "spans that wait for others")
    router.stop()
    assert at.tree("last")


def test_what_waits_for_another_try_gets_it_when_kvway_ends(workers, kvway, collector):
    at = collector(lambda number: (503, [("retry-after", "60")], b"busy") if number < 2 else (200, (), b""))
    router = kvway(workers(1), config(at))
    assert ask(router, "first").status == 200
    until(lambda: "does not take spans" in router.log(), what="a warning")
    assert ask(router, "second").status == 200
    router.stop()
    assert len(at.messages) == 3 and at.messages[1][2] == at.messages[0][2]
    assert at.tree("second")


# --- the variables of the SDKs ---


def test_variables_alone_suffice(workers, kvway, collector, monkeypatch):
    at = collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", at.url + "/base/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret%3D1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    router = kvway(workers(1))
    assert ask(router, "v").status == 200
    server, _ = at.tree("v")
    path, headers, _ = at.messages[0]
    assert (path, headers["content-type"], headers["api-key"]) == ("/base/v1/traces", "application/json", "secret=1")
    assert (server.resource["service.name"], server.resource["deployment.environment"]) == ("mine", "test")
    assert "secret" not in router.log()


def test_unknown_values_of_variables_are_named(workers, kvway, collector, monkeypatch):
    at = collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", at.url + "/mine")
    for name, value in (("PROTOCOL", "grpc"), ("TIMEOUT", "soon"), ("COMPRESSION", "zip"), ("HEADERS", "novalue")):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")
    router = kvway(workers(1), {"tracing.ratio": 1})
    log = router.log()
    for name, expected in (
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf or http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "milliseconds"),
        ("OTEL_BSP_SCHEDULE_DELAY", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none or gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "NAME=VALUE"),
    ):
        assert re.search(rf"name={name} .*expected=\"[^\"]*{expected}", log), (name, log)
    assert ask(router, "v").status == 200
    at.tree("v")
    assert at.messages[0][0] == "/mine"


@pytest.mark.parametrize("name, value", [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_variables_switch_spans_off(workers, kvway, monkeypatch, name, value):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv(name, value)
    router = kvway(workers(1))
    assert ask(router, "x").status == 200
    assert not router.metrics("kvway_traces_")


# --- the id elsewhere ---


def test_the_id_is_in_access_log_and_kvway_trace(pair, collector, tmp_path):
    at = collector()
    path = tmp_path / "access.json"
    _, router = pair(config=config(at, **{"log.access": str(path)}))
    assert ask(router, "one", [("traceparent", SAMPLED)]).status == 200

    def logged():
        lines = map(json.loads, path.read_text().splitlines() if path.exists() else ())
        return [line for line in lines if line["request_id"] == "one"]

    (line,) = until(logged, what="the access log")
    assert line["trace_id"] == TRACE
    at.tree("one")
    argv = [PROGRAM, "trace", "--admin", f"127.0.0.1:{router.admin_port}", "--id"]
    for word in (TRACE, "one"):
        done = subprocess.run([*argv, word], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0 and f"trace {TRACE}" in done.stdout, done


def test_buckets_have_exemplars_in_openmetrics(pair, collector):
    at = collector()
    _, router = pair(config=config(at))
    assert ask(router, "one", [("traceparent", SAMPLED)], stream=True).status == 200
    at.tree("one")
    asked = urllib.request.Request(f"http://127.0.0.1:{router.admin_port}/metrics")
    asked.add_header("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2")
    with urllib.request.urlopen(asked, timeout=10) as got:
        assert got.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text = got.read().decode()
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1
    for name in ("kvway_request_seconds", "kvway_time_to_first_token_seconds"):
        (found,) = re.findall(rf'^{name}_bucket\{{route="chat",le="([0-9.]+)"\}} (\d+) '
                              rf'# \{{trace_id="{TRACE}"\}} (\S+) (\S+)$', text, re.M)  # fmt: skip
        assert 0 < float(found[2]) <= float(found[0]) and abs(float(found[3]) - time.time()) < 600
