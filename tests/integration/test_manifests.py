"""Kustomize overlays and Helm chart of deploy/: that they build, fit together, and configure what the programs accept."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from rig import custom
from rig.kvtierd import mistakes_of
from rig.router import PROGRAM as KVWAY

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUSTOMIZE = ROOT / "deploy/kustomize"
CHART = ROOT / "deploy/helm/kvway"
RULES = ROOT / "deploy/prometheus/rules.yaml"
RENDERED = ROOT / "tests/integration/data/render/s3_tiered.golden.yaml"
HELM = ROOT / "build-helm/bin/python"
WORKLOADS = ("Deployment", "DaemonSet")
SECONDS = {"s": 1, "m": 60, "h": 3600}


def run(argv, **options):
    return subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=60, **options)


def objects_of(text):
    return [each for each in yaml.safe_load_all(text) if each]


# --- what any set of objects must hold --------------------------------------------------------------


def matches(selector, labels):
    return selector.items() <= labels.items()


def templates_of(objects):
    return [each["spec"]["template"] for each in objects if each["kind"] in WORKLOADS]


def port_names(template):
    return {port["name"] for box in template["spec"]["containers"] for port in box["ports"]}


def check_pod(workload, configs):
    template = workload["spec"]["template"]
    pod, name = template["spec"], workload["metadata"]["name"]
    assert matches(workload["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]), name
    assert pod["automountServiceAccountToken"] in (False, True), name
    for box in (*pod["containers"], *pod.get("initContainers", ())):
        own = box["securityContext"]
        assert own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"], name
        assert own["capabilities"]["drop"] == ["ALL"], name
        assert {m["name"] for m in box["volumeMounts"]} <= {v["name"] for v in pod["volumes"]}, name
    for box in pod["containers"]:
        assert box["securityContext"].get("runAsNonRoot") or pod["securityContext"]["runAsNonRoot"], name
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert box[probe]["httpGet"]["port"] in port_names(template), name
    for volume in pod["volumes"]:
        assert "configMap" not in volume or volume["configMap"]["name"] in configs, name


def check_network_policy(policy, templates):
    spec = policy["spec"]
    chosen = [t for t in templates if matches(spec["podSelector"]["matchLabels"], t["metadata"]["labels"])]
    assert len(chosen) == 1, policy["metadata"]["name"]
    for rule in spec["ingress"]:
        assert {port["port"] for port in rule["ports"] if isinstance(port["port"], str)} <= port_names(chosen[0])


def check_service(service, templates):
    chosen = [t for t in templates if matches(service["spec"]["selector"], t["metadata"]["labels"])]
    assert len(chosen) == 1, service["metadata"]["name"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= port_names(chosen[0])


def check_monitor(monitor, objects):
    labels = monitor["spec"]["selector"]["matchLabels"]
    if monitor["kind"] == "ServiceMonitor":
        found = [each for each in objects if each["kind"] == "Service" and matches(labels, each["metadata"].get("labels", {}))]
        ports = {port["name"] for each in found for port in each["spec"]["ports"]}
    else:
        found = [each for each in templates_of(objects) if matches(labels, each["metadata"]["labels"])]
        ports = {name for each in found for name in port_names(each)}
    assert len(found) == 1, monitor["metadata"]["name"]
    ends = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    assert {end["port"] for end in ends} <= ports


def test_rules_are_those_of_a_prometheus_rule_too():
    """An operator takes them as the spec of a PrometheusRule."""
    spec = yaml.safe_load(RULES.read_text())
    rule = {"apiVersion": custom.OPERATOR, "kind": "PrometheusRule", "metadata": {"name": "kvway"}, "spec": spec}
    assert custom.faults([rule]) == []


def seconds(text):
    return int(text[:-1]) * SECONDS[text[-1]]


def check_configs(objects, tmp_path):
    """Programs accept their files, and get the time that the file says to end in."""
    for each in objects:
        for name, text in each.get("data", {}).items() if each["kind"] == "ConfigMap" else ():
            path = tmp_path / name
            path.write_text(text)
            if name != "kvway.yaml":
                assert mistakes_of(path) == []
            else:
                done = run([KVWAY, "check", "-c", path])
                assert done.returncode == 0, done.stdout + done.stderr
                drain = yaml.safe_load(text).get("drain", {})
                least = seconds(drain.get("settle", "5s")) + seconds(drain.get("timeout", "60s"))
                (router,) = (each for each in objects if each["kind"] == "Deployment")
                assert router["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > least


def check(objects, tmp_path):
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    assert custom.faults(objects) == []
    there = {(kind, name) for kind, _, name in names}
    templates = templates_of(objects)
    for each in objects:
        kind, spec = each["kind"], each.get("spec", {})
        if kind in WORKLOADS:
            check_pod(each, {name for of, name in there if of == "ConfigMap"})
        elif kind == "Service":
            check_service(each, templates)
        elif kind == "NetworkPolicy":
            check_network_policy(each, templates)
        elif kind == "PodDisruptionBudget":
            assert any(matches(spec["selector"]["matchLabels"], t["metadata"]["labels"]) for t in templates)
        elif kind == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            assert (target["kind"], target["name"]) in there or target["name"] == "vllm"
        elif kind in ("ServiceMonitor", "PodMonitor"):
            check_monitor(each, objects)
        elif kind == "RoleBinding":
            assert ("Role", each["roleRef"]["name"]) in there
    check_configs(objects, tmp_path)
    return sorted({kind for kind, _ in there})


# --- kustomize ----------------------------------------------------------------------------------


def test_kustomizations_name_files_that_are_there_and_all_of_them():
    for page in KUSTOMIZE.rglob("kustomization.yaml"):
        spec, named = yaml.safe_load(page.read_text()), set()
        for name in spec.get("resources", []):
            assert (page.parent / name).exists(), (page, name)
            named.add(name)
        for generator in spec.get("configMapGenerator", []):
            named |= set(generator["files"])
        named |= {patch["path"] for patch in spec.get("patches", []) if "path" in patch}
        files = {path.name for path in page.parent.glob("*.yaml")} - {page.name}
        assert files == {name for name in named if name.endswith(".yaml")}, page
        for name in files:
            assert objects_of((page.parent / name).read_text()), name


def kustomizers():
    """Command lines of a kustomize; that of an old kubectl does not know what these files say."""
    if shutil.which("kustomize"):
        yield ["kustomize", "build"]
    if shutil.which("kubectl"):
        version = json.loads(run(["kubectl", "version", "--client", "-o", "json"]).stdout)
        if version.get("kustomizeVersion", "v0") >= "v5":
            yield ["kubectl", "kustomize"]


def build(folder):
    for argv in kustomizers():
        done = run([*argv, KUSTOMIZE / folder])
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr.lower(), done.stderr
        return objects_of(done.stdout)
    return pytest.skip("neither kustomize nor a kubectl with kustomize 5 is installed")


@pytest.mark.parametrize("folder", ["base", "cache", "overlays/single-node"])
def test_kustomize_builds_what_fits_together(folder, tmp_path):
    check(build(folder), tmp_path)


def test_production_has_what_operation_needs(tmp_path):
    objects = build("overlays/production")
    assert check(objects, tmp_path) == [
        "ConfigMap", "DaemonSet", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget",
        "PodMonitor", "Service", "ServiceAccount", "ServiceMonitor",
    ]  # fmt: skip
    assert {each["metadata"]["namespace"] for each in objects} == {"vllm"}
    (router,) = (each for each in objects if each["kind"] == "Deployment")
    assert "replicas" not in router["spec"]  # the autoscaler's, which begins with 3
    scalers = {each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in objects if each["kind"].endswith("Autoscaler")}
    assert scalers["kvway"]["minReplicas"] == 3
    assert len(router["spec"]["template"]["spec"]["topologySpreadConstraints"]) == 2


# --- Helm ---------------------------------------------------------------------------------------

# Prints a list: for each set of values what is wrong, or null, and the pages.
RENDER = """
import json, sys
from helm_python.chart import Chart, lint

def render(path, values):
    try:
        found = lint(path, values, strict=True)
        wrong = [m["error"] for m in found["messages"] if m["severity"] > 1] + list(found["errors"])
        if wrong:
            return "; ".join(map(str, wrong)), ""
        pages = Chart.load(path).render(values, name="test", namespace="here")
    except Exception as error:
        return str(error), ""
    return None, "\\n---\\n".join(text for name, text in pages.items() if not name.endswith(".txt"))

print(json.dumps([render(sys.argv[1], values) for values in json.load(sys.stdin)]))
"""


def render_all(sets):
    """[(error or None, text)]"""
    if shutil.which("helm"):
        argv = ["helm", "template", "test", CHART, "-n", "here", "-f", "-"]
        done = [run(argv, input=json.dumps(values)) for values in sets]
        return [(each.stderr if each.returncode else None, each.stdout) for each in done]
    if not HELM.exists():
        pytest.skip("Helm is not installed: tests/helm.sh")
    done = run([HELM, "-c", RENDER, CHART], input=json.dumps(sets))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def helm():
    """A function of the name of a set: (error or None, objects). Helm takes a second to start, so it starts once."""
    sets = {**GOOD, **BAD}
    rendered = dict(zip(sets, render_all(list(sets.values()))))
    return lambda name: (rendered[name][0], objects_of(rendered[name][1]))


ALL = {
    "replicaCount": 3,
    "workers": {"dns": [], "static": ["http://a:8000", {"url": "http://b:8000", "models": ["m"]}]},
    "config": {"routing": {"slow_start": "30s"}, "drain": {"timeout": "30s"}},
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "x"},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "env": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
    "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    "service": {"type": "NodePort", "nodePort": 30080, "annotations": {"a": "b"}},
    "ingress": {"enabled": True, "className": "nginx", "annotations": {"a": "b"}, "tls": [{"secretName": "x"}]},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["a.example"]},
    "autoscaling": {"enabled": True},
    "workersAutoscaling": {"enabled": True},
    "podDisruptionBudget": {"enabled": True},
    "topologySpread": True,
    "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 443}]}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceAccount": {"annotations": {"a": "b"}},
    "cache": {"enabled": True, "config": {"lease": {"ttl": "10s"}}},
}


POOLS = [{"selector": "app=vllm", "port": "http"}, {"service": "small", "namespace": "there"}]
GOOD = {
    "defaults": {},
    "all": ALL,
    "pools": {"workers": {"dns": [], "kubernetes": POOLS}},
    "secret": {"existingSecret": "mine"},
    "admin by TLS": {
        "config": {"admin": {"tls": {"certificate": "/tls/tls.crt", "key": "/tls/tls.key", "client_ca": "/tls/ca.crt",
                                     "client_certificate": "asked"}}},
        "serviceMonitor": {"enabled": True, "tlsConfig": {"serverName": "admin.example"}},
    },
    "KEDA": {
        "workersAutoscaling": {
            "enabled": True, "labels": {"model": "llama"}, "keda": {"serverAddress": "http://prometheus:9090"},
        },
    },
    "no admin": {"config": {"admin": None, "drain": None}},
    "no TLS of admin": {"config": {"admin": {"tls": None, "open": None}}},
    "kvaware": {"strategy": "kvaware", "networkPolicy": {"enabled": True}},
    "kvaware of its own": {
        "networkPolicy": {"enabled": True},
        "config": {
            "routing": {"strategy": "kvaware"},
            "kvaware": {
                "events": {"endpoint": "tcp://{host}:6001", "replay": "tcp://{host}:6101", "ranks": 4},
                "lmcache": {"pull": "0.0.0.0:8300", "reply": "0.0.0.0:8400"},
            },
        },
    },
}
LATE = "kvway_fleet_predicted_over_promised"
# By the word that the message must have.
BAD = {
    "replicas": {"replicas": 3},
    "strategy": {"strategy": "random"},
    "static": {"workers": {"static": ["vllm:8000"]}},
    "type": {"service": {"type": "Cluster"}},
    "segment": {"cache": {"segment": 16}},
    "client_certificate": {"config": {"admin": {"tls": {"certificate": "/a", "key": "/b", "client_ca": "/c"}}}},
}


def test_chart_with_its_defaults(helm, tmp_path):
    error, objects = helm("defaults")
    assert error is None
    assert check(objects, tmp_path) == ["ConfigMap", "Deployment", "Service", "ServiceAccount"]


def test_chart_with_everything_switched_on(helm, tmp_path):
    error, objects = helm("all")
    assert error is None
    assert check(objects, tmp_path) == [
        "ConfigMap", "DaemonSet", "Deployment", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy",
        "PodDisruptionBudget", "PodMonitor", "Service", "ServiceAccount", "ServiceMonitor",
    ]  # fmt: skip
    (router,) = (each for each in objects if each["kind"] == "Deployment")
    assert "replicas" not in router["spec"]  # the autoscaler's
    (config,) = (yaml.safe_load(each["data"]["kvway.yaml"]) for each in objects if "kvway.yaml" in each.get("data", {}))
    assert config["workers"] == [{"url": "http://a:8000"}, {"url": "http://b:8000", "models": ["m"]}]
    assert config["routing"] == {"strategy": "prefixaware", "slow_start": "30s"}


def test_workers_grow_by_how_late_answers_will_be(helm, tmp_path):
    """By an external metric of an adapter, or by KEDA from Prometheus: the same target of the same metric."""
    _, objects = helm("all")
    (scaler,) = (each for each in objects if each["metadata"]["name"].endswith("-workers") and each["kind"] == "HorizontalPodAutoscaler")
    (metric,) = (each["external"] for each in scaler["spec"]["metrics"])
    assert metric["metric"] == {"name": LATE, "selector": {"matchLabels": {"quantile": "0.9"}}}
    assert metric["target"] == {"type": "Value", "value": "0.8"}
    error, objects = helm("KEDA")
    assert error is None
    assert check(objects, tmp_path) == ["ConfigMap", "Deployment", "ScaledObject", "Service", "ServiceAccount"]
    (scaled,) = (each["spec"] for each in objects if each["kind"] == "ScaledObject")
    (trigger,) = scaled["triggers"]
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("Value", "0.8")
    assert trigger["metadata"]["query"] == f'max({LATE}{{model="llama",namespace="here",quantile="0.9",}})'
    assert scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == scaler["spec"]["behavior"]


def test_chart_with_workers_of_kubernetes_may_read_them(helm):
    error, objects = helm("pools")
    assert error is None
    roles = {(each["kind"], each["metadata"]["namespace"]) for each in objects if each["kind"].startswith("Role")}
    assert roles == {(kind, namespace) for kind in ("Role", "RoleBinding") for namespace in ("here", "there")}
    rules = {each["metadata"]["namespace"]: each["rules"] for each in objects if each["kind"] == "Role"}
    may = {name: {(r, *rule["verbs"]) for rule in its for r in rule["resources"]} for name, its in rules.items()}
    # A pool by selector is here, one by Service is there.
    assert may == {"here": {("pods", "list", "watch")}, "there": {("endpointslices", "list", "watch")}}
    (router,) = (each for each in objects if each["kind"] == "Deployment")
    assert router["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_network_policy_lets_kvaware_read_what_workers_publish(helm, tmp_path):
    def rules(name):
        error, objects = helm(name)
        assert error is None
        check(objects, tmp_path)
        (spec,) = (each["spec"] for each in objects if each["kind"] == "NetworkPolicy" and "cache" not in each["metadata"]["name"])
        (to_workers,) = (rule["ports"] for rule in spec["egress"] if "to" in rule)
        (from_workers,) = [r["ports"] for r in spec["ingress"] if "podSelector" in r.get("from", [{}])[0]] or [[]]
        return to_workers, from_workers

    assert rules("all") == ([{"port": 8000}], [])
    assert rules("kvaware") == ([{"port": 8000}, {"port": 5557}, {"port": 5558}], [])
    assert rules("kvaware of its own") == (
        [{"port": 8000}, {"port": 6001, "endPort": 6004}, {"port": 6101, "endPort": 6104}],
        [{"port": 8300}, {"port": 8400}],
    )


def test_chart_with_a_secret_of_its_own_has_no_config_map(helm):
    error, objects = helm("secret")
    assert error is None and not [each for each in objects if each["kind"] == "ConfigMap"]
    (router,) = (each for each in objects if each["kind"] == "Deployment")
    assert router["spec"]["template"]["spec"]["volumes"] == [{"name": "config", "secret": {"secretName": "mine"}}]


@pytest.mark.parametrize("name, scheme", [("defaults", "HTTP"), ("admin by TLS", "HTTPS")])
def test_chart_asks_the_admin_address_as_it_speaks(helm, name, scheme):
    error, objects = helm(name)
    assert error is None
    (router,) = (each for each in objects if each["kind"] == "Deployment")
    container = router["spec"]["template"]["spec"]["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == scheme
    for monitor in (each for each in objects if each["kind"] == "ServiceMonitor"):
        assert monitor["spec"]["endpoints"][0]["scheme"] == "https"
        assert monitor["spec"]["endpoints"][0]["tlsConfig"] == {"serverName": "admin.example"}


@pytest.mark.parametrize("name", ["no admin", "no TLS of admin"])
def test_chart_takes_null_for_what_is_not_there(helm, name):
    error, objects = helm(name)
    assert error is None
    assert objects == helm("defaults")[1]


def jobs_of(objects):
    """The names that monitors give to `job`; without a relabeling the operator gives a Service's or a PodMonitor's."""
    specs = [each["spec"] for each in objects if each["kind"] in ("ServiceMonitor", "PodMonitor")]
    ends = [end for spec in specs for end in spec.get("endpoints") or spec["podMetricsEndpoints"]]
    relabelings = [rule for end in ends for rule in end.get("relabelings", ())]
    return {rule["replacement"] for rule in relabelings if rule["targetLabel"] == "job" and "sourceLabels" not in rule}


@pytest.mark.parametrize("source", ["kustomize", "helm", "kvway render"])
def test_monitors_name_the_jobs_that_rules_ask_for(source, request):
    """KvwayDown and KvtierdDown ask for `up` of a job: with another name they never fire."""
    if source == "helm":
        error, objects = request.getfixturevalue("helm")("all")
        assert error is None
    else:
        path = KUSTOMIZE / "overlays/production/servicemonitor.yaml" if source == "kustomize" else RENDERED
        objects = objects_of(path.read_text())
    asked = set(re.findall(r'\bjob="([^"]*)"', RULES.read_text()))
    assert asked and asked <= jobs_of(objects)


@pytest.mark.parametrize("word", BAD)
def test_chart_refuses_values_that_mean_nothing(helm, word):
    assert word in helm(word)[0]


def test_every_value_has_its_place_in_the_schema_and_a_use():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())

    def compare(value, its, path):
        if "properties" not in its:
            return
        assert value.keys() == its["properties"].keys() - {"global"}, path
        for key, below in value.items():
            assert re.search(rf"\.{key}\b", templates) or path.endswith(".target"), f"{path}.{key} is used nowhere"
            compare(below, its["properties"][key], f"{path}.{key}")

    compare(values, schema, "")


def test_documentation_names_values_that_exist():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    section = (ROOT / "deploy/README.md").read_text().split("### From production-stack's chart\n")[1].split("\n#")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    for name in (name for row in rows for name in re.findall(r"`([a-zA-Z.]+)`", row)):
        node = values
        for part in name.split("."):
            if node == {} or isinstance(node, list):
                break  # free below
            assert part in node, name
            node = node[part]
