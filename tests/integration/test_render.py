"""kvway render -f: Kubernetes objects from a manifest of SageMaker HyperPod.

With KVW_UPDATE=1 the expected outputs in data/render are written again. Against the schemas of Kubernetes
the objects are held where tests/kubernetes.sh has made its environment; those of operators by rig/custom.py.
"""

import contextlib
import functools
import json
import os
import pathlib
import shlex
import subprocess

import pytest
import yaml

from rig import custom
from rig.client import CHAT, ask, chat_body
from rig.kubernetes import Api, pod_of, slice_of
from rig.kvtierd import mistakes_of
from rig.router import PROGRAM, Process
from rig.tls import Authority
from rig.wait import PATIENCE, Port, until, unused_port

ROOT = pathlib.Path(__file__).parents[2]
DATA = ROOT / "tests/integration/data/render"
VERSIONS = ("1.29", "1.33", "1.37")
IMAGE = "registry.example/vllm:1"
JUMPSTART = ["--image", IMAGE, "--model-source", "s3://models/deepseek?region=us-west-2", "--cache", "kvtier"]
PAGES = sorted((DATA / "pages").glob("*.yaml"))  # test_render_pages.py
CASES = {"s3_tiered": [], "redis_kvaware": [], "fsx_plain": [], "lmi_redis": [], "autoscaled": [], "jumpstart": JUMPSTART,
         "pools": [], "pools_cached": [], "lmcache_server": []}  # fmt: skip


def run(*argv, stdin=None):
    return subprocess.run(
        [str(PROGRAM), *map(str, argv)], capture_output=True, text=True, input=stdin, timeout=20 * PATIENCE
    )


def render(manifest, *flags):
    """Of a mapping; JSON is YAML."""
    done = run("render", "-f", "-", *flags, stdin=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(text):
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def base(name="s3_tiered"):
    return load((DATA / f"{name}.yaml").read_text())[0]


def objects(text):
    return {(d["kind"], d["metadata"]["name"]): d for d in load(text)}


def config_of(found):
    return file_of(found, "kvway.yaml")


def file_of(found, name):
    """What the one ConfigMap or Secret has that carries the file."""
    (text,) = [files[name] for d in found.values() if name in (files := d.get("data") or d.get("stringData") or {})]
    return text


@pytest.mark.parametrize("name", CASES)
def test_objects_are_as_they_were(name):
    images = ["--kvway-image", "registry.example/kvway:1", "--kvtierd-image", "registry.example/kvtierd:1"]
    done = run("render", "-f", DATA / f"{name}.yaml", *images, *CASES[name])
    assert done.returncode == 0, done.stderr
    wanted = DATA / f"{name}.golden.yaml"
    if os.environ.get("KVW_UPDATE"):
        wanted.write_text(done.stdout)
    assert done.stdout == wanted.read_text()


def put(path, value):
    """A change of a manifest: the value, or nothing for None, at a dotted path."""

    def change(manifest):
        *sections, last = path.split(".")
        for section in sections:
            manifest = manifest.setdefault(section, {})
        if value is None:
            manifest.pop(last, None)
        else:
            manifest[last] = value

    return change


SPEC = "spec."
WORKER = "spec.worker."
CACHE = "spec.kvCacheSpec"
SCALING = "spec.autoScalingSpec"
SERVER_IMAGE = "registry.example/lmcache/vllm-openai:v0.5.6"
ROUTING = "spec.intelligentRoutingSpec"
POOLS = {"prefillSpec": {}, "decodingSpec": {}}
TEXT = '\u00e9 "quoted" \\ {{x}}: # & * ! % @ `\n\t\x7f\x85\u2028\ufeff'
VARIANTS = {
    "no cache": [put(CACHE, None)],
    "L1 alone": [put(CACHE, {"enableL1Cache": True})],
    "no tier": [put(CACHE, {"enableL1Cache": False})],
    "own file": [put(CACHE, {"cacheConfigFile": "/opt/ml/model/lmcache.yaml", "enableL2Cache": True})],
    "redis": [put(CACHE + ".l2CacheSpec", {"l2CacheBackend": "redis"})],
    "a cluster": [put(CACHE + ".l2CacheSpec", {"l2CacheBackend": "REDIS", "l2CacheLocalUrl": "rediss-cluster://a:1,b:2"})],
    "nodes by a given Redis": [put(CACHE + ".l2CacheSpec.l2CacheLocalUrl", "rediss://u:hunter2@redis.example:6380/3")],
    "the node's daemon": [put(CACHE + ".l2CacheSpec.l2CacheLocalUrl", "sagemaker-hyperpod://127.0.0.1:9200")],
    "kvaware": [put(ROUTING + ".routingStrategy", "kvaware")],
    "session": [put(ROUTING + ".routingStrategy", "session")],
    "no router's strategy": [put(ROUTING, None)],
    "routing off": [put(ROUTING + ".enabled", False)],
    "no TLS": [put(SPEC + "tlsConfig", None)],
    "no balancer, no metrics": [put(SPEC + "loadBalancer", None), put(SPEC + "metrics", None)],
    "no workers": [put(SPEC + "replicas", 0)],
    "one worker": [put(SPEC + "replicas", 1)],
    "autoscaled": [put(SPEC + "replicas", None), put(SCALING, {"maxReplicaCount": 3})],
    "autoscaled from none": [put(SCALING, {"minReplicaCount": 0, "maxReplicaCount": 1, "cloudWatchTriggerList": []})],
    "routers autoscaled": [put(ROUTING + ".autoScalingSpec", {"minReplicaCount": 2, "scaleDownStabilizationTime": 0})],
    "two pools": [put(SPEC + "pdSpec", POOLS)],
    "two pools, autoscaled": [put(SPEC + "pdSpec", {**POOLS, "autoScalingSpec": {"prefillAutoScaling": {}, "decodingAutoScaling": {}}})],
    "two pools, own places": [
        put(SPEC + "instanceType", None), put(SPEC + "nodeAffinity", {"preferredDuringSchedulingIgnoredDuringExecution": []}),
        put(SPEC + "pdSpec", {"prefillSpec": {"nodeSelector": {"node.kubernetes.io/instance-type": "ml.p5.48xlarge", "on": "true"}},
                              "decodingSpec": {"replicas": 4}, "topologySpec": {"sameAZ": False}}),
    ],
    "two pools, kvaware": [put(ROUTING + ".routingStrategy", "kvaware"), put(SPEC + "pdSpec", POOLS)],
    "LMCache's server, kvtierd": [put(ROUTING + ".routingStrategy", "kvaware"), put(WORKER + "image", SERVER_IMAGE)],
    "LMCache's server, no kvaware": [put(WORKER + "image", SERVER_IMAGE)],
    "LMCache's server, two pools": [
        put(ROUTING + ".routingStrategy", "kvaware"), put(WORKER + "image", SERVER_IMAGE), put(SPEC + "pdSpec", POOLS),
    ],
    "two pools, a shell": [put(WORKER + "command", ["sh", "-c", "exec vllm serve m"]), put(SPEC + "pdSpec", POOLS)],
    "one router, autoscaled": [
        put(ROUTING, {"enabled": True, "routingStrategy": "kvaware", "autoScalingSpec": {}}), put(SCALING, {}),
    ],
    "a bucket's root": [put(SPEC + "modelSourceConfig.modelLocation", None)],
    "prefetched": [put(SPEC + "modelSourceConfig.prefetchEnabled", True)],
    "own connector": [put(WORKER + "args", ["--kv-transfer-config={}", "--served_model_name", "x"])],
    "no arguments": [put(WORKER + "args", None)],
    "another port": [put(WORKER + "modelInvocationPort.containerPort", 9000), put(SPEC + "metrics.modelMetrics.port", 9000)],
    "a shell": [put(WORKER + "command", ["/bin/sh", "-c", "exec vllm serve /opt/ml/model"])],
    "strange texts": [
        put(WORKER + "args", [TEXT, "no", "0x10", "1e3", "", "a: b", "- x", "multi\nline"]),
        put(WORKER + "environmentVariables", [{"name": "A", "value": TEXT}, {"name": "B", "value": "null"}, {"name": "C"}]),
        put("metadata.name", "no"),
        put("metadata.labels", {"a": "true", "example.com/b": "", "on": "x", "y": "x", "null": "x", "1.10": "x"}),
        put("metadata.annotations", {"off": "x", "1.10": "y"}),
        put(SPEC + "modelSourceConfig.modelLocation", "a b/c#d"),
    ],
    "volumes": [
        put(SPEC + "kubernetes.volumes", [{"name": "cache", "emptyDir": {}}, {"name": "x", "hostPath": {"path": "/x"}}]),
        put(SPEC + "kubernetes.initContainers", [{"name": "i", "image": "i:1", "args": [], "env": [{"name": "N", "value": "1"}]}]),
        put(SPEC + "nodeAffinity", {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}]}),
        put(SPEC + "instanceType", None),
    ],
}  # fmt: skip


def varied(name):
    manifest = base()
    for change in VARIANTS[name]:
        change(manifest)
    return manifest


def check_shape(text):
    """What every rendering keeps to."""
    documents = load(text)
    names = [(d["kind"], d["metadata"]["name"]) for d in documents]
    assert len(names) == len(set(names))
    for document in documents:
        labels = document["metadata"]["labels"]
        assert all(isinstance(value, str) for value in labels.values())
        assert labels["app.kubernetes.io/managed-by"] == "kvway-render"
        pod = document.get("spec", {}).get("template", {})
        if not pod:
            continue
        selector = document["spec"]["selector"]["matchLabels"]
        assert selector.items() <= pod["metadata"]["labels"].items()
        known = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        (container,) = pod["spec"]["containers"]
        for each in [container, *pod["spec"].get("initContainers", [])]:
            assert {m["name"] for m in each.get("volumeMounts", [])} <= known
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["resources"] and container["readinessProbe"]
        for variable in container.get("env", []):
            assert isinstance(variable.get("value", ""), str)
    return dict(zip(names, documents))


@functools.cache
def certificate_of(directory):
    return Authority(directory).issue("kvway", "DNS:kvway")


def check_config(text, tmp_path):
    """kvway itself takes it."""
    path = tmp_path / "kvway.yaml"
    if "tls:" in text:
        certificate, key = certificate_of(tmp_path)
        text = text.replace("/etc/kvway/tls/tls.crt", str(certificate)).replace("/etc/kvway/tls/tls.key", str(key))
    path.write_text(text)
    done = run("check", "-c", path)
    assert done.returncode == 0, done.stderr


def test_variants_keep_their_shape(tmp_path):
    for name in VARIANTS:
        manifest = varied(name)
        text = render(manifest)
        found = check_shape(text)
        check_config(config_of(found), tmp_path)
        if ("DaemonSet", f"{manifest['metadata']['name']}-kvtierd") in found:
            path = tmp_path / "kvtierd.yaml"
            path.write_text(file_of(found, path.name))
            assert mistakes_of(path) == []
        router = found["Deployment", f"{manifest['metadata']['name']}-kvway"]["spec"]["template"]["spec"]
        drain = load(config_of(found))[0]["drain"]
        assert router["terminationGracePeriodSeconds"] > int(drain["settle"][:-1]) + int(drain["timeout"][:-1])
        check_rights(found, load(config_of(found))[0]["discovery"], router)
        check_scaling(found)
        assert render(manifest) == text


def check_rights(found, discovery, router):
    """kvway has the right to see EndpointSlices, and a token, where it finds its workers by them, and no other."""
    kinds = sorted(kind for kind, _ in found if kind.startswith("Role") or kind.startswith("ClusterRole"))
    if "dns" in discovery:
        assert kinds == [] and router["automountServiceAccountToken"] is False
        return
    for pool in discovery["kubernetes"]["pools"]:
        service = found["Service", pool["service"]]["spec"]
        assert pool["port"] in {port["name"] for port in service["ports"]} and service["clusterIP"] == "None"
    assert kinds == ["Role", "RoleBinding"] and router["automountServiceAccountToken"] is True
    name = router["serviceAccountName"]
    (rule,) = found["Role", name]["rules"]
    assert rule == {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    binding = found["RoleBinding", name]
    assert binding["roleRef"]["name"] == name and found["ServiceAccount", name]["automountServiceAccountToken"] is False
    namespace = found["Deployment", name]["metadata"]["namespace"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]


def check_scaling(found):
    """What an autoscaler scales says no number itself; what none scales does."""
    scaled = {
        d["spec"]["scaleTargetRef"]["name"]: d["spec"] for (kind, _), d in found.items() if kind == "HorizontalPodAutoscaler"
    }
    for (kind, name), document in found.items():
        if kind == "Deployment":
            assert ("replicas" in document["spec"]) != (name in scaled), name
    for name, spec in scaled.items():
        assert ("Deployment", name) in found and 1 <= spec["minReplicas"] <= spec["maxReplicas"]
    return scaled


def test_lmcaches_metrics_are_on_the_workers_page():
    """vLLM shows what LMCache counts in the engine's processes if all of them write it to one folder."""
    manifest = base()

    def folder(*flags):
        (workers,) = [d for (kind, name), d in objects(render(manifest, *flags)).items() if (kind, name[-7:]) == ("Deployment", "-worker")]
        env = {entry["name"]: entry.get("value") for entry in workers["spec"]["template"]["spec"]["containers"][0]["env"]}
        return env.get("PROMETHEUS_MULTIPROC_DIR")

    assert folder() == "/var/tmp" and folder("--cache", "kvtier") is None
    manifest["spec"]["worker"]["args"] += ["--kv-transfer-config", '{"kv_connector":"Other","kv_role":"kv_both"}']
    assert folder() is None
    manifest = base()
    manifest["spec"]["metrics"]["enabled"] = False
    assert folder() is None


IMAGES = [
    ("lmcache/vllm-openai:v0.5.6", None, True),
    ("registry.example:5000/lmcache/vllm-openai:v0.5.10-cu13@sha256:0123", None, True),
    ("lmcache/vllm-openai:0.6", None, True),
    ("lmcache/vllm-openai:v0.4.3", None, False),
    ("lmcache/vllm-openai:nightly", None, None),
    ("lmcache/vllm-openai", None, None),
    ("registry.example/vllm:0.32.0-lmcache0.5.6", None, True),
    ("registry.example/vllm:0.19.1-lmcache-v0.4.3", None, False),
    ("registry.example/vllm:0.32.0-lmcache", None, None),
    ("registry.example/vllm-lmcache:0.32.0", None, None),
    ("registry.example/notlmcache/vllm:0.32.0", None, None),
    ("registry.example:5000/vllm", None, None),
    ("registry.example/vllm:1", "0.5.6", True),
    ("registry.example/vllm:1", "v0.3.9post2", False),
    ("lmcache/vllm-openai:v0.5.6", "0.4.3", False),
]


@pytest.mark.parametrize("image, said, server", IMAGES)
def test_lmcaches_version_says_how_it_runs(image, said, server, tmp_path):
    """Where nothing says it, it is the mode of HyperPod's operators, and a line says how to choose."""
    manifest = base()
    put(ROUTING + ".routingStrategy", "kvaware")(manifest)
    put(WORKER + "image", image)(manifest)
    done = run("render", "-f", "-", *(["--lmcache", said] if said else []), stdin=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    assert ("`--lmcache VERSION` says which" in done.stderr) == (server is None)
    found = objects(done.stdout)
    check_config(config_of(found), tmp_path)
    reports = {key: value for key, value in load(config_of(found))[0]["kvaware"]["lmcache"].items() if "0.0.0.0" in str(value)}
    ports = {name: found[kind, name]["spec"]["ports"] for kind, name in found if kind == "Service" and "-co" in name}
    wanted = {"assistant-coordinator": [9300]} if server else {"assistant-controller": [8300, 8400, 8500]}
    assert {name: [port["port"] for port in each] for name, each in ports.items()} == wanted
    assert sorted(int(address.split(":")[1]) for address in reports.values()) == [*wanted.values()][0]
    assert ("ConfigMap", "assistant-cache") not in found if server else ("ConfigMap", "assistant-cache") in found


def test_a_connector_of_the_manifest_keeps_lmcaches_file():
    """LMCache's server starts by the connector that render writes: without that one there is none."""
    manifest = base()
    put(ROUTING + ".routingStrategy", "kvaware")(manifest)
    put(WORKER + "image", "lmcache/vllm-openai:v0.5.6")(manifest)
    manifest["spec"]["worker"]["args"] += ["--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1"}']
    found = objects(run("render", "-f", "-", stdin=json.dumps(manifest)).stdout)
    assert ("ConfigMap", "assistant-cache") in found and ("Service", "assistant-controller") in found


def test_vllm_starts_lmcaches_server_with_what_the_manifest_says():
    found = objects((DATA / "lmcache_server.golden.yaml").read_text())
    pod = found["Deployment", "search-worker"]["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    connector = json.loads(args[args.index("--kv-transfer-config") + 1])
    assert (connector["kv_connector"], connector["kv_role"]) == ("LMCacheMPConnector", "kv_both")
    extra = connector["kv_connector_extra_config"]
    assert extra.pop("lmcache.mp.autostart") is True and extra.pop("lmcache.mp.mp_transfer_mode") == "lmcache_driven"
    words = shlex.split(extra.pop("lmcache.mp.autostart.server_args"))
    assert extra == {}
    given = dict(zip(words[::2], [*words[1::2], True]))
    assert given.pop("--coordinator-event-reporting") is True
    adapter = json.loads(given.pop("--l2-adapter"))
    assert adapter == {"type": "resp", "host": "search-redis.default.svc.cluster.local", "port": 6379, "shared": True}
    assert given == {
        "--chunk-size": "256", "--l1-size-gb": "20.000", "--eviction-policy": "LRU", "--http-port": "8600",
        "--coordinator-url": "http://search-coordinator.default.svc.cluster.local:9300",
    }  # fmt: skip
    assert "search-cache" not in json.dumps(pod)


def test_lmcaches_server_gets_no_password():
    manifest = base("redis_kvaware")
    done = run("render", "-f", "-", "--lmcache", "0.5.6", stdin=json.dumps(manifest))
    assert done.returncode == 1 and "expected redis://HOST:PORT" in done.stderr and "hunter2" not in done.stderr


def test_autoscalers_are_what_the_manifest_asks_for():
    found = objects(render(base("autoscaled")))
    workers, routers = (check_scaling(found)[name] for name in ("bursts-worker", "bursts-kvway"))
    assert (workers["minReplicas"], workers["maxReplicas"]) == (2, 12)
    assert workers["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 30
    metric = workers["metrics"][0]["external"]
    assert metric["metric"]["name"] == "kvway_fleet_predicted_over_promised"
    assert metric["metric"]["selector"] == {"matchLabels": {"service": "bursts", "quantile": "0.9"}}
    assert metric["target"] == {"type": "Value", "value": "0.8"}
    assert ("Service", "bursts") in found  # which its ServiceMonitor takes that label from
    assert (routers["minReplicas"], routers["maxReplicas"]) == (1, 4)
    done = run("render", "-f", DATA / "autoscaled.yaml")
    said = [line.split(": ", 2)[1:] for line in done.stderr.splitlines()]
    assert [field for field, _ in said] == [
        "spec.autoScalingSpec.pollingInterval", "spec.autoScalingSpec.prometheusTrigger", "spec.replicas",
        "spec.intelligentRoutingSpec.autoScalingSpec",
    ]  # fmt: skip
    assert "how late kvway predicts answers to be" in said[1][1]
    fixed = run("render", "-f", DATA / "autoscaled.yaml", "--kvway-replicas", 2)
    assert "spec.intelligentRoutingSpec.autoScalingSpec: not used: `--kvway-replicas`" in fixed.stderr
    assert objects(fixed.stdout)["Deployment", "bursts-kvway"]["spec"]["replicas"] == 2
    assert "there is one kvway" in run("render", "-f", "-", stdin=json.dumps(varied("one router, autoscaled"))).stderr


def test_texts_arrive_as_they_were(tmp_path):
    manifest = varied("strange texts")
    found = check_shape(render(manifest))
    (container,) = found["Deployment", "no-worker"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:8] == manifest["spec"]["worker"]["args"]
    assert [v.get("value") for v in container["env"][:3]] == [TEXT, "null", ""]
    metadata = found["Service", "no"]["metadata"]
    assert metadata["labels"].items() >= manifest["metadata"]["labels"].items()
    assert found["Deployment", "no-worker"]["metadata"]["annotations"] == manifest["metadata"]["annotations"]


@pytest.mark.skipif(not custom.VALIDATOR.exists(), reason="tests/kubernetes.sh has not been run")
def test_kubernetes_knows_the_objects(tmp_path):
    texts = [render(varied(name)) for name in VARIANTS]
    texts += [(DATA / f"{name}.golden.yaml").read_text() for name in CASES]
    texts += [run("render", "-f", path).stdout for path in PAGES]
    wrong = texts[0].replace("readinessProbe:", "readynessProbe:", 1)
    program = """
import json, sys, yaml, kubernetes_validate
custom = ("cert-manager.io/v1", "monitoring.coreos.com/v1") # rig/custom.py has these
seen = set()
for text in json.load(sys.stdin):
    for document in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        again = json.dumps(document, sort_keys=True) in seen
        seen.add(json.dumps(document, sort_keys=True))
        for version in sys.argv[1:]:
            if document["apiVersion"] not in custom and not again:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    print(version, document["kind"], document["metadata"]["name"], error.message)
"""

    def faults(given):
        done = subprocess.run(
            [custom.VALIDATOR, "-c", program, *VERSIONS], input=json.dumps(given), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "readynessProbe" in faults([wrong])
    assert faults(texts) == ""


def test_operators_know_their_objects():
    documents = [d for name in VARIANTS for d in load(render(varied(name)))]
    documents += [d for name in CASES for d in load((DATA / f"{name}.golden.yaml").read_text())]
    documents += [d for path in PAGES for d in load(run("render", "-f", path).stdout)]
    assert {d["kind"] for d in documents if custom.is_custom(d)} == {"ServiceMonitor", "Issuer", "Certificate"}
    assert custom.faults(documents) == []


WRONG = [
    ("kind: Certificate", "secretName:", "secretNam:", ".spec.secretName: is missing"),
    ("kind: Certificate", "renewBefore: 720h", "renewBefore: 30d", ".spec.renewBefore: '30d'"),
    ("kind: Certificate", "algorithm: ECDSA", "algorithm: ecdsa", ".spec.privateKey.algorithm: 'ecdsa'"),
    ("kind: Certificate", "size: 256", 'size: "256"', ".spec.privateKey.size: '256'"),
    ("kind: Issuer", "selfSigned: {}", "selfSigned: true", ".spec.selfSigned: True is no mapping"),
    ("kind: ServiceMonitor", "scheme: https", "scheme: tls", ".spec.endpoints[0].scheme: 'tls'"),
    ("kind: ServiceMonitor", "interval: 30s", "interval: 0.5m", ".spec.endpoints[0].interval: '0.5m'"),
    ("kind: ServiceMonitor", "serverName:", "servername:", ".tlsConfig.servername: is not known"),
    ("kind: ServiceMonitor", "selector:", "selektor:", ".spec.selector: is missing"),
]


@pytest.mark.parametrize("kind, old, new, message", WRONG)
def test_operators_would_not_know_these(kind, old, new, message):
    text = (DATA / "s3_tiered.golden.yaml").read_text()
    changed = [page.replace(old, new) if kind in page else page for page in text.split("---\n")]
    assert any(message in fault for fault in custom.faults(load("---\n".join(changed))))


# (old, new, a text in the line that is named, field, message)
BAD = [
    ("kind: InferenceEndpointConfig", "kind: InferenceEndpointConfg", "kind:", "kind", "did you mean `InferenceEndpointConfig`?"),
    ("kind: InferenceEndpointConfig\n", "", "apiVersion", "kind", "found nothing"),
    ("aws.amazon.com/v1\n", "aws.amazon.com/v9\n", "apiVersion", "apiVersion", "found `inference.sagemaker.aws.amazon.com/v9`"),
    ("name: assistant\n", "name: Assistant\n", "name: Assistant", "metadata.name", "found `Assistant`"),
    ("name: assistant\n", "name: " + "a" * 41 + "\n", "aaaa", "metadata.name", "at most 40"),
    ("name: assistant\n", "name: [a]\n", "[a]", "metadata.name", "found a list"),
    ('cost-center: "4711"', 'cost-center: "a b"', "a b", "metadata.labels.cost-center", "found `a b`"),
    ("  modelName: Llama-3.1-70B-Instruct\n", "", "modelVersion", "spec.modelName", "it is required"),
    ("modelName:", "modelNam:", "modelNam", "spec.modelNam", "did you mean `modelName`?"),
    ("  replicas: 2", "  replicas: many", "replicas", "spec.replicas", "a whole number from 0 to 1000"),
    ("  replicas: 2", "  replicas: -1", "replicas", "spec.replicas", "found `-1`"),
    ("  replicas: 2", "  replicas: 2\n  replicas: 3", "replicas: 3", "spec.replicas", "it is in line 14 already"),
    ("  replicas: 2", "  instanceTypes: [ml.g5.xlarge]", "instanceTypes", "spec.instanceTypes", "together with `instanceType` of line 13"),
    ("ml.p5.48xlarge", "p5.48xlarge", "p5.48xlarge", "spec.instanceType", "found `p5.48xlarge`"),
    ("modelSourceType: s3", "modelSourceType: gcs", "gcs", "spec.modelSourceConfig.modelSourceType", "expected s3, fsx"),
    ("modelSourceType: s3", "modelSourceType: fsx", "fsx", "spec.modelSourceConfig.modelSourceType", "without `fsxStorage`"),
    ("modelSourceType: s3", "modelSourceType: kubernetesVolume", "kubernetesVolume", "spec.modelSourceConfig.modelSourceType", "expected the volume of"),
    ("      region: eu-central-1\n", "", "bucketName", "spec.modelSourceConfig.s3Storage.region", "it is required"),
    ("prefetchEnabled: false", "prefetchEnabled: 'no'", "prefetchEnabled", "spec.modelSourceConfig.prefetchEnabled", "true or false"),
    ("    prefetchEnabled: false", "  prefetchEnabled: false", "prefetchEnabled", "spec.prefetchEnabled", "did you mean `spec.modelSourceConfig.prefetchEnabled`?"),
    ("l2CacheBackend: tieredstorage", "l2CacheBackend: memcached", "memcached", "spec.kvCacheSpec.l2CacheSpec.l2CacheBackend", "expected redis, tieredstorage"),
    ("l2CacheBackend: tieredstorage", "l2CacheLocalUrl: redis://a:1", "l2CacheLocalUrl", "spec.kvCacheSpec.l2CacheSpec.l2CacheBackend", "it is required"),
    ("l2CacheBackend: tieredstorage", "l2CacheBackend: redis\n      l2CacheLocalUrl: redis:host:6379", "l2CacheLocalUrl", "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "expected such as redis://"),
    ("l2CacheBackend: tieredstorage", "l2CacheBackend: tieredstorage\n      l2CacheLocalUrl: http://a:1", "l2CacheLocalUrl", "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "sagemaker-hyperpod://HOST:9200"),
    ("l2CacheBackend: tieredstorage", "l2CacheBackend: tieredstorage\n      l2CacheLocalUrl: unix:///run/redis", "l2CacheLocalUrl", "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "a server that every node reaches"),
    ("l2CacheBackend: tieredstorage", "l2CacheBackend: tieredstorage\n      l2CacheLocalUrl: redis://a:x", "l2CacheLocalUrl", "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "expected HOST:PORT"),
    ("    l2CacheSpec:\n      l2CacheBackend: tieredstorage\n", "", "enableL2Cache", "spec.kvCacheSpec.enableL2Cache", "without `l2CacheSpec`"),
    ("routingStrategy: prefixaware", "routingStrategy: prefix-aware", "prefix-aware", "spec.intelligentRoutingSpec.routingStrategy", "did you mean `prefixaware`?"),
    ("      port: 8000", "      port: 8001", "port: 8001", "spec.metrics.modelMetrics.port", "expected 8000 as the workers' port"),
    ("metricsScrapeIntervalSeconds: 30", "metricsScrapeIntervalSeconds: 30s", "30s", "spec.metrics.metricsScrapeIntervalSeconds", "from 5 to 300"),
    ("healthCheckPath: /health", "healthCheckPath: health", "healthCheckPath", "spec.loadBalancer.healthCheckPath", "found `health`"),
    ("    image: registry.example/vllm-lmcache:0.32.0\n", "", 'args: ["--model"', "spec.worker.image", "it is required"),
    ('["--model"', '[{a: b}, "--model"', "args", "spec.worker.args[0]", "found a mapping"),
    ('"--tensor-parallel-size", "8"', '"--tensor-parallel-size", "16"', 'nvidia.com/gpu: "8"', "spec.worker.resources.limits.nvidia.com/gpu", "expected at least 16"),
    ('"--tensor-parallel-size", "8"', '"-tp", "4", "-pp=4"', 'nvidia.com/gpu: "8"', "spec.worker.resources.limits.nvidia.com/gpu", "expected at least 16"),
    ('"--tensor-parallel-size", "8"', '"-tp", "65535", "-pp", "65535"', "args:", "spec.worker.args", "found 4294836225 ranks"),
    ("name: model-weights", "name: kvway-shm", "kvway-shm", "spec.worker.modelVolumeMount.name", "found `kvway-shm`"),
    ('"--model"', '"--port", "9000", "--model"', "containerPort", "spec.worker.modelInvocationPort.containerPort", "`--port 9000`"),
    ("memory: 400Gi", "memory: 400 GB", "400 GB", "spec.worker.resources.requests.memory", "a quantity such as"),
    ("name: http", "name: grpc", "grpc", "spec.worker.modelInvocationPort.name", "expected http"),
    ("- name: VLLM_LOGGING_LEVEL", "- nam: VLLM_LOGGING_LEVEL", "nam: VLLM", "spec.worker.environmentVariables[0].nam", "did you mean `name`?"),
    ("- name: SOME_KEY", "- name: VLLM_LOGGING_LEVEL", "- name: VLLM_LOGGING_LEVEL\n        valueFrom", "spec.worker.environmentVariables[1]", "already"),
    ("- name: SOME_KEY", "- name: SOME_KEY\n        value: x", "SOME_KEY", "spec.worker.environmentVariables[1]", "`value` and `valueFrom`"),
    ("  worker:\n", "  worker: &w\n", "worker: &w", "spec.worker", "anchors and aliases"),
    ("  replicas: 2", "  autoScalingSpec: {minReplicaCount: 6}", "autoScaling", "spec.autoScalingSpec.minReplicaCount", "at least 6 and at most 5"),
    ("  replicas: 2", "  autoScalingSpec:\n    maxReplicaCount: 0", "maxReplica", "spec.autoScalingSpec.maxReplicaCount", "from 1 to 1000"),
    ("  replicas: 2", "  autoScalingSpec:\n    maxReplicaCont: 4", "maxReplicaCont", "spec.autoScalingSpec.maxReplicaCont", "did you mean `maxReplicaCount`?"),
    ("  replicas: 2", "  autoScalingSpec: [4]", "autoScaling", "spec.autoScalingSpec", "found a list"),
    ("invocationEndpoint: v1", "invocationEndpoint: v2", "v2/chat", "spec.invocationEndpoint", "did you mean `/v1/chat/completions`?"),
    ("name: SOME_KEY", "name: SESSION_KEY\n        value: a b\n      - name: SOME_KEY", "- name: SESSION", "spec.worker.environmentVariables[1]", "SESSION_KEY: found no name"),
    ("routingStrategy: prefixaware", "autoScalingSpec:\n      scaleDownStabilizationTime: 2h", "2h", "spec.intelligentRoutingSpec.autoScalingSpec.scaleDownStabilizationTime", "from 0 to 3600"),
    ("spec:\n", "spec\n", "spec\n", "", ""),
]  # fmt: skip


@pytest.mark.parametrize("old, new, where, field, message", BAD, ids=range(len(BAD)))
def test_a_mistake_has_line_and_field(tmp_path, old, new, where, field, message):
    text = (DATA / "s3_tiered.yaml").read_text()
    assert old in text
    text = text.replace(old, new, 1)
    path = tmp_path / "m.yaml"
    path.write_text(text)
    done = run("render", "-f", path)
    assert done.returncode == 1 and done.stdout == ""
    line = text[: text.index(where)].count("\n") + 1
    if field == "":
        assert done.stderr.startswith(f"{path}:")
        return
    said = [s for s in done.stderr.splitlines() if s.startswith(f"{path}:{line}:") and f": {field}: " in s]
    assert any(message in s for s in said), done.stderr


def test_nothing_is_left_unsaid():
    """Every field that is not used is named with its line, and refused by --strict."""
    done = run("render", "-f", DATA / "s3_tiered.yaml")
    assert "s3_tiered.yaml:12:3: spec.endpointName: not used: " in done.stderr
    strict = run("render", "-f", DATA / "s3_tiered.yaml", "--strict")
    assert strict.returncode == 1 and strict.stdout == "" and strict.stderr == done.stderr


def test_a_jumpstart_model_says_what_it_needs():
    done = run("render", "-f", DATA / "jumpstart.yaml")
    assert done.returncode == 1
    assert "expected `--image`" in done.stderr and "expected `--model-source`" in done.stderr
    unknown = base("jumpstart")
    unknown["spec"]["server"]["instanceType"] = "ml.x9.huge"
    for source in ("hf://org/model@" + "0" * 40, "pvc://claim/folder"):
        flags = ["--image", IMAGE, "--model-source", source, "--gpus", 2]
        check_shape(render(unknown, *flags))
    done = run("render", "-f", "-", *flags[:4], stdin=json.dumps(unknown))
    assert "expected `--gpus N`" in done.stderr
    done = run("render", "-f", DATA / "jumpstart.yaml", "--image", IMAGE, "--model-source", "ftp://x")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("--model-source: expected s3://")


def test_flags(tmp_path):
    source = DATA / "redis_kvaware.yaml"
    out = tmp_path / "out.yaml"
    done = run("render", "-f", source, "-n", "elsewhere", "--kvway-image", "r/kvway:9", "--kvway-replicas", 3,
               "--l1-size", "2GiB", "--cluster-domain", "c.example", "-o", out)  # fmt: skip
    assert done.returncode == 0 and done.stdout == ""
    assert out.stat().st_mode & 0o777 == 0o600
    found = check_shape(out.read_text())
    assert {d["metadata"].get("namespace") for d in found.values()} == {"elsewhere"}
    router = found["Deployment", "search-kvway"]["spec"]
    assert router["replicas"] == 3 and router["template"]["spec"]["containers"][0]["image"] == "r/kvway:9"
    assert "with 3 kvways LMCache's workers report to none" in done.stderr
    assert "max_local_cpu_size: 2.000" in found["Secret", "search-cache"]["stringData"]["lmcache_config.yaml"]
    assert "search-workers.elsewhere.svc.c.example:8080" in config_of(found)
    whole = set(objects(render(base())))
    parts = [set(objects(render(base(), "--only", p))) for p in ("workers", "router", "cache", "monitoring")]
    assert set().union(*parts) == whole and sum(map(len, parts)) == len(whole)
    for flags, said in (
        (["--only", "worker"], "did you mean `workers`?"),
        (["--namspace", "x"], "did you mean `--namespace`?"),
        (["-n", "Bad"], "--namespace: found `Bad`"),
        (["-f", "x"], "--file was given twice"),
        (["--l1-size", "5"], "--l1-size: found `5`"),
    ):
        done = run("render", "-f", source, *flags)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    done = run("render", "-f", tmp_path / "none.yaml")
    assert done.returncode == 1 and "No such file" in done.stderr
    assert "--model-source" in run("render", "--help").stdout


def test_the_page_of_fields_is_what_the_program_says():
    assert run("render", "--fields").stdout == (ROOT / "src/router/render/FIELDS.md").read_text()


@contextlib.contextmanager
def rendered_router(manifest, changes, workers, tmp_path):
    """A kvway with the rendered configuration, on a port of this machine, which has found its workers: (port, objects)."""
    found = objects(render(manifest))
    text = render(manifest, "--only", "kvway-config")
    assert text == config_of(found)
    listen, admin = Port(), unused_port()
    changes = {**changes, "0.0.0.0:8080": f"127.0.0.1:{listen.number}", "settle: 10s": "settle: 0s"}
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "kvway.yaml"
    path.write_text(text + f"admin:\n  listen: 127.0.0.1:{admin}\n")
    router = Process([PROGRAM, "-c", path], tmp_path / "kvway.log")
    try:

        def ready():
            assert router.alive(), router.log()
            try:
                return ask(listen.number, "GET", "/ready").status == 200
            except OSError:
                return False

        until(ready, 15, "kvway ready")
        until(lambda: ask(admin, "GET", "/workers").body.count(b'"url"') == len(workers), 15, "all workers")
        yield listen.number, found
    finally:
        router.kill()


def serves(port, found, workers):
    """Traffic flows to every worker, and what the rendered ServiceMonitors scrape has its metrics."""
    for number in range(20):
        answer = ask(port, "POST", CHAT, body=chat_body(f"{number} " + "word " * 400))
        assert answer.status == 200, answer.body
    assert all(w.stats()["finished"] > 0 for w in workers), [w.stats() for w in workers]
    name = next(name for kind, name in found if kind == "Deployment" and name.endswith("-kvway")).removesuffix("-kvway")
    for monitor, metric, scraped in (
        (f"{name}-kvway", b"kvway_requests_total", port),
        (f"{name}-workers", b"vllm:num_requests_running", workers[0].port),
    ):
        monitor = found["ServiceMonitor", monitor]["spec"]
        (end,) = monitor["endpoints"]
        services = [d for d in found.values() if d["kind"] == "Service" and
                    monitor["selector"]["matchLabels"].items() <= d["metadata"]["labels"].items()]  # fmt: skip
        assert any(end["port"] == p["name"] for d in services for p in d["spec"]["ports"])
        answer = ask(scraped, "GET", end["path"])
        assert answer.status == 200 and metric in answer.body, metric


def test_the_rendered_router_serves(kvsim, tmp_path):
    """One worker, with its address in place of its Service's name."""
    manifest = varied("one worker")
    del manifest["spec"]["tlsConfig"]
    workers = kvsim(1)
    name = "http://assistant-workers.team-a.svc.cluster.local:8000"
    with rendered_router(manifest, {name: f"http://127.0.0.1:{workers[0].port}"}, workers, tmp_path) as (port, found):
        serves(port, found, workers)


def test_the_rendered_router_finds_workers_by_the_api(kvsim, tmp_path):
    """Several workers, by an API server that has their EndpointSlices: no more is asked than the Role allows."""
    manifest = varied("no TLS")
    workers = kvsim(2)
    api = Api()
    api.token = "token-of-the-pod"
    (tmp_path / "token").write_text(api.token)
    (tmp_path / "namespace").write_text("team-a")
    labels = {"namespace": "team-a"}
    for number, worker in enumerate(workers):
        pod = pod_of(f"w{number}", "127.0.0.1", port=worker.port, **labels)
        api.put(slice_of(f"assistant-workers-{number}", "assistant-workers", [pod], port=worker.port, **labels))
    own = f'kubernetes:\n    api: "{api.url}"\n    token_file: "{tmp_path}/token"\n    ca_file: ""\n'
    try:
        with rendered_router(manifest, {"kubernetes:\n": own}, workers, tmp_path) as (port, found):
            serves(port, found, workers)
        (rule,) = found["Role", "assistant-kvway"]["rules"]
        wanted = f"/apis/{rule['apiGroups'][0]}/v1/namespaces/team-a/{rule['resources'][0]}"
        assert {path for path, _ in api.queries} == {wanted}
        assert {"watch" if "watch" in query else "list" for _, query in api.queries} == set(rule["verbs"])
    finally:
        api.stop()
