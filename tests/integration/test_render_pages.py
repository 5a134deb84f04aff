"""kvway render -f with the manifests of AWS's pages and notebooks, and the spellings that they print.

data/render/pages has them, written again. What is rendered is tried in front of simulated workers, through the invocation
endpoint that its Service shows.
"""

import itertools
import json

import pytest

from rig.client import CHAT, COMPLETIONS, ask
from rig.kubernetes import Api, pod_of, slice_of
from rig.kvaware import ids
from rig.sim import Sim
from rig.wait import Port, until, unused_port
from test_render import DATA, check_config, check_shape, config_of, load, render, rendered_router, run

PAGES = DATA / "pages"


def page(name):
    return load((PAGES / f"{name}.yaml").read_text())[0]


def container_of(found):
    (worker,) = [d for (kind, name), d in found.items() if kind == "Deployment" and name.endswith("-worker")]
    return worker["spec"]["template"]["spec"]["containers"][0]


def endpoint_of(found):
    (shown,) = [d["metadata"]["annotations"] for (kind, _), d in found.items() if kind == "Service" and "annotations" in d["metadata"]]
    return shown["kvway/invocation-endpoint"]


def with_env(manifest, **variables):
    """Variables of the workers in addition; a mapping is a `valueFrom`, None takes one away."""
    entries = manifest["spec"]["worker"].setdefault("environmentVariables", [])
    entries[:] = [e for e in entries if e["name"] not in variables]
    for name, value in variables.items():
        if value is not None:
            entries.append({"name": name, **({"valueFrom": value} if isinstance(value, dict) else {"value": value})})
    return manifest


def said(manifest):
    """Exit status, and what is said of which field, without line numbers."""
    done = run("render", "-f", "-", stdin=json.dumps(manifest))
    return done.returncode, [line.split(": ", 1)[1] for line in done.stderr.splitlines()]


def refused(manifest, mistake):
    status, lines = said(manifest)
    assert status == 1 and any(mistake in line for line in lines), lines


NOTES = {
    "blog": ["spec.tlsConfig.tlsCertificateOutputS3Uri: not used: "],
    "kvaware": ["spec.invocationEndpoint: found `/completions`, shown as `/v1/completions`"],
    "session": [
        "spec.endpointName: not used: ",
        "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl: found no scheme, taken for a Redis without TLS",
    ],
    "lmi": ["spec.endpointName: not used: "],
}


@pytest.mark.parametrize("name", NOTES)
def test_pages_are_rendered(name, tmp_path):
    done = run("render", "-f", PAGES / f"{name}.yaml")
    assert done.returncode == 0, done.stderr
    notes = [line.split(": ", 1)[1] for line in done.stderr.splitlines()]
    assert all(any(note.startswith(wanted) for note in notes) for wanted in NOTES[name]), notes
    check_config(config_of(check_shape(done.stdout)), tmp_path)


# --- what is printed, and what it means -----------------------------------------------------------------

SERVED = {
    None: "/invocations",
    "invocations": "/invocations",
    "/invocations": "/invocations",
    "/completions": COMPLETIONS,
    "completions": COMPLETIONS,
    "v1/completions": COMPLETIONS,
    "/v1/completions": COMPLETIONS,
    "chat/completions": CHAT,
    "/chat/completions": CHAT,
    "v1/chat/completions": CHAT,
    "/v1/chat/completions": CHAT,
    "v1/responses": "/v1/responses",
    "rerank": "/rerank",
}


def at_endpoint(spelling):
    manifest = page("blog")
    manifest["spec"].pop("invocationEndpoint")
    if spelling is not None:
        manifest["spec"]["invocationEndpoint"] = spelling
    return manifest


def test_an_invocation_endpoint_is_shown_as_vllm_serves_it():
    for spelling, served in SERVED.items():
        assert endpoint_of(check_shape(render(at_endpoint(spelling)))) == served, spelling
        status, notes = said(at_endpoint(spelling))
        named = [n for n in notes if n.startswith("spec.invocationEndpoint: ")]
        assert status == 0 and len(named) == (spelling is not None and spelling.strip("/") != served.strip("/")), notes


@pytest.mark.parametrize(
    "spelling, right",
    [
        ("v1/chat/completion", "did you mean `/v1/chat/completions`?"),
        ("/v1/completions/", "did you mean `/v1/completions`?"),
        ("v1/models", "expected a path that vLLM serves"),
        ("predict", "such as `/v1/chat/completions`"),
        ("", "such as `/v1/chat/completions`"),
        ("/", "such as `/v1/chat/completions`"),
        ("a" * 300, "such as `/v1/chat/completions`"),
    ],
    ids=range(7),
)
def test_another_invocation_endpoint_is_refused_with_the_right_one(spelling, right):
    refused(at_endpoint(spelling), "spec.invocationEndpoint: found ")
    refused(at_endpoint(spelling), right)


SEEDS = [("123", "123"), ("0", "0"), (None, "0"), ({"fieldRef": {"fieldPath": "metadata.name"}}, None)]


@pytest.mark.parametrize("given, wanted", SEEDS, ids=["123", "0", "none", "elsewhere"])
def test_kvaware_has_the_seed_of_its_workers(given, wanted):
    found = check_shape(render(with_env(page("kvaware"), PYTHONHASHSEED=given)))
    (entry,) = [v for v in container_of(found)["env"] if v["name"] == "PYTHONHASHSEED"]
    lmcache = load(config_of(found))[0]["kvaware"]["lmcache"]
    assert lmcache.get("hash_seed") == wanted
    assert wanted is None or entry["value"] == wanted


def test_a_seed_that_is_none_is_refused():
    for value in ("many", "-1", "4294967296", "1 "):
        refused(with_env(page("session"), PYTHONHASHSEED=value), "Variables[1]: PYTHONHASHSEED: found no seed of Python")
    for value in ("random", ""):
        refused(with_env(page("kvaware"), PYTHONHASHSEED=value), "Variables[0]: PYTHONHASHSEED: found no number")
        assert said(with_env(page("session"), PYTHONHASHSEED=value))[0] == 0
    status, notes = said(with_env(page("kvaware"), PYTHONHASHSEED=SEEDS[-1][0]))
    assert status == 0 and any("PYTHONHASHSEED: not in the manifest: kvway tries 0" in note for note in notes)


def test_a_session_key_is_a_header_or_a_member_of_the_body():
    def session_of(manifest):
        return load(config_of(check_shape(render(manifest))))[0]["routing"].get("session")

    assert session_of(page("session")) == {"headers": ["user_id"], "body_fields": ["user_id"]}
    assert session_of(with_env(page("session"), SESSION_KEY=None)) is None
    jumpstart = load((DATA / "jumpstart.yaml").read_text())[0]
    jumpstart["spec"]["environmentVariables"] = [{"name": "SESSION_KEY", "value": "x-user"}]
    text = render(jumpstart, "--image", "r/vllm:1", "--model-source", "pvc://claim", "--only", "kvway-config")
    assert load(text)[0]["routing"]["session"]["headers"] == ["x-user"]
    refused(with_env(page("session"), SESSION_KEY="user id"), "Variables[1]: SESSION_KEY: found no name")
    status, notes = said(with_env(page("blog"), SESSION_KEY="user_id"))
    assert status == 0 and any("SESSION_KEY: not used by `prefixaware`: `routingStrategy: session`" in note for note in notes)


def test_a_cache_is_not_sized_that_a_file_describes():
    def mistakes(manifest, **variables):
        status, lines = said(with_env(manifest, **variables))
        assert status == (1 if any("AUTO_CONFIG" in line for line in lines) else 0), lines
        return [line for line in lines if "OPTION_LMCACHE_AUTO_CONFIG" in line and "OPTION_LMCACHE_CONFIG_FILE" in line]

    file = "/opt/ml/model/lmcache_config.yaml"
    assert mistakes(page("lmi")) == []
    (line,) = mistakes(page("lmi"), OPTION_LMCACHE_CONFIG_FILE=file)
    assert line.startswith("spec.worker.environmentVariables[2]: OPTION_LMCACHE_AUTO_CONFIG: found together with ")
    assert mistakes(page("lmi"), OPTION_LMCACHE_CONFIG_FILE=file, OPTION_LMCACHE_AUTO_CONFIG="false") == []
    assert mistakes(page("lmi"), OPTION_LMCACHE_CONFIG_FILE="") == []  # which that container takes for none
    for cache in ({"enableL1Cache": True}, {"cacheConfigFile": file}):
        manifest = page("lmi")
        manifest["spec"]["kvCacheSpec"] = cache
        (line,) = mistakes(manifest)
        assert "`spec.kvCacheSpec`" in line


def ranks_of(manifest):
    """(tensor parallel size among the arguments, ranks that report to kvway)."""
    found = check_shape(render(manifest))
    args = container_of(found).get("args", [])
    (settings,) = [d["data"]["lmcache_config.yaml"] for d in found.values() if "lmcache_config.yaml" in d.get("data", {})]
    flags = [args[i + 1] for i, arg in enumerate(args) if arg == "--tensor-parallel-size"]
    return flags, len(load(settings)[0]["lmcache_worker_ports"])


def with_gpus(manifest, count):
    manifest["spec"]["worker"]["resources"] = {"limits": {"nvidia.com/gpu": count}}
    return manifest


def test_a_tensor_parallel_degree_is_what_the_container_makes_of_it():
    degree = "OPTION_TENSOR_PARALLEL_DEGREE"
    plain = with_gpus(page("kvaware"), 8)
    assert ranks_of(plain) == ([], 1)
    assert ranks_of(with_env(plain, **{degree: "4"})) == (["4"], 4)
    assert ranks_of(with_env(plain, **{degree: "max"})) == (["8"], 8)
    assert ranks_of(with_env(plain, **{degree: "1"})) == ([], 1)
    plain["spec"]["worker"]["args"] += ["--tensor-parallel-size", "8"]
    assert ranks_of(with_env(plain, **{degree: "max"})) == (["8"], 8)
    refused(with_env(plain, **{degree: "4"}), f"{degree}: found 4 and `--tensor-parallel-size 8` in `spec.worker.args`")

    lmi = page("kvaware")  # by variables: the container itself divides the model, by all its GPUs if none is named
    del lmi["spec"]["worker"]["args"]
    lmi = with_env(with_gpus(lmi, 4), OPTION_ROLLING_BATCH="vllm")
    assert ranks_of(lmi) == ([], 4)
    assert ranks_of(with_env(lmi, TENSOR_PARALLEL_DEGREE="2")) == ([], 2)
    assert said(with_gpus(with_env(lmi, TENSOR_PARALLEL_DEGREE=None), 100000))[0] == 0
    with_gpus(lmi, 4)
    assert ranks_of(with_env(lmi, **{degree: "1"})) == ([], 1)
    for value, why in (("8", "expected at least 8"), ("all", "expected `max` or a number"), ("0", "expected `max` or a number")):
        refused(with_env(lmi, **{degree: value}), why)
    jumpstart = load((DATA / "jumpstart.yaml").read_text())[0]
    jumpstart["spec"]["environmentVariables"] = [{"name": degree, "value": "2"}]
    text = render(jumpstart, "--image", "r/vllm:1", "--model-source", "pvc://claim", "--gpus", 4)
    args = container_of(check_shape(text))["args"]
    assert args[args.index("--tensor-parallel-size") + 1] == "2"

    none = with_env(page("kvaware"), **{degree: "max"})
    none["spec"]["worker"]["resources"] = {}
    refused(none, "found `max` without GPUs")


@pytest.mark.parametrize(
    "given, url",
    [
        ("redis.default.svc.cluster.local:6379", "redis://redis.default.svc.cluster.local:6379"),
        ("10.0.0.7:6379", "redis://10.0.0.7:6379"),
        ("[fd00::7]:6379", "redis://[fd00::7]:6379"),
        ("rediss://cache.example:6380", "rediss://cache.example:6380"),
        ("redis:redisdefaultsvcclusterlocal:6379", None),  # as a page prints it
        ("redis.default", None),
        ("a:1,b:2", None),
        ("${REDIS_URL}", None),
    ],
)
def test_a_redis_may_be_named_without_its_scheme(given, url):
    manifest = page("session")
    manifest["spec"]["kvCacheSpec"]["l2CacheSpec"]["l2CacheLocalUrl"] = given
    status, lines = said(manifest)
    if url is None:
        refused(manifest, "expected such as redis://redis.default.svc.cluster.local:6379")
        return
    assert status == 0 and any("found no scheme" in line for line in lines) == (given != url), lines
    settings = load(check_shape(render(manifest))["ConfigMap", "talks-cache"]["data"]["lmcache_config.yaml"])[0]
    assert settings["remote_url"] == url


# --- in front of workers ---------------------------------------------------------------------------------


def invoke(port, found, text, headers=(), **more):
    """Through the endpoint that clients are shown, with a body of its kind."""
    path = endpoint_of(found)
    prompt = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
    answer = ask(port, "POST", path, headers, {"model": "tiny", "max_tokens": 2, **prompt, **more})
    assert answer.status == 200, answer
    return answer


def name_of(worker, port=8000, namespace="default"):
    return f"http://{worker}-workers.{namespace}.svc.cluster.local:{port}"


REDIS = "redis://redis.default.svc.cluster.local:6379"


def no_redis():
    """Routers do without the Redis that they share."""
    return f"redis://127.0.0.1:{unused_port()}"


def test_the_announcements_endpoint_serves(kvsim, tmp_path):
    workers = kvsim(1)
    manifest = page("blog")
    del manifest["spec"]["tlsConfig"]
    with rendered_router(manifest, {name_of("demo"): workers[0].url}, workers, tmp_path) as (port, found):
        assert endpoint_of(found) == CHAT
        assert "choices" in invoke(port, found, "hello").json()
        assert workers[0].stats()["finished"] == 1


def test_the_samples_endpoint_serves(kvsim, tmp_path):
    """`invocations`: a chat by its body."""
    workers = kvsim(1)
    with rendered_router(page("lmi"), {name_of("lmi", 8080): workers[0].url}, workers, tmp_path) as (port, found):
        assert endpoint_of(found) == "/invocations"
        assert "choices" in invoke(port, found, "hello").json()


def test_the_notebooks_sessions_stay_with_their_worker(kvsim, tmp_path):
    """The user's name is a header field or a member of the body; one user is one session."""
    workers = kvsim(2)
    api = Api()
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("team-a")
    for number, worker in enumerate(workers):
        pod = pod_of(f"w{number}", "127.0.0.1", port=worker.port, namespace="team-a")
        api.put(slice_of(f"talks-workers-{number}", "talks-workers", [pod], port=worker.port, namespace="team-a"))
    own = f'kubernetes:\n    api: "{api.url}"\n    token_file: "{tmp_path}/token"\n    ca_file: ""\n'
    try:
        with rendered_router(page("session"), {"kubernetes:\n": own, REDIS: no_redis()}, workers, tmp_path) as (port, found):
            for user in ("ann", "bob", "cleo", "dan"):
                before = [w.stats()["finished"] for w in workers]
                for turn in range(4):
                    invoke(port, found, f"{user} {turn}", headers=[("user_id", user)])
                    invoke(port, found, f"{turn} {user}", user_id=user)
                assert sorted(w.stats()["finished"] - b for w, b in zip(workers, before)) == [0, 8]
    finally:
        api.stop()


def test_kvaware_computes_the_hashes_of_its_workers(tmp_path):
    """The seed of the manifest is the workers': kvway has nothing to find out, and its log asks for no other."""
    ports = [Port() for _ in range(3)]
    pull, reply, beat = (f"127.0.0.1:{port.number}" for port in ports)
    published = {"enable_kv_cache_events": True, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}
    sim = Sim(tmp_path, 1, "--kv-events-config", json.dumps(published), "--lmcache-controller", f"pull={pull},reply={reply}",
              "--lmcache-seed", 123, "--lmcache-heartbeat-s", 0.2)  # fmt: skip
    (worker,) = sim.workers
    source = worker.ask("GET", "/kv_event_sources").json()["0"]
    changes = {
        name_of("aware"): worker.url,
        REDIS: no_redis(),
        "tcp://{host}:5557": source["endpoint"],
        "tcp://{host}:5558": source["replay_endpoint"],
        "0.0.0.0:8300": pull,
        "0.0.0.0:8400": reply,
        "0.0.0.0:8500": beat,
        "aware-controller.default.svc.cluster.local:8500": beat,
    }

    prompt = ids(1, 600)
    others = itertools.count(1000)

    def admin(method, path, **body):
        where = load((tmp_path / "kvway.yaml").read_text())[0]["admin"]["listen"].split(":")[1]
        return ask(int(where), method, path, **body)

    def reported():
        return 'kvway_kvaware_lmcache{what="keys"} 2\n' in admin("GET", "/metrics").body.decode()

    def known():
        """By what LMCache has reported, whose hashes only the right seed gives."""
        invoke(port, found, ids(next(others), 40))  # further events show that the one of the reset was missed
        said = admin("POST", f"/explain?path={COMPLETIONS}", body={"model": "tiny", "prompt": prompt}).json()
        return said["workers"][0]["hit_tokens_by_tier"].get("host") == 512

    try:
        with rendered_router(page("kvaware"), changes, [worker], tmp_path) as (port, found):
            assert endpoint_of(found) == COMPLETIONS
            invoke(port, found, prompt)
            until(reported, 20, "what the CPU tier has stored to be reported")
            assert worker.ask("POST", "/reset_prefix_cache").json() == {"success": True}  # the CPU tier keeps it
            until(known, 20, "what LMCache holds to be known")
            assert "hash_seed" not in (tmp_path / "kvway.log").read_text()
    finally:
        sim.kill()
        for port in ports:
            port.close()
