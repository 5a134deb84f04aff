"""kvway render -f with `spec.pdSpec`: two pools of workers, and a router that splits requests between them."""

import json

import pytest

from rig.client import CHAT, ask
from rig.kubernetes import Api, pod_of, slice_of
from rig.pd import LONG, body_for, engines, nixl, plain_text, text_of  # noqa: F401
from rig.wait import until
from test_render import base, config_of, load, objects, put, render, rendered_router, run

PD = "spec.pdSpec."
ARGS = PD + "prefillSpec.args"
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def changed(*changes, name="pools"):
    manifest = base(name)
    for change in changes:
        change(manifest)
    return manifest


def said(manifest):
    done = run("render", "-f", "-", stdin=json.dumps(manifest))
    return done.returncode, done.stderr


def pods(found):
    """Of both pools, by role: (the pod's spec, its one container)."""
    templates = {
        name.rsplit("-", 1)[1]: d["spec"]["template"]["spec"]
        for (kind, name), d in found.items()
        if kind == "Deployment" and name.endswith(("-prefill", "-decode"))
    }
    return {role: (pod, pod["containers"][0]) for role, pod in templates.items()}


def connector(container):
    args = container["args"]
    return json.loads(args[args.index("--kv-transfer-config") + 1])


def pd_of(manifest):
    return load(config_of(objects(render(manifest))))[0]["pd"]


def test_pools_have_their_own_beside_what_all_share():
    """Arguments of a pool stand behind the common ones, where vLLM takes the last; resources and nodes are its own."""
    found = objects(render(base("pools")))
    both = pods(found)
    for role, size, efa in (("prefill", "4", "16"), ("decode", "8", "32")):
        pod, container = both[role]
        args = container["args"]
        assert [args[i + 1] for i, a in enumerate(args) if a == "--tensor-parallel-size"] == ["2", size]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": size, "vpc.amazonaws.com/efa": efa}
        assert pod["nodeSelector"] == {"sagemaker.amazonaws.com/instance-group-name": role}
        assert connector(container) == json.loads(NIXL)
        (host,) = [e for e in container["env"] if e["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST"]
        assert host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
        (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "topology.kubernetes.io/zone"
        for other in both:  # each pool's workers go to where either's are
            labels = found["Deployment", f"apart-{other}"]["spec"]["template"]["metadata"]["labels"]
            assert term["labelSelector"]["matchLabels"].items() <= labels.items()
        selector = found["Service", f"apart-{role}"]["spec"]["selector"]
        assert [r for r in both if selector.items() <= found["Deployment", f"apart-{r}"]["spec"]["template"]["metadata"]["labels"].items()] == [role]
    assert [found["Deployment", f"apart-{role}"]["spec"]["replicas"] for role in ("prefill", "decode")] == [2, 1]


def test_a_cache_is_attached_beside_nixl():
    for flags, cache in (((), "LMCacheConnectorV1"), (("--cache", "kvtier"), "KVTierConnector")):
        for _, container in pods(objects(render(base("pools_cached"), *flags))).values():
            config = connector(container)
            assert config["kv_connector"] == "MultiConnector"
            assert [c["kv_connector"] for c in config["kv_connector_extra_config"]["connectors"]] == ["NixlConnector", cache]


def test_a_zone_is_for_both_pools():
    for role, (pod, _) in pods(objects(render(base("pools_cached")))).items():
        assert pod["nodeSelector"] == {"topology.kubernetes.io/zone": "us-west-2a"}, role
        assert set(pod["affinity"]) == {"nodeAffinity"}
    free = objects(render(changed(put(PD + "topologySpec", {"sameAZ": False}))))
    assert all("affinity" not in pod for pod, _ in pods(free).values())


def test_each_pool_grows_by_its_own_part():
    """More of those that prefill would not help where decoding is short, nor the other way round."""
    found = objects(render(base("pools_cached")))
    metrics = {}
    for role in ("prefill", "decode"):
        spec = found["HorizontalPodAutoscaler", f"long-prompts-{role}"]["spec"]
        metric = spec["metrics"][0]["external"]["metric"]
        labels = metric["selector"]["matchLabels"]
        metrics[role] = metric["name"], labels["service"], labels["role"], spec["minReplicas"], spec["maxReplicas"]
        assert "replicas" not in found["Deployment", f"long-prompts-{role}"]["spec"]
    assert metrics == {
        "prefill": ("kvway_fleet_predicted_over_promised", "long-prompts", "prefill", 2, 6),
        "decode": ("kvway_fleet_predicted_over_promised", "long-prompts", "decode", 1, 3),
    }
    assert ("Service", "long-prompts") in found  # which the ServiceMonitor takes that label from


@pytest.mark.parametrize(
    "config, transfer",
    [
        ('{"kv_connector":"NixlPushConnector","kv_role":"kv_both"}', "nixl-push"),
        ('{"kv_connector":"MooncakeConnector","kv_role":"kv_both"}', "mooncake"),
        ('{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both"}', "shared"),
        ('{"kv_connector":"MultiConnector","kv_connector_extra_config":{"connectors":[{"kv_connector":"X"},%s]}}' % NIXL, "nixl"),
    ],
)
def test_a_manifests_own_connector_stays(config, transfer):
    manifest = changed(put("spec.worker.args", ["--kv-transfer-config", config]))
    found = objects(render(manifest))
    for _, container in pods(found).values():
        assert container["args"].count("--kv-transfer-config") == 1 and connector(container) == json.loads(config)
    assert load(config_of(found))[0]["pd"] == {"transfer": transfer, "threshold": 2048}


def test_the_threshold_is_the_operators_unless_seconds_decide():
    assert pd_of(base("pools"))["threshold"] == 2048
    assert pd_of(changed(put(PD + "routingThreshold", 0)))["threshold"] == 0
    without = changed(put(PD + "routingThreshold", None))
    assert pd_of(without)["threshold"] == 4096
    assert "spec.pdSpec.routingThreshold: left out, so that kvway splits from 4096 tokens on" in said(without)[1]
    assert "threshold" not in pd_of(base("pools_cached"))
    assert "left out, so that kvway splits by predicted seconds" in said(base("pools_cached"))[1]


TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
OTHER = '--kv-transfer-config={"kv_connector":"%s"}'
# (changes, field, message)
REFUSED = [
    ([put(PD + "decodingSpec", None)], "spec.pdSpec.decodingSpec", "found nothing, expected a mapping"),
    ([put(PD + "prefilSpec", {})], "spec.pdSpec.prefilSpec", "did you mean `prefillSpec`?"),
    ([put(PD + "routingThreshold", -1)], "spec.pdSpec.routingThreshold", "a whole number from 0"),
    ([put(PD + "prefillSpec.replicas", 0)], "spec.pdSpec.prefillSpec.replicas", "a whole number from 1"),
    ([put(ARGS, ["-tp", "8"])], "spec.pdSpec.prefillSpec.resources.limits.nvidia.com/gpu", "expected at least 8"),
    ([put(PD + "decodingSpec.args", ["--port", "9000"])], "spec.worker.modelInvocationPort.containerPort", "`spec.pdSpec.decodingSpec.args`"),
    ([put("spec.instanceType", "ml.p5.48xlarge"), put(PD + "prefillSpec.nodeSelector", {TYPE: "ml.p4d.24xlarge"})],
     "spec.pdSpec.prefillSpec.nodeSelector", "together with `spec.instanceType`"),
    ([put(PD + "topologySpec", {"availabilityZone": "us-west-2a"}), put(PD + "decodingSpec.nodeSelector", {ZONE: "us-west-2b"})],
     "spec.pdSpec.decodingSpec.nodeSelector", "together with `topologySpec.availabilityZone`"),
    ([put(PD + "topologySpec", {"availabilityZone": "usw2-az1"})], "spec.pdSpec.topologySpec.availabilityZone", "found `usw2-az1`"),
    ([put(PD + "autoScalingSpec", {"prefillAutoScaling": {"minReplicaCount": 9}})],
     "spec.pdSpec.autoScalingSpec.prefillAutoScaling.minReplicaCount", "at least 9 and at most 5"),
    ([put(ARGS, [OTHER % "ExampleConnector"])], "spec.pdSpec", "expected none or one with NixlConnector"),
    ([put(ARGS, [OTHER % "MooncakeConnector"])], "spec.pdSpec", "expected the same connector for both"),
    ([put(ARGS, ["--kv-transfer-config", "{"])], "spec.pdSpec", "expected none or one with NixlConnector"),
    ([put("spec.worker.command", ["sh", "-c", "exec vllm serve m"])], "spec.pdSpec.prefillSpec.args", "a shell's command"),
    ([put("spec.worker.args", None), put("spec.worker.environmentVariables", [{"name": "OPTION_MODEL_ID", "value": "m"}])],
     "spec.pdSpec.decodingSpec.args", "`OPTION_` variables"),
]  # fmt: skip


@pytest.mark.parametrize("changes, field, message", REFUSED, ids=range(len(REFUSED)))
def test_what_two_pools_cannot_be_is_refused(changes, field, message):
    status, lines = said(changed(*changes))
    assert status == 1 and any(f": {field}: " in line and message in line for line in lines.splitlines()), lines


def test_what_has_no_effect_is_named():
    lines = said(base("pools_cached"))[1]
    for field in ("spec.replicas", "topologySpec.placementGroup", "decodingAutoScaling.cooldownPeriod", "decodingSpec.replicas"):
        assert f"{field}: not used: " in lines, lines
    own = changed(put(ARGS, ["--kv-transfer-config", NIXL]), name="pools_cached")
    assert "spec.pdSpec.prefillSpec.args: no connector is added for `spec.kvCacheSpec`" in said(own)[1]


def test_the_rendered_router_splits_a_request(engines, tmp_path):  # noqa: F811
    """A long prompt is prefilled by one pool and decoded by the other, a short one goes whole to the one that decodes."""
    alone, p, d = engines(), engines(), engines()
    manifest = changed(put(PD + "routingThreshold", 100))
    api = Api()
    api.token = "token-of-the-pod"
    (tmp_path / "token").write_text(api.token)
    (tmp_path / "namespace").write_text("team-a")
    for role, engine in (("prefill", p), ("decode", d)):
        pod = pod_of(role, "127.0.0.1", port=engine.worker.port, namespace="team-a")
        api.put(slice_of(f"apart-{role}-x", f"apart-{role}", [pod], port=engine.worker.port, namespace="team-a"))
    own = f'kubernetes:\n    api: "{api.url}"\n    token_file: "{tmp_path}/token"\n    ca_file: ""\n'
    try:
        with rendered_router(manifest, {"kubernetes:\n": own}, [p, d], tmp_path) as (port, _):
            until(lambda: len(ask(port, "GET", "/v1/models").json()["data"]) > 0, 15, "models known")
            for text, split in (("short", 0), (LONG, 1)):
                got = ask(port, "POST", CHAT, body=body_for(CHAT, text))
                assert text_of(got, CHAT, False) == plain_text(alone, CHAT, text)
                assert p.worker.stats()["finished"] == nixl(p)["held"] == nixl(d)["pulled"] == split
            assert nixl(d)["wrong"] == nixl(d)["recomputed"] == 0
            assert d.worker.stats()["finished"] == 2
    finally:
        api.stop()
