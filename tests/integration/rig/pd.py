"""Prefill and decode on different workers: kvsim engines of two roles before a router, and what they answer."""

import json
import signal

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, ask, chat_body
from rig.sim import Sim
from rig.wait import until

RESPONSES = "/v1/responses"
ALWAYS = {"pd.threshold": 0, "health.interval": "200ms", "health.metrics_interval": "200ms"}
LONG = "the quick brown fox jumps over the lazy dog " * 40


@pytest.fixture
def engines(tmp_path):
    """engines(*options): one kvsim process that takes part in transfers."""
    made = []

    def make(*options, nixl="on"):
        role = ("--nixl", nixl) if nixl else ()
        sim = Sim(tmp_path, 1, *role, *options, name=f"engine{len(made)}")
        made.append(sim)
        sim.worker = sim.workers[0]
        return sim

    yield make
    for sim in made:
        if sim.alive():
            sim.signal(signal.SIGCONT)
        sim.kill()


@pytest.fixture
def parted(engines, kvway):
    """parted(config, prefillers, decoders): (router, prefillers, decoders), all of them kvsim."""

    def make(config=None, prefillers=1, decoders=1, options=(), nixl="on"):
        ps = [engines(*options, nixl=nixl) for _ in range(prefillers)]
        ds = [engines(*options, nixl=nixl) for _ in range(decoders)]
        entries = [{"url": p.worker.url, "role": "prefill"} for p in ps]
        entries += [{"url": d.worker.url, "role": "decode"} for d in ds]
        router = kvway([e.worker for e in ps + ds], {**ALWAYS, "workers": entries, **(config or {})})
        known(router)
        return router, ps, ds

    return make


def known(router):
    """Until each worker is known to serve the model."""
    until(lambda: all(w.get("models") for w in ask(router.admin_port, "GET", "/workers").json()), what="models known")


def body_for(path, text=LONG, **more):
    if path == COMPLETIONS:
        return {"model": "tiny", "prompt": text, "max_tokens": 8, **more}
    if path == RESPONSES:
        return {"model": "tiny", "input": text, "max_output_tokens": 8, **more}
    return chat_body(text, max_tokens=8, **more)


def text_of(got, path, stream):
    """What the model wrote."""
    assert got.status == 200, got
    if not stream:
        answer = got.json()
        if path == RESPONSES:
            return answer["output"][0]["content"][0]["text"]
        if path == MESSAGES:
            return answer["content"][0]["text"]
        choice = answer["choices"][0]
        return choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    events = [json.loads(e) for e in got.events() if e != "[DONE]"]
    if path == RESPONSES:
        return "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    if path == MESSAGES:
        return "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
    if path == COMPLETIONS:
        return "".join(c["text"] for e in events for c in e["choices"])
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])


def plain_text(engine, path, text):
    """What one engine alone writes."""
    return text_of(engine.worker.ask("POST", path, body=body_for(path, text)), path, False)


def nixl(engine):
    return engine.worker.stats()["nixl"]


def decodes(router, result):
    return router.metric("kvway_pd_decodes_total", result=result)


def prefills(router, result):
    return router.metric("kvway_pd_prefills_total", result=result)


def check(router, alone, text, stream=False, **settings):
    """Asks for a chat; the answer is that of one engine alone."""
    got = router.ask("POST", CHAT, body=body_for(CHAT, text, stream=stream), **settings)
    assert text_of(got, CHAT, stream) == plain_text(alone, CHAT, text)
    return got
