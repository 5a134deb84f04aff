"""discovery.kubernetes: the fleet is what the API server says, whatever happens to the connection to it."""

import os
import random
import threading
import time

import pytest

from rig.client import CHAT, ask, chat_body
from rig.kubernetes import Api, pod_of, set_ready, slice_of
from rig.tls import Authority, server_context
from rig.wait import PATIENCE, stays, until

LONG = bool(os.environ.get("KVW_LONG"))
QUIET_S = 2.0 if LONG else 10.0  # within which the fleet is right when nothing changes; a busy machine takes longer


@pytest.fixture
def api():
    server = Api()
    yield server
    server.stop()


@pytest.fixture
def found(tmp_path, kvway):
    """found(api, pools, **keys): a router that finds its workers there."""

    def make(api, pools=None, token="token-1", **keys):
        (tmp_path / "token").write_text(token + "\n")
        (tmp_path / "namespace").write_text("default")
        config = {
            "discovery.kubernetes.api": api.url,
            "discovery.kubernetes.token_file": str(tmp_path / "token"),
            "discovery.kubernetes.ca_file": "",
            "discovery.kubernetes.relist": "20s",
            "discovery.kubernetes.watch_idle": "10s",
            "discovery.kubernetes.timeout": "2s",
            "discovery.kubernetes.pools": pools or [{"selector": "app=vllm", "port": "http"}],
            "health.interval": "30s",
            "drain.worker": "1s",
            **{f"discovery.kubernetes.{k}": v for k, v in keys.items()},
        }
        return kvway([], config)

    return make


def fleet(router):
    """{url: identity} of the workers that Kubernetes lists and that get requests."""
    listed = ask(router.admin_port, "GET", "/workers", timeout=30.0).json()
    return {w["url"]: w["identity"] for w in listed if "kubernetes" in w["sources"] and not w["leaves"]}


def right(router, api, seconds=QUIET_S, **what):
    """The fleet becomes what the server says, and is so for both, whatever the order of events was."""
    until(lambda: fleet(router) == api.ready(**what), seconds, "the fleet is the server's")


def errors(router, kind):
    return router.metric("kvway_discovery_errors_total", kind=kind)


def health(router):
    return ask(router.admin_port, "GET", "/health").json()


def ip(i):
    return f"127.1.{i // 250}.{i % 250 + 1}"


def test_pods_come_change_and_go(api, found, workers):
    first, second = workers(2)
    a = api.pod("a", "127.0.0.1", port=first.port)
    router = found(api)
    right(router, api)
    assert fleet(router) == {first.url: a["metadata"]["uid"]}
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 200)
    api.pod("b", "127.0.0.1", port=second.port)
    right(router, api)
    api.pod("other", ip(7), labels={"app": "web"})
    api.pod("slow", ip(8), ready=False)
    api.pod("pending", "")
    api.delete("a")
    right(router, api)
    assert list(fleet(router)) == [second.url]
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 200)
    assert second.requests
    api.change("slow", lambda pod: set_ready(pod, True))
    api.change("pending", lambda pod: pod["status"].update(podIP=ip(9)))
    right(router, api)
    assert len(fleet(router)) == 3
    path, query = api.queries[-1]
    assert path == "/api/v1/namespaces/default/pods" and query["labelSelector"] == "app=vllm"
    assert query["watch"] == "1" and query["allowWatchBookmarks"] == "true" and query["resourceVersion"]
    assert api.lists == 1


LEAVES = {
    "not ready": lambda pod: set_ready(pod, False),
    "empty address": lambda pod: pod["status"].update(podIP=""),
    "no address": lambda pod: pod["status"].pop("podIP"),
    "being deleted": lambda pod: pod["metadata"].update(deletionTimestamp="2026-11-26T10:00:00Z"),
    "another label": lambda pod: pod["metadata"]["labels"].update(app="web"),
    "no label": lambda pod: pod["metadata"]["labels"].clear(),
    "failed": lambda pod: pod["status"].update(phase="Failed"),
    "no conditions": lambda pod: pod["status"].pop("conditions"),
}


def test_a_pod_that_may_get_no_requests_leaves(api, found):
    """A pod that was evicted, relabelled or is being deleted stayed for hours in other routers."""
    for i, name in enumerate(LEAVES):
        api.pod(name.replace(" ", "-"), ip(i))
    api.pod("stays", ip(99))
    router = found(api)
    right(router, api)
    for i, (name, how) in enumerate(LEAVES.items()):
        api.change(name.replace(" ", "-"), how)
        until(lambda: f"http://{ip(i)}:8000" not in fleet(router), QUIET_S, name)
        assert len(fleet(router)) == len(LEAVES) - i
    assert list(fleet(router)) == [f"http://{ip(99)}:8000"]
    assert api.lists == 1


def test_an_address_that_another_pod_gets_is_another_worker(api, found):
    api.pod("a", ip(1))
    router = found(api)
    right(router, api)
    before = fleet(router)
    with api.lock:  # both in one piece: the watch never saw the fleet without this address
        api.delete("a")
        api.pod("b", ip(1))
    right(router, api)
    after = fleet(router)
    assert list(before) == list(after) and before != after
    assert router.log().count(f"worker joins url=http://{ip(1)}:8000") == 2
    # The old one is missed: its successor has the address while it is listed, too.
    api.drop = {"DELETED"}
    api.pod("c", ip(1))
    api.delete("b")
    right(router, api)
    assert router.log().count(f"worker joins url=http://{ip(1)}:8000") == 3


def test_a_restarted_statefulset_pod_of_the_same_name(api, found):
    api.pod("vllm-0", ip(1))
    router = found(api)
    right(router, api)
    api.swap = True
    api.delete("vllm-0")
    api.pod("vllm-0", ip(2))  # its ADDED comes before the DELETED of the one before
    right(router, api)
    assert list(fleet(router)) == [f"http://{ip(2)}:8000"]


def test_pages(api, found):
    for i in range(25):
        api.pod(f"p{i:02}", ip(i))
    router = found(api, page=4)
    right(router, api)
    assert api.pages == 7 and api.lists == 1


def test_a_page_that_fails_removes_nothing(api, found):
    for i in range(10):
        api.pod(f"p{i}", ip(i))
    router = found(api, page=3, relist="300ms")
    right(router, api)
    whole = fleet(router)
    with api.lock:  # from now on the third page of each list fails
        list_of = api.list

    def broken(request, query):
        if "continue" in query.options and api.pages % 2:
            api.say_status(request, 500, "etcd is gone")
            with api.lock:
                api.pages += 1
            return
        list_of(request, query)

    api.list = broken
    until(lambda: errors(router, "server") >= 3, 15)
    stays(lambda: fleet(router) == whole, 0.3)
    api.list = list_of
    api.delete("p3")
    right(router, api)


@pytest.mark.parametrize("gone_as", ["event", "status"])
def test_410(api, found, gone_as):
    api.pod("a", ip(1))
    api.pod("b", ip(2))
    router = found(api)
    right(router, api)
    api.gone_as = gone_as
    api.silent = True
    api.delete("b")
    api.pod("c", ip(3))
    api.compact()
    api.silent = False
    api.cut_all()
    right(router, api)
    assert errors(router, "gone") >= 1 and api.lists >= 2


def test_a_continue_token_that_expires(api, found):
    for i in range(6):
        api.pod(f"p{i}", ip(i))
    list_of = api.list

    def expire(request, query):
        if "continue" in query.options:
            api.list = list_of
            api.snapshots.clear()
        list_of(request, query)

    api.list = expire
    router = found(api, page=2)
    right(router, api)
    assert errors(router, "gone") == 1


def test_a_watch_that_is_cut_in_the_middle_of_a_line(api, found):
    api.pod("a", ip(1))
    router = found(api)
    right(router, api)
    for i in range(2, 6):
        api.cut = 1
        api.pod(f"p{i}", ip(i))
        right(router, api)
    assert errors(router, "cut") >= 4
    assert "discovery_unreadable_s" not in health(router)
    api.trickle = True
    api.delete("a")
    right(router, api)


def test_a_silent_watch_is_given_up(api, found):
    """A watch that says nothing for hours while the health page is green."""
    api.pod("a", ip(1))
    router = found(api, watch_idle=f"{1000 * PATIENCE:.0f}ms")
    right(router, api)
    until(lambda: api.watches)  # begins only after the list
    watches = api.watches
    stays(lambda: api.watches == watches, 1.3 * PATIENCE, "bookmarks keep the watch")
    api.silent = True
    api.pod("b", ip(2))
    until(lambda: errors(router, "idle") >= 1, 5)
    assert router.metric("kvway_discovery_event_age_seconds") > 0.5
    api.silent = False
    right(router, api)


def test_a_missed_deletion_is_found_by_the_next_list(api, found):
    api.pod("a", ip(1))
    api.pod("b", ip(2))
    router = found(api, relist="1s")
    right(router, api)
    api.drop = {"DELETED"}
    api.delete("a")
    right(router, api, 3)
    assert list(fleet(router)) == [f"http://{ip(2)}:8000"]


def test_errors_are_counted_and_said_and_change_nothing(api, found):
    api.pod("a", ip(1))
    router = found(api, relist="200ms")
    right(router, api)
    for code, kind in ((429, "throttled"), (500, "server"), (403, "denied"), (400, "status")):
        api.fail("any", code, 3)
        until(lambda: errors(router, kind) >= 2, 8)
        assert list(fleet(router)) == [f"http://{ip(1)}:8000"]
        until(lambda: not api.failures, 8)
    api.pod("b", ip(2))
    right(router, api, 4)
    until(lambda: "discovery_unreadable_s" not in health(router))
    assert "a fault of the test" in router.log()


def test_retry_after_is_heeded(api, found):
    api.pod("a", ip(1))
    api.fail("list", 429, 1, [("Retry-After", "1")])
    begun = time.monotonic()
    router = found(api)
    right(router, api, 5)
    assert time.monotonic() - begun > 0.9 and api.lists == 1


def test_watches_that_are_cut_after_each_event_end_in_a_list(api, found):
    api.pod("a", ip(1))
    event = api.event

    def one(request, text):
        event(request, text)
        raise ConnectionResetError("cut by the test")

    api.event = one
    api.bookmark_s = 0.02
    router = found(api)
    until(lambda: api.lists >= 3, 20)
    assert api.watches < 10
    assert router.log().count("the watch has ended") <= 3
    api.event = event
    api.pod("b", ip(2))
    right(router, api, 10)


def test_a_slow_server(api, found):
    for i in range(4):
        api.pod(f"p{i}", ip(i))
    api.slow_s = 0.3
    router = found(api, page=2)
    right(router, api, 5)
    api.delete("p1")
    right(router, api, 4)
    assert router.ask("GET", "/health").status == 200


def test_an_api_server_that_is_gone_and_comes_back_with_another_state(api, found, workers):
    """Away for longer than every limit, restored from a backup that counts from a lower version."""
    first, second = workers(2)
    api.pod("a", "127.0.0.1", port=first.port)
    api.pod("dead", ip(1))
    router = found(api, relist="1s", watch_idle="300ms", timeout="300ms")
    right(router, api)
    whole = fleet(router)
    api.stop()
    until(lambda: health(router).get("discovery_unreadable_s", {}).get("kubernetes", 0) >= 2, 10)
    assert health(router)["status"] == "ok"
    assert router.metric("kvway_discovery_readable", source="kubernetes") == 0
    assert router.metric("kvway_discovery_unreadable_seconds", source="kubernetes") >= 2
    assert router.metric("kvway_discovery_failing_seconds", pool="0") >= 2
    assert router.metric("kvway_discovery_relist_age_seconds", pool="0") >= 2
    assert errors(router, "connect") >= 2
    assert fleet(router) == whole
    for _ in range(5):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    api.forget(version=17)
    api.start()
    api.pod("b", "127.0.0.1", port=second.port)
    right(router, api, 4)
    until(lambda: "discovery_unreadable_s" not in health(router))
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 200)
    assert "can be read again" in router.log()
    until(lambda: router.metric("kvway_discovery_failing_seconds", pool="0") == 0)
    api.pod("c", ip(3))
    right(router, api)


def test_it_starts_without_an_api_server(api, found):
    api.stop()
    router = found(api, relist="500ms")
    until(lambda: errors(router, "connect") >= 2)
    assert ask(router.admin_port, "GET", "/ready").status == 503
    api.start()
    api.pod("a", ip(1))
    right(router, api, 3)


def test_the_token_is_read_again(api, found, tmp_path):
    api.token = "token-1"
    api.pod("a", ip(1))
    router = found(api, relist="400ms")
    right(router, api)
    api.token = "token-2"
    until(lambda: errors(router, "denied") >= 1)
    (tmp_path / "token").write_text("token-2")
    api.pod("b", ip(2))
    right(router, api, 4)
    log = router.log()
    assert "token-1" not in log and "token-2" not in log
    (tmp_path / "token").unlink()
    api.cut_all()
    until(lambda: "token: cannot be read: No such file" in router.log(), 5)
    assert len(fleet(router)) == 2


def test_the_authority_is_read_again(found, tmp_path):
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.cert.read_bytes())
    api = Api(server_context(old.issue("server1", "IP:127.0.0.1")))
    try:
        api.pod("a", ip(1))
        router = found(api, relist="400ms", ca_file=str(ca))
        right(router, api, 5)
        api.stop()
        api.context = server_context(new.issue("server2", "IP:127.0.0.1"))
        api.start()
        api.pod("b", ip(2))
        until(lambda: errors(router, "tls") >= 1, 8)
        assert len(fleet(router)) == 1
        ca.write_bytes(new.cert.read_bytes())
        right(router, api, 4)
    finally:
        api.stop()


def test_several_pools(api, found):
    api.pod("d0", ip(1), labels={"role": "decode"}, annotations={"kvway/models": "llama, qwen"})
    api.pod("d1", ip(2), labels={"role": "decode", "share": "0.25"})
    api.pod("p0", ip(3), labels={"role": "prefill"})
    api.pod("x0", ip(4), labels={"role": "decode"}, namespace="other")
    router = found(
        api,
        pools=[
            {"name": "decode", "selector": "app=vllm,role in (decode)", "port": 8000, "models": ["tiny"], "models_from": "kvway/models", "weight_from": "share"},
            {"name": "far", "selector": "role=decode", "port": 9000, "namespace": "other", "tls": True},
        ],
    )
    urls = {f"http://{ip(1)}:8000", f"http://{ip(2)}:8000", f"https://{ip(4)}:9000"}
    until(lambda: set(fleet(router)) == urls)
    listed = {w["url"]: w for w in ask(router.admin_port, "GET", "/workers").json()}
    assert listed[f"http://{ip(1)}:8000"]["models"] == ["llama", "qwen"]
    assert listed[f"http://{ip(2)}:8000"]["models"] == ["tiny"]
    assert listed[f"http://{ip(2)}:8000"]["weight"] == 0.25
    assert router.metric("kvway_discovery_workers", source="kubernetes") == 3
    api.delete("x0", namespace="other")
    until(lambda: len(fleet(router)) == 2)
    api.change("d1", lambda pod: pod["metadata"]["labels"].update(share="0.5"))
    until(lambda: 0.5 in [w["weight"] for w in ask(router.admin_port, "GET", "/workers").json()])
    assert router.log().count(f"worker joins url=http://{ip(2)}:8000") == 1


def test_a_pool_that_is_denied_leaves_the_others(api, found):
    api.pod("a", ip(1))
    answer = api.answer

    def refuse(request):
        if "/namespaces/secret/" in request.path:
            api.say_status(request, 403, 'pods is forbidden: User "x" cannot list resource')
        else:
            answer(request)

    api.answer = refuse
    router = found(
        api,
        pools=[
            {"selector": "app=vllm", "port": "http"},
            {"name": "no", "selector": "app=vllm", "port": "http", "namespace": "secret"},
        ],
        relist="500ms",
    )
    right(router, api)
    api.pod("b", ip(2))
    right(router, api)
    assert router.metric("kvway_discovery_errors_total", pool="no", kind="denied") >= 1
    assert router.metric("kvway_discovery_errors_total", pool="0", kind="denied") == 0
    assert health(router)["discovery_unreadable_s"]["kubernetes"] >= 1
    since = time.monotonic()
    for i in range(4):  # changes of the other do not begin its time again
        time.sleep(0.5)
        api.pod(f"c{i}", ip(10 + i))
        right(router, api)
    assert health(router)["discovery_unreadable_s"]["kubernetes"] >= int(time.monotonic() - since)
    assert "kubernetes pool no: cannot list: denied: status 403: pods is forbidden" in router.log()


def test_endpoint_slices(api, found):
    pods = [pod_of(f"p{i}", ip(i)) for i in range(5)]
    set_ready(pods[3], False)
    pods[4]["metadata"]["deletionTimestamp"] = "2026-11-26T10:00:00Z"
    api.put(slice_of("vllm-abc", "vllm", pods))
    api.put(slice_of("web-abc", "web", [pod_of("w", ip(50))]))
    router = found(api, pools=[{"service": "vllm"}])
    until(lambda: set(fleet(router)) == {f"http://{ip(i)}:8000" for i in range(3)})
    assert set(fleet(router).values()) == {pod["metadata"]["uid"] for pod in pods[:3]}
    # Moved to another slice: for a moment it is in both.
    api.put(slice_of("vllm-def", "vllm", pods[2:3]))
    api.put({**api.get("vllm-abc", "EndpointSlice"), "endpoints": slice_of("x", "vllm", pods[:2])["endpoints"]})
    until(lambda: api.watches >= 1)
    stays(lambda: len(fleet(router)) == 3, 0.3)
    api.delete("vllm-abc", "EndpointSlice")
    until(lambda: set(fleet(router)) == {f"http://{ip(2)}:8000"})
    assert router.metric("kvway_discovery_event_age_seconds", pool="vllm") < 5


def test_streams_of_a_pod_that_is_deleted_go_on(api, found, workers):
    """deletionTimestamp drains: what runs is not cut before drain.worker."""
    gate = threading.Event()

    def slow(ex):
        ex.read_body()
        gate.wait(10)
        ex.respond(200, body=b'{"done": true}')

    (worker,) = workers(1, script=slow)
    api.pod("a", "127.0.0.1", port=worker.port)
    router = found(api)
    right(router, api)
    until(lambda: "tiny" in router.models())
    answers = []
    asker = threading.Thread(target=lambda: answers.append(router.ask("POST", CHAT, body=chat_body(), timeout=20)))
    asker.start()
    until(lambda: worker.requests)
    api.change("a", lambda pod: pod["metadata"].update(deletionTimestamp="2026-11-26T10:00:00Z"))
    until(lambda: fleet(router) == {})
    gate.set()
    asker.join(20)
    assert answers[0].status == 200


def churn(api, dice, names, events):
    """Random changes, each of which may happen in a cluster."""
    for _ in range(events):
        name = dice.choice(names)
        number = names.index(name)
        if ("Pod", "default", name) not in api.objects:
            address = ip(dice.randrange(len(names) * 2)) if dice.random() < 0.3 else ip(number)
            taken = {pod["status"].get("podIP") for pod in api.objects.values()}
            api.pod(name, "" if address in taken else address, ready=dice.random() < 0.7)
            continue
        what = dice.randrange(8)
        taken = {pod["status"].get("podIP") for pod in api.objects.values()}
        if what == 0:
            api.delete(name)
        elif what == 1:
            api.change(name, lambda pod: set_ready(pod, False))
        elif what in (2, 3):
            api.change(name, lambda pod: set_ready(pod, True))
        elif what == 4:
            api.change(name, lambda pod: pod["status"].update(podIP=""))
        elif what == 5 and ip(number) not in taken:
            api.change(name, lambda pod: pod["status"].update(podIP=ip(number)))
        elif what == 6:
            label = dice.choice(["vllm", "vllm", "web"])
            api.change(name, lambda pod: pod["metadata"]["labels"].update(app=label))
        else:
            api.change(name, lambda pod: pod["metadata"].update(deletionTimestamp="2026-11-26T10:00:00Z"))


def disturb(api, dice):
    """One fault, or the end of all."""
    what = dice.randrange(9)
    if what == 0:
        api.cut_all()
    elif what == 1:
        api.cut = 2
    elif what == 2:
        api.compact()
        api.gone_as = dice.choice(["event", "status"])
        api.cut_all()
    elif what == 3:
        api.fail("any", dice.choice([429, 500, 503]), dice.randrange(1, 3))
        api.cut_all()
    elif what == 4:
        api.silent = True
    elif what == 5:
        api.drop = {dice.choice(["DELETED", "ADDED", "MODIFIED"])}
    elif what == 6:
        api.swap = True
    elif what == 7:
        api.trickle = not api.trickle
    else:
        api.stop()
        api.start()


def calm(api):
    api.silent = api.swap = False
    api.drop = set()
    api.cut = 0
    api.failures = []


def random_run(api, found, pods, events, rounds, seed):
    dice = random.Random(seed)
    names = [f"p{i:03}" for i in range(pods)]
    router = found(api, page=17, relist="800ms", watch_idle="500ms", timeout="1s")
    for _ in range(rounds):
        churn(api, dice, names, events // rounds // 2)
        disturb(api, dice)
        churn(api, dice, names, events // rounds // 2)
        calm(api)
        right(router, api, QUIET_S)
    assert api.ready()
    return router


def test_random_events_on_50_pods(api, found):
    router = random_run(api, found, pods=50, events=1000, rounds=12, seed=int(os.environ.get("KVW_SEED", "27")))
    assert router.metric("kvway_discovery_workers", source="kubernetes") == len(api.ready())


@pytest.mark.skipif(not LONG, reason="KVW_LONG=1 runs it")
def test_ten_thousand_events_of_500_pods(api, found):
    random_run(api, found, pods=500, events=10000, rounds=60, seed=int(os.environ.get("KVW_SEED", "27")))
