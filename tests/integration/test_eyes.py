"""/health, /ready, /metrics, /v1/models and the access log report what happened."""

import json
import re
import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client, ask, chat_body, crowd
from rig.router import parse_metrics
from rig.wait import until
from rig.wire import Closed

SECRET = "sk-very-secret-key"
PROMPT = "a prompt that must stay private"


def test_health_and_ready_on_both_ports(pair):
    _, router = pair()
    for port in (router.port, router.admin_port):
        for path in ("/health", "/ready"):
            got = ask(port, "GET", path)
            assert got.status == 200, (port, path)
            assert got.headers.get("content-type") == "application/json"
            assert got.json()["status"]
            assert ask(port, "HEAD", path).status == 200


def test_ready_needs_a_usable_worker_and_health_does_not(pair):
    worker, router = pair(config={"health.fall": 1, "health.interval": "200ms"})
    worker.healthy = False
    until(lambda: router.ask("GET", "/ready").status == 503, 5, "not ready")
    assert ask(router.admin_port, "GET", "/ready").status == 503
    assert router.ask("GET", "/health").status == 200
    worker.healthy = True
    until(lambda: router.ask("GET", "/ready").status == 200, 5, "ready again")


def test_local_paths_never_reach_a_worker(pair):
    worker, router = pair()
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/health?x=1"):
        assert router.ask("GET", path).status == 200
    assert worker.requests == []


def test_local_paths_do_not_disturb_a_kept_connection(pair):
    _, router = pair()
    with Client(router.port) as client:
        for _ in range(5):
            assert client.ask("GET", "/health").status == 200
            assert client.ask("POST", CHAT, body=chat_body()).status == 200
            assert client.ask("GET", "/metrics").status == 200


def test_models_are_merged(workers, kvway):
    fleet = workers(1, models=["base", "lora-a"]) + workers(1, models=["base", "lora-b"])
    router = kvway(fleet)
    got = router.ask("GET", "/v1/models").json()
    assert got["object"] == "list"
    names = [m["id"] for m in got["data"] if not m["id"].startswith("mark-")]
    assert sorted(names) == ["base", "lora-a", "lora-b"]
    assert all(m["object"] == "model" for m in got["data"])


def test_models_change_while_running(pair):
    worker, router = pair(config={"health.models_interval": "1s"})
    worker.models = ["tiny", "adapter"]
    until(lambda: set(router.models()) == {"tiny", "adapter"}, 8, "new model listed")
    worker.models = ["tiny"]
    until(lambda: set(router.models()) == {"tiny"}, 8, "old model gone")


def test_metrics_are_valid_exposition(pair):
    _, router = pair()
    router.ask("POST", CHAT, body=chat_body(stream=True))
    got = router.ask("GET", "/metrics")
    assert got.headers.get("content-type").startswith("text/plain; version=0.0.4")
    text = got.body.decode()
    parse_metrics(text)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    helped = set(re.findall(r"^# HELP (\S+) .+$", text, re.M))
    assert set(types) == helped
    assert set(types.values()) <= {"counter", "gauge", "histogram"}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name = re.match(r"[\w:]+", line).group()
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in types or types.get(family) == "histogram", line
    names = re.findall(r"^# TYPE (\S+) ", text, re.M)
    assert len(names) == len(set(names)), "a family must appear once"


def test_histograms_are_cumulative_and_complete(pair):
    _, router = pair()
    for _ in range(5):
        router.ask("POST", CHAT, body=chat_body(stream=True))

    def histogram():
        values = router.metrics()
        buckets = {}
        for (name, labels), value in values.items():
            if name == "kvway_time_to_first_token_seconds_bucket" and ("route", "chat") in labels:
                buckets[float(dict(labels)["le"].replace("+Inf", "inf"))] = value
        return buckets

    until(lambda: histogram() and max(histogram().values()) == 5, 5, "five observed")
    buckets = histogram()
    counts = [buckets[le] for le in sorted(buckets)]
    assert counts == sorted(counts) and counts[-1] == 5 and float("inf") in buckets
    assert router.metric("kvway_time_to_first_token_seconds_count", route="chat") == 5


def test_requests_are_counted_by_route_worker_and_status(pair):
    def script(ex):
        status = int(ex.headers.get("x-want", "200"))
        ex.respond(status, body=b"{}")

    worker, router = pair(script)
    for want, path in [("200", CHAT), ("200", CHAT), ("400", CHAT), ("500", COMPLETIONS),
                       ("200", MESSAGES), ("200", "/some/thing")]:  # fmt: skip
        router.ask("POST", path, [("X-Want", want)], chat_body())
    router.ask("POST", CHAT, body=chat_body(model="no-such"))
    count = lambda **labels: router.metric("kvway_requests_total", **labels)  # noqa: E731
    until(lambda: count(route="chat") >= 4, 5, "counted")
    assert count(route="chat", status="200", worker=worker.url) == 2
    assert count(route="chat", status="400") == 1
    assert count(route="chat", status="404", end="local") == 1
    assert count(route="completions", status="500") == 1
    assert count(route="messages", status="200") == 1
    assert count(route="other", status="200", end="complete") == 1


def requests_shown(text):
    return sum(v for (name, _), v in parse_metrics(text).items() if name == "kvway_requests_total")


def test_metrics_for_clients_are_a_second_old_at_most(pair):
    """The control thread writes them, and no more often than that."""
    _, router = pair()
    first = router.ask("GET", "/metrics").body.decode()
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    same = router.ask("GET", "/metrics").body.decode()
    assert same == first or requests_shown(same) > requests_shown(first)  # a busy machine may need a second
    until(lambda: requests_shown(router.ask("GET", "/metrics").body.decode()) > requests_shown(first), 3, "new")
    head = router.ask("HEAD", "/metrics")
    assert head.status == 200 and head.body == b""


def test_many_clients_ask_for_metrics_at_once(pair):
    _, router = pair()
    with crowd(router.port, 50) as clients:
        for client in clients:
            client.send_request("GET", "/metrics")
        texts = [client.read().body for client in clients]
    assert all(b"kvway_requests_total" in text for text in texts)
    with crowd(router.port, 20) as clients:  # some leave while they wait
        time.sleep(1.1)
        for client in clients:
            client.send_request("GET", "/metrics")
    router.wait_idle()


@pytest.mark.parametrize("path", ["/metrics", "/metrics?name=x"])
def test_metrics_for_clients_can_be_switched_off(pair, path):
    worker, router = pair(config={"http.metrics": False})
    got = router.ask("GET", path)
    assert got.status == 404 and set(got.json()["error"]) == {"message", "type", "param", "code"}
    assert ask(router.admin_port, "GET", "/metrics").status == 200
    assert worker.requests == []


def test_other_spellings_of_local_paths_are_404(pair):
    """They were 500, `out of memory`."""
    worker, router = pair()
    for path in ("//metrics", "/health/", "/v1//models", "/%6detrics"):
        assert router.ask("GET", path).status == 404, path
    assert worker.requests == []


def test_labels_stay_bounded(pair):
    """Nothing that a client sends becomes a label."""
    _, router = pair()
    for i in range(50):
        router.ask("GET", f"/made-up/{i}")
        router.ask("POST", f"/v1/made-up-{i}", body=chat_body(user=f"made-up-{i}"))
    assert router.ask("POST", CHAT, body=chat_body(model="made-up")).status == 404
    text = router.ask("GET", "/metrics").body.decode()
    assert "made-up" not in text


def test_counters_of_failures_move(workers, kvway):
    fleet = workers(2)
    calls = []

    def script(ex):
        calls.append(1)
        ex.reset()

    fleet[0].script = script
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000})
    for _ in range(4):
        router.ask("POST", CHAT, body=chat_body())
    assert router.metric("kvway_retries_total") == len(calls) > 0
    client = Client(router.port)
    fleet[0].script = fleet[1].script = lambda ex: ex.gone(10)
    client.send_request("POST", CHAT, body=chat_body())
    until(lambda: router.metric("kvway_worker_inflight") == 1, what="the request at a worker")
    client.close()
    until(lambda: router.metric("kvway_client_gone_total") == 1)
    with Client(router.port) as bad:
        bad.send(b"nonsense\r\n\r\n")
        assert bad.read().status == 400
    assert router.metric("kvway_bad_requests_total") == 1


def test_cached_tokens_of_answers_are_counted(pair):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {"cached_tokens": 64},
    }

    def script(ex):
        if ex.json().get("stream"):
            ex.start_stream()
            ex.event({"choices": [{"delta": {"content": "x"}}]})
            ex.event({"choices": [], "usage": usage})
            ex.event("[DONE]")
            ex.end_stream()
        else:
            ex.respond(body={"choices": [], "usage": usage})

    _, router = pair(script)
    router.ask("POST", CHAT, body=chat_body())
    router.ask("POST", CHAT, body=chat_body(stream=True))
    until(lambda: router.metric("kvway_prompt_tokens_total") == 200, 5, "prompt tokens counted")
    assert router.metric("kvway_cached_tokens_total") == 128
    assert router.metric("kvway_completion_tokens_total") == 10


def test_no_more_is_predicted_to_be_cached_than_the_prompt_has(workers, kvway):
    """Tokens are guessed by bytes until the engine counts them: here it counts a sixteenth."""
    text = "all work and no play " * 400
    usage = {"prompt_tokens": len(text) // 16, "completion_tokens": 1, "total_tokens": 1}

    def script(ex):
        ex.respond(body={"choices": [], "usage": usage})

    fleet = workers(2)
    for worker in fleet:
        worker.script = script
    router = kvway(fleet)
    body = chat_body() | {"messages": [{"role": "user", "content": text}]}
    for _ in range(2):
        assert router.ask("POST", CHAT, body=body).status == 200
    until(lambda: router.metric("kvway_predicted_cached_tokens_total") > 0, 5, "a hit predicted")
    predicted = router.metric("kvway_predicted_cached_tokens_total")
    assert usage["prompt_tokens"] / 2 < predicted <= usage["prompt_tokens"]


def test_worker_capacity_is_read_from_its_metrics(workers, kvway):
    (worker,) = workers(1)
    worker.metrics = (
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="1001"} 1.0\n'
        "process_start_time_seconds 1.7e9\n"
    )
    router = kvway([worker])
    until(lambda: router.metric("kvway_worker_kv_capacity_tokens") == 32000, 8, "capacity read")
    assert router.metric("kvway_worker_kv_block_tokens") == 32


def test_restarted_worker_is_noticed(workers, kvway):
    (worker,) = workers(1)
    worker.metrics = "process_start_time_seconds 1000\n"
    router = kvway([worker])
    until(lambda: worker.probes.count("/metrics") >= 2)
    assert router.metric("kvway_worker_cache_losses_total") == 0
    worker.metrics = "process_start_time_seconds 2000\n"
    until(lambda: router.metric("kvway_worker_cache_losses_total") == 1, 8, "restart noticed")


def access_lines(path, count):
    """What the log says of prompts, once it has so many lines of them."""

    def lines():
        found = [json.loads(line) for line in path.read_text().splitlines(keepends=True)
                 if line.endswith("\n")]  # fmt: skip
        found = [line for line in found if line["method"] == "POST"]
        return found if len(found) >= count else None

    return until(lines, 5, "log written")


def test_access_log(workers, kvway, tmp_path):
    (worker,) = workers(1)
    path = tmp_path / "access.log"
    router = kvway([worker], {"log.access": str(path)})
    headers = [("Authorization", f"Bearer {SECRET}"), ("X-Request-Id", "trace-me"),
               ("Cookie", f"token={SECRET}")]  # fmt: skip
    router.ask("POST", f"{CHAT}?api_key={SECRET}", headers, chat_body(PROMPT, stream=True))
    router.ask("POST", COMPLETIONS, body={"model": "tiny", "prompt": PROMPT, "user": SECRET})
    router.ask("POST", CHAT, body=chat_body(PROMPT, model="no-such"))
    lines = access_lines(path, 3)
    assert SECRET not in path.read_text() and PROMPT not in path.read_text()
    line = next(e for e in lines if e["request_id"] == "trace-me")
    assert (line["method"], line["path"], line["status"]) == ("POST", CHAT, 200)
    assert (line["route"], line["model"], line["stream"]) == ("chat", "tiny", True)
    assert (line["worker"], line["end"]) == (worker.url, "complete")
    assert line["reason"] and line["ttft_ms"] > 0 and line["total_ms"] >= line["ttft_ms"]
    assert line["request_bytes"] > 0 and line["response_bytes"] > 0
    lost = next(e for e in lines if e["status"] == 404)
    assert lost["end"] == "local"


def test_time_in_kvway_is_not_the_engines(pair, tmp_path):
    """A worker sends the head of a stream long before its first token: that time is its own."""
    path, waited = tmp_path / "access.log", []

    def script(ex):
        ex.read_body()
        ex.start_stream()
        since = time.monotonic()
        time.sleep(0.2)
        waited.append(time.monotonic() - since)
        ex.event({"choices": [{"index": 0, "delta": {"content": "good"}}]})
        ex.end_stream()

    _, router = pair(script, {"log.access": str(path)})
    router.ask("POST", CHAT, body=chat_body(PROMPT, stream=True))
    (line,) = access_lines(path, 1)
    assert line["ttft_ms"] >= 1000 * waited[0] - 1
    assert line["added_us"] / 1000 <= line["total_ms"] + 1 - 1000 * waited[0]


def test_operator_log_has_no_secret(pair):
    def script(ex):
        ex.reset()

    _, router = pair(script, {"log.level": "debug"})
    headers = [("Authorization", f"Bearer {SECRET}")]
    router.ask("POST", f"{CHAT}?key={SECRET}", headers, chat_body(PROMPT))
    router.ask("POST", CHAT, headers, chat_body(PROMPT, model="x" + SECRET))
    with Client(router.port) as client:
        client.send(f"GET /x HTTP/1.1\r\nAuthorization: {SECRET}\r\n bad\r\n\r\n".encode())
        client.read()
    assert SECRET not in router.log() and PROMPT not in router.log()


def test_worker_key_goes_with_probes_only(workers, kvway):
    seen = []
    (worker,) = workers(1)
    original = worker._probe

    def probe(ex):
        seen.append(ex.headers.get("authorization"))
        original(ex)

    worker._probe = probe
    router = kvway([worker], worker_keys={"api_key": SECRET})
    until(lambda: len(seen) >= 3)
    assert set(seen) == {f"Bearer {SECRET}"}
    router.ask("POST", CHAT, [("Authorization", "Bearer of-the-user")], chat_body())
    assert worker.requests[-1].headers.all("authorization") == ["Bearer of-the-user"]
    assert SECRET not in router.log()


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models"])
def test_admin_answers_while_the_loops_are_busy(pair, path):
    """Streams at full speed on every loop: the admin address answers all the same."""
    stop = threading.Event()

    def script(ex):
        ex.start_stream()
        while not stop.is_set():
            ex.chunk(b"x" * 4096)
        ex.end_stream()

    _, router = pair(script, {"loops": 1})
    clients = [Client(router.port) for _ in range(8)]

    def drink(client):
        try:
            while client.reader.fill():
                client.reader.buffer.clear()
        except (Closed, OSError):
            pass  # the test is over

    threads = []
    try:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body(stream=True))
            threads.append(threading.Thread(target=drink, args=(client,), daemon=True))
            threads[-1].start()
        for _ in range(20):
            assert ask(router.admin_port, "GET", path).status == 200
    finally:
        stop.set()
        for client in clients:
            client.close()
