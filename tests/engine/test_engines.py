"""Real engines behind kvway: same answers as direct, caches found again, stock tools content."""

import os
import re
import subprocess

import openai
import pytest

from rig.client import ask
from rig.wait import until

QUESTION = [
    {"role": "system", "content": "You are a helpful assistant. Answer shortly and clearly."},
    {"role": "user", "content": "Tell me a story about a small ship that sails the great sea."},
]
PROMPT = "Once upon a time there was a king who had three daughters"


def sdk(target):
    return openai.OpenAI(base_url=f"{target.url}/v1", api_key="none", max_retries=0, timeout=60)


def chat(client, stream, messages=QUESTION):
    settings = {"model": "tiny", "messages": messages, "max_tokens": 24, "temperature": 0}
    if not stream:
        return client.chat.completions.create(**settings).choices[0].message.content
    pieces = client.chat.completions.create(**settings, stream=True)
    return "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)


def complete(client, stream):
    settings = {"model": "tiny", "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    if not stream:
        return client.completions.create(**settings).choices[0].text
    pieces = client.completions.create(**settings, stream=True)
    return "".join(p.choices[0].text for p in pieces if p.choices)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [chat, complete])
def test_same_content_as_direct(engines, router, kind, stream):
    """Caches are emptied before each request: a hit may round differently than a prefill."""
    answers = []
    for target in (*engines, router, router):
        for engine in engines:
            engine.forget()
        answers.append(kind(sdk(target), stream))
    assert answers[0]
    assert len(set(answers)) == 1, answers


def test_models(router):
    assert [m.id for m in sdk(router).models.list()] == ["tiny"]


def test_capacity_is_the_engines_own(engines, router):
    """All blocks of 32 tokens but one, which vLLM keeps."""
    capacity = sum((engine.blocks - 1) * 32 for engine in engines)
    until(lambda: router.metric("kvway_worker_kv_capacity_tokens") == capacity, 10, "capacity")


def test_second_turns_find_their_cache(engines, router):
    client = sdk(router)
    for talk in range(6):
        messages = [{"role": "system", "content": f"Talk {talk}. {QUESTION[1]['content']} " * 8}]
        cached = []
        for turn in range(3):
            messages.append({"role": "user", "content": f"Question {turn}: what is the weather?"})
            got = client.chat.completions.create(
                model="tiny", messages=messages, max_tokens=8, temperature=0
            )
            details = got.usage.prompt_tokens_details
            cached.append(details.cached_tokens if details else 0)
            messages.append({"role": "assistant", "content": got.choices[0].message.content})
        assert cached[1] > 0 and cached[2] > 0, (talk, cached)
    until(lambda: router.metric("kvway_cached_tokens_total") > 0, 5, "counted")


def test_unknown_model_reads_like_the_engine(engines, router):
    seen = []
    for target in (engines[0], router):
        with pytest.raises(openai.NotFoundError) as caught:
            sdk(target).chat.completions.create(model="no-such", messages=QUESTION)
        seen.append(caught.value.body)
    for error in seen:
        assert error["message"].startswith("The model `no-such` does not exist.")
        del error["message"]  # the engine goes on with its names
    assert seen[0] == seen[1]


def test_cancelled_stream_frees_the_engine(engines, router):
    client = sdk(router)
    stream = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=8000, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    assert sum(engine.running() for engine in engines) == 1
    stream.close()
    client.close()
    until(lambda: sum(engine.running() for engine in engines) == 0, 5, "engines idle")
    router.wait_idle()


@pytest.mark.parametrize(
    "backend, endpoint", [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")]
)
def test_vllm_bench_serve_runs_without_an_error(router, backend, endpoint):
    venv, model = os.environ["KVW_ENGINE_VENV"], os.environ["KVW_ENGINE_MODEL"]
    count = 24
    done = subprocess.run(
        [
            f"{venv}/bin/vllm", "bench", "serve",
            "--backend", backend, "--endpoint", endpoint, "--base-url", router.url,
            "--model", "tiny", "--tokenizer", model, "--dataset-name", "random",
            "--random-input-len", "128", "--random-output-len", "16",
            "--num-prompts", str(count), "--max-concurrency", "8", "--ignore-eos",
        ],
        capture_output=True, text=True, timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(re.findall(r"^(Successful|Failed) requests:\s+(\d+)", done.stdout, re.M))
    assert found.get("Successful") == str(count), done.stdout
    assert found.get("Failed", "0") == "0", done.stdout
    assert router.metric("kvway_requests_total", status="200", end="complete") >= count


def test_other_paths_of_the_engine(engines, router):
    """Tokenizer, versions, Anthropic's messages: the engine's own answers."""
    body = {"model": "tiny", "prompt": PROMPT}
    through = router.ask("POST", "/tokenize", body=body).json()
    assert through == ask(engines[0].port, "POST", "/tokenize", body=body).json()
    assert router.ask("GET", "/version").json() == ask(engines[0].port, "GET", "/version").json()
    body = {"model": "tiny", "max_tokens": 8, "messages": QUESTION[1:]}
    got = router.ask("POST", "/v1/messages", body=body, timeout=60)
    assert got.status == 200 and got.json()["type"] == "message"


def test_a_killed_engine_is_not_missed(engines, router):
    client = sdk(router)
    engines[1].kill()  # SIGKILL, workers and all
    for number in range(12):
        messages = [{"role": "user", "content": f"Question {number}: where is the island?"}]
        got = client.chat.completions.create(model="tiny", messages=messages, max_tokens=4)
        assert got.usage.completion_tokens > 0
