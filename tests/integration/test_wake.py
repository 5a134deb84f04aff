"""discovery.wake: requests for a model without a worker wait while it is woken."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rig import tls
from rig.client import CHAT, Client, ask, chat_body
from rig.kubernetes import Api
from rig.router import settle, write_config
from rig.status import command, wait_problem
from rig.wait import until
from rig.worker import answer


class HookHandler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        hook = self.server.hook
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        hook.calls.append((self.path, dict(self.headers), body))
        hook.times.append(time.monotonic())
        status, fields = hook.statuses.pop(0) if hook.statuses else 204, {}
        if isinstance(status, tuple):
            status, fields = status
        self.send_response(status)
        for field in fields.items():
            self.send_header(*field)
        self.end_headers()


class HookServer(ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a client that does not trust us

    def finish_request(self, request, client_address):
        context = self.hook.context
        super().finish_request(request if context is None else context.wrap_socket(request, server_side=True), client_address)


class Hook:
    """What is called: answers with `statuses`, each a number or (number, fields), then with 204."""

    def __init__(self):
        self.calls, self.times = [], []
        self.statuses = []
        self.context = None  # of TLS, if it speaks it
        self.server = HookServer(("127.0.0.1", 0), HookHandler)
        self.server.daemon_threads = True
        self.server.hook = self
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://127.0.0.1:{self.server.server_address[1]}/wake?from=kvway"

    def models(self):
        return [body["model"] for _, _, body in self.calls]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hook():
    server = Hook()
    yield server
    server.stop()


class Fleet:
    """A list of workers that a router watches."""

    def __init__(self, directory):
        self.path = directory / "workers.json"
        self.set()

    def set(self, *workers):
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"workers": [{"url": w.url, "models": w.models} for w in workers]}))
        new.replace(self.path)


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path)


@pytest.fixture
def asleep(kvway, fleet, hook):
    """asleep(hold, {key: value}): a router without a worker that knows the model tiny."""

    def make(hold="60s", config=None):
        return kvway(
            [],
            {
                "loops": 1,
                "discovery.file": str(fleet.path),
                "discovery.file_interval": "100ms",
                "discovery.wake.hold": hold,
                "discovery.wake.models": ["tiny"],
                "discovery.wake.webhook": hook.url,
                **(config or {}),
            },
        )

    return make


def test_a_fleet_scaled_to_zero_is_no_error(asleep):
    router = asleep()
    assert wait_problem(router, "no_worker")["severity"] == "note"
    assert router.metric("kvway_wake_ready") == 1
    top = command(router, "top", "--once")
    assert top.returncode == 0 and "the first request for a model wakes one" in top.stdout, top


def held(router, **labels):
    return router.metric("kvway_wake_held", **labels)


def results(router, result):
    return router.metric("kvway_wake_requests_total", result=result)


def send(router, text="hello", model="tiny", headers=()):
    """A connection with a request under way, which is not answered yet."""
    client = Client(router.port, timeout=30)
    client.send_request("POST", CHAT, headers, chat_body(text, model))
    return client


def wait_held(router, count, **labels):
    until(lambda: held(router, **labels) == count, 10, f"{count} requests wait")


def finish(*clients):
    statuses = [client.read().status for client in clients]
    for client in clients:
        client.close()
    return statuses


def reload(router, **changes):
    flat = json.loads(router.config_path.read_text())
    for section, value in changes.items():
        flat["discovery"]["wake"][section] = value
    write_config(router.config_path, flat)
    assert ask(router.admin_port, "POST", "/reload").status == 200


def health(router):
    return ask(router.admin_port, "GET", "/health").json()


def test_what_waits_goes_in_order_when_a_worker_is_ready(asleep, hook, fleet, workers):
    (worker,) = workers(1)
    texts, all_here = {}, threading.Event()  # by the connection's port: each request has its own

    def script(ex):
        texts[ex.sock.getpeername()[1]] = ex.json()["messages"][0]["content"]
        all_here.wait(10)
        answer(ex)

    worker.script = script
    router = asleep(config={"admission.enabled": False})
    assert router.ask("GET", "/ready").status == 200  # else no client would come and wake anything
    clients = []
    for i in range(6):
        clients.append(send(router, f"request {i}"))
        wait_held(router, i + 1)
    until(lambda: hook.calls)
    path, headers, body = hook.calls[0]
    assert path == "/wake?from=kvway" and headers["Content-Type"] == "application/json"
    assert body["model"] == "tiny" and body["pool"] is None and body["waiting"] >= 1
    (waking,) = health(router)["waking"]
    assert waking["model"] == "tiny" and waking["waiting"] == 6
    fleet.set(worker)
    until(lambda: len(texts) == 6)
    all_here.set()
    assert finish(*clients) == [200] * 6
    assert [texts[port] for port in worker.peers if port in texts] == [f"request {i}" for i in range(6)]
    assert len(hook.calls) == 1 and held(router) == 0 and results(router, "woken") == 6
    assert router.metric("kvway_wake_held_seconds_total") > 0
    until(lambda: "waking" not in health(router))
    assert "a model is awake model=tiny" in router.log()
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    # It falls asleep again: that is another sleep.
    fleet.set()
    until(lambda: ask(router.admin_port, "GET", "/v1/models").json()["data"] == [])
    again = send(router)
    until(lambda: len(hook.calls) == 2)
    fleet.set(worker)
    assert finish(again) == [200]


def test_a_webhook_that_fails_is_called_again(asleep, hook, fleet, workers):
    (worker,) = workers(1)
    hook.statuses = [500]
    router = asleep()
    client = send(router)
    until(lambda: router.metric("kvway_wake_failures_total") == 1)
    until(lambda: health(router)["waking"][0].get("last_call") == "failed")
    assert 'why="status 500"' in router.log()
    until(lambda: len(hook.calls) == 2, 10, "called again")
    until(lambda: "last_call" not in health(router)["waking"][0])
    assert router.metric("kvway_wake_calls_total") == 2 and router.metric("kvway_wake_ready") == 1
    fleet.set(worker)
    assert finish(client) == [200]
    assert len(hook.calls) == 2


def test_a_webhook_says_when_it_may_be_called_again(asleep, hook):
    """Retry-After counts where it is longer than the back-off; a redirect is a failure and is not followed."""
    hook.statuses = [(503, {"Retry-After": "3"}), (307, {"Location": hook.url + "&again=1"})]
    router = asleep()
    client = send(router)
    until(lambda: router.metric("kvway_wake_ready") == 0)
    until(lambda: len(hook.calls) == 3, 15, "called three times")
    first, second, third = hook.times
    assert second - first > 2.9 and third - second > 1.9
    assert {path for path, _, _ in hook.calls} == {"/wake?from=kvway"}
    assert 'why="status 503"' in router.log() and 'why="status 307"' in router.log()
    until(lambda: router.metric("kvway_wake_failures_total") == 2)
    client.close()


def test_a_webhook_of_a_private_authority(asleep, hook, tmp_path):
    """Token and authorities are read for each call: what was wrong is put right without a restart."""
    (tmp_path / "theirs").mkdir()
    ours, theirs = tls.Authority(tmp_path), tls.Authority(tmp_path / "theirs")
    hook.context = tls.server_context(ours.issue("hook", "IP:127.0.0.1"))
    authorities, token = tmp_path / "hook-authorities.pem", tmp_path / "hook-token"
    token.write_text("secret-1\n")
    router = asleep(config={"discovery.wake.ca_file": str(authorities), "discovery.wake.token_file": str(token)})
    client = send(router)
    until(lambda: f"{authorities}: cannot be read" in router.log())
    authorities.write_bytes(theirs.cert.read_bytes())
    until(lambda: "certificate" in router.log(), 10, "another authority's certificate is refused")
    assert not hook.calls
    authorities.write_bytes(ours.cert.read_bytes())
    until(lambda: hook.calls, 15, "called with the right authority")
    assert hook.calls[0][1]["Authorization"] == "Bearer secret-1" and "secret-1" not in router.log()
    until(lambda: "last_call" not in health(router)["waking"][0])
    client.close()


def test_a_request_waits_no_longer_than_hold(asleep, hook):
    router = asleep(hold="300ms")
    answer = router.ask("POST", CHAT, body=chat_body())
    assert answer.status == 503 and answer.headers.get("retry-after") == "1"
    error = answer.json()["error"]
    assert error["code"] == "model_waking"
    assert "`tiny` has no worker and is being woken" in error["message"] and "has waited for" in error["message"]
    assert results(router, "expired") == 1 and held(router) == 0
    # Nothing came of the first call: what waits now is a reason for another one.
    assert router.ask("POST", CHAT, body=chat_body()).status == 503
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 503 and len(hook.calls) >= 2)
    # By its own deadline a request waits for less, and there is no worker for an unknown model.
    assert router.ask("POST", CHAT, [("x-kvway-deadline-ms", "50")], chat_body()).status == 503
    assert router.ask("POST", CHAT, body=chat_body(model="other")).status in (404, 503)
    assert "other" not in hook.models() and not router.metric("kvway_wake_held", model="other")
    router.wait_idle()


def test_a_client_that_leaves_costs_nothing(asleep, hook, fleet, workers):
    (worker,) = workers(1)
    router = asleep()
    stays, leaves = send(router, "stays"), send(router, "leaves")
    wait_held(router, 2)
    leaves.reset()
    wait_held(router, 1)
    assert results(router, "left") == 1
    fleet.set(worker)
    assert finish(stays) == [200]
    assert len(worker.requests) == 1
    router.wait_idle()


def test_each_model_is_woken_for_itself(asleep, hook, fleet, workers):
    a, b = workers(1, models=["a"]) + workers(1, models=["b"])
    router = asleep(config={"discovery.wake.models": ["a", "b"]})
    alternating = [send(router, model=name) for name in 6 * "ab"]
    first, second = alternating[::2], alternating[1::2]
    until(lambda: sorted(hook.models()) == ["a", "b"])
    fleet.set(a)
    assert finish(*first) == [200] * 6
    assert held(router, model="b") == 6 and held(router, model="a") == 0
    fleet.set(a, b)
    assert finish(*second) == [200] * 6
    assert len(a.requests) == len(b.requests) == 6 and len(hook.calls) == 2


def test_without_hold_nothing_waits(asleep, hook, fleet, workers):
    (worker,) = workers(1)
    router = asleep(hold="0s")
    assert router.ask("GET", "/ready").status == 503 and router.metric("kvway_wake_ready") == 0
    assert router.ask("POST", CHAT, body=chat_body()).json()["error"]["message"] == (
        "the models of some workers are not known yet"
    )
    fleet.set(worker)
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 200)
    worker.stop()
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 503)
    assert "no usable worker" in router.ask("POST", CHAT, body=chat_body()).json()["error"]["message"]
    assert not hook.calls and results(router, "refused") == 0


def test_a_reload_changes_hold(asleep, hook, fleet, workers):
    (worker,) = workers(1)
    router = asleep(hold="0s")
    assert router.ask("POST", CHAT, body=chat_body()).status == 503
    reload(router, hold="60s")
    until(lambda: router.ask("GET", "/ready").status == 200)
    client = send(router)
    wait_held(router, 1)
    until(lambda: hook.calls)
    reload(router, hold="0s")
    soon = [("x-kvway-deadline-ms", "200")]  # a loop may not have seen the reload yet
    until(lambda: router.ask("POST", CHAT, soon, chat_body()).json()["error"]["code"] != "model_waking")
    assert held(router) == 1  # by the settings with which it began
    fleet.set(worker)
    assert finish(client) == [200]


def test_so_many_wait_and_no_more(asleep, hook, fleet, workers):
    (worker,) = workers(1)
    router = asleep(config={"admission.max_queue": 2})
    impatient = router.ask("POST", CHAT, [("x-kvway-do-not-queue", "1")], chat_body())
    assert impatient.status == 503 and "forbids" in impatient.json()["error"]["message"]
    until(lambda: hook.calls)  # the next one may find it awake
    clients = [send(router), send(router)]
    wait_held(router, 2)
    refused = router.ask("POST", CHAT, body=chat_body())
    assert refused.status == 503 and "no further request may wait" in refused.json()["error"]["message"]
    assert results(router, "refused") == 2
    explained = ask(router.admin_port, "POST", "/explain", body=chat_body())
    message = explained.json()["error"]["message"]
    assert explained.status == 503 and "wait for up to 60.000 s" in message and "2 wait" in message
    fleet.set(worker)
    assert finish(*clients) == [200, 200]


def test_a_worker_that_dies_is_a_reason_to_wake_its_model(asleep, hook, fleet, workers):
    """Known since it was served: the configuration does not name it."""
    (worker,) = workers(1, models=["found"])
    router = asleep(config={"discovery.wake.models": [], "health.fall": 1})
    fleet.set(worker)
    until(lambda: router.ask("POST", CHAT, body=chat_body(model="found")).status == 200)
    worker.stop()
    until(lambda: router.metric("kvway_worker_health", worker=worker.url) == 2)
    client = send(router, model="found")
    until(lambda: hook.models() == ["found"])
    worker.start()
    assert finish(client) == [200]


# A prompt of LONG is thought to take a worker minutes, so that a second one waits.
LONG = "word " * 800
ONE_AT_ONCE = {"admission.enabled": True, "routing.prefill_tokens_per_second": 2, "admission.worker_queue": "0s"}


class Holding:
    """A script that answers when it may."""

    def __init__(self):
        self.over = threading.Event()

    def __call__(self, ex):
        self.over.wait(30)
        answer(ex)


@pytest.fixture
def holding():
    script = Holding()
    yield script
    script.over.set()


def test_limits_count_from_the_wake(asleep, fleet, workers, holding):
    (worker,) = workers(1)
    worker.script = holding
    router = asleep(
        config={**ONE_AT_ONCE, "timeouts.first_token": "2s", "health.fall": 1}
    )
    fleet.set(worker)
    until(lambda: router.metric("kvway_worker_health", worker=worker.url) == 1)
    worker.healthy = False
    until(lambda: router.metric("kvway_worker_health", worker=worker.url) == 2)
    clients = [send(router, f"{i} {LONG}") for i in range(2)]
    wait_held(router, 2)
    settle(2.2)
    worker.healthy = True
    until(lambda: router.metric("kvway_waiting_requests") == 1)
    holding.over.set()
    assert finish(*clients) == [200, 200]


def test_what_waited_for_a_worker_that_is_gone_asks_the_new_one(asleep, fleet, workers, holding):
    old, new = workers(2)
    old.script = new.script = holding
    router = asleep(config={**ONE_AT_ONCE, "admission.max_wait": "3s"})
    fleet.set(old)
    until(lambda: router.metric("kvway_worker_health", worker=old.url) == 1)
    clients = [send(router, f"0 {LONG}")]
    old.wait_requests(1)
    clients += [send(router, f"{i} {LONG}") for i in (1, 2)]
    until(lambda: router.metric("kvway_waiting_requests") == 2)
    fleet.set()
    wait_held(router, 2)
    settle(3.2)  # what may wait for 3 s may do so from the wake on
    fleet.set(new)
    new.wait_requests(1)
    until(lambda: router.metric("kvway_waiting_requests") == 1)
    assert len(new.requests) == 1
    holding.over.set()
    assert finish(*clients) == [200] * 3


def test_a_worker_is_not_ready_before_it_listens(asleep, fleet, workers):
    (worker,) = workers(1)
    worker.stop()
    router = asleep()
    client = send(router)
    wait_held(router, 1)
    fleet.set(worker)
    until(lambda: router.metric("kvway_worker_probes_failed_total", worker=worker.url) >= 1)
    assert held(router) == 1 and health(router)["waking"]
    worker.start()
    assert finish(client) == [200]


def test_a_stored_response_goes_to_its_owner_while_others_wait(asleep, fleet, workers):
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(body={"id": "resp_1", "object": "response", "output": []})
    router = asleep()
    fleet.set(worker)
    body = {"model": "tiny", "input": "hello"}
    until(lambda: router.ask("POST", "/v1/responses", body=body).status == 200)
    admin = f"/workers/{worker.url.removeprefix('http://')}"
    assert ask(router.admin_port, "POST", f"{admin}/drain").status < 300
    client = send(router)
    wait_held(router, 1)
    follow = {**body, "previous_response_id": "resp_1"}
    assert router.ask("POST", "/v1/responses", body=follow).status == 200
    assert held(router) == 1
    assert ask(router.admin_port, "POST", f"{admin}/undrain").status < 300
    assert finish(client) == [200]


def test_a_request_of_no_patience_wakes_its_model(asleep, hook):
    router = asleep(config={"discovery.wake.models": ["tiny", "slow"], "timeouts.request": "500ms"})
    assert router.ask("POST", CHAT, [("x-kvway-deadline-ms", "1")], chat_body()).status == 503
    until(lambda: hook.models() == ["tiny"])
    assert results(router, "expired") == 1
    assert router.ask("POST", CHAT, body=chat_body(model="slow")).status == 504
    assert results(router, "expired") == 2 and results(router, "left") == 0 and held(router) == 0


def test_log_and_error_say_what_a_request_waited_for(asleep, tmp_path):
    path = tmp_path / "access.log"
    router = asleep(config={"timeouts.request": "500ms", "log.access": str(path)})
    answer = router.ask("POST", CHAT, body=chat_body())
    assert answer.status == 504
    message = "timeouts.request passed; the request waited for a worker of its model, which is being woken"
    assert answer.json()["error"]["message"] == message
    lines = lambda: [row for row in map(json.loads, path.read_text().splitlines()) if row["method"] == "POST"]  # noqa: E731
    (line,) = until(lines)
    assert (line["end"], line["timeout"], line["waited_for"]) == ("timeout", "timeouts.request", "worker")
    assert 300 < line["waited_ms"] <= line["total_ms"]


@pytest.fixture
def scaled(tmp_path, kvway):
    """scaled(api): a router whose pool has a Deployment to scale."""

    def make(api, **pool):
        (tmp_path / "token").write_text("token-1\n")
        return kvway(
            [],
            {
                "loops": 1,
                "discovery.kubernetes.api": api.url,
                "discovery.kubernetes.token_file": str(tmp_path / "token"),
                "discovery.kubernetes.ca_file": "",
                "discovery.kubernetes.namespace": "default",
                "discovery.kubernetes.pools": [
                    {"selector": "app=vllm", "port": "http", "models": ["tiny"], "scale": "deployments/vllm", **pool},
                    {"name": "other", "selector": "app=x", "port": "http", "scale": "deployments/x"},
                ],
                "discovery.wake.hold": "60s",
            },
        )

    return make


@pytest.fixture
def api():
    server = Api()
    server.token = "token-1"
    yield server
    server.stop()


def test_a_deployment_gets_a_replica(api, scaled, workers):
    (worker,) = workers(1)
    api.scale("deployments/vllm", 0)
    api.scale("deployments/x", 0)
    api.fail("patch", 409)  # another has scaled it meanwhile
    router = scaled(api)
    client = send(router)
    until(lambda: api.replicas("deployments/vllm") == 1, 10, "the Deployment is scaled")
    assert router.metric("kvway_wake_failures_total") == 1 and "status 409" in router.log()
    (patch,) = api.patches
    assert patch[2]["spec"] == {"replicas": 1} and patch[2]["metadata"]["resourceVersion"]
    api.pod("a", "127.0.0.1", port=worker.port)
    assert finish(client) == [200]
    assert len(api.patches) == 1 and api.replicas("deployments/x") == 0


def test_what_has_replicas_is_not_scaled_down(api, scaled, workers):
    (worker,) = workers(1)
    api.scale("statefulsets/vllm", 3)
    router = scaled(api, scale="statefulsets/vllm")
    client = send(router)
    until(lambda: "called to wake a model model=tiny" in router.log())
    api.pod("a", "127.0.0.1", port=worker.port)
    assert finish(client) == [200]
    assert not api.patches and api.replicas("statefulsets/vllm") == 3
