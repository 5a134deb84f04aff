"""The API server of rig/kubernetes.py as others see it: Kubernetes' own kubectl and Python client.

What kvway is tested against is only worth something where clients that know a real API server get along with it.
kubectl comes from Debian (kubernetes-client), the Python client from PyPI (tests/sdk.sh); Ubuntu 24.04 has kubectl only
as a snap, so that its tests are skipped there unless one is installed.
"""

import json
import os
import queue
import shutil
import subprocess
import threading

import pytest

from rig.kubernetes import Api, set_ready, slice_of
from rig.tls import Authority, server_context
from rig.wait import PATIENCE, until

try:
    from kubernetes import client as kube
    from kubernetes import watch as kube_watch
except ImportError:
    kube = None

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(
    KUBECTL is None, reason="kubectl is not installed (Debian: kubernetes-client; Ubuntu 24.04 has it as a snap only)"
)
needs_client = pytest.mark.skipif(
    kube is None, reason="the package `kubernetes` is not installed (could no package index be reached?)"
)


@pytest.fixture
def api():
    server = Api()
    yield server
    server.stop()


def fill(api):
    """Seven pods, of which five are of `app=vllm`."""
    pods = [api.pod(f"p{i}", f"127.1.0.{i + 1}", labels={"tier": "abc"[i % 3]}) for i in range(4)]
    pods.append(api.pod("canary", "127.1.0.9", labels={"canary": "yes"}))
    pods.append(api.pod("web", "127.1.0.10", labels={"app": "web", "tier": "a"}))
    pods.append(api.pod("far", "127.1.0.11", labels={"app": "web"}, namespace="other"))
    return {pod["metadata"]["name"]: pod for pod in pods}


# As `kubectl -l` takes it, and what it selects in `default`.
SELECTORS = {
    "": {"p0", "p1", "p2", "p3", "canary", "web"},
    "app=vllm": {"p0", "p1", "p2", "p3", "canary"},
    "app==vllm,!canary": {"p0", "p1", "p2", "p3"},
    "app!=vllm": {"web"},
    "tier": {"p0", "p1", "p2", "p3", "web"},
    "tier in (a, b),app=vllm": {"p0", "p1", "p3"},
    "tier notin (a,b)": {"p2", "canary"},
    "app=none": set(),
}


# --- kubectl ----------------------------------------------------------------------------------------


@pytest.fixture
def kubectl(tmp_path):
    """kubectl(api, *words): what it prints as JSON; failing is part of the test (`fails`)."""

    def config(api, token, ca):
        cluster = {"server": api.url, **({"certificate-authority": str(ca)} if ca else {})}
        path = tmp_path / "kubeconfig"
        path.write_text(
            json.dumps({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": token} if token else {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            })
        )  # fmt: skip
        return [KUBECTL, "--kubeconfig", path, "--cache-dir", tmp_path / "cache", "--request-timeout", "30s"]

    def ask(api, *words, token=None, ca=None, fails=False):
        done = subprocess.run(
            [*map(str, config(api, token, ca)), *words],
            capture_output=True, text=True, timeout=60 * PATIENCE, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else json.loads(done.stdout) if "json" in words else done.stdout

    def follow(api, *words):
        argv = [*map(str, config(api, None, None)[:-2]), *words]  # a watch has no end
        return subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "HOME": str(tmp_path)}
        )

    ask.follow = follow
    return ask


def names(items):
    return {item["metadata"]["name"] for item in items}


@needs_kubectl
def test_kubectl_lists_in_pages_and_by_label(api, kubectl):
    pods = fill(api)
    found = kubectl(api, "get", "pods", "-o", "json", "--chunk-size", "2")["items"]
    assert names(found) == SELECTORS[""] and api.pages == 3 and api.lists == 1
    assert {item["metadata"]["uid"] for item in found} == {pods[name]["metadata"]["uid"] for name in SELECTORS[""]}
    assert all((item["kind"], item["apiVersion"]) == ("Pod", "v1") for item in found)
    for selector, wanted in SELECTORS.items():
        assert names(kubectl(api, "get", "pods", "-l", selector, "-o", "json")["items"]) == wanted, selector
    assert names(kubectl(api, "get", "pods", "-A", "-o", "json")["items"]) == {*SELECTORS[""], "far"}
    assert kubectl(api, "-n", "other", "get", "pods", "-o", "name").split() == ["pod/far"]


@needs_kubectl
def test_kubectl_reads_one_object_and_knows_the_errors(api, kubectl):
    pods = fill(api)
    assert kubectl(api, "get", "pod", "p1", "-o", "jsonpath={.metadata.uid}") == pods["p1"]["metadata"]["uid"]
    api.put(slice_of("s", "vllm", [pods["p0"]]))
    found = kubectl(api, "get", "endpointslices", "-l", "kubernetes.io/service-name=vllm", "-o", "json")["items"]
    assert found[0]["endpoints"][0]["targetRef"]["uid"] == pods["p0"]["metadata"]["uid"]
    assert 'Error from server (NotFound): pods "none" not found' in kubectl(api, "get", "pod", "none", fails=True)
    assert "resource type" in kubectl(api, "get", "deployments", fails=True)
    api.fail("page", 410)
    said = kubectl(api, "get", "pods", "-o", "json", "--chunk-size", "2", fails=True)
    assert "Error from server (Expired)" in said or "too old" in said
    api.fail("list", 500)
    assert "Error from server (InternalError)" in kubectl(api, "get", "pods", fails=True)
    api.fail("list", 429, headers=[("Retry-After", "1")])
    assert kubectl(api, "get", "pods", "-o", "name").startswith("pod/canary")  # it came again


@needs_kubectl
def test_kubectl_follows_a_watch(api, kubectl):
    fill(api)
    process = kubectl.follow(api, "get", "pods", "-l", "app=vllm", "--watch", "--output-watch-events", "-o", "json")
    said = queue.Queue()

    def read():
        text = ""
        for line in process.stdout:  # an event is one line or many, by kubectl's version
            text += line
            try:
                event = json.loads(text)
            except ValueError:
                continue
            said.put((event["type"], event["object"]["metadata"]["name"]))
            text = ""

    threading.Thread(target=read, daemon=True).start()

    def next_event():
        return said.get(timeout=20 * PATIENCE)

    try:
        assert {next_event() for _ in range(5)} == {("ADDED", name) for name in SELECTORS["app=vllm"]}
        until(lambda: api.watching == 1, 20, "kubectl watches")
        api.change("p0", lambda pod: set_ready(pod, False))
        assert next_event() == ("MODIFIED", "p0")
        api.change("p1", lambda pod: pod["metadata"]["labels"].update(app="web"))
        assert next_event() == ("DELETED", "p1")
        api.change("web", lambda pod: pod["metadata"]["labels"].update(app="vllm"))
        assert next_event() == ("ADDED", "web")
        api.trickle = True
        api.delete("p2")
        assert next_event() == ("DELETED", "p2")
        api.pod("p2", "127.1.0.33")
        assert next_event() == ("ADDED", "p2")
        assert said.empty()
    finally:
        process.kill()
        process.communicate()


@needs_kubectl
def test_kubectl_waits_for_what_the_server_says_later(api, kubectl):
    api.pod("slow", "127.1.0.1", ready=False)
    process = kubectl.follow(api, "wait", "--for=condition=Ready", "pod/slow", "--timeout=30s")
    until(lambda: api.watching == 1, 20, "kubectl watches")
    api.change("slow", lambda pod: set_ready(pod, True))
    out, err = process.communicate(timeout=40 * PATIENCE)
    assert "condition met" in out, err


@needs_kubectl
def test_kubectl_is_refused_without_token_or_authority(kubectl, tmp_path):
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    api = Api(server_context(ours.issue("server", "IP:127.0.0.1")))
    try:
        api.token = "token-2"
        api.pod("a", "127.1.0.1")
        get = ("get", "--raw", "/api/v1/namespaces/default/pods")
        assert "(Unauthorized)" in kubectl(api, *get, token="token-1", ca=ours.cert, fails=True)
        assert names(json.loads(kubectl(api, *get, token="token-2", ca=ours.cert))["items"]) == {"a"}
        assert "x509" in kubectl(api, *get, token="token-2", ca=other.cert, fails=True)
    finally:
        api.stop()


# --- the Python client ------------------------------------------------------------------------------


@pytest.fixture
def core(api):
    with kube.ApiClient(kube.Configuration(host=api.url)) as connection:
        yield kube.CoreV1Api(connection)


def pods_of(core, **options):
    return core.list_namespaced_pod("default", **options)


def events_of(core, count, **options):
    """(type, name or None, resourceVersion) of so many events; types that the client checks on its way."""
    watch, found = kube_watch.Watch(), []
    for event in watch.stream(core.list_namespaced_pod, "default", timeout_seconds=int(20 * PATIENCE), **options):
        raw = event["raw_object"]["metadata"]
        found.append((event["type"], raw.get("name"), int(raw["resourceVersion"])))
        if len(found) == count:
            watch.stop()
    return found


@needs_client
def test_client_pages_through_one_snapshot(api, core):
    pods = fill(api)
    first = pods_of(core, limit=4)
    assert first.metadata.remaining_item_count == 2
    api.delete("web")  # still there for a list that began before
    api.pod("zz", "127.1.0.40")
    second = pods_of(core, limit=4, _continue=first.metadata._continue)
    assert second.metadata._continue is None and first.metadata.resource_version == second.metadata.resource_version
    listed = {pod.metadata.name: pod for pod in [*first.items, *second.items]}
    assert set(listed) == SELECTORS[""]
    assert listed["p0"].metadata.uid == pods["p0"]["metadata"]["uid"] and listed["p0"].status.pod_ip == "127.1.0.1"
    # How many are left is not known where a selector takes some out.
    chosen = pods_of(core, limit=1, label_selector="app=vllm")
    assert chosen.metadata._continue and chosen.metadata.remaining_item_count is None
    assert {pod.metadata.name for pod in core.list_pod_for_all_namespaces(field_selector="metadata.name=far").items} == {"far"}
    with kube.ApiClient(core.api_client.configuration) as connection:
        api.put(slice_of("s", "vllm", [pods["p0"]]))
        (found,) = kube.DiscoveryV1Api(connection).list_namespaced_endpoint_slice("default").items
        assert found.endpoints[0].conditions.ready and found.ports[0].port == 8000


def status_of(error):
    return json.loads(error.value.body)


@needs_client
def test_client_sees_that_a_page_or_a_version_is_too_old(api, core):
    fill(api)
    first = pods_of(core, limit=2)
    api.compact()
    with pytest.raises(kube.ApiException) as caught:
        pods_of(core, limit=2, _continue=first.metadata._continue)
    assert caught.value.status == 410 and status_of(caught)["reason"] == "Expired"
    # A client may go on from there, with what it then finds.
    rest = pods_of(core, limit=9, _continue=status_of(caught)["metadata"]["continue"])
    assert {pod.metadata.name for pod in [*first.items, *rest.items]} == SELECTORS[""]
    for way in ("event", "status"):
        api.gone_as = way
        with pytest.raises(kube.ApiException) as caught:
            events_of(core, 1, resource_version=first.metadata.resource_version)
        assert caught.value.status == 410, way
    with pytest.raises(kube.ApiException) as caught:
        pods_of(core, _continue="rubbish")
    assert caught.value.status == 400
    with pytest.raises(kube.ApiException) as caught:
        events_of(core, 1, resource_version="rubbish")
    assert caught.value.status == 400


@needs_client
def test_client_watches_from_a_list_on_with_bookmarks(api, core):
    fill(api)
    version = pods_of(core, label_selector="app=vllm").metadata.resource_version
    api.change("p0", lambda pod: set_ready(pod, False))
    api.change("p3", lambda pod: pod["metadata"]["labels"].clear())
    api.delete("canary")
    last = api.version
    found = events_of(core, 4, label_selector="app=vllm", resource_version=version, allow_watch_bookmarks=True)
    assert [event[:2] for event in found] == [
        ("MODIFIED", "p0"), ("DELETED", "p3"), ("DELETED", "canary"), ("BOOKMARK", None),
    ]  # fmt: skip
    versions = [event[2] for event in found]
    assert versions == sorted(versions) and int(version) < versions[0] and versions[2] == versions[3] == last
    # From a bookmark on nothing comes twice.
    api.pod("new", "127.1.0.50")
    assert events_of(core, 1, label_selector="app=vllm", resource_version=versions[3]) == [("ADDED", "new", api.version)]


@needs_client
def test_client_watches_without_a_version(api, core):
    """What is there comes first, as if it had just been added."""
    fill(api)
    for version in ({}, {"resource_version": "0"}):
        found = events_of(core, 5, label_selector="app=vllm", **version)
        assert {event[:2] for event in found} == {("ADDED", name) for name in SELECTORS["app=vllm"]}


@needs_client
def test_client_goes_on_after_a_watch_that_ended(api, core):
    """The server ends a watch after timeoutSeconds, between two events; the client asks again from there."""
    fill(api)
    version, last = pods_of(core).metadata.resource_version, 0
    for number in range(2):
        watch = kube_watch.Watch()
        for event in watch.stream(core.list_namespaced_pod, "default", timeout_seconds=1, resource_version=version):
            assert event["type"] == "MODIFIED" and int(event["object"].metadata.resource_version) > last
            last = int(event["object"].metadata.resource_version)
        version = watch.resource_version or version
        api.change(f"p{number}", lambda pod: set_ready(pod, False))
    found = events_of(core, 1, resource_version=version)
    assert found == [("MODIFIED", "p1", api.version)]


@needs_client
def test_client_gets_the_statuses_of_faults(api, core):
    for code, reason in ((429, "TooManyRequests"), (500, "InternalError"), (403, "Forbidden")):
        api.fail("list", code)
        with pytest.raises(kube.ApiException) as caught:
            pods_of(core)
        assert caught.value.status == code and status_of(caught)["reason"] == reason
    api.token = "t"
    with pytest.raises(kube.ApiException) as caught:
        pods_of(core)
    assert caught.value.status == 401 and status_of(caught)["reason"] == "Unauthorized"
    core.api_client.configuration.api_key["authorization"] = "Bearer t"
    assert pods_of(core).items == []
