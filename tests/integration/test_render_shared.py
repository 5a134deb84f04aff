"""kvway render -f: what nodes and routers share, by the rendered files with addresses of this machine in place of the cluster's."""

import json
import os

import pytest
from rig.client import ask
from rig.kvtierd import Kvtierd, take
from rig.router import parse_metrics
from rig.wait import until
from test_render import CACHE, DATA, SPEC, WORKER, base, config_of, file_of, load, objects, put, rendered_router, run, varied

URL = CACHE + ".l2CacheSpec.l2CacheLocalUrl"
OWN = "redis://assistant-redis.team-a.svc.cluster.local:6379"
GIVEN = "rediss://u:hunter2@redis.example:6380/3"


def shown(*changes, flags=()):
    """Objects and standard error of a manifest with two workers and tiered storage, changed; --strict has nothing against it."""
    manifest = base()
    del manifest["spec"]["endpointName"]
    del manifest["spec"]["tlsConfig"]
    for change in changes:
        change(manifest)
    done = run("render", "-f", "-", "--strict", *flags, stdin=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    return objects(done.stdout), done.stderr


def allowed(found, name):
    """Components that a policy lets in."""
    (rule,) = found["NetworkPolicy", name]["spec"]["ingress"]
    return {end["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for end in rule["from"]}


def flat(value, path=""):
    if not isinstance(value, dict):
        return {path: value}
    return {k: v for name, member in value.items() for k, v in flat(member, f"{path}.{name}".lstrip(".")).items()}


def test_what_one_node_stores_another_leases(redis, tmp_path):
    """The page: "KV cache entries are accessible cluster-wide (L2)". Each node has its own disk."""
    found, _ = shown()
    config = flat(load(file_of(found, "kvtierd.yaml"))[0])
    assert config["cache.l2.url"] == OWN and config["cache.nvme.path"] == "/var/lib/kvtierd"
    for key in ("listen", "segment.name", "segment.size"):  # two daemons on one machine
        del config[key]
    nodes, segments = [], []
    try:
        for name in ("a", "b"):
            disk = {"cache.nvme.path": str(tmp_path / f"disk-{name}"), "cache.nvme.capacity": "64MiB"}
            nodes.append(Kvtierd(tmp_path, {**config, **disk, "cache.l2.url": redis.url}, name))
        first, second = (node.wait_up() for node in nodes)
        segments.append(second.segment())
        path, data = "/v1/kv/assistant/chunk%400", os.urandom(3 << 20)
        assert first.ask("PUT", path, body=data).status == 200
        with second.client() as client:
            got = []
            until(lambda: got.append(take(client, segments[0], path, timeout_ms=5000)) or got[-1] is not None, 20, "a lease at B")
        assert got[-1] == data
    finally:
        for segment in segments:
            segment.close()
        for node in nodes:
            node.remove()


def test_rendered_routers_know_each_others_load(redis, kvsim, tmp_path):
    manifest = varied("redis")
    put(SPEC + "replicas", 1)(manifest)
    del manifest["spec"]["tlsConfig"]
    workers = kvsim(1)
    changes = {OWN: redis.url, "http://assistant-workers.team-a.svc.cluster.local:8000": f"http://127.0.0.1:{workers[0].port}"}
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with rendered_router(manifest, changes, workers, folders[0]) as (one, found):
        with rendered_router(manifest, changes, workers, folders[1]) as (other, _):

            def peers(port):
                metrics = parse_metrics(ask(port, "GET", "/metrics").body.decode())
                return sum(value for (name, _), value in metrics.items() if name == "kvway_replicas_peers")

            until(lambda: peers(one) == 1 and peers(other) == 1, 15, "each knows the other")
    assert found["Deployment", "assistant-kvway"]["spec"]["replicas"] == 2
    assert allowed(found, "assistant-redis") == {"vllm", "kvway"}


def test_nodes_share_through_a_redis_where_there_are_several():
    found, said = shown()
    assert "shares what it stores with the others through a Redis, which is rendered; below its memory are 200 GiB in /opt/dlami/nvme" in said
    assert allowed(found, "assistant-redis") == {"kvtierd", "kvway"} and allowed(found, "assistant-kvtierd") >= {"vllm"}
    assert load(config_of(found))[0]["replicas"] == {"redis": OWN, "group": "team-a.assistant"}
    pod = found["DaemonSet", "assistant-kvtierd"]["spec"]["template"]
    assert OWN in pod["metadata"]["annotations"]["kvway/tiers"]
    (store,) = [v for v in pod["spec"]["volumes"] if v["name"] == "store"]
    assert store["hostPath"] == {"path": "/opt/dlami/nvme", "type": "Directory"}
    (container,), (owner,) = pod["spec"]["containers"], pod["spec"]["initContainers"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "store"]
    assert mount["mountPath"] == load(file_of(found, "kvtierd.yaml"))[0]["cache"]["nvme"]["path"]
    assert [mount] == owner["volumeMounts"] and mount["subPath"] == "kvway/team-a-assistant"
    assert owner["securityContext"]["runAsNonRoot"] is False and owner["securityContext"]["capabilities"]["add"] == ["CHOWN"]


def test_one_node_shares_with_none_and_one_router_needs_none():
    found, said = shown(put(SPEC + "replicas", 1))
    assert "one worker, whose node's kvtierd shares with none" in said and "one kvway is rendered" in said
    assert "l2" not in load(file_of(found, "kvtierd.yaml"))[0]["cache"] and ("Deployment", "assistant-redis") not in found
    router = found["Deployment", "assistant-kvway"]["spec"]
    assert router["replicas"] == 1 and router["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "replicas" not in load(config_of(found))[0] and ("PodDisruptionBudget", "assistant-kvway") not in found
    found, said = shown(put(CACHE, None), flags=["--kvway-replicas", 2])
    assert found["Deployment", "assistant-kvway"]["spec"]["replicas"] == 2
    assert said.startswith("--kvway-replicas: without a Redis each kvway knows its own load alone")


def test_a_given_redis_is_shared_and_its_password_kept():
    found, said = shown(put(URL, GIVEN))
    assert "through the Redis of `l2CacheLocalUrl`" in said and "hunter2" not in said
    assert ("Deployment", "assistant-redis") not in found
    assert load(file_of(found, "kvtierd.yaml"))[0]["cache"]["l2"]["url"] == GIVEN
    assert load(config_of(found))[0]["replicas"]["redis"] == GIVEN
    assert {key for key, d in found.items() if "hunter2" in json.dumps(d)} == {("Secret", "assistant-kvtierd"), ("Secret", "assistant-kvway")}
    for kind, name in (("DaemonSet", "assistant-kvtierd"), ("Deployment", "assistant-kvway")):
        pod = found[kind, name]["spec"]["template"]
        assert {"secretName": name} in [v.get("secret") for v in pod["spec"]["volumes"]]
        assert any("rediss://redis.example:6380/3" in text for text in pod["metadata"]["annotations"].values())


@pytest.mark.parametrize(
    "changes, flags, path",
    [
        ([put(SPEC + "instanceType", "ml.x9.huge")], [], None),
        ([put(SPEC + "instanceType", None)], [], None),
        ([put(SPEC + "instanceType", None), put(SPEC + "instanceTypes", ["ml.g5.xlarge", "ml.x9.huge"])], [], None),
        ([put(SPEC + "instanceType", None), put(SPEC + "instanceTypes", ["ml.g5.xlarge", "ml.p5.48xlarge"])], [], "/opt/dlami/nvme"),
        ([], ["--nvme-path", "none"], None),
        ([put(SPEC + "instanceType", None)], ["--nvme-path", "/mnt/disk-0", "--nvme-size", "1TiB"], "/mnt/disk-0"),
    ],
)
def test_a_disk_is_used_where_the_nodes_have_one(changes, flags, path):
    found, said = shown(*changes, flags=flags)
    pod = found["DaemonSet", "assistant-kvtierd"]["spec"]["template"]["spec"]
    assert [v["hostPath"]["path"] for v in pod["volumes"] if v["name"] == "store"] == ([path] if path else [])
    assert ("initContainers" in pod) == bool(path) == ("nvme" in load(file_of(found, "kvtierd.yaml"))[0]["cache"])
    assert (f"GiB in {path} of the node" if path else "without a disk below") in said


def bucket(*changes, flags=()):
    found, _ = shown(*changes, flags=flags)
    return load(file_of(found, "lmcache_config.yaml"))[0]["extra_config"]["sagemaker_hyperpod_bucket"]


def test_another_model_at_the_same_path_finds_nothing_of_the_one_before():
    first = bucket()
    assert first.startswith("team-a.assistant.")
    for change in (put(SPEC + "replicas", 7), put(WORKER + "resources.requests", {"cpu": "1"}), put(SPEC + "loadBalancer", None)):
        assert bucket(change) == first
    others = {
        bucket(put(SPEC + "modelSourceConfig.modelLocation", "llama/70b-next")),
        bucket(put(SPEC + "modelVersion", "3.2")),
        bucket(put(WORKER + "args", ["--kv-cache-dtype", "fp8"])),
        bucket(put(WORKER + "args", ["--kv-cache-dtypefp8"])),
        bucket(put(WORKER + "environmentVariables", [{"name": "VLLM_KV_CACHE_LAYOUT", "value": "HND"}])),
        bucket(flags=["--image", "registry.example/vllm:9"]),
        bucket(flags=["-n", "team-b"]),
    }
    assert len(others | {first}) == 8


def test_a_folder_that_is_none_is_refused():
    done = run("render", "-f", DATA / "s3_tiered.yaml", "--nvme-path", "disk")
    assert done.returncode == 2 and "--nvme-path: found `disk`" in done.stderr
