"""Tenants in front of a real engine: what it computed for one it does not use for another, nor does kvway predict it."""

import hashlib
import json
import random
import urllib.request

import pytest
from mixed import prose
from rig.router import Router
from rig.wait import until
from server import MODEL, START_SECONDS, VENV, Engine

KEYS = {"alice": "red", "anna": "red", "bob": "blue", "carol": ""}
CONFIG = {
    "routing.strategy": "kvaware",
    "http.decision_headers": "always",
    "models": {"gpt-4o": {"to": "tiny"}},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    if not VENV or not MODEL:
        pytest.fail("run tests/engine/run.sh, or set KVW_ENGINE_VENV and KVW_ENGINE_MODEL")
    one = Engine(tmp_path_factory.mktemp("engine"), 0)
    try:
        until(one.healthy, START_SECONDS, "engine up")
        yield one
    finally:
        one.kill()


@pytest.fixture
def router(engine, tmp_path):
    engine.forget()
    entries = [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "tenant": tenant}
               for name, tenant in KEYS.items()]  # fmt: skip
    (tmp_path / "keys.yaml").write_text(json.dumps({"keys": entries}))
    (tmp_path / "secret").write_bytes(random.randbytes(16).hex().encode())
    keys = {"events_endpoint": f"tcp://127.0.0.1:{engine.events}", "events_replay": f"tcp://127.0.0.1:{engine.replay}"}
    config = {**CONFIG, "auth.keys_file": str(tmp_path / "keys.yaml"),
              "auth.tenant_secret_file": str(tmp_path / "secret")}  # fmt: skip
    made = Router(tmp_path, [engine], config, worker_keys=keys).wait_up([engine])
    yield made
    made.stop()


def ask(router, key, path, body):
    """(what it said, tokens that the engine had cached, tokens that kvway expected to be)"""
    answer = router.ask("POST", path, [("x-api-key", key)], {"model": "tiny", "temperature": 0, **body}, timeout=120)
    assert answer.status == 200, answer
    said = answer.json()
    usage = said["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    if cached is None:
        cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    if cached is None:
        cached = usage.get("cache_read_input_tokens")
    text = said.get("choices") or said.get("content") or [part.get("content") for part in said["output"]]
    for choice in text:
        if isinstance(choice, dict):
            choice.pop("id", None)
    text = json.dumps(text, default=str)
    return text, cached or 0, int(answer.headers.get("x-kvway-predicted-cached-tokens"))


def bodies():
    rng = random.Random(28)
    talk = [{"role": "user", "content": prose(rng, 3000)}]
    return [
        ("/v1/chat/completions", {"messages": talk, "max_tokens": 8}),
        ("/v1/completions", {"prompt": prose(rng, 3000), "max_tokens": 8}),
        ("/v1/completions", {"prompt": [rng.randrange(10, 600) for _ in range(400)], "max_tokens": 8}),
        ("/v1/messages", {"messages": [{"role": "user", "content": prose(rng, 3000)}], "max_tokens": 8}),
        ("/v1/responses", {"input": prose(rng, 3000), "max_output_tokens": 8}),
    ]


@pytest.mark.parametrize("path, body", bodies(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_prompt_is_cached_for_its_tenant_alone(router, path, body):
    text, cached, expected = ask(router, "alice", path, body)
    assert (cached, expected) == (0, 0)
    for key in ("bob", "carol"):
        assert ask(router, key, path, body)[1:] == (0, 0), key
    assert ask(router, "carol", path, {**body, "cache_salt": "x"})[1:] == (0, 0)
    until(lambda: ask(router, "anna", path, body)[2] > 200, 20, "expected to be cached")
    for key in ("alice", "anna", "bob", "carol"):
        again, cached, expected = ask(router, key, path, body)
        assert cached > 200 and abs(cached - expected) < 64, (key, cached, expected)
        if path != "/v1/responses":
            assert json.loads(again) == json.loads(text)


def test_an_alias(router):
    answer = router.ask("POST", "/v1/chat/completions", [("x-api-key", "alice")],
                        {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})  # fmt: skip
    assert answer.status == 200 and answer.json()["model"] == "tiny"
    request = urllib.request.Request(f"{router.url}/v1/models", headers={"x-api-key": "alice"})
    with urllib.request.urlopen(request, timeout=20) as listed:
        assert [model["id"] for model in json.load(listed)["data"]] == ["tiny", "gpt-4o"]
