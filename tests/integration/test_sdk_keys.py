"""Keys of clients as the official SDKs see them: their own exceptions, and their own retries.

Needs the packages `openai` and `anthropic`; tests/run.sh puts them into build-venv.
"""

import datetime
import hashlib
import json

import pytest

try:
    import anthropic
    import openai
except ImportError:
    openai = anthropic = None

pytestmark = pytest.mark.skipif(
    openai is None, reason="the SDKs are not installed (could no package index be reached?)"
)

MESSAGES = [{"role": "user", "content": "Tell me of the sea, shortly."}]


def entry(name, **more):
    return {"name": name, "sha256": hashlib.sha256(f"sk-{name}".encode()).hexdigest(), **more}


ENTRIES = [
    entry("good"),
    entry("old", expires="2020-01-01"),
    entry("elsewhere", models=["other-*"]),
    entry("talker", paths=["/v1/embeddings"]),
    entry("slow", requests_per_minute=20, burst="1s"),
    entry("counted", requests_per_minute=6000, tokens_per_minute=600000),
]


class OpenAI:
    """Chat by OpenAI's SDK."""

    headers = "x-ratelimit-{which}-{what}"

    def __init__(self, router, key, retries):
        self.errors = openai
        self.client = openai.OpenAI(base_url=f"{router.url}/v1", api_key=key, max_retries=retries, timeout=60)
        self.raw = self.client.chat.completions.with_raw_response

    def ask(self, stream, model="tiny"):
        got = self.client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=5, stream=stream)
        if not stream:
            return got.choices[0].message.content
        return "".join(c.choices[0].delta.content or "" for c in got if c.choices)

    @staticmethod
    def code(error):
        return error.code

    @staticmethod
    def resets_in_s(text):
        return float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))


class Anthropic:
    """Messages by Anthropic's SDK."""

    headers = "anthropic-ratelimit-{what}-{which}"

    def __init__(self, router, key, retries):
        self.errors = anthropic
        self.client = anthropic.Anthropic(base_url=router.url, api_key=key, max_retries=retries, timeout=60)
        self.raw = self.client.messages.with_raw_response

    def ask(self, stream, model="tiny"):
        if stream:
            with self.client.messages.stream(model=model, messages=MESSAGES, max_tokens=5) as got:
                return "".join(got.text_stream)
        got = self.client.messages.create(model=model, messages=MESSAGES, max_tokens=5)
        return got.content[0].text

    @staticmethod
    def code(error):
        return error.body["error"]["type"]

    @staticmethod
    def resets_in_s(text):
        at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


@pytest.fixture(params=[OpenAI, Anthropic], ids=["openai", "anthropic"])
def sdk(request, tmp_path, kvsim, kvway):
    """sdk(key, retries=0): a client of a router whose clients need keys."""
    path = tmp_path / "keys.yaml"
    path.write_text(json.dumps({"keys": ENTRIES}))
    router = kvway(kvsim(1), {"auth.keys_file": str(path)})
    return lambda key, retries=0: request.param(router, key, retries)


# A request's key and model, the SDK's exception, the error's code for OpenAI's clients, its type for Anthropic's.
REFUSALS = [
    ("sk-wrong", "tiny", "AuthenticationError", "invalid_api_key", "authentication_error"),
    ("sk-old", "tiny", "AuthenticationError", "expired_api_key", "authentication_error"),
    ("sk-elsewhere", "tiny", "PermissionDeniedError", "model_not_allowed", "permission_error"),
    ("sk-talker", "tiny", "PermissionDeniedError", "path_not_allowed", "permission_error"),
    ("sk-good", "none-such", "NotFoundError", None, None),
    ("sk-elsewhere", "other-one", "NotFoundError", None, None),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_refusals_are_the_exceptions_of_the_sdk(sdk, stream):
    assert sdk("sk-good").ask(stream)
    for key, model, name, *codes in REFUSALS:
        client = sdk(key)
        with pytest.raises(getattr(client.errors, name)) as caught:
            client.ask(stream, model)
        code = codes[client.errors is anthropic]
        assert code is None or client.code(caught.value) == code, (key, model, caught.value)
        assert "sk-" not in str(caught.value)
    if client.errors is openai:
        assert [m.id for m in sdk("sk-good").client.models.list()] == ["tiny"]
        assert not list(sdk("sk-elsewhere").client.models.list())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_sdk_waits_as_long_as_a_limit_says(sdk, stream):
    client = sdk("sk-slow")
    with pytest.raises(client.errors.RateLimitError) as caught:
        for _ in range(20):
            client.ask(stream)
    fields = caught.value.response.headers
    assert 0 < int(fields["retry-after-ms"]) <= 3000 and fields["retry-after"] in ("1", "2", "3")
    # Its own pause is half a second; one retry is enough only after the three of the limit.
    assert sdk("sk-slow", retries=1).ask(stream)


def test_what_is_left_in_the_fields_of_each(sdk):
    client = sdk("sk-counted")
    answer = client.raw.create(model="tiny", messages=MESSAGES, max_tokens=5)
    fields = dict(answer.headers)
    for what, limit in (("requests", 6000), ("tokens", 600000)):
        names = {which: client.headers.format(which=which, what=what) for which in ("limit", "remaining", "reset")}
        assert int(fields[names["limit"]]) == limit
        assert 0 < int(fields[names["remaining"]]) < limit
        assert -30 < client.resets_in_s(fields[names["reset"]]) < 5
    assert sum("ratelimit" in name for name in fields) == 6  # and none of the other's
