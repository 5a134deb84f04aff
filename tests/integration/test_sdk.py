"""The official OpenAI Python SDK in front of kvway and simulated workers notices nothing.

Needs the package `openai`; tests/run.sh puts it into build-venv.
"""

import asyncio
import json
import threading

import pytest

from rig.wait import until

try:
    import openai
except ImportError:
    openai = None

pytestmark = pytest.mark.skipif(
    openai is None, reason="the OpenAI SDK is not installed (could no package index be reached?)"
)

MESSAGES = [{"role": "user", "content": "Tell me of the sea, shortly."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture
def stage(kvsim, kvway):
    """(router, direct worker): two simulated workers behind kvway."""
    fleet = kvsim(2)
    return kvway(fleet), fleet[0]


def client_of(target, **options):
    url = getattr(target, "url", target)
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=20, **options)


def test_models(stage):
    router, _ = stage
    assert [m.id for m in client_of(router).models.list()] == ["tiny"]


def test_chat_is_the_same_as_direct(stage):
    router, direct = stage
    ask = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    through = client_of(router).chat.completions.create(**ask)
    straight = client_of(direct).chat.completions.create(**ask)
    assert through.choices[0].message.content == straight.choices[0].message.content != ""
    assert through.usage.prompt_tokens == straight.usage.prompt_tokens
    assert through.choices[0].finish_reason == straight.choices[0].finish_reason


def test_chat_stream(stage):
    router, direct = stage
    ask = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "stream": True,
           "stream_options": {"include_usage": True}}  # fmt: skip
    pieces = list(client_of(router).chat.completions.create(**ask))
    text = "".join(c.choices[0].delta.content or "" for c in pieces if c.choices)
    whole = client_of(direct).chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12)
    assert text == whole.choices[0].message.content
    assert pieces[-1].usage.completion_tokens == 12


def test_completions(stage):
    router, _ = stage
    client = client_of(router)
    ask = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 8}
    whole = client.completions.create(**ask)
    pieces = list(client.completions.create(**ask, stream=True))
    assert "".join(p.choices[0].text for p in pieces if p.choices) == whole.choices[0].text
    assert whole.usage.completion_tokens == 8


def test_list_of_prompts(stage):
    router, _ = stage
    got = client_of(router).completions.create(model="tiny", prompt=["one", "two"], max_tokens=4)
    assert [c.index for c in got.choices] == [0, 1]


def test_tools_pass_through(stage):
    router, direct = stage
    ask = {"model": "tiny", "messages": MESSAGES, "tools": TOOLS, "tool_choice": "none",
           "max_tokens": 6}  # fmt: skip
    through = client_of(router).chat.completions.create(**ask)
    straight = client_of(direct).chat.completions.create(**ask)
    assert through.choices[0].message.content == straight.choices[0].message.content


def test_tool_calls_of_a_worker_arrive(workers, kvway):
    (worker,) = workers(1)

    def script(ex):
        asked = ex.json()
        assert asked["tools"] == TOOLS
        call = {"id": "call_1", "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Bergen"}'}}  # fmt: skip
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        ex.respond(body={"id": "x", "object": "chat.completion", "created": 1, "model": "tiny",
                         "choices": [choice]})  # fmt: skip

    worker.script = script
    router = kvway([worker])
    got = client_of(router).chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS)
    call = got.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Bergen"}


def test_async_many_at_once(stage):
    router, _ = stage

    async def run():
        client = openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="x", max_retries=0)

        async def one(number):
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": f"number {number}"}],
                max_tokens=10,
                stream=True,
            )
            return [c async for c in stream]

        answers = await asyncio.gather(*(one(n) for n in range(40)))
        await client.close()
        return answers

    answers = asyncio.run(run())
    assert len(answers) == 40
    assert all(a[-1].choices[0].finish_reason == "length" for a in answers)
    router.wait_idle()


def test_errors_become_the_sdk_exceptions(stage):
    router, _ = stage
    with pytest.raises(openai.NotFoundError) as caught:
        client_of(router).chat.completions.create(model="no-such", messages=MESSAGES)
    assert caught.value.body["message"].startswith("The model `no-such` does not exist.")
    with pytest.raises(openai.BadRequestError):
        client_of(router).chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=10_000_000
        )


def test_no_worker_becomes_the_sdk_exception(workers, kvway):
    (worker,) = workers(1)
    router = kvway([worker], {"health.fall": 1, "health.interval": "200ms"})
    worker.stop()
    until(lambda: router.ask("GET", "/ready").status == 503, 8, "not ready")
    with pytest.raises(openai.InternalServerError) as caught:
        client_of(router).chat.completions.create(model="tiny", messages=MESSAGES)
    assert caught.value.status_code == 503


def test_cancelled_stream_reaches_the_worker(workers, kvway):
    gone = threading.Event()
    (worker,) = workers(1)

    def script(ex):
        ex.start_stream()
        ex.event({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "tiny",
                  "choices": [{"index": 0, "delta": {"content": "a"}}]})  # fmt: skip
        if ex.gone(10):
            gone.set()
        ex.keep = False

    worker.script = script
    router = kvway([worker])
    with client_of(router) as client:
        stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        next(iter(stream))
        stream.close()
    assert gone.wait(5)
    router.wait_idle()


def test_cancelled_request_reaches_the_worker(workers, kvway):
    """Not streaming: the SDK's timeout closes the connection, and the worker must learn of it."""
    gone = threading.Event()
    (worker,) = workers(1)

    def script(ex):
        if ex.gone(10):
            gone.set()
        ex.keep = False

    worker.script = script
    router = kvway([worker])
    client = client_of(router).with_options(timeout=0.5)
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="tiny", messages=MESSAGES)
    assert gone.wait(5)
    router.wait_idle()


def test_conversation_finds_its_cache(stage):
    """Second turns report cached tokens: they reached the worker that holds the first."""
    router, _ = stage
    client = client_of(router)
    for talk in range(4):
        messages = [{"role": "system", "content": f"{talk} " + "You are a helpful guide. " * 60}]
        cached = []
        for turn in range(3):
            messages.append({"role": "user", "content": f"Question {turn} of talk {talk}?"})
            got = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8)
            cached.append(got.usage.prompt_tokens_details.cached_tokens)
            messages.append({"role": "assistant", "content": got.choices[0].message.content})
        assert cached[1] > 200 and cached[2] > 200, cached
